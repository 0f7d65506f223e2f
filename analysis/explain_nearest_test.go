package analysis_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/opa-gate/opa-gate/analysis"
	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/internal/race"
	"github.com/opa-gate/opa-gate/wire"
)

// explainNearest writes what would go ahead, one set a line.
func explainNearest(x *analysis.Explanation) string {
	var lines []string
	for _, n := range x.Nearest {
		var changes []string
		for _, c := range n.Changes {
			changes = append(changes, c.Text)
		}
		lines = append(lines, n.Outcome+": "+strings.Join(changes, ", "))
	}
	if x.Search.None != "" {
		lines = append(lines, x.Search.None)
	}
	return strings.Join(lines, "\n")
}

func TestExplainNearestCalls(t *testing.T) {
	race.SkipSlow(t)
	e := explainOpen(t, explainPolicies(t))
	tests := []struct{ name, doc, want string }{
		{"allowed", `{"tool": {"name": "x", "origin": "fetcher"}, "taint": "clean"}`,
			"it is allowed already"},
		{"tainted", `{"tool": {"name": "x", "origin": "fetcher"}, "taint": "tainted"}`,
			"allow: taint: clean"},
		{"tainted, by the tool's word", `{"tool": {"name": "x", "origin": "first-party"}, "taint": "tainted"}`,
			"allow: taint: clean\nallow: tool.read_only: true"},
		{"not granted", `{"tool": {"name": "x", "origin": "fetcher", "destructive": false}, "taint": "tainted", "grant": {"base": []}}`,
			"allow: taint: clean, grant.base: add arbitrary-egress"},
		{"all of it", `{"tool": {"name": "x", "origin": "fetcher"}, "taint": "tainted", "grant": {"base": ["fixed-connector-read"]}, "policy": {"requires_human": true}}`,
			// As a fetcher it would take four changes, so the operator's word on its origin is looked at too.
			"allow: policy.requires_human: false, tool.read_only: true, tool.origin: first-party or registered-connector"},
		{"vetoed, and a person asked for", `{"tool": {"name": "x", "origin": "local-sandbox"}, "taint": "clean", "policy": {"veto": "", "sandbox_escalation": true}}`,
			"allow: policy.veto: leave it out, policy.sandbox_escalation: false"},
		{"what is left of it may be a modify", `{"tool": {"name": "x", "origin": "fetcher"}, "taint": "tainted", "policy": {"transform": {"kind": "rewrite", "arguments": {"n": 9007199254740993}}}}`,
			"modify: taint: clean"},
		{"modified", `{"tool": {"name": "x", "origin": "fetcher"}, "taint": "clean", "policy": {"transform": {"kind": "rewrite", "arguments": {}}}}`,
			"allow: policy.transform: leave it out"},
		{"no origin", `{"tool": {"name": "x", "read_only": true}, "taint": "tainted", "policy": {"transform": {"kind": "inject_context", "note": "n"}}}`,
			"inject_context: taint: clean\ninject_context: tool.origin: local-sandbox, first-party or registered-connector"},
		{"a marker", `{"tool": {"name": "x", "origin": "access-grant"}, "taint": "tainted"}`,
			"nothing within 3 changes; it requires grant-access, which no grant can name"},
		{"too far", `{"tool": {"name": "x", "origin": "fetcher"}, "taint": "tainted", "grant": {"base": []}, "policy": {"veto": "v", "requires_human": true, "sandbox_escalation": true}}`,
			"nothing within 3 changes; texts, such as the tool's name, were left as they are"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			x := explainCall(t, e, tt.doc)
			if got := explainNearest(x); got != tt.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, tt.want)
			}
			for _, n := range x.Nearest {
				c, err := wire.ParseCall(n.Document)
				if err != nil {
					t.Fatalf("%s: %v", n.Document, err)
				}
				if o := c.Decide(""); o.Kind.String() != n.Outcome {
					t.Errorf("the reference says %v to %s", o.Kind, n.Document)
				}
			}
		})
	}
}

