package evaluator

import (
	"context"
	"fmt"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/policies"
	"github.com/opa-gate/opa-gate/skill"
)

// A Traced is one document that OPA has evaluated before a tracer's eyes, and
// what the policies say of it elsewhere. It belongs to one goroutine.
type Traced struct {
	Entrypoint string    // the rule that was asked for, such as data.gate.call.decision
	Input      ast.Value // the document as the policies see it

	compiler *ast.Compiler
	store    storage.Store
	values   map[string]ast.Value
}

// TraceCall has OPA decide a call, with every rule and branch that could apply
// tried, before the eyes of a tracer. Its errors are those of
// [Interpreter.Decide]; if OPA got as far as evaluating the policies, the Traced
// comes with the error too.
func (e *Evaluator) TraceCall(ctx context.Context, c *capability.Call, tracer topdown.QueryTracer) (capability.Outcome, *Traced, error) {
	if err := c.Validate(); err != nil {
		return capability.Outcome{}, nil, err
	}
	input, err := callInput(c)
	if err != nil {
		return capability.Outcome{}, nil, err
	}
	t := &Traced{Entrypoint: callQuery, Input: input, compiler: e.compiled.compiler, store: e.compiled.store}
	answer, err := evaluate(ctx, e.interpreter.call, input, tracing(tracer)...)
	if err != nil {
		return capability.Outcome{}, t, fmt.Errorf("%s: %w", callEntrypoint, err)
	}
	o, err := readOutcome(answer)
	return o, t, err
}

// TraceSkill is [Evaluator.TraceCall] for a skill.
func (e *Evaluator) TraceSkill(ctx context.Context, r *skill.Request, tracer topdown.QueryTracer) (skill.Answer, *Traced, error) {
	if err := r.Validate(); err != nil {
		return skill.Answer{}, nil, err
	}
	t := &Traced{Entrypoint: skillQuery, Input: skillInput(r), compiler: e.compiled.compiler, store: e.compiled.store}
	if len(t.compiler.GetRulesExact(ast.MustParseRef(skillQuery))) == 0 { // the embedded ones are compiled for calls alone
		src, err := loadFS(policies.FS())
		if err == nil {
			t.compiler, err = src.compile()
		}
		if err != nil {
			return skill.Answer{}, nil, fmt.Errorf("%w: %w", ErrPolicy, err)
		}
	}
	answer, err := evaluate(ctx, e.interpreter.skill, t.Input, tracing(tracer)...)
	if err != nil {
		return skill.Answer{}, t, fmt.Errorf("%s: %w", skillEntrypoint, err)
	}
	a, err := readAnswer(answer, r)
	return a, t, err
}

// tracing lets a tracer see everything: OPA's index passes over rules without an
// event, and it stops looking as soon as it knows enough.
func tracing(tracer topdown.QueryTracer) []rego.EvalOption {
	return []rego.EvalOption{rego.EvalQueryTracer(tracer), rego.EvalRuleIndexing(false), rego.EvalEarlyExit(false)}
}

// Value returns the value of a reference without variables to data, as the
// policies compute it for the document; nil if it is undefined. Its error
// matches ErrEvaluation.
func (t *Traced) Value(ctx context.Context, ref ast.Ref) (ast.Value, error) {
	key := ref.String()
	if v, ok := t.values[key]; ok {
		return v, nil
	}
	compiling.Lock()
	q, err := rego.New(rego.ParsedQuery(ast.NewBody(ast.Equality.Expr(ast.VarTerm("value"), ast.NewTerm(ref.Copy())))),
		rego.Compiler(t.compiler), rego.Store(t.store), rego.StrictBuiltinErrors(true)).PrepareForEval(context.WithoutCancel(ctx))
	compiling.Unlock()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrEvaluation, err)
	}
	results, err := q.Eval(ctx, rego.EvalParsedInput(t.Input))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrEvaluation, err)
	}
	var v ast.Value
	if len(results) > 0 {
		if v, err = ast.InterfaceToValue(results[0].Bindings["value"]); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrEvaluation, err)
		}
	}
	if t.values == nil {
		t.values = map[string]ast.Value{}
	}
	t.values[key] = v
	return v, nil
}
