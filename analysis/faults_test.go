package analysis

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/skill"
	"github.com/opa-gate/opa-gate/wire"
)

// A fault is what somebody does to the policies: edits, each of a text that stands
// in a file once.
type fault struct {
	name  string
	edits []edit
	// Breaks are the invariants that no longer hold, besides equality with the
	// reference, which every fault breaks that changes anything.
	breaks []string
	// Equal: it changes no answer. Refused: it does not load, and check says why.
	equal, refused bool
	// The texts that the rules compare with because of it.
	tools, vetoes []string
}

type edit struct{ file, from, to string }

const (
	inCall        = "gate/call/call.rego"
	inProfile     = "gate/profile/profile.rego"
	inTaint       = "gate/taint/taint.rego"
	inGrant       = "gate/grant/grant.rego"
	inEscalation  = "gate/escalation/escalation.rego"
	inTrust       = "gate/trust/trust.rego"
	inSkill       = "gate/skill/skill.rego"
	inEnforcement = "gate/enforcement/enforcement.rego"
	inWire        = "gate/wire/call.rego"
)

const (
	askedBranch   = "} else := {\"outcome\": \"escalate\", \"reason\": \"\"} if {\n\tmissing == 0\n\tasks_for_person\n"
	allowedBranch = "} else := {\"outcome\": \"allow\", \"reason\": \"\"} if {\n\tmissing == 0\n\ttransform == \"none\"\n"
)

