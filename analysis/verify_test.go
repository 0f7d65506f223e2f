package analysis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/skill"
	"github.com/opa-gate/opa-gate/wire"
)

// A whole policy, as small as one can be: it lets every call be made, and no skill.
const (
	minimalCall = `package gate.call

ok := {
	"outcome": "allow", "reason": "", "missing": [], "missing_mask": 0,
	"required": [], "required_mask": 0, "granted": [], "granted_mask": 0,
}

`
	minimalSkill = `package gate.skill

decision := {
	"trust": "untrusted", "ceiling": null, "granted": null, "outcome": "deny", "reason": "",
	"enforcement": {
		"deploy": false, "effective_tier": null, "overridden": false, "blocked": true, "pending": null, "reason": "",
	},
}
`
)

// minimal makes policies of the rules that decide calls, and more files: pairs of
// a name and a text.
func minimal(t testing.TB, rules string, more ...string) *evaluator.Evaluator {
	t.Helper()
	tree := fstest.MapFS{"call.rego": {Data: []byte(minimalCall + rules)}, "skill.rego": {Data: []byte(minimalSkill)}}
	for i := 0; i < len(more); i += 2 {
		tree[more[i]] = &fstest.MapFile{Data: []byte(more[i+1])}
	}
	e, err := evaluator.New(t.Context(), &evaluator.Options{FS: tree})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// sampled are the answers of OPA itself, asked about each call once: what a survey
// says of all kinds of call, for as many as a test can afford. No kind is exact, so
// every text is tried.
type sampled struct {
	engine evaluator.Engine
	known  *sync.Map // answered, by document
}

func asked(e *evaluator.Evaluator) sampled { return sampled{e.Interpreter(), &sync.Map{}} }

func (sampled) Exact(int) bool { return false }

func (s sampled) Decide(ctx context.Context, c *capability.Call) (capability.Outcome, error) {
	doc := string(callDocument(c, false))
	if a, ok := s.known.Load(doc); ok {
		return a.(answered).outcome, a.(answered).err
	}
	o, err := s.engine.Decide(ctx, c)
	s.known.Store(doc, answered{outcome: o, err: err})
	return o, err
}

// kinds lists the kinds of call that a test looks at.
func kinds(in func(c *capability.Call) bool) []int {
	list := []int{}
	for n := range evaluator.Cells {
		if in(evaluator.CellCall(n)) {
			list = append(list, n)
		}
	}
	return list
}

// plainKinds are the calls under an empty grant, a full one and none on which
// nobody passed a verdict: 9 origins and none, 27 hints, 3 bases, 2 taints.
func plainKinds() []int {
	return kinds(func(c *capability.Call) bool {
		return (c.Grant.Base == 0 || c.Grant.Base == capability.All) && !c.Policy.Vetoed && !c.Policy.RequiresHuman &&
			!c.Policy.SandboxEscalation && c.Policy.Transform.Kind == capability.NoTransform
	})
}

// verifySample is Verify for some kinds of call, and some skills, with the texts
// that tools, vetoes and notes have.
func verifySample(t testing.TB, e *evaluator.Evaluator, kinds []int, requests []skill.Request, native bool, texts ...[]string) *Verification {
	t.Helper()
	texts = append(texts, nil, nil, nil)
	v := &verifier{evaluator: e, survey: &evaluator.Survey{Tools: texts[0], Vetoes: texts[1], Notes: texts[2]}, answers: asked(e),
		kinds: kinds, requests: requests, named: native && len(kinds) > 0, opts: &VerifyOptions{Native: native}}
	got, err := v.verify(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// noSkills leaves skills out of a sample.
var noSkills = []skill.Request{}

// broken returns the breach of an invariant, by its name, or by its title where
// names are the same; nil if it holds. The test fails if there is no such one.
func broken(t testing.TB, v *Verification, name string) *Breach {
	t.Helper()
	for _, i := range v.Invariants {
		if i.Name == name || i.Title == name {
			return i.Breach
		}
	}
	t.Fatalf("there is no invariant %s", name)
	return nil
}

// brokenNames lists what does not hold.
func brokenNames(v *Verification) []string {
	names := []string{}
	for _, i := range v.Invariants {
		if i.Breach != nil {
			names = append(names, i.Name)
		}
	}
	return names
}

func heavy(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("it takes seconds, and minutes under the race detector; it runs without -short")
	}
}

// exhaustive skips what goes through many whole surveys, but for the run that is
// there for it.
func exhaustive(t *testing.T) {
	t.Helper()
	if os.Getenv("OPA_GATE_EXHAUSTIVE") == "" {
		t.Skip("many whole surveys take minutes; make exhaustive runs them")
	}
}

// The domain of calls is counted by its dimensions in the specification.
func TestKindsOfCall(t *testing.T) {
	origins, hints, bases, taints, flags, transforms := 9+1, 3*3*3, 32+1, 2, 2*2*2, 3 // one more: left out
	if want := origins * hints * bases * taints * flags * transforms; evaluator.Cells != want {
		t.Errorf("%d kinds of call, want %d = 427,680", evaluator.Cells, want)
	}
	given, documents := 0, map[string]bool{}
	for n := range evaluator.Cells {
		c := evaluator.CellCall(n)
		p := &c.Profile
		if p.ReadOnly == capability.Unset || p.Destructive == capability.Unset || p.OpenWorld == capability.Unset {
			continue
		}
		given++
		documents[string(callDocument(c, false))] = true
	}
	if want := 10 * 2 * 2 * 2 * 33 * 2 * 2 * 2 * 2 * 3; given != want || len(documents) != want {
		t.Errorf("%d kinds with every annotation, and %d documents; want %d = 126,720", given, len(documents), want)
	}
}

// So is that of skills: tiers, approvals, sources, flags, counts of
// vulnerabilities, and pairs of counts on either side of where trust turns.
func TestSkillsOfTheDomain(t *testing.T) {
	requests := skillRequests()
	documents := map[string]bool{}
	for i := range requests {
		documents[string(skillDocument(&requests[i], false))] = true
	}
	if want := 3 * 3 * 4 * (2 * 2 * 2) * 3 * 11; len(requests) != want || len(documents) != want || newSkillSpace().size != want {
		t.Errorf("%d skills, %d documents, %d points; want %d", len(requests), len(documents), newSkillSpace().size, want)
	}
	// A point's number is the place of its request in the list.
	space := newSkillSpace()
	eachPoint(space, func(n int, at []int) {
		r := &requests[n]
		got := []string{r.Requested.String(), r.Approval.String(), r.Provenance.Source.String(), yes(r.Provenance.Scanned),
			yes(r.Provenance.SignerTrusted), yes(r.Provenance.Signed), fmt.Sprint(r.Provenance.Vulnerabilities),
			fmt.Sprintf("%d after %d successes", r.Provenance.FailCount, r.Provenance.SuccessCount)}
		for i, d := range space.dims {
			if want := d.values[at[i]]; got[i] != want && (want != notGiven || r.Approval != skill.NoVerdict) {
				t.Fatalf("skill %d has %s %s, want %s", n, d.member, got[i], want)
			}
		}
	})
}

// Names that grant nothing: 5 of them, for tools of 9 origins, or none, and 9 hints, under 2 bases
// and 2 taints. A point's number is the place of its call in the list.
func TestNamedCalls(t *testing.T) {
	calls, space := namedCalls(), namedSpace()
	if want := 5 * 10 * 9 * 2 * 2; len(calls) != want || space.size != want {
		t.Fatalf("%d calls, %d points, want %d", len(calls), space.size, want)
	}
	eachPoint(space, func(n int, at []int) {
		c := calls[n]
		base := []string{"of nothing else", "of everything else"}[min(int(c.Grant.Base), 1)]
		origin := c.Profile.Origin.String()
		if c.LeftOut.Has(capability.OriginMember) {
			origin = notGiven
		}
		for i, got := range []string{hintValues[c.Profile.ReadOnly], hintValues[c.Profile.Destructive], base, c.Taint.String(),
			origin, fmt.Sprintf("with %q, which grants nothing", c.Grant.Unknown[0])} {
			if want := space.dims[i].values[at[i]]; got != want {
				t.Fatalf("call %d has %s, want %s", n, got, want)
			}
		}
		if parsed, err := wire.ParseCall(callDocument(c, false)); err != nil || parsed.Grant.Base != c.Grant.Base || parsed.LeftOut != c.LeftOut || !slices.Equal(parsed.Grant.Unknown, c.Grant.Unknown) {
			t.Fatalf("%s is read as %+v, %v", callDocument(c, false), parsed, err)
		}
	})
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// An answer that says of its own what a call happens to say is not taken for one
// that says what the call says.
func TestVerifyTakesNoConstantForACopy(t *testing.T) {
	heavy(t)
	for _, text := range []string{"stop", "never stop here"} {
		v, err := Verify(t.Context(), minimal(t, `decision := object.union(ok, {"outcome": "deny", "reason": "`+text+`"}) if {
	is_string(input.policy.veto)
} else := ok
`), &VerifyOptions{Native: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"veto-first", "equals-native"} {
			if broken(t, v, name) == nil {
				t.Errorf("every veto is answered with %q, and %s holds", text, name)
			}
		}
	}
}

// Policies that allow everything, over the whole domain: what is broken, by how
// many inputs, and the smallest of them.
func TestVerifyCountsBreaches(t *testing.T) {
	heavy(t)
	var progress steps
	v, err := Verify(t.Context(), minimal(t, "decision := ok\n", "gate/invariants.rego", `# METADATA
# schemas:
#   - input: schema.invariant
package gate.invariants

breach contains "m" if input.decision.outcome == "inject_context" # which none is
`), &VerifyOptions{Progress: progress.tell(t)})
	if err != nil {
		t.Fatal(err)
	}
	progress.ended(t, surveyWeight, callsWeight, redeclarationWeight, skillsWeight, taintWeight, authoredWeight, skillsWeight)
	if v.Calls != 427680 || v.Skills != 9504 || v.OK() || len(v.Incomplete) != 0 {
		t.Errorf("%d calls, %d skills, OK %v, incomplete %v", v.Calls, v.Skills, v.OK(), v.Incomplete)
	}
	if got, want := brokenNames(v), []string{"veto-first", "markers-escalate", "person-asked"}; !slices.Equal(got, want) {
		t.Errorf("broken are %v, want %v", got, want)
	}
	for name, want := range map[string]struct {
		inputs   int
		document string
	}{
		"veto-first": {427680 / 2, `{"tool": {"name": "tool"}, "taint": "clean", "policy": {"veto": "stop"}}`},
		// of both the kinds of call and the calls whose grant names what grants nothing
		"markers-escalate": {427680/10*4 + 9*2*2*10*5/10*4, `{"tool": {"name": "tool", "origin": "admin-grant"}, "taint": "clean"}`},
		"person-asked":     {427680 / 4 * 3, `{"tool": {"name": "tool"}, "taint": "clean", "policy": {"requires_human": true}}`},
	} {
		b := broken(t, v, name)
		if b == nil || b.Inputs != want.inputs || string(b.Document) != want.document ||
			!slices.Equal(b.Rules, []Place{{"data.gate.call.ok", "call.rego", 3}}) {
			t.Errorf("%s: %+v, want %d inputs and %s", name, b, want.inputs, want.document)
		}
	}
}

// Texts that rules compare with are tried in every combination that they have.
func TestVerifyTriesTextsTogether(t *testing.T) {
	heavy(t)
	v, err := Verify(t.Context(), minimal(t, `decision := ok if {
	input.tool.origin == "fetcher"
	input.policy.veto == "x"
	input.tool.name == "a"
} else := object.union(ok, {"outcome": "deny", "reason": input.policy.veto}) if {
	is_string(input.policy.veto)
} else := object.union(ok, {"outcome": "escalate"})
`), nil)
	if err != nil {
		t.Fatal(err)
	}
	// Half of a tenth of the kinds is a fetcher's and has a veto: 2 of them beside 2
	// tools.
	special := 427680 / 10 / 2
	if want := 427680 - special + special*2*2; v.Calls != want || len(v.Incomplete) != 0 {
		t.Errorf("%d calls, want %d; incomplete %v", v.Calls, want, v.Incomplete)
	}
	b := broken(t, v, "veto-first")
	if b == nil || b.Inputs != special || string(b.Document) != `{"tool": {"name": "a", "origin": "fetcher"}, "taint": "clean", "policy": {"veto": "x"}}` {
		t.Errorf("%+v, want every call with that tool and veto", b)
	}
	if got, want := brokenNames(v), []string{"veto-first", "person-asked"}; !slices.Equal(got, want) {
		t.Errorf("broken are %v, want %v", got, want)
	}
}

// What no table can follow is named, where it stands; what it mentions is tried.
func TestVerifyNamesWhatItCannotFollow(t *testing.T) {
	heavy(t)
	v, err := Verify(t.Context(), minimal(t, `default decision := {
	"outcome": "escalate", "reason": "", "missing": [], "missing_mask": 0,
	"required": [], "required_mask": 0, "granted": [], "granted_mask": 0,
}

decision := object.union(ok, {"outcome": "deny", "reason": input.policy.veto}) if is_string(input.policy.veto)

decision := ok if {
	plain
	input.tool.origin == "fetcher"
	startswith(input.tool.name, "mcp_")
}

decision := ok if {
	plain
	input.tool.origin == "first-party"
	regex.match("^pay", input.tool.name)
}

plain if {
	input.taint == "clean"
	not input.policy.veto
	not input.policy.requires_human
	not input.policy.sandbox_escalation
}
`), nil)
	if err != nil {
		t.Fatal(err)
	}
	var named []string
	for _, b := range v.Incomplete {
		named = append(named, fmt.Sprintf("%s:%d:%d: %s", b.File, b.Line, b.Column, b.Expression))
	}
	slices.Sort(named)
	if want := []string{
		`call.rego:18:2: startswith(input.tool.name, "mcp_")`,
		`call.rego:24:2: regex.match("^pay", input.tool.name)`,
	}; !slices.Equal(named, want) {
		t.Errorf("named are %q, want %q", named, want)
	}
	if !v.OK() {
		t.Errorf("broken are %v, want none: these calls may be made", brokenNames(v))
	}
}

// Each invariant is broken by rules of its own, and shown by the smallest call,
// with the one that it is held against and the rules that answered.
func TestVerifyShowsBreaches(t *testing.T) {
	const (
		required = `"required": ["local-read"], "required_mask": 1`
		granted  = `"granted": ["local-read"], "granted_mask": 1`
		ask      = `object.union(ok, {"outcome": "escalate"})`
	)
	tests := map[string]struct {
		rules, invariant          string
		problem, document, second string
		rulesAt                   []int // lines
		lines                     string
	}{
		"no answer": {"decision := ok if input.taint == \"clean\"\n", "answered",
			"", `{"tool": {"name": "tool"}, "taint": "tainted"}`, "", nil, ""},
		"two answers": {"decision := ok\n\ndecision := " + ask + " if input.taint == \"tainted\"\n", "answered",
			"", `{"tool": {"name": "tool"}, "taint": "tainted"}`, "", []int{8, 10}, ""},
		"required and not granted": {"decision := object.union(ok, {" + required + "})\n", "answered",
			"", `{"tool": {"name": "tool"}, "taint": "clean"}`, "", nil, ""},
		"more than is granted": {"decision := object.union(ok, {" + granted + "})\n", "grant-is-a-ceiling",
			"local-read is granted, which the operator's policy does not have",
			`{"tool": {"name": "tool"}, "taint": "clean", "grant": {"base": []}}`, "", []int{3, 8}, "got.granted_mask == 0"},
		"granted by taint": {"decision := object.union(ok, {" + granted + "}) if {\n\tinput.taint == \"tainted\"\n} else := ok\n", "taint-never-adds",
			"local-read is granted only once outside content is in the conversation",
			`{"tool": {"name": "tool"}, "taint": "tainted"}`, `{"tool": {"name": "tool"}, "taint": "clean"}`, []int{8, 10, 3}, "other.granted_mask == 31"},
		"allowed by taint": {"decision := ok if {\n\tinput.taint == \"tainted\"\n} else := " + ask + "\n", "taint-never-adds",
			"allow once outside content is in the conversation, and before that escalate",
			`{"tool": {"name": "tool"}, "taint": "tainted"}`, `{"tool": {"name": "tool"}, "taint": "clean"}`, []int{8, 3, 10}, `other.outcome == "allow"`},
		"markers": {"decision := ok\n", "markers-escalate", "a tool of origin admin-grant is answered with allow",
			`{"tool": {"name": "tool", "origin": "admin-grant"}, "taint": "clean"}`, "", []int{3}, `got.outcome == "escalate"`},
		"no origin": {"decision := ok if {\n\tnot input.tool.origin\n} else := " + ask + "\n", "no-origin-is-unknown",
			"allow for a tool without an origin, and for one of unknown origin escalate",
			`{"tool": {"name": "tool"}, "taint": "clean"}`, `{"tool": {"name": "tool", "origin": "unknown"}, "taint": "clean"}`, []int{8, 3, 10},
			`other := data.gate.call.decision with input as {"tool": {"name": "tool", "origin": "unknown"}, "taint": "clean", "policy": {`},
		"narrowed": {"decision := object.union(ok, {\"outcome\": \"escalate\", " + required + "}) if {\n\tinput.tool.read_only\n} else := " + ask + "\n",
			"redeclaration-never-narrows", "declared anew it no longer requires local-read",
			`{"tool": {"name": "tool", "read_only": false, "open_world": true, "destructive": true}, "taint": "clean"}`,
			`{"tool": {"name": "tool", "read_only": true}, "taint": "clean"}`, []int{10, 3, 8}, "other.required_mask == 31"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			v := verifySample(t, minimal(t, tt.rules), plainKinds(), noSkills, false)
			if want := 10 * 27 * 3 * 2; v.Calls != want {
				t.Errorf("%d calls, want %d", v.Calls, want)
			}
			b := broken(t, v, tt.invariant)
			if b == nil {
				t.Fatalf("%s holds; broken are %v", tt.invariant, brokenNames(v))
			}
			if tt.problem != "" && b.Problem != tt.problem || !sameMembers(b.Document, tt.document) || !sameMembers(b.Against, tt.second) {
				t.Errorf("%q\n%s\nagainst %s\nwant %q\n%s\nagainst %s", b.Problem, b.Document, b.Against, tt.problem, tt.document, tt.second)
			}
			var at []int
			for _, p := range b.Rules {
				at = append(at, p.Line)
			}
			if !slices.Equal(at, tt.rulesAt) {
				t.Errorf("the rules are %v, want those in lines %v", b.Rules, tt.rulesAt)
			}
			if !strings.Contains(b.Test, tt.lines) {
				t.Errorf("%s\nwant a line %q", b.Test, tt.lines)
			}
		})
	}
}

// sameMembers compares two documents but for the order of their members.
func sameMembers(got []byte, want string) bool {
	if len(got) == 0 || want == "" {
		return string(got) == want
	}
	var a, b any
	return json.Unmarshal(got, &a) == nil && json.Unmarshal([]byte(want), &b) == nil && reflect.DeepEqual(a, b)
}

// A call is rewritten that would not be allowed as it is.
func TestVerifyHoldsTransformsAgainstThePlainCall(t *testing.T) {
	e := minimal(t, `decision := object.union(ok, {"outcome": "modify", "arguments": input.policy.transform.arguments}) if {
	input.policy.transform.kind == "rewrite"
} else := object.union(ok, {"outcome": "inject_context", "note": input.policy.transform.note}) if {
	input.policy.transform.kind == "inject_context"
	input.tool.read_only
} else := ok if {
	input.tool.read_only
} else := object.union(ok, {"outcome": "escalate"})
`)
	v := verifySample(t, e, kinds(func(c *capability.Call) bool {
		return c.Grant.Base == capability.All && !c.Policy.Vetoed && !c.Policy.RequiresHuman && !c.Policy.SandboxEscalation && c.Profile.Origin == capability.Unknown
	}), noSkills, false)
	b := broken(t, v, "transform-needs-allow")
	// Of 27 hints, those 18 that do not say read-only, clean and tainted, with an origin
	// that is stated and one that is left out, and a grant that is either.
	if b == nil || b.Inputs != 18*2*2*2 || b.Problem != "modify, and without the transform escalate" ||
		string(b.Against) != `{"tool": {"name": "tool"}, "taint": "clean"}` {
		t.Errorf("%+v", b)
	}
}

// The policies with another default for what a document leaves out: one that lets more
// be done is a breach, and both are told by a difference, with examples that leave
// the member out.
func TestOtherDefaults(t *testing.T) {
	heavy(t)
	some := kinds(func(c *capability.Call) bool {
		p := &c.Profile
		return (p.Origin == capability.Unknown || p.Origin == capability.LocalSandbox) && p.OpenWorld == capability.Unset && p.Destructive == capability.Unset &&
			!c.Policy.Vetoed && !c.Policy.RequiresHuman && !c.Policy.SandboxEscalation && c.Policy.Transform.Kind == capability.NoTransform
	})
	tests := map[string]struct {
		edit       edit
		broken     []string
		direction  Direction
		inputs     int
		none, word string // the member that no example has, and how rows say so
	}{
		// Clean calls of 2 origins and none, with 3 words on read_only, were allowed; those
		// that were not now ask about more.
		"no grant grants nothing": {edit{inGrant, "} else := facts.all", "} else := 0"}, []string{}, Narrowing, 3 * 3 * 2, "grant", "no grant"},
		// Each of the calls without an origin that lacked something beyond the sandbox
		// asks about less: all of 3 words and 33 bases, but for the clean ones that lacked
		// nothing or what the sandbox requires as well. Those are, read-only, bases 30 and 31
		// and no grant; otherwise bases 28, 29, 30 and 31 and no grant.
		"no origin is the sandbox": {edit{inProfile, `default origin := "unknown"`, `default origin := "local-sandbox"`}, []string{"no-origin-is-unknown"}, Widening,
			3*33*2 - 3 - 2*5, "origin", "no origin"},
	}
	old := opened(t, workingCopy(t))
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			e := opened(t, workingCopy(t, tt.edit))
			if got := brokenNames(verifySample(t, e, some, noSkills, false)); !slices.Equal(got, tt.broken) {
				t.Errorf("broken are %q, want %q", got, tt.broken)
			}
			none := &evaluator.Survey{}
			d := &differ{old: none, new: none, before: asked(old), after: asked(e), kinds: some, opts: &DiffOptions{}, callsAlone: true}
			got, err := d.diff(t.Context(), old, e)
			if err != nil {
				t.Fatal(err)
			}
			inputs := 0
			for _, ch := range got.Changes {
				if ch.Direction != tt.direction {
					if ch.Direction != Rewording {
						t.Errorf("%s is %s", ch.summary(), ch.Direction)
					}
					continue
				}
				inputs += ch.Inputs
				if strings.Contains(string(ch.Example), tt.none) || !slices.Contains(ch.phrases(), tt.word) {
					t.Errorf("%s, shown by %s", ch.summary(), ch.Example)
				}
			}
			if inputs != tt.inputs {
				t.Errorf("%d inputs are a %s, want %d", inputs, tt.direction, tt.inputs)
			}
		})
	}
}

