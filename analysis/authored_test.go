package analysis

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/evaluator"
)

// An author's own invariants: one that holds, one that a call breaks, one that a
// skill breaks, and one that looks at a text which no rule knows.
func TestVerifyAuthoredInvariants(t *testing.T) {
	const invariants = `# METADATA
# schemas:
#   - input: schema.invariant
package gate.invariants

breach contains "a note is put in" if input.decision.outcome == "inject_context"

breach contains "a fetcher goes ahead" if {
	input.call.tool.origin == "fetcher"
	input.decision.outcome == "allow"
}

breach contains message if {
	input.skill.requested == "full_access"
	message := sprintf("a skill is %s", [input.decision.outcome])
}

breach contains "a payment goes ahead" if {
	input.decision.outcome == "allow"
	startswith(input.call.tool.name, "payment_")
}
`
	e := minimal(t, "decision := ok\n", "gate/invariants.rego", invariants)
	few := kinds(func(c *capability.Call) bool {
		return c.Grant.Base == capability.All && c.Taint == capability.Clean && !c.Policy.Vetoed
	})
	v := verifySample(t, e, few, skillRequests()[9504/3*2:], false)
	type found struct {
		line, inputs int
		document     string
	}
	got := map[string]found{}
	for _, i := range v.Invariants {
		if i.File == "" {
			continue
		}
		if i.File != "gate/invariants.rego" || i.Breach == nil || i.Breach.Problem != i.Title {
			t.Fatalf("%+v", i)
		}
		got[i.Title] = found{i.Line, i.Breach.Inputs, string(i.Breach.Document)}
		last := i.Breach.Rules[len(i.Breach.Rules)-1]
		if last != (Place{"data.gate.invariants.breach", i.File, i.Line}) {
			t.Errorf("%s: the last rule is %+v, want the invariant's own", i.Title, last)
		}
	}
	// 12 kinds for each of 9 × 27 profiles: 2 × 2 flags and 3 transforms. One rule
	// looks at the name, so the two texts in it are tried as names.
	calls := 27 * 4 * 3
	want := map[string]found{
		"a fetcher goes ahead": {8, calls * 3, `{"tool": {"name": "tool", "origin": "fetcher"}, "taint": "clean"}`},
		"a skill is deny":      {13, 9504 / 3, `{"skill": "skill", "requested": "full_access"}`},
		"a payment goes ahead": {18, calls * 9, `{"tool": {"name": "payment_"}, "taint": "clean"}`},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// Without a breach the author's invariants are one that holds.
func TestVerifyAuthoredInvariantsThatHold(t *testing.T) {
	e := minimal(t, "decision := ok\n", "gate/invariants.rego", `# METADATA
# schemas:
#   - input: schema.invariant
package gate.invariants

breach contains "a note is put in" if input.decision.outcome == "inject_context"
`)
	v := verifySample(t, e, plainKinds(), noSkills, false)
	last := v.Invariants[len(v.Invariants)-1]
	if want := (Invariant{Name: "gate.invariants", Title: "The policies' own invariants.", File: "gate/invariants.rego", Line: 6}); last != want {
		t.Errorf("got %+v, want %+v", last, want)
	}
}

// What no set of sentences is ends the run, with the rule's name.
func TestVerifyRefusesInvariantsThatAreNoSentences(t *testing.T) {
	e := minimal(t, "decision := ok\n", "gate/invariants.rego", "package gate.invariants\n\nbreach := true\n")
	v := &verifier{evaluator: e, survey: &evaluator.Survey{}, answers: asked(e), kinds: plainKinds(), requests: noSkills, opts: &VerifyOptions{}}
	if _, err := v.verify(t.Context()); err == nil || err.Error() != "data.gate.invariants.breach: expected a set of sentences, got true" {
		t.Errorf("got %v", err)
	}
}

// Whatever order the processors take, the same breach is shown.
func TestVerifyShowsTheSameEachTime(t *testing.T) {
	e := minimal(t, `decision := object.union(ok, {"outcome": "escalate", "required": ["local-read"], "required_mask": 1}) if {
	input.tool.read_only
} else := object.union(ok, {"outcome": "escalate"})
`)
	first := encode(verifySample(t, e, plainKinds(), noSkills, true))
	for range 4 {
		if again := encode(verifySample(t, e, plainKinds(), noSkills, true)); string(again) != string(first) {
			t.Fatalf("first %s\nthen %s", first, again)
		}
	}
}

func TestVerifyEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	e := minimal(t, "decision := ok\n")
	cancel()
	if _, err := Verify(ctx, e, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Verify: got %v", err)
	}
	if _, err := Diff(ctx, e, e, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Diff: got %v", err)
	}
}

// Which texts an author's invariants compare a text with.
func TestVerifyTextsOfInvariants(t *testing.T) {
	tests := map[string]struct {
		rules                string
		tools, vetoes, notes []string
		looks                bool
	}{
		"outcomes and origins alone": {`breach contains "m" if {
	input.decision.outcome == "allow"
	input.call.tool.origin == "fetcher"
}`, nil, nil, nil, false},
		"a name": {`breach contains "m" if input.call.tool.name in {"a", "b"}

breach contains "n" if input.decision.outcome == "deny"`, []string{"a", "b"}, nil, nil, true},
		"a veto and a note": {`breach contains "m" if input.call.policy.veto == "v"

breach contains "n" if input.decision.note == "n"`, nil, []string{"v"}, []string{"n"}, true},
		"a name in a variable": {`breach contains "m" if {
	name := input.call.tool.name
	name == "a"
}`, []string{"a"}, nil, nil, true},
		"a name that a function is given": {`breach contains "m" if paid(input.call.tool.name)

paid(name) if startswith(name, "pay")

paid("cash")`, []string{"cash", "pay"}, nil, nil, true},
		"a name that another rule gives": {`breach contains "m" if tool == "a"

tool := input.call.tool.name`, []string{"a"}, nil, nil, true},
		"the tool as a whole": {`breach contains "m" if object.get(input.call.tool, "name", "") == "a"`,
			[]string{"a", "name"}, nil, nil, true},
		"a branch": {`breach contains "m" if is_bad

is_bad if input.call.taint == "clean"

else if input.call.tool.name == "b"`, []string{"b", "clean"}, nil, nil, true},
		"the sentence": {`breach contains "m" if contains(input.decision.reason, "secret")`, []string{"secret"}, []string{"secret"}, []string{"secret"}, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			e := minimal(t, "decision := ok\n", "gate/invariants.rego", "# METADATA\n# schemas:\n#   - input: schema.invariant\npackage gate.invariants\n\n"+tt.rules+"\n")
			v := &verifier{evaluator: e, survey: &evaluator.Survey{}}
			looks := v.mentioned()
			s := v.survey
			if looks != tt.looks || !slices.Equal(s.Tools, tt.tools) || !slices.Equal(s.Vetoes, tt.vetoes) || !slices.Equal(s.Notes, tt.notes) {
				t.Errorf("looks %v at %q, %q, %q; want %v at %q, %q, %q", looks, s.Tools, s.Vetoes, s.Notes, tt.looks, tt.tools, tt.vetoes, tt.notes)
			}
		})
	}
}
