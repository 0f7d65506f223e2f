package evaluator

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/open-policy-agent/opa/v1/rego"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/skill"
)

const okDecision = `{"outcome": "allow", "reason": "", "missing": [], "missing_mask": 0,
	"required": ["local-read"], "required_mask": 1, "granted": ["local-read"], "granted_mask": 1}`

const okSkill = `
package gate.skill
decision := {"trust": "untrusted", "ceiling": null, "granted": null, "outcome": "deny", "reason": "",
	"enforcement": {"deploy": false, "effective_tier": null, "overridden": false, "blocked": true, "pending": null, "reason": ""}}
`

func engineOf(t *testing.T, call, skillModule string) *Evaluator {
	t.Helper()
	e, err := New(context.Background(), &Options{FS: fstest.MapFS{
		"call.rego":  {Data: []byte("package gate.call\n" + call)},
		"skill.rego": {Data: []byte(skillModule)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

var anyCall = capability.Call{Tool: "t", Taint: capability.Clean}

// Whatever is not exactly one decision is an error of its kind, and the
// outcome beside it is not a valid one.
func TestAnswersThatAreNoDecision(t *testing.T) {
	edit := func(from, to string) string {
		if !strings.Contains(okDecision, from) {
			t.Fatalf("%q is not in the decision", from)
		}
		return "decision := " + strings.Replace(okDecision, from, to, 1)
	}
	tests := []struct {
		name, call string
		want       error
		pointer    string
	}{
		{"undefined", `decision := ` + okDecision + ` if input.tool.name == "other"`, ErrUndefined, ""},
		{"conflict", "decision := " + okDecision + "\ndecision := 1 if input.tool.name", ErrEvaluation, ""},
		{"built-in error", "decision := {\"outcome\": to_number(input.tool.name)}", ErrEvaluation, ""},
		{"text", `decision := "allow"`, ErrNotDecision, ""},
		{"true", `decision := true`, ErrNotDecision, ""},
		{"set", `decision contains "allow"`, ErrNotDecision, ""},
		{"empty", `decision := {}`, ErrNotDecision, "/outcome"},
		{"unknown outcome", edit(`"allow"`, `"permit"`), ErrNotDecision, "/outcome"},
		{"outcome in capitals", edit(`"allow"`, `"ALLOW"`), ErrNotDecision, "/outcome"},
		{"outcome true", edit(`"allow"`, `true`), ErrNotDecision, "/outcome"},
		{"reason null", edit(`"reason": ""`, `"reason": null`), ErrNotDecision, "/reason"},
		{"no masks", edit(`"missing_mask": 0,`, ``), ErrNotDecision, "/missing_mask"},
		{"mask too large", edit(`"granted_mask": 1`, `"granted_mask": 65537`), ErrNotDecision, "/granted_mask"},
		{"negative mask", edit(`"granted_mask": 1`, `"granted_mask": -1`), ErrNotDecision, "/granted_mask"},
		{"mask is a fraction", edit(`"granted_mask": 1`, `"granted_mask": 1.5`), ErrNotDecision, "/granted_mask"},
		{"names and mask differ", edit(`"required_mask": 1`, `"required_mask": 2`), ErrNotDecision, "/required"},
		{"names not texts", edit(`"granted": ["local-read"]`, `"granted": [1]`), ErrNotDecision, "/granted"},
		{"allow that lacks something", edit(`"missing": [], "missing_mask": 0`, `"missing": ["local-read"], "missing_mask": 1`), ErrNotDecision, "/missing"},
		{"allow of what is not granted", edit(`"granted": ["local-read"], "granted_mask": 1`, `"granted": [], "granted_mask": 0`), ErrNotDecision, "/granted"},
		{"escalate that lacks something else", edit(`"outcome": "allow", "reason": "", "missing": [], "missing_mask": 0`,
			`"outcome": "escalate", "reason": "", "missing": ["local-write"], "missing_mask": 2`), ErrNotDecision, "/missing"},
		{"allow with arguments", edit(`"reason"`, `"arguments": {}, "reason"`), ErrNotDecision, "/arguments"},
		{"modify without arguments", edit(`"allow"`, `"modify"`), ErrNotDecision, "/arguments"},
		{"modify with an array", edit(`"allow"`, `"modify", "arguments": []`), ErrNotDecision, "/arguments"},
		{"note that is no text", edit(`"allow"`, `"inject_context", "note": 1`), ErrNotDecision, "/note"},
		{"injection without a note", edit(`"allow"`, `"inject_context"`), ErrNotDecision, "/note"},
		{"warnings no list", edit(`"reason"`, `"warnings": "w", "reason"`), ErrNotDecision, "/warnings"},
		{"unknown member", edit(`"reason"`, `"permit": true, "reason"`), ErrNotDecision, "/permit"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o, err := engineOf(t, tt.call, okSkill).Decide(context.Background(), &anyCall)
			if !errors.Is(err, tt.want) {
				t.Errorf("error %v, want %v", err, tt.want)
			}
			var answer *AnswerError
			if errors.As(err, &answer) && answer.Pointer != tt.pointer {
				t.Errorf("pointer %q, want %q (%v)", answer.Pointer, tt.pointer, err)
			}
			if o.Kind.Valid() {
				t.Errorf("an outcome came along: %v", o.Kind)
			}
		})
	}
	if o, err := engineOf(t, "decision := "+okDecision, okSkill).Decide(context.Background(), &anyCall); err != nil || o.Kind != capability.Allow {
		t.Errorf("the unedited decision: %v, %v", o, err)
	}
}

func TestSkillAnswersThatAreNoDecision(t *testing.T) {
	tests := []struct{ name, from, to, pointer string }{
		{"deploys without a tier", `"deploy": false`, `"deploy": true`, "/enforcement"},
		{"neither deployed nor blocked", `"blocked": true`, `"blocked": false`, "/enforcement"},
		{"deploys what was denied", `"deploy": false, "effective_tier": null, "overridden": false, "blocked": true`,
			`"deploy": true, "effective_tier": "full_access", "overridden": false, "blocked": false`, "/enforcement/effective_tier"},
		{"overrides without an approval", `"deploy": false, "effective_tier": null, "overridden": false, "blocked": true`,
			`"deploy": true, "effective_tier": "read_only", "overridden": true, "blocked": false`, "/enforcement/overridden"},
		{"grants without a ceiling", `"granted": null, "outcome": "deny"`, `"granted": "read_only", "outcome": "allow"`, "/granted"},
		{"pending about another skill", `"blocked": true, "pending": null`,
			`"blocked": false, "pending": {"fingerprint": "skill_deploy:x:read_only", "skill_name": "x", "requested": "read_only",
			"decision": {"trust": "untrusted", "ceiling": null, "granted": null, "outcome": "deny", "reason": ""}}`, "/enforcement/pending"},
		{"unknown trust", `"untrusted"`, `"total"`, "/trust"},
		{"unknown tier", `"ceiling": null`, `"ceiling": "root"`, "/ceiling"},
		{"pending is no object", `"pending": null`, `"pending": true`, "/enforcement/pending"},
		{"unknown outcome", `"outcome": "deny"`, `"outcome": "yes"`, "/outcome"},
		{"missing member", `"overridden": false, `, ``, "/enforcement/overridden"},
	}
	r := &skill.Request{Skill: "s", Requested: skill.ReadOnly}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := engineOf(t, "decision := "+okDecision, replaceOnce(t, okSkill, tt.from, tt.to))
			a, err := e.Skill(context.Background(), r)
			var answer *AnswerError
			if !errors.As(err, &answer) || answer.Pointer != tt.pointer {
				t.Errorf("error %v, want one at %q", err, tt.pointer)
			}
			if a.Enforcement.Deploy {
				t.Error("it is deployed")
			}
		})
	}
	if _, err := engineOf(t, "decision := "+okDecision, okSkill).Skill(context.Background(), r); err != nil {
		t.Errorf("the unedited answer: %v", err)
	}
}

// Policies that cannot be used are refused when they are loaded, with the
// place in the message.
func TestPoliciesThatCannotBeUsed(t *testing.T) {
	tests := []struct {
		name string
		tree fstest.MapFS
		want string
	}{
		{"empty", fstest.MapFS{}, "there is no .rego file"},
		{"syntax", fstest.MapFS{"a/b.rego": {Data: []byte("package a\n\nx := {")}}, "a/b.rego:3"},
		{"unsafe variable", fstest.MapFS{"a.rego": {Data: []byte("package a\nx := y")}}, "a.rego:2"},
		{"old syntax", fstest.MapFS{"a.rego": {Data: []byte("package a\nallow { true }")}}, "a.rego:2"},
		{"no entrypoint", fstest.MapFS{"a.rego": {Data: []byte("package a\nx := 1")}}, "data.gate."},
		{"data is no JSON", fstest.MapFS{"a.rego": {Data: []byte("package a")}, "d/data.json": {Data: []byte("{")}}, "d/data.json"},
		{"misspelt input path", withFile(t, "gate/taint/taint.rego", func(text string) string {
			return replaceOnce(t, text, `input.taint == "tainted"`, `input.tainted == "tainted"`)
		}), "gate/taint/taint.rego:21"},
		{"misspelt input path in a rule of the author's", withFile(t, "gate/call/call.rego", func(text string) string {
			return text + "\nasks_for_person if is_payment\n\nis_payment if startswith(input.tool.nmae, \"pay_\")\n"
		}), `did you mean "name"?`},
		{"a very long error", fstest.MapFS{"a.rego": {Data: append([]byte("package a\nx := "), bytes.Repeat([]byte{0}, 1<<20)...)}}, "a.rego:2"},
		{"foreign facts", withFile(t, "gate/facts/data.json", func(text string) string {
			return replaceOnce(t, text, `"all":31`, `"all":15`)
		}), "data.gate.facts"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := New(context.Background(), &Options{FS: tt.tree})
			if !errors.Is(err, ErrPolicy) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one that names %q", err, tt.want)
			}
			if text := err.Error(); len(text) > 4000 || strings.Contains(text, "\n") {
				t.Errorf("the error has %d bytes and is to be one line", len(text))
			}
		})
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "b.tar.gz")
	if err := os.WriteFile(file, []byte("no bundle"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, opts := range map[string]*Options{
		"two sources":    {Dir: dir, Bundle: file},
		"no directory":   {Dir: filepath.Join(dir, "none")},
		"a file as Dir":  {Dir: file},
		"no bundle":      {Bundle: file},
		"missing bundle": {Bundle: filepath.Join(dir, "none")},
	} {
		if _, err := New(context.Background(), opts); !errors.Is(err, ErrPolicy) {
			t.Errorf("%s: error %v, want ErrPolicy", name, err)
		}
	}
}

// What no wire document could say is refused by both engines.
func TestInvalidCallsAreRefused(t *testing.T) {
	engines := map[string]Engine{"native": Native{}, "opa": embedded(t)}
	for name, e := range engines {
		for _, c := range []capability.Call{
			{}, {Tool: "t"}, {Taint: capability.Clean}, {Tool: "t", Taint: 3},
			{Tool: "t", Taint: capability.Clean, Profile: capability.Profile{Origin: 9}},
			{Tool: "t", Taint: capability.Clean, Policy: capability.CallPolicy{Transform: capability.Transform{Kind: 3}}},
			{Tool: "t", Taint: capability.Clean, Policy: capability.CallPolicy{Veto: "no"}},
			{Tool: "t", Taint: capability.Clean, Policy: capability.CallPolicy{Transform: capability.Transform{Note: "n"}}},
			{Tool: "t", Taint: capability.Clean, Policy: capability.CallPolicy{Transform: capability.Transform{Arguments: []byte("{}")}}},
			{Tool: "t", Taint: capability.Clean, Policy: capability.CallPolicy{Transform: capability.Transform{Kind: capability.Rewrite}}},
		} {
			if o, err := e.Decide(context.Background(), &c); !errors.Is(err, capability.ErrInvalidCall) || o.Kind.Valid() {
				t.Errorf("%s: %+v gives %v, %v", name, c, o.Kind, err)
			}
		}
		if _, err := e.Skill(context.Background(), &skill.Request{Skill: "s"}); !errors.Is(err, skill.ErrInvalidRequest) {
			t.Errorf("%s: a request without a tier gives %v", name, err)
		}
	}
}

// Several results, and several expressions, are as good as none.
func TestSeveralResultsAreAmbiguous(t *testing.T) {
	for _, query := range []string{"numbers.range(1, 3)[_]", "true; false == false"} {
		q, err := rego.New(rego.Query(query)).PrepareForEval(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if v, err := evaluate(context.Background(), func() (rego.PreparedEvalQuery, error) { return q, nil }, nil); !errors.Is(err, ErrAmbiguous) || v != nil {
			t.Errorf("%s gives %v, %v", query, v, err)
		}
	}
}

func TestBothReportsADifference(t *testing.T) {
	other := engineOf(t, "decision := "+okDecision, okSkill)
	o, err := Both(Native{}, other).Decide(context.Background(), &anyCall)
	var difference *DifferenceError
	if !errors.As(err, &difference) || o.Kind.Valid() {
		t.Fatalf("got %v, %v, want a difference", o.Kind, err)
	}
	if !strings.Contains(difference.Other, "allow") || !strings.Contains(difference.Reference, "escalate") {
		t.Errorf("the error does not show both answers: %v", err)
	}
	same := Both(Native{}, embedded(t))
	if o, err := same.Decide(context.Background(), &anyCall); err != nil || o.Kind != capability.Escalate {
		t.Errorf("engines that agree: %v, %v", o.Kind, err)
	}
	if _, err := same.Skill(context.Background(), &skill.Request{Skill: "s", Requested: skill.FullAccess}); err != nil {
		t.Errorf("engines that agree: %v", err)
	}
}

// The system's own name reaches the sentence by an option, by the policies'
// settings, and on the native engine.
func TestSystemName(t *testing.T) {
	call := &capability.Call{Tool: "invite", Taint: capability.Clean,
		Profile: capability.Profile{Origin: capability.AccessGrant}}
	byOption, err := New(context.Background(), &Options{System: "Acme Desk"})
	if err != nil {
		t.Fatal(err)
	}
	bySettings, err := New(context.Background(), &Options{FS: withFile(t, "gate/settings/data.json", func(text string) string {
		return replaceOnce(t, text, "this system", "Acme Desk")
	})})
	if err != nil {
		t.Fatal(err)
	}
	const want = `"invite" would let someone into Acme Desk, so confirm exactly who it is.`
	for name, e := range map[string]Engine{"option": byOption, "settings": bySettings, "native": Native{System: "Acme Desk"}} {
		if o, err := e.Decide(context.Background(), call); err != nil || o.Reason != want {
			t.Errorf("%s: %q, %v", name, o.Reason, err)
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	e := embedded(t)
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := worker; i < domainSize; i += domainSize / 40 {
				c := domainCall(i)
				if o, err := e.Decide(context.Background(), c); err != nil || !o.Equal(c.Decide("")) {
					t.Errorf("cell %d: %v, %v", i, o, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestPoliciesFromADirectory(t *testing.T) {
	e, err := New(context.Background(), &Options{Dir: "../policies"})
	if err != nil {
		t.Fatal(err)
	}
	if o, err := e.Decide(context.Background(), &anyCall); err != nil || o.Kind != capability.Escalate {
		t.Errorf("%v, %v", o.Kind, err)
	}
}
