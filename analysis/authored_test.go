package analysis

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/internal/race"
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
	// 24 kinds for each of 10 × 27 profiles: 2 × 2 flags and 3 transforms, under a full
	// grant that is stated and one that is left out. One rule
	// looks at the start of the name, so the text in it is tried, and with a letter
	// on either side.
	calls := 27 * 4 * 3 * 2
	want := map[string]found{
		"a fetcher goes ahead": {8, calls * 4, `{"tool": {"name": "tool", "origin": "fetcher"}, "taint": "clean"}`},
		"a skill is deny":      {13, 9504 / 3, `{"skill": "skill", "requested": "full_access"}`},
		"a payment goes ahead": {18, calls * 10 * 2, `{"tool": {"name": "payment_"}, "taint": "clean"}`},
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

// counted counts what is asked.
type counted struct {
	answers
	asked *atomic.Int64
}

func (c counted) Decide(ctx context.Context, call *capability.Call) (capability.Outcome, error) {
	c.asked.Add(1)
	return c.answers.Decide(ctx, call)
}

// The first failure of an invariant ends the walk, and no skill is looked at.
func TestVerifyEndsAtTheFirstFailure(t *testing.T) {
	for name, rule := range map[string]string{
		"no set": "breach := true", "a function that fails": `breach contains "m" if to_number(input.decision.outcome) == 0`,
	} {
		t.Run(name, func(t *testing.T) {
			e := minimal(t, "decision := ok\n", "gate/invariants.rego",
				"# METADATA\n# schemas:\n#   - input: schema.invariant\npackage gate.invariants\n\n"+rule+"\n")
			var calls atomic.Int64
			v := &verifier{evaluator: e, survey: &evaluator.Survey{}, answers: counted{asked(e), &calls}, requests: skillRequests(),
				kinds: everyKind()[:20_000], opts: &VerifyOptions{}, result: &Verification{}}
			err := v.authored(t.Context())
			if err == nil || errors.Is(err, context.Canceled) || !strings.HasPrefix(err.Error(), "data.gate.invariants.breach: ") {
				t.Errorf("got %v, want why the rule failed", err)
			}
			if n, most := calls.Load(), int64(100*runtime.GOMAXPROCS(0)); n > most {
				t.Errorf("%d calls were asked about after all, want at most %d", n, most)
			}
		})
	}
}

// A visit is the last one once the context has ended.
func TestOverKindsEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var visits atomic.Int64
	err := overKinds(ctx, nil, nil, func(int) {
		visits.Add(1)
		cancel()
	})
	if n := visits.Load(); !errors.Is(err, context.Canceled) || n > int64(runtime.GOMAXPROCS(0)) {
		t.Errorf("%d visits, %v", n, err)
	}
}

// A rule that says more sentences than a person reads: a hundred are shown, the same
// each time, the others are counted, and those of other rules are all there.
func TestVerifyBoundsSentences(t *testing.T) {
	e := minimal(t, "decision := ok\n", "gate/invariants.rego", `# METADATA
# schemas:
#   - input: schema.invariant
package gate.invariants

breach contains sprintf("number %d is bad", [n]) if {
	input.call.tool.origin == "fetcher"
	some n in numbers.range(1000, 1249)
}

breach contains "zero is bad" if input.call.tool.origin == "unknown"
`)
	some := plainKinds()
	var first []byte
	for range 3 {
		v := verifySample(t, e, some, noSkills, false)
		var titles []string
		inputs := 0
		for _, i := range v.Invariants {
			if i.Name != "gate.invariants" {
				continue
			}
			titles = append(titles, i.Title)
			if i.Breach == nil || i.Breach.Problem != i.Title {
				t.Fatalf("%+v", i)
			}
			inputs += i.Breach.Inputs
		}
		if len(titles) != 102 || titles[0] != "number 1000 is bad" || titles[99] != "number 1099 is bad" ||
			titles[100] != "zero is bad" || titles[101] != "and 150 more sentences" {
			t.Fatalf("%d sentences: %q", len(titles), titles)
		}
		if want := len(some) / 10 * 251; inputs != want {
			t.Errorf("%d inputs, want %d", inputs, want)
		}
		if text := encode(v); first == nil {
			first = text
		} else if string(text) != string(first) {
			t.Error("another time it is another verdict")
		}
	}
}

