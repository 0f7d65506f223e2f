package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/opa-gate/opa-gate/evaluator"
)

// The engines, as flags name them.
const (
	engineOPA    = "opa"
	engineNative = "native"
	engineBoth   = "both"
)

// An engineFlags is the flags that say who decides.
type engineFlags struct {
	engine   choice
	policies string
	system   string
	given    func(flag string) bool
}

func newEngineFlags(many bool) engineFlags {
	return engineFlags{engine: choice{value: engineOPA, names: []string{engineOPA, engineNative, engineBoth}, many: many}}
}

func (f *engineFlags) add(cmd *cobra.Command) {
	usage := "who decides: the policies, the native reference, or both, which must agree"
	if f.engine.many {
		usage += "; or a list of engines, one after the other"
	}
	f.engine.add(cmd, "engine", usage)
	f.given = cmd.Flags().Changed
	cmd.Flags().StringVar(&f.policies, "policies", "", "use the policies in `DIR` in place of the built-in ones")
	_ = cmd.MarkFlagDirname("policies")
}

func (f *engineFlags) addSystem(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.system, "system", "", "the `NAME` of the system in sentences for a person")
}

// open makes the engine of that name.
func (f *engineFlags) open(ctx context.Context, name string) (evaluator.Engine, error) {
	if f.given("policies") && f.policies == "" { // an unset variable must not mean the built-in ones
		return nil, errors.New("--policies: expected a directory, got an empty name")
	}
	native := evaluator.Native{System: f.system}
	if name == engineNative {
		if f.policies != "" && f.engine.value == engineNative {
			return nil, errors.New("--policies has no effect on the native engine; leave it out, or take --engine opa or both")
		}
		return native, nil
	}
	if f.policies != "" {
		info, err := os.Stat(f.policies)
		if err != nil {
			return nil, fmt.Errorf("--policies: %w", err)
		}
		if !info.IsDir() {
			return nil, fmt.Errorf("--policies: %s is a file, expected a directory", f.policies)
		}
	}
	opa, err := evaluator.New(ctx, &evaluator.Options{Dir: f.policies, System: f.system})
	if err != nil {
		if f.policies != "" {
			err = fmt.Errorf("--policies %s: %w", f.policies, err)
		}
		return nil, err
	}
	if name == engineBoth {
		return evaluator.Both(native, opa), nil
	}
	return opa, nil
}
