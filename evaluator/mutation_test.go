package evaluator

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/rego"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/fixtures"
	"github.com/opa-gate/opa-gate/internal/race"
	"github.com/opa-gate/opa-gate/skill"
	"github.com/opa-gate/opa-gate/wire"
)

// Each row weakens or breaks one line of the Rego. The suite must notice every
// one: a mutation that it accepts is a behaviour that nothing pins down.
var mutations = []struct{ file, from, to string }{
	// Precedence.
	{"gate/call/call.rego", "is_string(input.policy.veto)", `input.policy.veto != ""`},
	{"gate/call/call.rego", `answer := {"outcome": "deny", "reason": input.policy.veto}`, `answer := {"outcome": "deny", "reason": "vetoed"}`},
	{"gate/call/call.rego", `answer := {"outcome": "deny", "reason": input.policy.veto}`, `answer := {"outcome": "escalate", "reason": input.policy.veto}`},
	{"gate/call/call.rego", "	missing > 0\n", "	missing > 8\n"},
	{"gate/call/call.rego", "bits.and(profile.required, bits.negate(taint.granted))", "bits.and(taint.granted, bits.negate(profile.required))"},
	{"gate/call/call.rego", "bits.and(profile.required, bits.negate(taint.granted))", "0"},
	{"gate/call/call.rego", "asks_for_person if input.policy.requires_human == true", "asks_for_person if input.policy.requires_human == false"},
	{"gate/call/call.rego", "asks_for_person if input.policy.sandbox_escalation == true", "asks_for_person if input.policy.sandbox_escalation == false"},
	{"gate/call/call.rego", `transform == "rewrite"`, `transform == "rewritten"`},
	{"gate/call/call.rego", `transform == "inject_context"`, `transform == "none"`},
	{"gate/call/call.rego", `"arguments": input.policy.transform.arguments`, `"arguments": {}`},
	{"gate/call/call.rego", `"missing_mask": missing,`, `"missing_mask": profile.required,`},
	{"gate/call/call.rego", `"granted_mask": taint.granted,`, `"granted_mask": grant.base,`},
	{"gate/call/call.rego", "count(grant.unknown) > 0", "count(grant.unknown) > 1"},
	// What is required.
	{"gate/profile/profile.rego", `default origin := "unknown"`, `default origin := "local-sandbox"`},
	{"gate/profile/profile.rego", "default read_only := false", "default read_only := true"},
	{"gate/profile/profile.rego", "else := read_only == false", "else := read_only"},
	{"gate/profile/profile.rego", "else := read_only == false", "else := false"},
	{"gate/profile/profile.rego", `required := facts.bit["local-read"] + facts.bit["local-write"] if {`, `required := facts.bit["local-read"] if {`},
	{"gate/profile/profile.rego", `required := facts.bit["arbitrary-egress"] + facts.bit["mutate-external"] if {`, `required := facts.bit["arbitrary-egress"] if {`},
	{"gate/profile/profile.rego", `required := facts.bit["fixed-connector-read"] + facts.bit["mutate-external"] if {`, `required := facts.bit["fixed-connector-read"] if {`},
	{"gate/profile/profile.rego", "	read_only\n	not destructive\n", "	read_only\n"},
	{"gate/profile/profile.rego", "	read_only\n	not destructive\n", "	not destructive\n"},
	{"gate/profile/profile.rego", `connectors := {"first-party", "registered-connector"}`, `connectors := {"first-party"}`},
	{"gate/profile/profile.rego", `facts.bit["grant-access"] if origin == "access-grant"`, `facts.bit["revoke-access"] if origin == "access-grant"`},
	{"gate/profile/profile.rego", `facts.bit["manage-admin"] if origin == "admin-manage"`, `facts.bit["grant-admin"] if origin == "admin-manage"`},
	{"gate/profile/profile.rego", `required := facts.all if origin == "unknown"`, `required := 0 if origin == "unknown"`},
	// What is granted.
	{"gate/grant/grant.rego", "is_array(input.grant.base)\n} else := facts.all", "count(input.grant.base) > 0\n} else := facts.all"},
	{"gate/grant/grant.rego", "sum({facts.grantable[name]", "sum({facts.bit[name]"},
	{"gate/grant/grant.rego", "sum({facts.grantable[name] | some name in input.grant.base})", "sum([facts.grantable[name] | some name in input.grant.base])"},
	{"gate/grant/grant.rego", "not facts.grantable[name]", "not facts.bit[name]"},
	{"gate/taint/taint.rego", `facts.bit["arbitrary-egress"] + facts.bit["mutate-external"] if`, `facts.bit["arbitrary-egress"] if`},
	{"gate/taint/taint.rego", `facts.bit["arbitrary-egress"] + facts.bit["mutate-external"] if`, `facts.bit["mutate-external"] if`},
	{"gate/taint/taint.rego", `input.taint == "tainted"`, `input.taint == "clean"`},
	{"gate/taint/taint.rego", "bits.and(grant.base, bits.negate(revoked))", "bits.or(grant.base, revoked)"},
	// The reasons and their order.
	{"gate/escalation/escalation.rego", `lacks(missing, "grant-access")`, `lacks(missing, "revoke-access")`},
	{"gate/escalation/escalation.rego", "	lacks(missing, \"arbitrary-egress\")\n	lacks(missing, \"mutate-external\")\n", "	lacks(missing, \"mutate-external\")\n"},
	{"gate/escalation/escalation.rego", `before it could reach`, `before it reaches`},
	// Skills.
	{"gate/trust/trust.rego", "failures - successes > 2", "failures - successes > 3"},
	{"gate/trust/trust.rego", "failures - successes > 2", "failures - successes > 1"},
	{"gate/trust/trust.rego", "	signed\n	signer_trusted\n", "	signed\n"},
	{"gate/trust/trust.rego", `	scanned` + "\n" + `	source == "official"`, `	source == "official"`},
	{"gate/trust/trust.rego", `ceiling := "sandbox_edit" if level == "verified"`, `ceiling := "full_access" if level == "verified"`},
	{"gate/trust/trust.rego", `ceiling := "read_only" if level == "community"`, `ceiling := "read_only" if level in {"community", "untrusted"}`},
	{"gate/skill/skill.rego", "rank[input.requested] <= rank[trust.ceiling]", "rank[input.requested] < rank[trust.ceiling]"},
	{"gate/skill/skill.rego", `"granted": trust.ceiling,`, `"granted": input.requested,`},
	{"gate/enforcement/enforcement.rego", `input.approval == "approved"`, `input.approval != null`},
	{"gate/enforcement/enforcement.rego", `input.approval == "rejected"`, `input.approval == "refused"`},
	{"gate/enforcement/enforcement.rego", `"effective_tier": input.requested`, `"effective_tier": gate.granted`},
	{"gate/enforcement/enforcement.rego", `["skill_deploy", input.skill, input.requested]`, `["skill_deploy", input.requested, input.skill]`},
	// The schema's rules, which a stock OPA depends on.
	{"gate/wire/members.rego", "object.keys(parent) - known", "known - object.keys(parent)"},
	{"gate/wire/call.rego", `not optional_string(policy, "veto")`, `not optional_string(policy, "vet")`},
	{"gate/wire/call.rego", `not nonempty_text(object.get(tool, "name", null))`, `not is_string(object.get(tool, "name", null))`},
	{"gate/wire/call.rego", `in {"clean", "tainted"}`, `in {"clean", "tainted", null}`},
	{"gate/wire/call.rego", "transform.kind in {\"none\", \"rewrite\"}", "transform.kind in {\"none\"}"},
	{"gate/wire/members.rego", "n == floor(n)", "n >= floor(n)"},
	{"gate/wire/members.rego", "n >= 0", "n >= -1"},
	{"gate/wire/members.rego", "n <= 18446744073709551615", "n <= 18446744073709551616"},
	{"gate/wire/skill.rego", `{"approved", "rejected"}`, `{"approved"}`},
}