// Edited policies in which a member that is left out is something else: a grant can
// be stated, with no more than the call requires, and an origin too, even where the
// policies take the tool for one that no grant can be for.
func TestExplainNearestOfLeftOutMembers(t *testing.T) {
	tests := []struct{ name, file, old, text, doc, want string }{
		{"no grant grants nothing", "gate/grant/grant.rego", "else := facts.all", "else := 0", `{"tool": {"name": "x", "origin": "local-sandbox"}, "taint": "clean"}`,
			"allow: grant.base: state local-read, local-write"},
		{"a stated one does", "gate/grant/grant.rego", "else := facts.all", "else := 0", `{"tool": {"name": "x", "origin": "local-sandbox"}, "taint": "clean", "grant": {"base": ["local-write"]}}`,
			"allow: grant.base: add local-read"},
		{"no origin makes admins", "gate/profile/profile.rego", `default origin := "unknown"`, `default origin := "admin-grant"`, `{"tool": {"name": "x"}, "taint": "clean"}`,
			"allow: tool.origin: local-sandbox, fetcher, first-party or registered-connector"},
		{"a stated origin that does", "gate/profile/profile.rego", `default origin := "unknown"`, `default origin := "fetcher"`, `{"tool": {"name": "x", "origin": "admin-grant"}, "taint": "clean"}`,
			"nothing within 3 changes; it requires grant-admin, which no grant can name"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tree := explainPolicies(t)
			text := string(tree[tt.file].Data)
			if strings.Count(text, tt.old) != 1 {
				t.Fatalf("%q stands in %s %d times", tt.old, tt.file, strings.Count(text, tt.old))
			}
			tree[tt.file] = &fstest.MapFile{Data: []byte(strings.Replace(text, tt.old, tt.text, 1))}
			e := explainOpen(t, tree)
			x := explainCall(t, e, tt.doc)
			if got := explainNearest(x); got != tt.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, tt.want)
			}
			for _, n := range x.Nearest {
				got, err := evaluator.DecideJSON(t.Context(), e.Interpreter(), n.Document)
				if err != nil || !strings.Contains(string(got), `"outcome":"allow"`) {
					t.Errorf("%s is answered with %s, %v", n.Document, got, err)
				}
			}
		})
	}
}

// No set of changes has one in it that is not needed, and what is written as a
// document is what was decided: the reference says the same of it.
func TestExplainNearestAreMinimal(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes minutes under the race detector; it runs without -short")
	}
	e := explainOpen(t, explainPolicies(t))
	sets, edits := 0, 0
	for _, origin := range []string{"fetcher", "first-party", "local-sandbox"} {
		for _, taint := range []string{"clean", "tainted"} {
			for _, base := range []string{`[]`, `["local-read", "arbitrary-egress"]`} {
				for _, policy := range []string{`{}`, `{"veto": "v"}`, `{"requires_human": true}`, `{"sandbox_escalation": true, "transform": {"kind": "inject_context", "note": "<n>"}}`} {
					doc := `{"tool": {"name": "x", "origin": "` + origin + `"}, "taint": "` + taint + `", "grant": {"base": ` + base + `}, "policy": ` + policy + `}`
					x := explainCall(t, e, doc)
					for _, n := range x.Nearest {
						c, err := wire.ParseCall(n.Document)
						if err != nil {
							t.Fatal(err)
						}
						if o := c.Decide(""); o.Kind.String() != n.Outcome {
							t.Errorf("%s: the reference says %v to %s", doc, o.Kind, n.Document)
						}
						for i := range n.Changes { // without any one of them it does not pass
							less := edited(t, doc, slices.Delete(slices.Clone(n.Changes), i, i+1))
							if o := less.Decide(""); goesAhead(o.Kind, x.Call.Kind) {
								t.Errorf("%s: %v, without %s the reference says %v", doc, n.Changes, n.Changes[i].Text, o.Kind)
							}
							edits++
						}
						if o := edited(t, doc, n.Changes).Decide(""); o.Kind.String() != n.Outcome {
							t.Errorf("%s: with %v the reference says %v, want %s", doc, n.Changes, o.Kind, n.Outcome)
						}
						sets++
					}
				}
			}
		}
	}
	if sets == 0 || edits <= sets {
		t.Errorf("%d sets of %d changes were found", sets, edits)
	}
	t.Logf("%d sets of %d changes", sets, edits)
}

