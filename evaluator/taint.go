package evaluator

import (
	"context"
	"fmt"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"

	"github.com/opa-gate/opa-gate/capability"
)

// The rules on taint that no decision depends on. Policies need not have them.
const (
	resultQuery   = "data.gate.taint.result"
	steeringQuery = "data.gate.steering.taint"
)

// A Tainter tells how outside content gets into a session, and which of its calls
// see that. Whoever follows a session asks it beside an [Engine]. With an error
// the answer is the closed one: the result taints, the call sees a tainted session.
type Tainter interface {
	ResultTaints(ctx context.Context, r *capability.Result) (bool, error)
	CallTaint(ctx context.Context, s *capability.Steering) (capability.Taint, error)
}

// taintRules are the rules on taint of one set of policies. One that the policies
// do not have is nil.
type taintRules struct {
	result, steering func() (rego.PreparedEvalQuery, error)
}

func newTaintRules(b *built) *taintRules {
	rule := func(query string) func() (rego.PreparedEvalQuery, error) {
		if len(b.compiler.GetRulesExact(ast.MustParseRef(query))) == 0 {
			return nil
		}
		return sync.OnceValues(func() (rego.PreparedEvalQuery, error) {
			return b.prepared(context.Background(), query)()
		})
	}
	return &taintRules{rule(resultQuery), rule(steeringQuery)}
}

// ResultTaints implements [Tainter]: the rule data.gate.taint.result. Policies
// without it, such as those of an older bundle, leave the answer to the native
// reference, [capability.Result.Taints]. A rule that has no answer, or another one
// than true or false, is an error, and the result taints.
func (e *Evaluator) ResultTaints(ctx context.Context, r *capability.Result) (bool, error) {
	if err := validTool(r.Tool, r.Profile); err != nil {
		return true, err
	}
	if !r.Untrusted.Valid() {
		return true, fmt.Errorf("%w: what the operator says of the result is neither given nor left out", capability.ErrInvalidCall)
	}
	if e.taint.result == nil {
		return r.Taints(), nil
	}
	input := objectOf(
		member{"tool", toolTerm(&capability.Call{Tool: r.Tool, Profile: r.Profile})},
		member{"untrusted_result", hintTerm(r.Untrusted)},
	)
	answer, err := evaluate(ctx, e.taint.result, input.Value)
	if err != nil {
		return true, fmt.Errorf("%s: %w", resultQuery, err)
	}
	taints, ok := answer.(bool)
	if !ok {
		return true, &AnswerError{"gate/taint/result", "", "expected true or false"}
	}
	return taints, nil
}

// CallTaint implements [Tainter]: the rule data.gate.steering.taint, which is
// optional. Policies without it see the session's taint. With an error the answer
// is capability.Tainted.
func (e *Evaluator) CallTaint(ctx context.Context, s *capability.Steering) (capability.Taint, error) {
	if err := validTool(s.Tool, s.Profile); err != nil {
		return capability.Tainted, err
	}
	if !s.Session.Valid() || !s.Effect.Valid() || !s.Aim.Valid() || !s.Payload.Valid() {
		return capability.Tainted, fmt.Errorf("%w: a fact about it has no such value", capability.ErrInvalidCall)
	}
	if e.taint.steering == nil {
		return s.Session, nil
	}
	input := objectOf(
		member{"session", ast.InternedTerm(s.Session.String())},
		member{"tool", toolTerm(&capability.Call{Tool: s.Tool, Profile: s.Profile})},
		member{"effect", ast.InternedTerm(s.Effect.String())},
		member{"aim", ast.InternedTerm(s.Aim.String())},
		member{"payload", ast.InternedTerm(s.Payload.String())},
	)
	answer, err := evaluate(ctx, e.taint.steering, input.Value)
	if err != nil {
		return capability.Tainted, fmt.Errorf("%s: %w", steeringQuery, err)
	}
	name, _ := answer.(string)
	if taint, ok := capability.ParseTaint(name); ok {
		return taint, nil
	}
	return capability.Tainted, &AnswerError{"gate/steering/taint", "", `expected "clean" or "tainted"`}
}

// JudgesResults reports whether the policies have the rule that ResultTaints asks.
func (e *Evaluator) JudgesResults() bool { return e.taint.result != nil }

// Steers reports whether the policies have the optional rule that CallTaint asks.
func (e *Evaluator) Steers() bool { return e.taint.steering != nil }

// validTool is [capability.Call.Validate] for a tool alone.
func validTool(tool string, p capability.Profile) error {
	c := capability.Call{Tool: tool, Profile: p, Taint: capability.Clean}
	return c.Validate()
}

// ResultTaints implements [Tainter] by [capability.Result.Taints].
func (Native) ResultTaints(_ context.Context, r *capability.Result) (bool, error) {
	return r.Taints(), nil
}

// CallTaint implements [Tainter]: the session's taint, without any relaxation.
func (Native) CallTaint(_ context.Context, s *capability.Steering) (capability.Taint, error) {
	return s.Seen(0), nil
}

// ResultTaints implements [Tainter]. Without an engine in force that is one, the
// result taints, and the error is [ErrNoEngine].
func (s *Switch) ResultTaints(ctx context.Context, r *capability.Result) (bool, error) {
	if t, ok := s.tainter(); ok {
		return t.ResultTaints(ctx, r)
	}
	return true, ErrNoEngine
}

// CallTaint implements [Tainter]. Without an engine in force that is one, the call
// sees a tainted session, and the error is [ErrNoEngine].
func (s *Switch) CallTaint(ctx context.Context, c *capability.Steering) (capability.Taint, error) {
	if t, ok := s.tainter(); ok {
		return t.CallTaint(ctx, c)
	}
	return capability.Tainted, ErrNoEngine
}

func (s *Switch) tainter() (Tainter, bool) {
	engine := s.current.Load()
	if engine == nil || *engine == nil {
		return nil, false
	}
	t, ok := (*engine).(Tainter)
	return t, ok
}

var (
	_ Tainter = (*Evaluator)(nil)
	_ Tainter = Native{}
	_ Tainter = (*Switch)(nil)
)
