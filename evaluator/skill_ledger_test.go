package evaluator

import (
	"context"
	"errors"
	"testing"

	"github.com/opa-gate/opa-gate/skill"
)

// A counting ledger counts how often it is asked, and may fail.
type countingLedger struct {
	*skill.MemoryLedger
	asked int
	err   error
}

func (l *countingLedger) Last(ctx context.Context, fingerprint string) (skill.Record, bool, error) {
	l.asked++
	if l.err != nil {
		return skill.Record{}, false, l.err
	}
	return l.MemoryLedger.Last(ctx, fingerprint)
}

func recorded(t *testing.T, name string, tier skill.Tier, verdicts ...skill.Verdict) *countingLedger {
	t.Helper()
	l := &countingLedger{MemoryLedger: skill.NewMemoryLedger(nil)}
	for _, v := range verdicts {
		r := skill.Ruling{Fingerprint: skill.Fingerprint(name, tier), RequiredTier: tier, Decision: v}
		if _, err := l.Record(t.Context(), "ann", r); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func TestDecideSkillAsksTheLedgerAboutADenyAlone(t *testing.T) {
	policies, err := New(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	engines := map[string]Engine{"native": Native{}, "opa": policies, "both": Both(Native{}, policies.Interpreter())}
	untrusted := skill.Request{Skill: "a:b", Requested: skill.FullAccess}
	trusted := skill.Request{Skill: "a:b", Requested: skill.FullAccess, Provenance: skill.Provenance{Scanned: true}}
	tests := []struct {
		name     string
		request  skill.Request
		verdicts []skill.Verdict
		asked    int
		want     skill.Enforcement // but for its texts
	}{
		{"never seen", untrusted, nil, 1, skill.Enforcement{Pending: &skill.Pending{}}},
		{"approved", untrusted, []skill.Verdict{skill.Rejected, skill.Approved}, 1, skill.Enforcement{Deploy: true, EffectiveTier: skill.FullAccess, Overridden: true}},
		{"rejected", untrusted, []skill.Verdict{skill.Approved, skill.Rejected}, 1, skill.Enforcement{Blocked: true}},
		{"downgraded, and rejected", trusted, []skill.Verdict{skill.Rejected}, 0, skill.Enforcement{Deploy: true, EffectiveTier: skill.ReadOnly}},
	}
	for name, engine := range engines {
		for _, tt := range tests {
			l := recorded(t, "a:b", skill.FullAccess, tt.verdicts...)
			a, err := DecideSkill(t.Context(), engine, l, &tt.request)
			if err != nil {
				t.Fatal(err)
			}
			got := a.Enforcement
			if got.Deploy != tt.want.Deploy || got.EffectiveTier != tt.want.EffectiveTier || got.Overridden != tt.want.Overridden ||
				got.Blocked != tt.want.Blocked || (got.Pending == nil) != (tt.want.Pending == nil) || l.asked != tt.asked {
				t.Errorf("%s, %s: got %+v after asking %d times", name, tt.name, got, l.asked)
			}
		}
		// An approval in the document is none of a person that the ledger knows.
		claims := untrusted
		claims.Approval = skill.Approved
		if a, err := DecideSkill(t.Context(), engine, recorded(t, "a:b", skill.FullAccess), &claims); err != nil || a.Enforcement.Deploy {
			t.Errorf("%s: an approval that nobody gave: %+v, %v", name, a, err)
		}
		if a, err := DecideSkill(t.Context(), engine, nil, &claims); err != nil || !a.Enforcement.Overridden {
			t.Errorf("%s: without a ledger the document is believed: %+v, %v", name, a, err)
		}
		broken := errors.New("disk on fire")
		l := recorded(t, "a:b", skill.FullAccess, skill.Approved)
		l.err = broken
		if a, err := DecideSkill(t.Context(), engine, l, &untrusted); !errors.Is(err, broken) || !errors.Is(err, ErrLedger) || a.Enforcement.Deploy || a.Outcome != 0 {
			t.Errorf("%s: a broken ledger: %+v, %v", name, a, err)
		}
	}
}