var callFaults = []fault{
	// A rule weakened, or without effect.
	{name: "a veto has a text of its own", edits: []edit{{inCall, `{"outcome": "deny", "reason": input.policy.veto}`, `{"outcome": "deny", "reason": "vetoed"}`}}, breaks: []string{"veto-first"}},
	{name: "a veto asks", edits: []edit{{inCall, `{"outcome": "deny", "reason": input.policy.veto}`, `{"outcome": "escalate", "reason": input.policy.veto}`}}, breaks: []string{"veto-first"}},
	{name: "a veto is heeded only beside a person", edits: []edit{{inCall, "is_string(input.policy.veto)\n", "is_string(input.policy.veto)\n\tinput.policy.requires_human == true\n"}}, breaks: []string{"veto-first"}},
	{name: "an empty veto is none", edits: []edit{{inCall, "is_string(input.policy.veto)", `input.policy.veto != ""`}}, breaks: []string{"veto-first"}, vetoes: []string{""}},
	{name: "nobody is asked for a clean sandbox", edits: []edit{{inCall, "asks_for_person if input.policy.sandbox_escalation == true", "asks_for_person if {\n\tinput.policy.sandbox_escalation == true\n\tinput.taint == \"tainted\"\n}"}}, breaks: []string{"person-asked"}},
	{name: "a person is asked if none is required", edits: []edit{{inCall, "asks_for_person if input.policy.requires_human == true", "asks_for_person if input.policy.requires_human == false"}}, breaks: []string{"person-asked"}},
	{name: "taint revokes nothing", refused: true, edits: []edit{{inTaint, `revoked := facts.bit["arbitrary-egress"] + facts.bit["mutate-external"] if`, `revoked := 0 if`}}},
	{name: "a transform is misspelt", refused: true, edits: []edit{{inCall, `missing > 0`, `mising > 0`}}},
	{name: "taint adds", edits: []edit{{inTaint, "bits.and(grant.base, bits.negate(revoked))", "bits.or(grant.base, revoked)"}}, breaks: []string{"grant-is-a-ceiling", "taint-never-adds"}},
	{name: "unknown requires nothing", edits: []edit{{inProfile, `required := facts.all if origin == "unknown"`, `required := 0 if origin == "unknown"`}}},
	{name: "a marker is grantable", edits: []edit{{inProfile, `required := facts.bit["grant-access"] if`, `required := facts.bit["local-read"] if`}}, breaks: []string{"markers-escalate"}},
	{name: "an empty base is everything", edits: []edit{{inGrant, "is_array(input.grant.base)\n} else := facts.all", "count(input.grant.base) > 0\n} else := facts.all"}}, breaks: []string{"grant-is-a-ceiling"}},
	{name: "a marker in a grant counts", edits: []edit{{inGrant, "sum({facts.grantable[name]", "sum({facts.bit[name]"}}, breaks: []string{"grant-is-a-ceiling", "markers-escalate"}},
	{name: "one unknown name is not told", edits: []edit{{inCall, "count(grant.unknown) > 0", "count(grant.unknown) > 1"}}},
	// A guard dropped.
	{name: "a fetcher's destructive guard", edits: []edit{{inProfile, "\torigin == \"fetcher\"\n\tdestructive\n", "\torigin == \"fetcher\"\n"}}, breaks: []string{"answered"}},
	{name: "destructive reads only", edits: []edit{{inProfile, "\tread_only\n\tnot destructive\n", "\tread_only\n"}}},
	{name: "read_only is not needed to read", edits: []edit{{inProfile, "\tread_only\n\tnot destructive\n", "\tnot destructive\n"}}},
	{name: "what is missing is not looked at", edits: []edit{{inCall, "} if {\n\tmissing > 0\n}", "} if {\n\tmissing > 8\n}"}}, breaks: []string{"redeclaration-never-narrows"}},
	// Masks off by one bit.
	{name: "local-write is not required", edits: []edit{{inProfile, `required := facts.bit["local-read"] + facts.bit["local-write"] if {`, `required := facts.bit["local-read"] if {`}}},
	{name: "a fetcher needs no egress", edits: []edit{{inProfile, `required := facts.bit["arbitrary-egress"] + facts.bit["mutate-external"] if {`, `required := facts.bit["mutate-external"] if {`}}, breaks: []string{"redeclaration-never-narrows"}},
	{name: "a connector needs no mutation", edits: []edit{{inProfile, `required := facts.bit["fixed-connector-read"] + facts.bit["mutate-external"] if {`, `required := facts.bit["fixed-connector-read"] if {`}}},
	{name: "taint keeps mutation", edits: []edit{{inTaint, `revoked := facts.bit["arbitrary-egress"] + facts.bit["mutate-external"] if`, `revoked := facts.bit["arbitrary-egress"] if`}}},
	{name: "taint revokes a bit more", edits: []edit{{inTaint, `facts.bit["mutate-external"] if`, `facts.bit["mutate-external"] + 1 if`}}},
	{name: "missing is what is not revoked", edits: []edit{{inCall, "bits.and(profile.required, bits.negate(taint.granted))", "bits.and(profile.required, bits.negate(grant.base))"}}, breaks: []string{"answered"}},
	{name: "granted is the base", edits: []edit{{inCall, `"granted_mask": taint.granted,`, `"granted_mask": grant.base,`}}, breaks: []string{"answered"}},
	// An else swapped.
	{name: "allow comes before the person", edits: []edit{{inCall, askedBranch + allowedBranch, allowedBranch + askedBranch}}, breaks: []string{"person-asked"}},
	{name: "destructive unless it is not read-only", edits: []edit{{inProfile, "else := read_only == false", "else := read_only"}}, breaks: []string{"redeclaration-never-narrows"}},
	{name: "an else of a sentence", edits: []edit{{inEscalation, "\tlacks(missing, \"arbitrary-egress\")\n\tlacks(missing, \"mutate-external\")\n", "\tlacks(missing, \"mutate-external\")\n"}}},
	// A default changed.
	{name: "read_only unless it says otherwise", edits: []edit{{inProfile, "default read_only := false", "default read_only := true"}}},
	{name: "a tool of no origin is the sandbox's", edits: []edit{{inProfile, `default origin := "unknown"`, `default origin := "local-sandbox"`}}, breaks: []string{"no-origin-is-unknown"}},
	{name: "a tool of no origin is a fetcher", edits: []edit{{inProfile, `default origin := "unknown"`, `default origin := "fetcher"`}}, breaks: []string{"no-origin-is-unknown"}},
	{name: "a tool of no origin makes admins", edits: []edit{{inProfile, `default origin := "unknown"`, `default origin := "admin-grant"`}}},
	{name: "no grant grants nothing", edits: []edit{{inGrant, "} else := facts.all", "} else := 0"}}},
	{name: "no grant grants markers too", edits: []edit{{inGrant, "} else := facts.all", "} else := 511"}}, breaks: []string{"grant-is-a-ceiling", "markers-escalate"}},
	{name: "a transform unless there is none", edits: []edit{{inCall, `default transform := "none"`, `default transform := "inject_context"`}}, breaks: []string{"taint-never-adds", "transform-needs-allow"}},
	// An unknown taint.
	{name: "tainted is misspelt", edits: []edit{{inTaint, `input.taint == "tainted"`, `input.taint == "dirty"`}}, breaks: []string{"veto-first"}},
	{name: "only clean is a taint", edits: []edit{{inWire, `in {"clean", "tainted"}`, `in {"clean"}`}}, breaks: []string{"veto-first"}},
	// A name compared.
	{name: "a tool is trusted by its name", edits: []edit{{inProfile, "reads_only if {\n", "reads_only if input.tool.name == \"get_status\"\n\nreads_only if {\n"}}, tools: []string{"get_status"}},
	{name: "a name and a veto together", edits: []edit{{inCall, "\tis_string(input.policy.veto)\n", "\tis_string(input.policy.veto)\n\tnot excused\n"},
		{inCall, "asks_for_person if input.policy.requires_human == true\n", "asks_for_person if input.policy.requires_human == true\n\nexcused if {\n\tinput.tool.name == \"ls\"\n\tinput.policy.veto == \"later\"\n}\n"}},
		breaks: []string{"veto-first"}, tools: []string{"ls"}, vetoes: []string{"later"}},
	// Words.
	{name: "a sentence", edits: []edit{{inEscalation, `before it could reach`, `before it reaches`}}},
	{name: "another sentence", edits: []edit{{inEscalation, `lacks(missing, "grant-access")`, `lacks(missing, "revoke-access")`}}},
	// What changes nothing.
	{name: "null veto", equal: true, edits: []edit{{inCall, "is_string(input.policy.veto)", "input.policy.veto != null"}}},
	{name: "a guard that the order implies", equal: true, edits: []edit{{inCall, "\tmissing == 0\n\ttransform == \"inject_context\"\n", "\ttransform == \"inject_context\"\n"}}},
	{name: "a default that is never reached", equal: true, edits: []edit{{inCall, "default decision := {\n\t\"outcome\": \"deny\",", "default decision := {\n\t\"outcome\": \"escalate\","}}},
	{name: "unknown taint", equal: true, edits: []edit{{inTaint, `input.taint == "clean"`, `input.taint != "tainted"`}}},
}

