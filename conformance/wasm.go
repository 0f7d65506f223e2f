package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/open-policy-agent/opa/v1/ast"
	_ "github.com/open-policy-agent/opa/v1/features/wasm" // the engine behind rego.Target("wasm")
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"

	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/policies"
)

// Wasm is the WebAssembly build of a set of policies, evaluated in this process.
// It sees documents as they are written, as the build does wherever it runs:
// nothing of this program reads them first. It implements [fixtures.Judge].
type Wasm struct{ call, skill rego.PreparedEvalQuery }

// NewWasm builds the policies that the options name; nil options mean the
// embedded ones. Errors in the policies are those of [evaluator.New].
func NewWasm(ctx context.Context, opts *evaluator.Options) (*Wasm, error) {
	var o evaluator.Options
	if opts != nil {
		o = *opts
	}
	if o.Dir == "" && o.FS == nil && o.Bundle == "" {
		o.FS = policies.FS() // as a whole: of the embedded ones an evaluator has the calls alone
	}
	e, err := evaluator.New(ctx, &o)
	if err != nil {
		return nil, err
	}
	compiler, store := e.Policies()
	data, err := plain(ctx, store)
	if err != nil {
		return nil, err
	}
	var w Wasm
	evaluator.WhileCompiling(func() {
		prepare := func(query string) (rego.PreparedEvalQuery, error) {
			return rego.New(rego.Query(query), rego.Compiler(compiler), rego.Store(data), rego.Target("wasm")).
				PrepareForEval(context.WithoutCancel(ctx))
		}
		if w.call, err = prepare("data.gate.call.decision"); err == nil {
			w.skill, err = prepare("data.gate.skill.decision")
		}
	})
	if err != nil {
		return nil, fmt.Errorf("the policies' wasm build: %w", err)
	}
	return &w, nil
}

// plain returns a store with the same data as Go values: of OPA's own, the
// engine would write texts that are not JSON.
func plain(ctx context.Context, store storage.Store) (storage.Store, error) {
	data, err := storage.ReadOne(ctx, store, storage.RootPath)
	if err != nil {
		return nil, err
	}
	if value, ok := data.(ast.Value); ok {
		if data, err = ast.JSON(value); err != nil {
			return nil, err
		}
	}
	object, ok := data.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("the policies' data is %T, expected an object", data)
	}
	return inmem.NewFromObject(object), nil
}

// Engine returns w as a run asks it.
func (w *Wasm) Engine() Engine { return Engine{Name: wasmEngine, Judge: w, Outside: true} }

// Call implements [fixtures.Judge].
func (w *Wasm) Call(ctx context.Context, doc []byte) ([]byte, error) {
	return evaluate(ctx, &w.call, doc)
}

// Skill implements [fixtures.Judge].
func (w *Wasm) Skill(ctx context.Context, doc []byte) ([]byte, error) {
	return evaluate(ctx, &w.skill, doc)
}

// evaluate hands the document's bytes to the build as they are. In OPA's own form
// the engine would write it as Rego, of which the build's reader knows only the
// escapes of JSON.
func evaluate(ctx context.Context, query *rego.PreparedEvalQuery, doc []byte) ([]byte, error) {
	if !json.Valid(doc) {
		return nil, errors.New("the document is not JSON")
	}
	results, err := query.Eval(ctx, rego.EvalInput(doc))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the policies' wasm build: %w", err)
	case len(results) == 0:
		return nil, evaluator.ErrUndefined
	case len(results) > 1 || len(results[0].Expressions) != 1:
		return nil, evaluator.ErrAmbiguous
	}
	return json.Marshal(results[0].Expressions[0].Value)
}
