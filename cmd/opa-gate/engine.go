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
	engineAuto   = "auto"
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

func newEngineFlags() engineFlags {
	return engineFlags{engine: choice{value: engineAuto, names: []string{engineAuto, engineOPA, engineNative, engineBoth}}}
}

// add makes them flags of cmd. About says what each engine does there.
func (f *engineFlags) add(cmd *cobra.Command, about string) {
	f.engine.add(cmd, "engine", about)
	f.given = cmd.Flags().Changed
	addPolicies(cmd, &f.policies)
}

func addPolicies(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "policies", "", "use the policies in `DIR` in place of the built-in ones")
	_ = cmd.MarkFlagDirname("policies")
}

func (f *engineFlags) addSystem(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.system, "system", "", "the `NAME` of the system in sentences for a person")
}

// open makes the engine of that name.
func (f *engineFlags) open(ctx context.Context, name string) (evaluator.Engine, error) {
	engine, _, err := f.openRevised(ctx, name)
	return engine, err
}

// nativeRevision stands for the revision of the policies where there are none.
const nativeRevision = "native"

// openRevised is open for an approval, which counts under one revision of the
// policies. To ask for the revision may take a while.
func (f *engineFlags) openRevised(ctx context.Context, name string) (engine evaluator.Engine, revision func() (string, error), err error) {
	native := evaluator.Native{System: f.system}
	if name == engineNative {
		if f.given("policies") && f.policies == "" {
			return nil, nil, errNoDirectory
		}
		if f.policies != "" && f.engine.value == engineNative {
			return nil, nil, errors.New("--policies has no effect on the native engine; leave it out, or take --engine auto, opa or both")
		}
		return native, func() (string, error) { return nativeRevision, nil }, nil
	}
	e, err := loadPolicies(ctx, f.policies, f.given("policies"), f.system)
	if err != nil {
		return nil, nil, err
	}
	switch name {
	case engineOPA:
		return e.Interpreter(), e.Digest, nil
	case engineBoth: // the rules as they are written are what must agree
		return evaluator.Both(native, e.Interpreter()), e.Digest, nil
	default:
		return e, e.Digest, nil
	}
}

// errNoDirectory is the error of an unset variable behind --policies, which must
// not mean the built-in ones.
var errNoDirectory = errors.New("--policies: expected a directory, got an empty name")

// loadPolicies compiles the policies that --policies names, or, if it was not
// given, the built-in ones.
func loadPolicies(ctx context.Context, dir string, given bool, system string) (*evaluator.Evaluator, error) {
	if given && dir == "" {
		return nil, errNoDirectory
	}
	if given {
		info, err := os.Stat(dir)
		if err != nil {
			return nil, fmt.Errorf("--policies: %w", err)
		}
		if !info.IsDir() {
			return nil, fmt.Errorf("--policies: %s is a file, expected a directory", dir)
		}
	}
	e, err := evaluator.New(ctx, &evaluator.Options{Dir: dir, System: system})
	if err != nil && given {
		err = fmt.Errorf("--policies %s: %w", dir, err)
	}
	return e, err
}
