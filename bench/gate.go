package main

import (
	"context"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/evaluator"
)

// The names of the rows that something refers to; the ratios are to the first two.
const (
	nativeName  = "native Go"
	autoName    = "opa-gate, warm"
	coldName    = "opa-gate, first time"
	opaEachName = "opa-gate, OPA each time"
	goMapName   = "OPA, prepared, Go map"
	celName     = "cel-go"
	cedarName   = "cedar-go"
)

func openNative(context.Context) (decider, error) { return gate{evaluator.Native{}}, nil }

func openAuto(ctx context.Context) (decider, error) {
	e, err := evaluator.New(ctx, nil)
	if err != nil {
		return nil, err
	}
	return gate{e}, nil
}

// openInterpreter is the same evaluator without its table: OPA behind the
// gate's own conversions of the call and of the answer.
func openInterpreter(ctx context.Context) (decider, error) {
	e, err := evaluator.New(ctx, nil)
	if err != nil {
		return nil, err
	}
	return gate{e.Interpreter()}, nil
}

// gate is an engine of this repository. Its run gives the whole outcome, the
// sentence for a person included.
type gate struct{ evaluator.Engine }

func (g gate) bind(ctx context.Context, doc *document) (*bound, error) {
	var o capability.Outcome
	return &bound{
		run: func() (err error) {
			o, err = g.Decide(ctx, doc.call)
			return err
		},
		answer: func() (*answer, error) {
			text, err := o.MarshalJSON()
			return &answer{kind: o.Kind, missing: &o.Missing, document: text}, err
		},
	}, nil
}
