package evaluator

import (
	"context"
	"errors"
	"fmt"

	"github.com/opa-gate/opa-gate/skill"
)

// ErrLedger is matched by the error of [DecideSkill] where a ledger could not be
// asked. It wraps the ledger's own.
var ErrLedger = errors.New("the ledger could not be asked")

// DecideSkill asks the engine about a skill, and if that denies, once more with what
// a person last decided, by l, in the place of what r says (specification, section
// 6). A nil l knows of no decisions, and r is believed. On an error, which is the
// engine's or matches [ErrLedger], the answer is the zero one, which deploys nothing.
func DecideSkill(ctx context.Context, e Engine, l skill.Ledger, r *skill.Request) (skill.Answer, error) {
	a, err := e.Skill(ctx, r)
	if err != nil || l == nil || a.Outcome != skill.Deny {
		return a, err
	}
	decided := *r
	decided.Approval, err = skill.LastVerdict(ctx, l, skill.Fingerprint(r.Skill, r.Requested))
	if err != nil {
		return skill.Answer{}, fmt.Errorf("%w about skill %q: %w", ErrLedger, r.Skill, err)
	}
	if decided.Approval == r.Approval {
		return a, nil
	}
	return e.Skill(ctx, &decided)
}
