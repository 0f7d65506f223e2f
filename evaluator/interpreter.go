package evaluator

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/skill"
)

// An Interpreter is OPA with one set of policies, prepared once: it evaluates
// them anew for every document. It implements [Engine], is immutable and safe
// for use by several goroutines. [Evaluator.Interpreter] returns one.
type Interpreter struct {
	call, skill func() (rego.PreparedEvalQuery, error) // prepared when first asked for
}

// The rules that decide, and the entrypoints as OPA's Data API has them.
const (
	callQuery       = "data.gate.call.decision"
	skillQuery      = "data.gate.skill.decision"
	callEntrypoint  = "gate/call/decision"
	skillEntrypoint = "gate/skill/decision"
)

// Decide implements [Engine]: the decision of gate/call/decision. It refuses a
// call that is not valid; see [capability.Call.Validate].
func (i *Interpreter) Decide(ctx context.Context, c *capability.Call) (capability.Outcome, error) {
	if err := c.Validate(); err != nil {
		return capability.Outcome{}, err
	}
	return i.decide(ctx, c)
}

// decide is Decide for a call that is known to be valid.
func (i *Interpreter) decide(ctx context.Context, c *capability.Call) (capability.Outcome, error) {
	input, err := callInput(c)
	if err != nil {
		return capability.Outcome{}, err
	}
	answer, err := evaluate(ctx, i.call, input)
	if err != nil {
		return capability.Outcome{}, fmt.Errorf("%s: %w", callEntrypoint, err)
	}
	o, err := readOutcome(answer)
	if err == nil && o.Kind == capability.Modify && exactly(o.Arguments, c.Policy.Transform.Arguments) {
		o.Arguments = c.Policy.Transform.Arguments
	}
	return o, err
}

// exactly reports whether arguments that went through OPA are those of the
// call, and there is but one way to read these: then the answer has them as they
// were written.
func exactly(answered, given json.RawMessage) bool {
	a, b := capability.Outcome{Arguments: answered}, capability.Outcome{Arguments: given}
	return jsontext.Value(given).IsValid() && a.Equal(b)
}

// Skill implements [Engine]: the decision of gate/skill/decision. It refuses a
// request that is not valid; see [skill.Request.Validate].
func (i *Interpreter) Skill(ctx context.Context, r *skill.Request) (skill.Answer, error) {
	if err := r.Validate(); err != nil {
		return skill.Answer{}, err
	}
	answer, err := evaluate(ctx, i.skill, skillInput(r))
	if err != nil {
		return skill.Answer{}, fmt.Errorf("%s: %w", skillEntrypoint, err)
	}
	return readAnswer(answer, r)
}

// evaluate returns the one value of a query. No value, several values and
// failures are errors: none of them is an answer.
func evaluate(ctx context.Context, prepared func() (rego.PreparedEvalQuery, error), input ast.Value, options ...rego.EvalOption) (any, error) {
	q, err := prepared()
	if err != nil {
		return nil, err
	}
	results, err := q.Eval(ctx, append(options, rego.EvalParsedInput(input))...)
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