var skillFaults = []fault{
	{name: "one failure more", edits: []edit{{inTrust, "failures - successes > 2", "failures - successes > 3"}}},
	{name: "one failure less", edits: []edit{{inTrust, "failures - successes > 2", "failures - successes > 1"}}},
	{name: "any signer", edits: []edit{{inTrust, "\tsigned\n\tsigner_trusted\n", "\tsigned\n"}}},
	{name: "nobody scanned", edits: []edit{{inTrust, "} else := \"verified\" if {\n\tsigned\n\tscanned\n", "} else := \"verified\" if {\n\tsigned\n"}}},
	{name: "vulnerable", edits: []edit{{inTrust, "} else := \"untrusted\" if {\n\tvulnerabilities > 0\n", "} else := \"untrusted\" if {\n\tvulnerabilities > 1\n"}}},
	{name: "a higher ceiling", edits: []edit{{inTrust, `ceiling := "sandbox_edit" if level == "verified"`, `ceiling := "full_access" if level == "verified"`}}, breaks: []string{"trust-is-a-ceiling"}},
	{name: "the request is granted", edits: []edit{{inSkill, `"granted": trust.ceiling,`, `"granted": input.requested,`}}, breaks: []string{"skill-answered"}},
	{name: "less than the ceiling", edits: []edit{{inSkill, "rank[input.requested] <= rank[trust.ceiling]", "rank[input.requested] < rank[trust.ceiling]"}}},
	{name: "any verdict approves", edits: []edit{{inEnforcement, `input.approval == "approved"`, `is_string(input.approval)`}}, breaks: []string{"skill-answered"}},
	{name: "nothing is rejected", edits: []edit{{inEnforcement, `input.approval == "rejected"`, `input.approval == "refused"`}}},
	{name: "counts are whole", equal: true, edits: []edit{{inTrust, "failures - successes > 2", "failures - successes >= 3"}}},
	{name: "the last branch needs no guard", equal: true, edits: []edit{{inEnforcement, "}) if {\n\tgate.outcome == \"deny\"\n}\n\n# METADATA\n# title: The name of the ledger's", "})\n\n# METADATA\n# title: The name of the ledger's"}}},
}