func TestMutationsAreNoticed(t *testing.T) {
	if testing.Short() || race.Enabled {
		t.Skip("the whole suite once for each mutation takes minutes under the race detector; it runs without -race and -short")
	}
	if len(mutations) < 25 {
		t.Fatalf("%d mutations, want at least 25", len(mutations))
	}
	if found := suiteProblem(t, embedded(t).Interpreter()); found != "" {
		t.Fatalf("the suite does not pass on the policies as they are: %s", found)
	}
	for _, m := range mutations {
		t.Run(m.file+"/"+m.to, func(t *testing.T) {
			t.Parallel()
			tree := withFile(t, m.file, func(text string) string { return replaceOnce(t, text, m.from, m.to) })
			e, err := New(context.Background(), &Options{FS: tree})
			if err != nil {
				t.Fatalf("a mutation must compile, or it shows nothing: %v", err)
			}
			if suiteProblem(t, e.Interpreter()) == "" {
				t.Errorf("nobody noticed that %q became %q", m.from, m.to)
			}
		})
	}
}

// stock judges documents as a stock OPA does that has the policies alone.
type stock struct{ e *Interpreter }

func (s stock) Call(_ context.Context, doc []byte) ([]byte, error) {
	answer, err := rawCall(s.e, string(doc))
	if err != nil {
		return nil, err
	}
	o, err := readOutcome(answer)
	if err != nil {
		return nil, err
	}
	return o.MarshalJSON()
}

