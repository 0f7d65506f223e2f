package evaluator

import (
	"context"
	"errors"
	"fmt"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
)

// ErrNoRule: the policies have no such rule.
var ErrNoRule = errors.New("the policies have no such rule")

// A Query is a rule of the policies that is asked about inputs of its own, such
// as data.gate.invariants.breach. It is safe for use by several goroutines.
type Query struct {
	prepared rego.PreparedEvalQuery
	rules    []*ast.Rule
}

// Query prepares the rule with that name, which begins with "data.". Its errors
// match ErrNoRule and ErrPolicy.
func (e *Evaluator) Query(ctx context.Context, rule string) (*Query, error) {
	ref, err := ast.ParseRef(rule)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoRule, err)
	}
	b := &built{e.compiled.compiler, e.compiled.store}
	rules := b.compiler.GetRulesExact(ref)
	if len(rules) == 0 {
		return nil, fmt.Errorf("%w: %s", ErrNoRule, rule)
	}
	prepared, err := b.prepared(ctx, rule)()
	return &Query{prepared, rules}, err
}

// Places returns the file and line of each rule of that name, in no order.
func (q *Query) Places() []Rule {
	var places []Rule
	for _, r := range q.rules {
		places = append(places, Rule{Name: r.Ref().GroundPrefix().String(), File: r.Loc().File, Line: r.Loc().Row})
	}
	return places
}

// Eval returns the rule's value for input, which is anything that encoding/json
// can write. Its errors match ErrEvaluation and ErrUndefined.
func (q *Query) Eval(ctx context.Context, input any) (any, error) {
	value, err := ast.InterfaceToValue(input)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrEvaluation, err)
	}
	return evaluate(ctx, func() (rego.PreparedEvalQuery, error) { return q.prepared, nil }, value)
}
