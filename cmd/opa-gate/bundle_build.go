package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/opa-gate/opa-gate/bundle"
)

func newBundleBuild() *cobra.Command {
	format := newFormat()
	target := choice{value: "rego", names: []string{"rego", "wasm", "plan"}}
	var (
		opts    bundle.BuildOptions
		signing signingFlags
		output  string
	)
	cmd := &cobra.Command{
		Use:   "build [DIR]",
		Short: "Build a bundle of policies",
		Long: `Build makes a bundle of the policies in DIR, or without one of the built-in ones.
An OPA loads it, and so does this program. The policies must compile strictly and
with the schemas of the documents, as policy check demands; if they do not, there
is no bundle, and the error says file and line.

Tests are left out. The facts of the taxonomy are compiled in. The bundle owns the
first part of each of its packages and of its data, which is gate for the
built-in policies, so that other bundles can be beside it. Its entrypoints are
gate/call/decision, gate/skill/decision, and what else METADATA marks as one.

Equal policies make equal bytes, wherever and whenever they are built, and equal
revisions. Signed by ES256 the bytes differ each time, and the revision does not.

With -O 1 or 2 OPA works out beforehand what does not depend on the document. The
settings stay as they are, so that they can be given anew where the bundle is
loaded. The target wasm compiles the entrypoints to WebAssembly, for OPA and its
SDKs; plan puts OPA's plan beside the Rego.`,
		Example: `  opa-gate bundle build
  opa-gate bundle build my-policies -O 1 --revision "$(git rev-parse HEAD)"
  opa-gate bundle build my-policies --signing-key private.pem --scope prod -o gate.tar.gz
  opa-gate bundle build -o - | tar tz`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) > 1:
				return fmt.Errorf("bundle build takes one directory, got %d", len(args))
			case len(args) == 1 && args[0] == "":
				return errors.New("expected a directory, got an empty name")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if cmd.Flags().Changed("revision") && opts.Revision == "" {
				return errors.New("--revision: expected a text, got an empty one")
			}
			if err := checkOutput(cmd, output); err != nil {
				return err
			}
			if len(args) > 0 {
				opts.Dir = args[0]
			}
			if opts.Target, err = bundle.ParseTarget(target.value); err != nil {
				return err
			}
			if opts.Signing, err = signing.read(); err != nil {
				return err
			}
			return untilInterrupted(cmd, "the bundle was written", func(ctx context.Context) error {
				b, err := bundle.Build(ctx, &opts)
				if err != nil && opts.Dir != "" && !errors.Is(err, bundle.ErrOptions) {
					return fmt.Errorf("%s: %w", opts.Dir, err)
				}
				if err != nil {
					return err
				}
				if err := writeBundle(cmd, output, b.Bytes); err != nil {
					return err
				}
				return built(b, output, opts.Signing).write(cmd, output, format.value)
			})
		},
	}
	addOutput(cmd, &output, bundleOutput, "write the bundle to this `FILE`, or with - to the standard output")
	target.add(cmd, "target", "what the policies are compiled to")
	cmd.Flags().IntVarP(&opts.Optimize, "optimize", "O", 0, "how far OPA works things out beforehand: `LEVEL` 0, 1 or 2")
	cmd.Flags().StringVar(&opts.Revision, "revision", "", "the `REVISION`, in place of one that the content gives")
	signing.add(cmd)
	format.add(cmd, "format", "how what was built is told")
	return cmd
}

func built(b *bundle.Built, output string, key *bundle.SigningKey) *report {
	said := struct {
		Bundle      string        `json:"bundle"`
		Revision    string        `json:"revision"`
		Target      bundle.Target `json:"target"`
		Roots       []string      `json:"roots"`
		Entrypoints []string      `json:"entrypoints"`
		Files       []string      `json:"files"`
		Bytes       int           `json:"bytes"`
		Digest      string        `json:"digest"`
		Signed      bool          `json:"signed"`
	}{output, b.Revision, b.Target, b.Roots, b.Entrypoints, b.Files, len(b.Bytes), b.Digest, key != nil}
	return &report{label: "built", colour: green, name: output, json: said, lines: [][2]string{
		{"revision", b.Revision}, {"target", b.Target.String()}, {"roots", listed(b.Roots)}, {"answers", listed(b.Entrypoints)},
		{"files", grouped(len(b.Files)) + ", " + grouped(len(b.Bytes)) + " bytes"}, {"digest", b.Digest}, {"signed", signedBy(key)}}}
}

func signedBy(key *bundle.SigningKey) string {
	if key == nil {
		return "no"
	}
	id := key.ID
	if id == "" {
		id = bundle.DefaultKeyID
	}
	return fmt.Sprintf("by %s, key id %s, scope %s", key.Algorithm, id, orNone(key.Scope))
}

func listed(names []string) string { return orNone(strings.Join(names, ", ")) }
