package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"github.com/opa-gate/opa-gate/bundle"
)

func newBundle() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "bundle",
		Short:   "Make bundles of policies for OPA: build, sign, verify, inspect, push, pull, serve",
		Example: "  opa-gate bundle build my-policies",
		Args:    knownCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newBundleBuild(), newBundleSign(), newBundleVerify(), newBundleInspect(), newBundlePush(), newBundlePull(), newBundleServe())
	return cmd
}

// bundleOutput is where a bundle goes if nothing else is said.
const bundleOutput = "bundle.tar.gz"

// untilInterrupted does work that has no result but its error, and that Ctrl-C
// ends; see interruptible.
func untilInterrupted(cmd *cobra.Command, before string, work func(context.Context) error) error {
	_, err := interruptible(cmd, before, func(ctx context.Context) (struct{}, error) { return struct{}{}, work(ctx) })
	return err
}

// readBundle reads the bundle that args name, and says how messages call it.
func readBundle(cmd *cobra.Command, args []string) (text []byte, name string, err error) {
	in, name, err := open(cmd, args)
	if err != nil {
		return nil, name, err
	}
	defer func() { _ = in.Close() }()
	if text, err = io.ReadAll(io.LimitReader(in, bundle.MaxPacked+1)); err != nil {
		return nil, name, fmt.Errorf("%s: %w", name, err)
	}
	return text, name, nil
}

// oneBundle accepts the name of one bundle, or - for the standard input.
func oneBundle(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return fmt.Errorf("bundle %s needs a bundle, as in: %s %s", cmd.Name(), cmd.CommandPath(), bundleOutput)
	case len(args) > 1:
		return fmt.Errorf("bundle %s takes one bundle, got %d", cmd.Name(), len(args))
	case args[0] == "":
		return errors.New("expected a bundle, got an empty name")
	}
	return nil
}

// addOutput adds the flag that says where a bundle goes.
func addOutput(cmd *cobra.Command, output *string, fallback, about string) {
	cmd.Flags().StringVarP(output, "output", "o", fallback, about)
	_ = cmd.MarkFlagFilename("output", "tar.gz", "tgz")
}

// checkOutput refuses an output that cannot be meant, before any work is done.
func checkOutput(cmd *cobra.Command, output string) error {
	switch f, ok := cmd.OutOrStdout().(*os.File); {
	case output == "":
		return errors.New("--output: expected a file, got an empty name")
	case output == "-" && ok && isatty.IsTerminal(f.Fd()):
		return errors.New("--output -: a bundle is not for a terminal; send it to a file or a pipe")
	}
	return nil
}

// writeBundle writes a bundle to where --output says.
func writeBundle(cmd *cobra.Command, output string, text []byte) error {
	if output == "-" {
		_, err := cmd.OutOrStdout().Write(text)
		return err
	}
	if err := writeWhole(output, text); err != nil {
		return fmt.Errorf("%s was not written: %w", output, err)
	}
	return nil
}

// writeWhole writes a file whole or not at all: whoever reads it meanwhile sees
// what was there before. What is no regular file, as a device, is written to.
func writeWhole(name string, text []byte) (err error) {
	mode := fs.FileMode(0o644)
	switch info, err := os.Stat(name); {
	case err == nil && info.IsDir():
		return errors.New("it is a directory, expected a file")
	case err == nil && !info.Mode().IsRegular():
		return os.WriteFile(name, text, mode)
	case err == nil:
		mode = info.Mode().Perm()
		if name, err = filepath.EvalSymlinks(name); err != nil { // the file changes, not the link to it
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	if _, err = f.Write(text); err != nil {
		return err
	}
	if err = f.Chmod(mode); err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

// A report is what a command says of a bundle when it is done.
type report struct {
	label  string
	colour colour
	name   string
	reason string
	lines  [][2]string
	json   any
}

// write writes the report: to where the bundle did not go.
func (r *report) write(cmd *cobra.Command, output, format string) error {
	w := cmd.OutOrStdout()
	if output == "-" {
		w = cmd.ErrOrStderr()
	}
	out := bufio.NewWriter(w)
	if format == "json" {
		text, err := encode(r.json)
		if err != nil {
			return err
		}
		_, _ = out.Write(text)
		return out.Flush()
	}
	p := &printer{Writer: out, colour: wantsColour(w)}
	p.head(r.colour, r.label, r.name, r.reason)
	for _, line := range r.lines {
		p.detail(line[0], line[1])
	}
	return out.Flush()
}

// orNone is a text, or the word for none.
func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}