// workingCopy writes a copy of the policies, without its invariants, and edits it.
func workingCopy(t testing.TB, edits ...edit) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "policies")
	if _, err := Init(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "gate", "invariants")); err != nil {
		t.Fatal(err)
	}
	for _, e := range edits {
		name := filepath.Join(dir, filepath.FromSlash(e.file))
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), e.from); n != 1 {
			t.Fatalf("%q stands in %s %d times, want once", e.from, e.file, n)
		}
		if err := os.WriteFile(name, []byte(strings.Replace(string(text), e.from, e.to, 1)), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func opened(t testing.TB, dir string) *evaluator.Evaluator {
	t.Helper()
	e, err := evaluator.New(t.Context(), &evaluator.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// spread is a part of the kinds of call in which every value of every member is
// there: all profiles that say nothing of open_world, with grants of nothing, of
// everything and of one capability alone, without a verdict; and every verdict on a
// read-only tool of each origin, under no grant and a full one.
var spread = sync.OnceValue(func() []int {
	return kinds(func(c *capability.Call) bool {
		p, v := &c.Profile, &c.Policy
		plain := !v.Vetoed && !v.RequiresHuman && !v.SandboxEscalation && v.Transform.Kind == capability.NoTransform
		extreme := c.Grant.Base == 0 || c.Grant.Base == capability.All
		one := c.Grant.Base&(c.Grant.Base-1) == 0
		reader := p.ReadOnly == capability.Yes && p.Destructive == capability.Unset
		return p.OpenWorld == capability.Unset && (plain && (extreme || one) || reader && extreme)
	})
})

// someSkills are the skills whose counts are small.
func someSkills() []skill.Request {
	return slices.DeleteFunc(skillRequests(), func(r skill.Request) bool {
		return max(r.Provenance.Vulnerabilities, r.Provenance.SuccessCount, r.Provenance.FailCount) > 100
	})
}

// A replayer shows a document to the policies again.
type replayer struct {
	ctx    context.Context
	engine evaluator.Engine
}

func (r replayer) ask(t *testing.T, doc []byte) answered {
	t.Helper()
	c, err := wire.ParseCall(doc)
	if err != nil {
		t.Fatalf("the document %s cannot be pasted: %v", doc, err)
	}
	o, err := r.engine.Decide(r.ctx, c)
	return answered{c, o, err}
}

// decided is what decide prints for a document.
func (r replayer) decided(doc []byte) string {
	text, err := evaluator.DecideJSON(r.ctx, r.engine, doc)
	if err != nil {
		return string(answerOf(nil, err))
	}
	return string(text)
}

// showsCall fails the test unless the documents of a breach, given to decide
// with the same policies, are answered as it says, and that breaks the invariant.
func (r replayer) showsCall(t *testing.T, i *Invariant) {
	t.Helper()
	b := i.Breach
	if got := r.decided(b.Document); got != string(b.Answer) {
		t.Errorf("%s: decide answers %s with %s, the breach says %s", i.Name, b.Document, got, b.Answer)
	}
	if b.Against != nil && r.decided(b.Against) != string(b.AgainstAnswer) {
		t.Errorf("%s: decide answers %s with %s, the breach says %s", i.Name, b.Against, r.decided(b.Against), b.AgainstAnswer)
	}
	a := r.ask(t, b.Document)
	switch i.Name {
	case "equals-native":
		if want := a.call.Decide(""); a.err == nil && a.outcome.Equal(want) {
			t.Errorf("decide answers %s as the reference does", b.Document)
		}
		return
	case redeclarationName:
		other := r.ask(t, b.Against)
		if less := other.outcome.Required.Minus(a.outcome.Required); less.Empty() || !becomes(other.call.Profile, a.call.Profile, []capability.Profile{a.call.Profile}) {
			t.Errorf("%s declared anew as %s loses %v", b.Against, b.Document, less)
		}
		return
	}
	for _, check := range callInvariants {
		if check.name != i.Name {
			continue
		}
		problem, against := check.broken(&a, func(c *capability.Call) answered { return r.ask(t, callDocument(c, false)) })
		if problem != b.Problem || (against != nil) != (b.Against != nil) {
			t.Errorf("%s: decide shows %q, the breach says %q", i.Name, problem, b.Problem)
		}
		return
	}
	t.Errorf("there is no invariant %s", i.Name)
}

func (r replayer) showsSkill(t *testing.T, i *Invariant) {
	t.Helper()
	q, err := wire.ParseSkill(i.Breach.Document)
	if err != nil {
		t.Fatalf("the document %s cannot be pasted: %v", i.Breach.Document, err)
	}
	a, err := r.engine.Skill(r.ctx, q)
	if got := answerOf(a, err); !bytes.Equal(got, i.Breach.Answer) {
		t.Errorf("%s: the answer to %s is %s, the breach says %s", i.Name, i.Breach.Document, got, i.Breach.Answer)
	}
	if want := q.Decide(); err == nil && reflect.DeepEqual(a, want) {
		t.Errorf("%s: %s is answered as the reference does", i.Name, i.Breach.Document)
	}
}

// passes runs the tests that breaches come with in a directory of policies, and
// returns how each ended, by its name.
func passes(t *testing.T, dir string, tests map[string]string) map[string]TestOutcome {
	t.Helper()
	for pkg, text := range tests {
		name := filepath.Join(dir, pkg+"_test.rego")
		if err := os.WriteFile(name, []byte("package "+pkg+"_test\n\n"+text), 0o666); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = os.Remove(name) }()
	}
	suite, err := newTestSuite(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	results, err := suite.run(t.Context(), `data\.fault_`, newTestTracer())
	if err != nil {
		t.Fatal(err)
	}
	outcomes := map[string]TestOutcome{}
	for _, r := range results {
		outcomes[r.Name] = r.Outcome
	}
	return outcomes
}

// Every fault is found by what verify runs, on a part of the domain, or changes
// nothing there. Each breach can be shown again by decide, and its test fails;
// on the policies as they are, all these tests pass.
func TestVerifyFindsFaults(t *testing.T) {
	exhaustive(t)
	if n := len(callFaults) + len(skillFaults); n < 30 {
		t.Fatalf("%d faults, want at least 30", n)
	}
	tests := map[string]string{}
	var mu sync.Mutex // of tests
	t.Run("faults", func(t *testing.T) {
		for n, f := range slices.Concat(callFaults, skillFaults) {
			t.Run(f.name, func(t *testing.T) {
				t.Parallel()
				dir := workingCopy(t, f.edits...)
				if f.refused {
					_, err := evaluator.New(t.Context(), &evaluator.Options{Dir: dir})
					checked, checkErr := Check(t.Context(), dir, &CheckOptions{Static: true})
					if !errors.Is(err, evaluator.ErrPolicy) || checkErr != nil || checked.OK() {
						t.Errorf("it loads with %v; check: %v, %+v", err, checkErr, checked)
					}
					return
				}
				e := opened(t, dir)
				of, requests := spread(), noSkills
				if n >= len(callFaults) { // no call depends on these packages
					of, requests = []int{}, someSkills()
				}
				v := verifySample(t, e, of, requests, true, f.tools, f.vetoes)
				got := brokenNames(v)
				want := append(slices.Clone(f.breaks), "equals-native")
				if n >= len(callFaults) {
					want = append(slices.Clone(f.breaks), "skill-equals-native")
				}
				if f.equal {
					want = nil
				}
				slices.Sort(got)
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Errorf("broken are %q, want %q", got, want)
				}
				text := ""
				r := replayer{t.Context(), e.Interpreter()}
				for i := range v.Invariants {
					in := &v.Invariants[i]
					if in.Breach == nil {
						continue
					}
					text += in.Breach.Test + "\n"
					if n < len(callFaults) {
						r.showsCall(t, in)
					} else {
						r.showsSkill(t, in)
					}
				}
				if text == "" {
					return
				}
				pkg := fmt.Sprintf("fault_%d", n)
				for name, outcome := range passes(t, dir, map[string]string{pkg: text}) {
					if outcome != TestFailed && outcome != TestError {
						t.Errorf("%s: %s, want it to fail\n%s", name, outcome, text)
					}
				}
				mu.Lock()
				defer mu.Unlock()
				tests[pkg] = text
			})
		}
	})
	outcomes := passes(t, workingCopy(t), tests)
	if len(outcomes) < len(tests) || len(tests) < 30 {
		t.Errorf("%d tests of %d faults ran", len(outcomes), len(tests))
	}
	for _, name := range slices.Sorted(maps.Keys(outcomes)) {
		if outcomes[name] != TestPassed {
			t.Errorf("%s on the policies as they are: %s", name, outcomes[name])
		}
	}
}

// Whole runs, as policy verify makes them: the policies as they are, and such
// with several faults at once, so that most invariants of calls are broken.
func TestVerifyOfThePolicies(t *testing.T) {
	exhaustive(t)
	edits := func(names ...string) []edit {
		var all []edit
		for _, name := range names {
			i := slices.IndexFunc(callFaults, func(f fault) bool { return f.name == name })
			all = append(all, callFaults[i].edits...)
		}
		return all
	}
	tests := map[string]struct {
		edits  []edit
		broken []string
		tools  []string
		calls  int
	}{
		"as they are": {calls: 427680},
		"a text": {edits: edits("a tool is trusted by its name"), broken: []string{"equals-native"}, tools: []string{"get_status"},
			calls: 427680 + 427680/10*2}, // one more tool for two origins
		"several faults": {edits: edits("taint adds", "a marker is grantable", "nobody is asked for a clean sandbox", "a fetcher needs no egress",
			"a transform unless there is none", "a veto asks"),
			broken: []string{"equals-native", "grant-is-a-ceiling", "markers-escalate", "person-asked",
				"redeclaration-never-narrows", "taint-never-adds", "transform-needs-allow", "veto-first"}, calls: 427680},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			e := opened(t, workingCopy(t, tt.edits...))
			s, err := e.Survey(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			v, err := (&verifier{evaluator: e, survey: s, answers: s, named: true, requests: someSkills(), opts: &VerifyOptions{Native: true}}).verify(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got := brokenNames(v)
			slices.Sort(got)
			if !slices.Equal(got, tt.broken) && len(got)+len(tt.broken) > 0 {
				t.Errorf("broken are %q, want %q", got, tt.broken)
			}
			if !slices.Equal(s.Tools, tt.tools) || len(s.Vetoes)+len(s.Notes)+len(v.Incomplete) > 0 {
				t.Errorf("tools %q, vetoes %q, notes %q, incomplete %v; want %q and no more", s.Tools, s.Vetoes, s.Notes, v.Incomplete, tt.tools)
			}
			if v.Calls != tt.calls {
				t.Errorf("%d calls, want %d", v.Calls, tt.calls)
			}
			r := replayer{t.Context(), e.Interpreter()}
			for i := range v.Invariants {
				if v.Invariants[i].Breach != nil {
					r.showsCall(t, &v.Invariants[i])
				}
			}
		})
	}
}

// The faults that change nothing are proven to: their difference is empty.
func TestDiffOfFaultsThatChangeNothing(t *testing.T) {
	exhaustive(t)
	original := opened(t, workingCopy(t))
	old, err := original.Survey(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	equal := func(f fault) bool { return f.equal }
	if !slices.ContainsFunc(callFaults, equal) || !slices.ContainsFunc(skillFaults, equal) {
		t.Error("there is no fault that changes nothing")
	}
	for _, f := range callFaults {
		if !f.equal {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			e := opened(t, workingCopy(t, f.edits...))
			s, err := e.Survey(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			before := &evaluator.Survey{Tools: old.Tools, Vetoes: old.Vetoes, Notes: old.Notes} // join changes it
			d := &differ{old: before, new: s, before: old, after: s, named: true, opts: &DiffOptions{}, callsAlone: true}
			isEmpty(t, d, original, e, 427680, 0)
		})
	}
	for _, f := range skillFaults {
		if !f.equal {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			e := opened(t, workingCopy(t, f.edits...))
			none := &evaluator.Survey{}
			d := &differ{old: none, new: none, before: asked(original), after: asked(e), kinds: []int{}, opts: &DiffOptions{}}
			isEmpty(t, d, original, e, 427680, 9504)
		})
	}
}

func isEmpty(t *testing.T, d *differ, old, new *evaluator.Evaluator, calls, skills int) {
	t.Helper()
	got, err := d.diff(t.Context(), old, new)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Changes) != 0 || len(got.Incomplete) != 0 || got.Calls != calls || got.Skills != skills {
		t.Errorf("%d calls, %d skills, incomplete %v, changes %+v", got.Calls, got.Skills, got.Incomplete, got.Changes)
	}
	for _, s := range got.Matrix {
		if s.Changed {
			t.Errorf("%+v changed", s)
		}
	}
}