func TestVerifySkills(t *testing.T) {
	answer := func(trust, ceiling, granted string) string {
		return `package gate.skill

decision := {
	"trust": "` + trust + `", "ceiling": "` + ceiling + `", "granted": ` + granted + `, "outcome": "allow", "reason": "",
	"enforcement": {
		"deploy": true, "effective_tier": ` + granted + `, "overridden": false, "blocked": false, "pending": null, "reason": "",
	},
}
`
	}
	tests := map[string]struct {
		text, invariant, problem, document string
		inputs                             int
	}{
		"above trust": {answer("community", "full_access", "input.requested"), "trust-is-a-ceiling", "full_access is granted at trust community",
			`{"skill": "skill", "requested": "full_access"}`, 9504 / 3 * 2},
		"above the request": {answer("verified", "sandbox_edit", `"sandbox_edit"`), "skill-answered",
			"the policies' answer is not a decision: gate/skill/decision at /granted: it must be above neither the ceiling nor the request",
			`{"skill": "skill", "requested": "read_only"}`, 9504 / 3},
		"no answer": {"package gate.skill\n\ndecision := 1 if input.approval\n", "skill-answered", "", `{"skill": "skill", "requested": "read_only"}`, 9504},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			v := verifySample(t, minimal(t, "decision := ok\n", "skill.rego", tt.text), []int{}, nil, false)
			b := broken(t, v, tt.invariant)
			if b == nil || b.Inputs != tt.inputs || tt.problem != "" && b.Problem != tt.problem || !sameMembers(b.Document, tt.document) {
				t.Fatalf("%+v, want %d inputs, %q, %s; broken are %v", b, tt.inputs, tt.problem, tt.document, brokenNames(v))
			}
		})
	}
}

// A phase that is ended tells nothing of what it has seen so far: nobody waits for
// it.
func TestVerifyTellsNothingOnceItEnded(t *testing.T) {
	e := minimal(t, "decision := ok if input.taint == \"x\"\n")
	for name, phase := range map[string]func(*verifier, context.Context) error{
		"calls": (*verifier).calls, "redeclarations": (*verifier).redeclarations, "skills": (*verifier).skills,
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			v := &verifier{evaluator: e, survey: &evaluator.Survey{}, answers: asked(e), requests: skillRequests(), opts: &VerifyOptions{}, result: &Verification{}}
			if err := phase(v, ctx); !errors.Is(err, context.Canceled) || len(v.result.Invariants) > 0 {
				t.Errorf("%v, %d invariants", err, len(v.result.Invariants))
			}
		})
	}
}
