package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
)

func newBundleVerify() *cobra.Command {
	var verification verificationFlags
	format := newFormat()
	cmd := &cobra.Command{
		Use:   "verify FILE|-",
		Short: "Tell whether a bundle is signed with a key, is whole, and can be used",
		Long: `Verify tells whether the bundle was signed with the key: by the algorithm that is
asked for and no other, for the scope, and for just the files that are in it. An
OPA with the same key accepts it too. Then it loads the bundle, as a gate would:
its policies must compile, and their facts must be this program's.

What is signed is the files: names, texts, and of JSON and YAML documents the
values.

Exit codes: 0 verified, 1 refused, 2 wrong usage, a key that cannot be used, or
something that is no bundle at all.`,
		Example: `  opa-gate bundle verify bundle.tar.gz --verification-key public.pem --scope prod
  opa-gate bundle verify bundle.tar.gz --algorithm HS256 --verification-key-env BUNDLE_SECRET
  opa-gate bundle verify --format json --signature-only - --verification-key public.pem < bundle.tar.gz`,
		Args: oneBundle,
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := verification.read()
			if err != nil {
				return err
			}
			if key == nil {
				return errors.New("bundle verify needs a key: --verification-key or --verification-key-env")
			}
			return untilInterrupted(cmd, "the bundle was looked at", func(ctx context.Context) error {
				text, name, err := readBundle(cmd, args)
				if err != nil {
					return err
				}
				d, err := verification.verdict(ctx, name, text, key)
				if err != nil {
					return err
				}
				if err := d.report().write(cmd, "", format.value); err != nil {
					return err
				}
				if !d.OK {
					return exit(exitCheck)
				}
				return nil
			})
		},
	}
	verification.add(cmd)
	format.add(cmd, "format", "how the verdict is written")
	return cmd
}
