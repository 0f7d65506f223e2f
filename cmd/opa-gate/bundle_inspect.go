package main

import (
	"bufio"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/opa-gate/opa-gate/bundle"
	"github.com/opa-gate/opa-gate/wire"
)

func newBundleInspect() *cobra.Command {
	format := newFormat()
	cmd := &cobra.Command{
		Use:   "inspect FILE|-",
		Short: "Tell what is in a bundle",
		Long: `Inspect tells what is in a bundle: its revision and roots, what its policies are
compiled to and which rules are meant to be asked for, its packages, data and
files, whether the facts in it are this program's, and what its signature says.

The signature is not verified: anybody can write anything there. See
opa-gate bundle verify.`,
		Example: `  opa-gate bundle inspect bundle.tar.gz
  opa-gate bundle inspect --format json bundle.tar.gz`,
		Args: oneBundle,
		RunE: func(cmd *cobra.Command, args []string) error {
			text, name, err := readBundle(cmd, args)
			if err != nil {
				return err
			}
			in, err := bundle.Inspect(text)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			out := bufio.NewWriter(cmd.OutOrStdout())
			if format.value == "json" {
				text, err := encode(in)
				if err != nil {
					return err
				}
				_, _ = out.Write(text)
				return out.Flush()
			}
			printInspection(&printer{Writer: out, colour: wantsColour(cmd.OutOrStdout())}, name, in)
			return out.Flush()
		},
	}
	format.add(cmd, "format", "how what is in it is written")
	return cmd
}

func printInspection(p *printer, name string, in *bundle.Inspection) {
	p.head(cyan, "bundle", name, "")
	target := in.Target.String()
	if in.Optimize != nil && *in.Optimize > 0 {
		target += fmt.Sprintf(", optimized to level %d", *in.Optimize)
	}
	facts := map[bundle.Facts]string{
		bundle.FactsOwn:     "this program's",
		bundle.FactsOther:   "of another taxonomy: this program refuses the bundle",
		bundle.FactsMissing: "none: this program puts its own in, a stock OPA denies everything",
	}[in.Facts]
	p.detail("revision", orNone(in.Revision))
	p.detail("roots", listed(in.Roots))
	p.detail("target", target)
	p.detail("facts", facts)
	p.detail("size", fmt.Sprintf("%s bytes, unpacked %s in %s", grouped(in.Packed), grouped(in.Unpacked), counted(len(in.Files), "file", "files")))
	p.detail("digest", in.Digest)
	if s := in.Signature; s == nil {
		p.detail("signature", "none")
	} else if s.Problem != "" {
		p.detail("signature", s.Problem)
	} else {
		p.detail("signature", fmt.Sprintf("not verified; it says %s, key id %s, scope %s, %s",
			orNone(s.Algorithm), orNone(s.KeyID), orNone(s.Scope), counted(len(s.Files), "file", "files")))
	}
	const width = 30
	if len(in.Entrypoints) > 0 {
		p.title("entrypoints")
		for _, e := range in.Entrypoints {
			p.row(e.Path, e.Title, width)
		}
	}
	if len(in.Packages) > 0 {
		p.title("packages")
		for _, pkg := range in.Packages {
			p.row(pkg.Path, counted(pkg.Rules, "rule", "rules"), width)
		}
	}
	p.title("data")
	p.row(listed(in.Data), "", width)
	p.title("files")
	for _, f := range in.Files {
		p.row(f.Name, grouped(f.Bytes)+" bytes", width)
	}
}

// row writes a name and what there is to say of it.
func (p *printer) row(name, text string, width int) {
	line := "    " + wire.Printable(name)
	if text != "" {
		pad(p, line, width+4)
		line = wire.Printable(text)
	}
	_, _ = p.WriteString(strings.TrimRight(line, " ") + "\n")
}
