package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/opa-gate/opa-gate/bundle"
)

func newBundlePush() *cobra.Command {
	var remote remoteFlags
	format := newFormat()
	cmd := &cobra.Command{
		Use:   "push FILE|- REFERENCE",
		Short: "Put a bundle into an OCI registry",
		Long: `Push puts a bundle into an OCI registry, under a reference with a tag, such that
OPA can pull it. It prints the digest, which names just this bundle for ever:
REGISTRY/REPOSITORY@DIGEST.

` + remoteHelp,
		Example: `  opa-gate bundle push bundle.tar.gz registry.example/policies/gate:v1
  opa-gate bundle push bundle.tar.gz --username ci --password-env REGISTRY_PASSWORD registry.example/policies/gate:v1
  opa-gate bundle push bundle.tar.gz localhost:5000/gate:v1 --plain-http`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("bundle push takes a bundle and a reference, got %d arguments, as in: %s %s registry.example/policies/gate:v1",
					len(args), cmd.CommandPath(), bundleOutput)
			}
			return oneBundle(cmd, args[:1])
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			opts, err := remote.read()
			if err != nil {
				return err
			}
			return untilInterrupted(cmd, "the bundle was pushed", func(ctx context.Context) error {
				text, name, err := readBundle(cmd, args[:1])
				if err != nil {
					return err
				}
				pushed, err := bundle.Push(ctx, text, args[1], opts)
				if err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				return (&report{label: "pushed", colour: green, name: pushed.Reference, json: pushed, lines: [][2]string{
					{"digest", pushed.Digest}, {"layer", pushed.Layer}, {"size", grouped(pushed.Bytes) + " bytes"}},
				}).write(cmd, "", format.value)
			})
		},
	}
	remote.add(cmd)
	format.add(cmd, "format", "how what was pushed is told")
	return cmd
}
