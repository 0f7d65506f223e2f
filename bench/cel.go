package main

import (
	"context"
	_ "embed"
	"fmt"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/ext"

	"github.com/opa-gate/opa-gate/capability"
)

// celPolicy answers less than the gate does: no sentence for a person, no
// lists of names, and no look at whether the document keeps its schema.
//
//go:embed policy.cel
var celPolicy string

type celRow struct{ program cel.Program }

func openCEL(context.Context) (decider, error) {
	env, err := cel.NewEnv(
		cel.Variable("origin", cel.StringType),
		cel.Variable("read_only", cel.BoolType),
		cel.Variable("destructive", cel.BoolType),
		cel.Variable("open_world", cel.BoolType),
		cel.Variable("base", cel.IntType),
		cel.Variable("taint", cel.StringType),
		cel.Variable("vetoed", cel.BoolType),
		cel.Variable("requires_human", cel.BoolType),
		cel.Variable("sandbox_escalation", cel.BoolType),
		cel.Variable("transform", cel.StringType),
		ext.Bindings(), ext.Math())
	if err != nil {
		return nil, err
	}
	checked, issues := env.Compile(celPolicy)
	if err := issues.Err(); err != nil {
		return nil, err
	}
	program, err := env.Program(checked, cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		return nil, err
	}
	return celRow{program}, nil
}

// bind makes the variables CEL values beforehand: Go values would be converted
// in each evaluation, at three more allocations.
func (r celRow) bind(_ context.Context, doc *document) (*bound, error) {
	c := doc.call
	input, err := cel.NewActivation(map[string]any{
		"origin":             types.String(c.Profile.Origin.String()),
		"read_only":          types.Bool(c.Profile.IsReadOnly()),
		"destructive":        types.Bool(c.Profile.IsDestructive()),
		"open_world":         types.Bool(c.Profile.IsOpenWorld()),
		"base":               types.Int(c.Grant.Base.Mask()),
		"taint":              types.String(c.Taint.String()),
		"vetoed":             types.Bool(c.Policy.Vetoed),
		"requires_human":     types.Bool(c.Policy.RequiresHuman),
		"sandbox_escalation": types.Bool(c.Policy.SandboxEscalation),
		"transform":          types.String(c.Policy.Transform.Kind.String()),
	})
	if err != nil {
		return nil, err
	}
	var out ref.Val
	return &bound{
		run: func() (err error) {
			out, _, err = r.program.Eval(input)
			return err
		},
		answer: func() (*answer, error) {
			pair, ok := out.(traits.Lister)
			if !ok || pair.Size() != types.Int(2) {
				return nil, fmt.Errorf("%v is no pair", out)
			}
			name, _ := pair.Get(types.Int(0)).Value().(string)
			mask, isMask := pair.Get(types.Int(1)).Value().(int64)
			kind, isKind := capability.ParseKind(name)
			if !isKind || !isMask {
				return nil, fmt.Errorf("%v is no answer", out)
			}
			missing := capability.Set(mask)
			return &answer{kind: kind, missing: &missing}, nil
		},
	}, nil
}