func (s stock) Skill(_ context.Context, doc []byte) ([]byte, error) {
	request, err := wire.ParseSkill(doc)
	if err != nil {
		return nil, err
	}
	answer, err := rawSkill(s.e, string(doc))
	if err != nil {
		return nil, err
	}
	a, err := readAnswer(answer, request)
	if err != nil {
		return nil, err
	}
	return a.MarshalJSON()
}

// suiteProblem runs the conformance cases on what a stock OPA would answer, and
// returns the first difference; "" is none.
func suiteProblem(t *testing.T, e *Interpreter) string {
	t.Helper()
	suite := decidedCases(t)
	report := fixtures.Run(context.Background(), stock{e}, suite)
	if len(report.Differences) > 0 {
		d := report.Differences[0]
		return d.File + ": " + d.Case
	}
	if total, _ := report.Total(); total != suite.Len() || total == 0 {
		t.Fatalf("%d of %d cases ran", total, suite.Len())
	}
	for _, c := range loadSuite(t).InvalidCases() {
		if c.Fault == "schema" {
			if problem := refusal(e, c); problem != "" {
				return c.File + ": " + c.Name + ": " + problem
			}
		}
	}
	return ""
}

// refusal holds what a stock OPA says of a document that breaks its schema
// against the case; "" is a refusal as it should be.
func refusal(e *Interpreter, c fixtures.InvalidCase) string {
	call := c.Document == fixtures.Call
	answer, err := raw(e, c.Text, call)
	if err != nil {
		return err.Error()
	}
	var reason string
	if call {
		o, err := readOutcome(answer)
		if err != nil {
			return err.Error()
		}
		if o.Kind != capability.Deny {
			return "the answer is " + o.Kind.String()
		}
		reason = o.Reason
	} else {
		a, err := readAnswer(answer, &skill.Request{})
		if err != nil {
			return err.Error()
		}
		if a.Outcome != skill.Deny || !a.Enforcement.Blocked {
			return "the answer is " + a.Outcome.String()
		}
		reason = a.Reason
	}
	if !strings.Contains(reason, placeInReason(c.Pointer)) {
		return fmt.Sprintf("the reason %q does not name %q", reason, c.Pointer)
	}
	return ""
}

func loadSuite(t testing.TB) fixtures.Suite {
	t.Helper()
	suite, err := fixtures.Load(fixtures.Cases())
	if err != nil {
		t.Fatal(err)
	}
	return suite
}

// decidedCases are the cases that an engine decides; the rest are the same on
// every engine.
func decidedCases(t testing.TB) fixtures.Suite {
	t.Helper()
	var decided fixtures.Suite
	for _, f := range loadSuite(t).Files {
		switch f.Kind {
		case fixtures.Call, fixtures.Skill, fixtures.Profile, fixtures.Redeclare:
			decided.Files = append(decided.Files, f)
		}
	}
	return decided
}

// The whole suite on each way there is to ask.
func TestConformance(t *testing.T) {
	race.SkipSlow(t)
	e := embedded(t)
	for name, judge := range map[string]fixtures.Judge{
		"native": Documents{Native{}}, "opa": Documents{e.Interpreter()}, "both": Documents{Both(Native{}, e.Interpreter())},
		"auto": Documents{e}, "auto, later": Documents{e}, "native and auto": Documents{Both(Native{}, e)},
	} {
		report := fixtures.Run(context.Background(), judge, loadSuite(t))
		if !report.OK() {
			t.Errorf("%s: %+v", name, report)
		}
	}
	if problem := suiteProblem(t, e.Interpreter()); problem != "" {
		t.Errorf("the rules alone: %s", problem)
	}
	if problem := suiteProblem(t, stockOPA(t)); problem != "" {
		t.Errorf("a stock OPA: %s", problem)
	}
}

// stockOPA loads the policies as OPA itself loads a bundle directory, with
// nothing of ours: its loader, its options, and the facts as they lie there.
func stockOPA(t *testing.T) *Interpreter {
	t.Helper()
	prepared := func(query string) func() (rego.PreparedEvalQuery, error) {
		q, err := rego.New(rego.Query(query), rego.LoadBundle("../policies")).PrepareForEval(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return func() (rego.PreparedEvalQuery, error) { return q, nil }
	}
	return &Interpreter{call: prepared(callQuery), skill: prepared(skillQuery)}
}