// Whatever order the processors take, the same breach is shown.
func TestVerifyShowsTheSameEachTime(t *testing.T) {
	e := minimal(t, `decision := object.union(ok, {"outcome": "escalate", "required": ["local-read"], "required_mask": 1}) if {
	input.tool.read_only
} else := object.union(ok, {"outcome": "escalate"})
`)
	v := verifySample(t, e, plainKinds(), noSkills, true)
	if names := brokenNames(v); !slices.Contains(names, redeclarationName) || !slices.Contains(names, "equals-native") {
		t.Fatalf("broken are %v: nothing is compared", names)
	}
	first := encode(v)
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

// What an author's invariants do with a text: the constants that they compare one
// with, other texts to try, and what is not covered.
func TestVerifyTextsOfInvariants(t *testing.T) {
	tests := map[string]struct {
		rules                string
		tools, vetoes, notes []string
		samples              []string // as names of tools
		skills               []string
		incomplete           []string // lines, expressions and why
	}{
		"outcomes and origins alone": {rules: `breach contains "m" if {
	input.decision.outcome == "allow"
	input.call.tool.origin == "fetcher"
}`},
		"a name": {rules: `breach contains "m" if input.call.tool.name in {"a", "b"}

breach contains "n" if input.decision.outcome == "deny"`, tools: []string{"a", "b"}},
		"another name": {rules: `breach contains message if {
	input.call.tool.name != "a"
	input.call.tool.origin == "fetcher"
	message := "a sentence"
}`, tools: []string{"a"}},
		"a sentence with the name": {rules: `breach contains sprintf("%s is bad", [input.call.tool.name]) if input.call.tool.name == "a"`, tools: []string{"a"}},
		"a veto and a note": {rules: `breach contains "m" if input.call.policy.veto == "v"

breach contains "n" if {
	input.call.policy.transform.note == "n"
}`, vetoes: []string{"v"}, notes: []string{"n"}},
		"the empty veto": {rules: `breach contains "m" if input.call.policy.veto == ""`, vetoes: []string{""}},
		"that there is a veto": {rules: `breach contains "m" if is_string(input.call.policy.veto)

breach contains "n" if input.call.policy.transform.note

breach contains "o" if not input.decision.reason`},
		"a name in a variable": {rules: `breach contains "m" if {
	name := input.call.tool.name
	name == "a"
}`, tools: []string{"a"}},
		"a tool in a variable": {rules: `breach contains "m" if {
	tool := input.call.tool
	tool.name == "a"
	tool.origin == "fetcher"
}`, tools: []string{"a"}},
		"a decision in a variable": {rules: `breach contains "m" if {
	d := input.decision
	d.outcome == "allow"
}`},
		"some name of a list": {rules: `breach contains "m" if {
	some name in pay
	name == input.call.tool.name
}

pay := ["a", "b"]`, tools: []string{"a", "b"}},
		"a key of a list": {rules: `breach contains "m" if {"a": 1, "b": 2}[input.call.tool.name]`, tools: []string{"a", "b"}},
		"none of them":    {rules: `breach contains "m" if not input.call.tool.name in {"a"}`, tools: []string{"a"}},
		"every one of them": {rules: `breach contains "m" if {
	every name in {"a", "b"} {
		name != input.call.tool.name
	}
}`, tools: []string{"a", "b"}},
		"a name that a function is given": {rules: `breach contains "m" if paid(input.call.tool.name)

paid(name) if startswith(name, "pay")

paid("cash")`, tools: []string{"cash", "pay"}, samples: []string{"cashx", "payx", "xcash", "xpay"},
			incomplete: []string{`9: startswith(name, "pay") computes with a text`}},
		"a name that another rule gives": {rules: `breach contains "m" if tool == "a"

tool := input.call.tool.name`, tools: []string{"a"}},
		"the tool as a whole":  {rules: `breach contains "m" if object.get(input.call.tool, "name", "") == "a"`, tools: []string{"a", "name"}},
		"another member of it": {rules: `breach contains "m" if object.get(input.call.tool, "read_only", false) == true`},
		"a branch": {rules: `breach contains "m" if is_bad

is_bad if input.call.taint == "clean"

else if input.call.tool.name == "b"`, tools: []string{"b"}},
		"a name in the data": {rules: `breach contains "m" if input.call.tool.name in data.pay.tools`, samples: []string{"pay_a", "pay_b"},
			incomplete: []string{`7: data.pay.tools is data, which can change by itself`}},
		"a pattern": {rules: "breach contains \"m\" if regex.match(`^pay_.+`, input.call.tool.name)", tools: []string{"^pay_.+"},
			samples:    []string{"^pay_.+x", "pay_x", "pay_xx", "x^pay_.+"},
			incomplete: []string{"7: regex.match(`^pay_.+`, input.call.tool.name) computes with a text"}},
		"a prefix and a length": {rules: `breach contains "m" if {
	startswith(input.call.tool.name, "pay_")
	count(input.call.tool.name) > 4
}`, tools: []string{"pay_"}, samples: []string{"pay_x", "xpay_"},
			incomplete: []string{`8: startswith(input.call.tool.name, "pay_") computes with a text`, `9: count(input.call.tool.name) computes with a text`}},
		"prefixes in a list": {rules: `breach contains "m" if {
	some prefix in prefixes
	startswith(input.call.tool.name, prefix)
}

prefixes := {"a_", "b_"}`, tools: []string{"a_", "b_"}, samples: []string{"a_x", "b_x", "xa_", "xb_"},
			incomplete: []string{`9: startswith(input.call.tool.name, prefix) computes with a text`}},
		"a text made of it": {rules: `breach contains "m" if concat("/", ["s", input.call.tool.name]) == "s/a"`, tools: []string{"s/a"},
			samples: []string{"s/ax", "xs/a"}, incomplete: []string{`7: concat("/", ["s", input.call.tool.name]) == "s/a" compares a sentence that a text can be part of`}},
		"another member": {rules: `breach contains "m" if input.call.tool.name == input.call.policy.veto`,
			incomplete: []string{`7: input.call.tool.name == input.call.policy.veto compares a text with what is no constant`}},
		"the sentence": {rules: `breach contains "m" if contains(input.decision.reason, "secret")`,
			tools: []string{"secret"}, vetoes: []string{"secret"}, notes: []string{"secret"}, samples: []string{"secretx", "xsecret"},
			incomplete: []string{`7: contains(input.decision.reason, "secret") computes with a text`}},
		"no sentence": {rules: `breach contains "m" if input.decision.reason == ""`, vetoes: []string{""}, notes: []string{""}},
		"the arguments": {rules: `breach contains "m" if input.call.policy.transform.arguments.path == "/"`,
			incomplete: []string{`7: input.call.policy.transform.arguments.path == "/" looks into the arguments`}},
		"the clock": {rules: `breach contains "m" if time.now_ns() > 0`, incomplete: []string{`7: time.now_ns() can give another result each time`}},
		"another document": {rules: `breach contains "m" if bad with input.call.tool.name as "x"

bad if input.call.tool.name == "x"`, tools: []string{"x"}, samples: []string{"xx"},
			incomplete: []string{`7: bad with input.call.tool.name as "x" is evaluated with another document`}},
		"a skill": {rules: `breach contains "m" if input.skill.skill == "s"`, skills: []string{"s"}},
		"a skill by its prefix": {rules: `breach contains "m" if startswith(input.skill.skill, "s")`, skills: []string{"s", "sx", "xs"},
			incomplete: []string{`7: startswith(input.skill.skill, "s") computes with a text`}},
		"some count": {rules: `breach contains "m" if input.skill.provenance.vulnerabilities > 0`},
		"a count that nothing is tried at": {rules: `breach contains "m" if input.skill.provenance.success_count > 9`,
			incomplete: []string{`7: input.skill.provenance.success_count > 9 puts a text or a count in an order`}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			e := minimal(t, "decision := ok\n", "pay/data.json", `{"tools": ["pay_b", "pay_a"]}`,
				"gate/invariants.rego", "# METADATA\n# schemas:\n#   - input: schema.invariant\npackage gate.invariants\n\n\n"+tt.rules+"\n")
			v := &verifier{evaluator: e, survey: &evaluator.Survey{}, result: &Verification{}}
			look, err := v.mentioned(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			s := v.survey
			if !slices.Equal(s.Tools, tt.tools) || !slices.Equal(s.Vetoes, tt.vetoes) || !slices.Equal(s.Notes, tt.notes) {
				t.Errorf("tries %q, %q, %q; want %q, %q, %q", s.Tools, s.Vetoes, s.Notes, tt.tools, tt.vetoes, tt.notes)
			}
			if !slices.Equal(look.tools, tt.samples) || !slices.Equal(look.skills, tt.skills) {
				t.Errorf("tries %q besides, and the skills %q; want %q, %q", look.tools, look.skills, tt.samples, tt.skills)
			}
			var incomplete []string
			for _, b := range v.result.Incomplete {
				incomplete = append(incomplete, fmt.Sprintf("%d: %s %s", b.Line, b.Expression, b.Why))
			}
			if !slices.Equal(incomplete, tt.incomplete) {
				t.Errorf("not covered are %q, want %q", incomplete, tt.incomplete)
			}
		})
	}
}

// An invariant that some calls break is shown to be broken, or what it looks at is
// named.
func TestVerifyMeetsWhatInvariantsLookFor(t *testing.T) {
	race.SkipSlow(t)
	tests := map[string]struct {
		condition, document string
	}{
		"a list in the data":    {`input.call.tool.name in data.pay.tools`, `{"tool": {"name": "pay_a"}, "taint": "clean"}`},
		"a pattern":             {"regex.match(`^pay_.+`, input.call.tool.name)", `{"tool": {"name": "pay_x"}, "taint": "clean"}`},
		"a prefix and a length": {"startswith(input.call.tool.name, \"pay_\")\n\tcount(input.call.tool.name) > 4", `{"tool": {"name": "pay_x"}, "taint": "clean"}`},
		"a name in the grant":   {`"grant-admin" in input.call.grant.base`, `{"tool": {"name": "tool"}, "grant": {"base": ["grant-admin"]}, "taint": "clean"}`},
		"an empty veto":         {`input.call.policy.veto == ""`, `{"tool": {"name": "tool"}, "taint": "clean", "policy": {"veto": ""}}`},
		"a skill":               {`input.skill.skill == "s"`, `{"skill": "s", "requested": "read_only"}`},
	}
	few := kinds(func(c *capability.Call) bool {
		return c.Grant.Base == capability.All && c.Taint == capability.Clean && !c.Policy.RequiresHuman && !c.Policy.SandboxEscalation && c.Profile.ReadOnly == capability.Unset
	})
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			e := minimal(t, "decision := ok\n", "pay/data.json", `{"tools": ["pay_b", "pay_a"]}`, "gate/invariants.rego",
				"# METADATA\n# schemas:\n#   - input: schema.invariant\npackage gate.invariants\n\nbreach contains \"m\" if {\n\t"+tt.condition+"\n}\n")
			v := &verifier{evaluator: e, survey: &evaluator.Survey{}, answers: asked(e), kinds: few, requests: skillRequests()[:40], named: true, opts: &VerifyOptions{}}
			got, err := v.verify(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			last := got.Invariants[len(got.Invariants)-1]
			if last.Title != "m" || last.Breach == nil || string(last.Breach.Document) != tt.document {
				t.Errorf("%+v is %+v, want it broken by %s", last.Title, last.Breach, tt.document)
			}
		})
	}
}