// goesAhead tells whether an outcome is what the search looks for, from an answer.
func goesAhead(kind, from capability.Kind) bool {
	switch kind {
	case capability.Allow:
		return true
	case capability.Modify, capability.Inject:
		return from != capability.Modify && from != capability.Inject
	}
	return false
}

// edited makes changes to a document, as their words say, with the first of several
// values.
func edited(t *testing.T, doc string, changes []analysis.Edit) *capability.Call {
	t.Helper()
	var document map[string]any
	if err := json.Unmarshal([]byte(doc), &document); err != nil {
		t.Fatal(err)
	}
	for _, change := range changes {
		at := document
		path := strings.Split(change.Member, ".")
		for _, name := range path[:len(path)-1] {
			at = at[name].(map[string]any)
		}
		last := path[len(path)-1]
		switch {
		case change.Add != "":
			at[last] = append(at[last].([]any), change.Add)
		case len(change.To) == 0:
			delete(at, last)
		case change.To[0] == "true" || change.To[0] == "false":
			at[last] = change.To[0] == "true"
		default:
			at[last] = change.To[0]
		}
	}
	text, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	c, err := wire.ParseCall(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return c
}

func TestExplainSkill(t *testing.T) {
	e := explainOpen(t, explainPolicies(t))
	tests := []struct{ name, doc, decided, nearest string }{
		{"deployed", `{"skill": "s", "requested": "read_only", "provenance": {"scanned": true}}`,
			"data.gate.skill.gate:66", "it is deployed as requested already"},
		{"pending", `{"skill": "s", "requested": "read_only"}`,
			"data.gate.skill.gate:58", "allow: provenance.scanned: true\ndeny: approval: approved"},
		{"downgraded", `{"skill": "s", "requested": "full_access", "provenance": {"scanned": true, "signed": true}}`,
			"data.gate.skill.gate:74", "allow: requested: sandbox_edit or read_only\nallow: provenance.signer_trusted: true, provenance.source: official"},
		{"rejected", `{"skill": "s:x", "requested": "sandbox_edit", "provenance": {"scanned": true, "signed": true, "vulnerabilities": 18446744073709551615}, "approval": "rejected"}`,
			"data.gate.skill.gate:58", "allow: provenance.vulnerabilities: 0\ndeny: approval: approved"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			q, err := wire.ParseSkill([]byte(tt.doc))
			if err != nil {
				t.Fatal(err)
			}
			x, err := analysis.ExplainSkill(t.Context(), e, q)
			if err != nil {
				t.Fatal(err)
			}
			if got, _, _ := strings.Cut(explainLines(x), "\n"); got != tt.decided {
				t.Errorf("got %s, want %s", got, tt.decided)
			}
			if got := explainNearest(x); got != tt.nearest {
				t.Errorf("got:\n%s\nwant:\n%s", got, tt.nearest)
			}
			for _, n := range x.Nearest {
				q, err := wire.ParseSkill(n.Document)
				if err != nil {
					t.Fatalf("%s: %v", n.Document, err)
				}
				if a := q.Decide(); !a.Enforcement.Deploy || a.Enforcement.EffectiveTier != q.Requested {
					t.Errorf("the reference does not deploy %s", n.Document)
				}
			}
		})
	}
}

// The embedded policies compile what decides skills apart.
func TestExplainEmbedded(t *testing.T) {
	e, err := evaluator.New(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	q, err := wire.ParseSkill([]byte(`{"skill": "s", "requested": "read_only"}`))
	if err != nil {
		t.Fatal(err)
	}
	x, err := analysis.ExplainSkill(t.Context(), e, q)
	if err != nil || x.Decided.Line != 58 {
		t.Errorf("got %+v, %v", x, err)
	}
	if x := explainCall(t, e, explainClean); x.Call.Kind != capability.Allow || x.Decided.Line != 72 {
		t.Errorf("got %+v", x)
	}
}
