package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/opa-gate/opa-gate/bundle"
)

func newBundleSign() *cobra.Command {
	var (
		signing signingFlags
		output  string
	)
	format := newFormat()
	cmd := &cobra.Command{
		Use:   "sign FILE|-",
		Short: "Sign a bundle",
		Long: `Sign puts a signature into a bundle, in place of the one that it may have. Every
other file in it stays as it is. Without --output it is FILE that changes.

The key is in a file or in an environment variable: RS256 takes an RSA key of at
least 2048 bits and ES256 one on the curve P-256, both in PEM and not encrypted;
HS256 takes a secret of at least 32 bytes, of which a line break at the end is no
part. RS256 and HS256 give the same bytes each time, ES256 does not.`,
		Example: `  opa-gate bundle sign bundle.tar.gz --signing-key private.pem --scope prod
  opa-gate bundle sign bundle.tar.gz --algorithm HS256 --signing-key-env BUNDLE_SECRET -o signed.tar.gz`,
		Args: oneBundle,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("output") {
				output = args[0]
			}
			if err := checkOutput(cmd, output); err != nil {
				return err
			}
			key, err := signing.read()
			if err != nil {
				return err
			}
			if key == nil {
				return errors.New("bundle sign needs a key: --signing-key or --signing-key-env")
			}
			return untilInterrupted(cmd, "the bundle was written", func(ctx context.Context) error {
				text, name, err := readBundle(cmd, args)
				if err != nil {
					return err
				}
				if text, err = bundle.Sign(text, key); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if err := writeBundle(cmd, output, text); err != nil {
					return err
				}
				id := key.ID
				if id == "" {
					id = bundle.DefaultKeyID
				}
				return (&report{label: "signed", colour: green, name: output, lines: [][2]string{{"signed", signedBy(key)}},
					json: map[string]string{"bundle": output, "algorithm": string(key.Algorithm), "key_id": id, "scope": key.Scope},
				}).write(cmd, output, format.value)
			})
		},
	}
	addOutput(cmd, &output, "", "write the signed bundle to this `FILE`, or with - to the standard output")
	signing.add(cmd)
	format.add(cmd, "format", "how what was signed is told")
	return cmd
}
