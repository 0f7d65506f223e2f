package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/bundle"
	_ "github.com/open-policy-agent/opa/v1/features/wasm" // the engine behind rego.Target("wasm")
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/util"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/policies"
)

// opa is a stock OPA with the repository's policies as a bundle: nothing of
// the evaluator is in it.
type opa struct {
	query rego.PreparedEvalQuery
	input func(any) (rego.EvalOption, error)
}

func openOPA(input func(any) (rego.EvalOption, error)) func(context.Context) (decider, error) {
	return func(ctx context.Context) (decider, error) { return prepareOPA(ctx, input) }
}

// openWasm has the query compiled to wasm, which wazero runs. The other way,
// a bundle that v1/compile has built for the same entrypoint, runs the same
// code behind a topdown query and costs a few per cent more.
func openWasm(ctx context.Context) (decider, error) {
	return prepareOPA(ctx, goInput, rego.Target("wasm"))
}

func prepareOPA(ctx context.Context, input func(any) (rego.EvalOption, error), opts ...func(*rego.Rego)) (*opa, error) {
	loader := bundle.NewFSLoaderWithRoot(policies.FS(), ".").
		WithFilter(func(path string, _ fs.FileInfo, _ int) bool { return strings.HasSuffix(path, "_test.rego") })
	b, err := bundle.NewCustomReader(loader).Read()
	if err != nil {
		return nil, err
	}
	opts = append(opts, rego.ParsedBundle("gate", &b), rego.Query("data.gate.call.decision"))
	query, err := rego.New(opts...).PrepareForEval(ctx)
	if err != nil {
		return nil, err
	}
	return &opa{query, input}, nil
}

// goInput gives OPA a Go map, which it converts in each evaluation.
func goInput(v any) (rego.EvalOption, error) { return rego.EvalInput(v), nil }

// parsedInput gives OPA its own form of the document, built beforehand.
func parsedInput(v any) (rego.EvalOption, error) {
	value, err := ast.InterfaceToValue(v)
	return rego.EvalParsedInput(value), err
}

func (o *opa) bind(ctx context.Context, doc *document) (*bound, error) {
	var v any
	if err := util.UnmarshalJSON(doc.text, &v); err != nil {
		return nil, err
	}
	input, err := o.input(v)
	if err != nil {
		return nil, err
	}
	var results rego.ResultSet
	return &bound{
		run: func() (err error) {
			results, err = o.query.Eval(ctx, input)
			return err
		},
		answer: func() (*answer, error) {
			decision, err := only(results)
			if err != nil {
				return nil, err
			}
			name, _ := decision["outcome"].(string)
			kind, ok := capability.ParseKind(name)
			if !ok {
				return nil, fmt.Errorf("%q is no outcome", name)
			}
			text, err := json.Marshal(decision)
			return &answer{kind: kind, document: text}, err
		},
	}, nil
}

// only returns the one object that a query gave.
func only(results rego.ResultSet) (map[string]any, error) {
	if len(results) != 1 || len(results[0].Expressions) != 1 {
		return nil, errors.New("the query gives no answer, or several")
	}
	decision, ok := results[0].Expressions[0].Value.(map[string]any)
	if !ok {
		return nil, errors.New("the query's answer is no object")
	}
	return decision, nil
}
