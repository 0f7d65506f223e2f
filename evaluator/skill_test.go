package evaluator

import (
	"context"
	"errors"
	"math"
	"reflect"
	"testing"

	"github.com/opa-gate/opa-gate/internal/race"
	"github.com/opa-gate/opa-gate/skill"
)

// Parity of the skill domain: every boolean, source, tier and verdict, with
// counters at each boundary that a rule turns on.
func TestSkillParity(t *testing.T) {
	race.SkipSlow(t)
	const top = math.MaxUint64
	counts := [][2]uint64{ // successes, failures
		{0, 0}, {0, 2}, {0, 3}, {1, 3}, {1, 4}, {5, 7}, {5, 8}, {top, top}, {top, 0}, {0, top},
		{top - 2, top}, {top - 3, top}, {top - 1, top}, {1 << 53, 1<<53 + 2}, {1 << 53, 1<<53 + 3},
		{1<<63 - 1, 1<<63 + 1}, {1<<63 - 1, 1<<63 + 2},
	}
	e, ctx := embedded(t), context.Background()
	checked := 0
	for flags := range 8 {
		for _, vulnerabilities := range []uint64{0, 1, top} {
			for _, count := range counts {
				for source := skill.UnknownSource; source <= skill.Official; source++ {
					for tier := skill.ReadOnly; tier <= skill.FullAccess; tier++ {
						for verdict := skill.NoVerdict; verdict <= skill.Rejected; verdict++ {
							r := &skill.Request{Skill: "a:b", Requested: tier, Approval: verdict,
								Provenance: skill.Provenance{Signed: flags&1 != 0, SignerTrusted: flags&2 != 0,
									Scanned: flags&4 != 0, Vulnerabilities: vulnerabilities,
									SuccessCount: count[0], FailCount: count[1], Source: source}}
							want := r.Decide()
							got, err := e.Skill(ctx, r)
							if err != nil || !reflect.DeepEqual(got, want) {
								t.Fatalf("%+v: native %+v, Rego %+v, error %v", r, want, got, err)
							}
							if g := got.Granted; g > got.Ceiling || g > tier {
								t.Fatalf("%+v: granted %v above ceiling %v or request", r, g, got.Ceiling)
							}
							checked++
						}
					}
				}
			}
		}
	}
	if want := 8 * 3 * len(counts) * 4 * 3 * 3; checked != want {
		t.Errorf("checked %d requests, want %d", checked, want)
	}
}

func FuzzSkillParity(f *testing.F) {
	f.Add("pdf", uint8(2), uint8(0), uint8(7), uint8(3), uint64(0), uint64(1), uint64(3))
	f.Add("a:b:full_access", uint8(0), uint8(1), uint8(5), uint8(0), uint64(1), uint64(math.MaxUint64), uint64(math.MaxUint64))
	e, ctx := embedded(f), context.Background()
	f.Fuzz(func(t *testing.T, name string, tier, verdict, flags, source uint8, vulnerabilities, successes, failures uint64) {
		r := &skill.Request{Skill: "s" + name, Requested: skill.ReadOnly + skill.Tier(tier%3),
			Approval: skill.Verdict(verdict % 3), Provenance: skill.Provenance{Signed: flags&1 != 0,
				SignerTrusted: flags&2 != 0, Scanned: flags&4 != 0, Vulnerabilities: vulnerabilities,
				SuccessCount: successes, FailCount: failures, Source: skill.Source(source % 4)}}
		if errors.Is(r.Validate(), skill.ErrInvalidRequest) {
			if _, err := e.Skill(ctx, r); !errors.Is(err, skill.ErrInvalidRequest) {
				t.Errorf("%+v: %v", r, err)
			}
			return
		}
		want := r.Decide()
		got, err := e.Skill(ctx, r)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v: native %+v, Rego %+v, error %v", r, want, got, err)
		}
	})
}
