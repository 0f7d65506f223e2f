package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/opa-gate/opa-gate/bundle"
)

func newBundlePull() *cobra.Command {
	var (
		remote       remoteFlags
		verification verificationFlags
		output       string
	)
	format := newFormat()
	cmd := &cobra.Command{
		Use:   "pull REFERENCE",
		Short: "Fetch a bundle from an OCI registry",
		Long: `Pull fetches a bundle from an OCI registry, under a reference with a tag or a
digest, and writes it to a file. The bytes are checked against the digests. With a
key the signature is verified, and whether the bundle can be used, as bundle verify
does; what is refused is not written.

` + remoteHelp + `

Exit codes: 0 done, 1 the bundle is refused, 2 wrong usage, or a registry that
does not give a bundle.`,
		Example: `  opa-gate bundle pull registry.example/policies/gate:v1 --verification-key public.pem --scope prod
  opa-gate bundle pull localhost:5000/gate:v1 --plain-http -o gate.tar.gz`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("bundle pull takes one reference, got %d arguments, as in: %s registry.example/policies/gate:v1", len(args), cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(cmd, output); err != nil {
				return err
			}
			opts, err := remote.read()
			if err != nil {
				return err
			}
			key, err := verification.read()
			if err != nil {
				return err
			}
			if key == nil && verification.signatureOnly {
				return errors.New("--signature-only has no effect without --verification-key or --verification-key-env")
			}
			return untilInterrupted(cmd, "the bundle was written", func(ctx context.Context) error {
				return pull(ctx, cmd, args[0], output, format.value, opts, &verification, key)
			})
		},
	}
	addOutput(cmd, &output, bundleOutput, "write the bundle to this `FILE`, or with - to the standard output")
	verification.add(cmd)
	remote.add(cmd)
	format.add(cmd, "format", "how what was pulled is told")
	return cmd
}

func pull(ctx context.Context, cmd *cobra.Command, reference, output, format string, opts *bundle.RemoteOptions,
	verification *verificationFlags, key *bundle.VerificationKey) error {
	text, pulled, err := bundle.Pull(ctx, reference, opts)
	if err != nil {
		return err
	}
	said := struct {
		Bundle string `json:"bundle"`
		*bundle.Remote
		Verdict *verdict `json:"verification"` // null: nobody has looked
	}{Bundle: output, Remote: pulled}
	r := &report{label: "pulled", colour: green, name: output, lines: [][2]string{
		{"from", pulled.Reference}, {"digest", pulled.Digest}, {"layer", pulled.Layer}, {"size", grouped(pulled.Bytes) + " bytes"}}}
	if key == nil {
		r.lines = append(r.lines, [2]string{"signature", "not verified: give --verification-key"})
	} else {
		d, err := verification.verdict(ctx, reference, text, key)
		if err != nil {
			return err
		}
		said.Verdict = d
		if !d.OK {
			said.Bundle = ""
			r = d.report()
			r.json = said
			if err := r.write(cmd, output, format); err != nil {
				return err
			}
			return exit(exitCheck)
		}
		r.lines = append(r.lines, [2]string{"signature", fmt.Sprintf("verified: %s, key id %s, scope %s", d.Verified.Algorithm, d.Verified.KeyID, orNone(d.Verified.Scope))},
			[2]string{"revision", orNone(d.Verified.Revision)})
	}
	r.json = said
	if err := writeBundle(cmd, output, text); err != nil {
		return err
	}
	return r.write(cmd, output, format)
}
