package evaluator

import (
	"context"
	"fmt"
	"time"

	"github.com/opa-gate/opa-gate/skill"
)

// Probe asks OPA about a few kinds of call and a few skills: whether policies
// that compile answer at all, and in the right shape (specification, section 7).
// The error says what got no answer, or that it took more than ten seconds.
func (e *Evaluator) Probe(ctx context.Context) (err error) {
	const (
		calls = 24
		limit = 10 * time.Second
	)
	ctx, stop := context.WithTimeoutCause(ctx, limit, fmt.Errorf("a few questions took more than %v", limit))
	defer stop()
	defer func() {
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
	}()
	for i := range calls {
		c := CellCall(i * (Cells / calls))
		if _, err := e.interpreter.Decide(ctx, c); err != nil {
			return fmt.Errorf("a call of tool %q gets no answer: %w", c.Tool, err)
		}
	}
	for _, r := range []skill.Request{
		{Skill: "skill", Requested: skill.ReadOnly},
		{Skill: "skill", Requested: skill.FullAccess, Provenance: skill.Provenance{Signed: true, SignerTrusted: true, Scanned: true}},
		{Skill: "skill", Requested: skill.SandboxEdit, Approval: skill.Approved},
		{Skill: "skill", Requested: skill.SandboxEdit, Approval: skill.Rejected, Provenance: skill.Provenance{FailCount: 9}},
	} {
		if _, err := e.interpreter.Skill(ctx, &r); err != nil {
			return fmt.Errorf("a request of skill %q gets no answer: %w", r.Skill, err)
		}
	}
	return nil
}
