package evaluator

import (
	"context"
	"fmt"
	"io/fs"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage/inmem"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/skill"
)

// An Engine decides calls and skills. An error means that it could not; the
// answer beside it is the zero one, which is not a valid answer.
type Engine interface {
	Decide(ctx context.Context, c *capability.Call) (capability.Outcome, error)
	Skill(ctx context.Context, r *skill.Request) (skill.Answer, error)
}

// Options say which policies an [Evaluator] uses. Of Dir, FS and Bundle at most
// one is given; with none, it is the embedded policies.
type Options struct {
	Dir    string // a directory of policies
	FS     fs.FS  // a tree of policies
	Bundle string // an OPA bundle file; its signature is not looked at
	System string // what sentences for a person call this system; "" leaves it to the policies
}

// The entrypoints, as OPA's Data API has them.
const (
	callEntrypoint  = "gate/call/decision"
	skillEntrypoint = "gate/skill/decision"
)

// An Evaluator is the embedded OPA with one set of policies, prepared once. It
// is immutable and safe for use by several goroutines. It implements [Engine].
type Evaluator struct {
	call, skill rego.PreparedEvalQuery
}

// New loads, compiles and prepares policies; nil options mean the embedded
// ones. The taxonomy's facts are added as data.gate.facts. Its errors match
// ErrPolicy and say file and line where they can.
func New(ctx context.Context, opts *Options) (*Evaluator, error) {
	if opts == nil {
		opts = &Options{}
	}
	src, err := load(opts)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPolicy, err)
	}
	return prepare(ctx, src, Facts(), opts.System)
}

func prepare(ctx context.Context, src *source, facts map[string]any, system string) (*Evaluator, error) {
	if err := src.prepareData(facts, system); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPolicy, err)
	}
	compiler, err := src.compile()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPolicy, err)
	}
	store := inmem.NewFromObjectWithOpts(src.data,
		inmem.OptRoundTripOnWrite(true), inmem.OptReturnASTValuesOnRead(true))
	var e Evaluator
	for query, prepared := range map[string]*rego.PreparedEvalQuery{
		"data.gate.call.decision":  &e.call,
		"data.gate.skill.decision": &e.skill,
	} {
		if len(compiler.GetRulesExact(ast.MustParseRef(query))) == 0 {
			return nil, fmt.Errorf("%w: there is no rule %s", ErrPolicy, query)
		}
		*prepared, err = rego.New(rego.Query(query), rego.Compiler(compiler), rego.Store(store),
			rego.StrictBuiltinErrors(true)).PrepareForEval(ctx)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrPolicy, err)
		}
	}
	return &e, nil
}

// Decide implements [Engine]: the decision of gate/call/decision. It refuses a
// call that is not valid; see [capability.Call.Validate].
func (e *Evaluator) Decide(ctx context.Context, c *capability.Call) (capability.Outcome, error) {
	if err := c.Validate(); err != nil {
		return capability.Outcome{}, err
	}
	input, err := callInput(c)
	if err != nil {
		return capability.Outcome{}, err
	}
	answer, err := evaluate(ctx, &e.call, input)
	if err != nil {
		return capability.Outcome{}, fmt.Errorf("%s: %w", callEntrypoint, err)
	}
	return readOutcome(answer)
}

// Skill implements [Engine]: the decision of gate/skill/decision.
func (e *Evaluator) Skill(ctx context.Context, r *skill.Request) (skill.Answer, error) {
	if err := r.Validate(); err != nil {
		return skill.Answer{}, err
	}
	answer, err := evaluate(ctx, &e.skill, skillInput(r))
	if err != nil {
		return skill.Answer{}, fmt.Errorf("%s: %w", skillEntrypoint, err)
	}
	return readAnswer(answer, r)
}

// evaluate returns the one value of a prepared query. No value, several values
// and failures are errors: none of them is an answer.
func evaluate(ctx context.Context, q *rego.PreparedEvalQuery, input ast.Value) (any, error) {
	results, err := q.Eval(ctx, rego.EvalParsedInput(input))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrEvaluation, err)
	case len(results) == 0:
		return nil, ErrUndefined
	case len(results) > 1 || len(results[0].Expressions) != 1:
		return nil, ErrAmbiguous
	}
	return results[0].Expressions[0].Value, nil
}
