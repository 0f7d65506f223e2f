package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
)

const opaModule = "github.com/open-policy-agent/opa"

// versions is what a report of a fault should say.
type versions struct {
	Version string `json:"version"`
	Go      string `json:"go"`
	OPA     string `json:"opa"`
}

func newVersion() *cobra.Command {
	format := newFormat()
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the versions of opa-gate, of Go and of OPA",
		Example: "  opa-gate version\n  opa-gate version --format json",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("version takes no arguments, got %q", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := readVersions()
			text := fmt.Appendf(nil, "opa-gate %s\ngo       %s\nopa      %s\n", v.Version, v.Go, v.OPA)
			if format.value == "json" {
				var err error
				if text, err = encode(v); err != nil {
					return err
				}
			}
			_, err := cmd.OutOrStdout().Write(text)
			return err
		},
	}
	format.add(cmd, "format", "how the versions are written")
	return cmd
}

func readVersions() versions {
	v := versions{Version: "unknown", Go: "unknown", OPA: "unknown"}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Go = info.GoVersion
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, dep := range info.Deps {
		if dep.Path == opaModule {
			v.OPA = dep.Version
			if dep.Replace != nil {
				v.OPA = dep.Replace.Version
			}
		}
	}
	return v
}
