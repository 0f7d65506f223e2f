package analysis_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/opa-gate/opa-gate/analysis"
	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/wire"
)

// explainEdited is the default policies with parts of gate/call/call.rego
// replaced, each of which must be there once.
func explainEdited(t *testing.T, edits ...string) fstest.MapFS {
	t.Helper()
	tree := explainPolicies(t)
	text := string(tree["gate/call/call.rego"].Data)
	for i := 0; i < len(edits); i += 2 {
		if strings.Count(text, edits[i]) != 1 {
			t.Fatalf("%q stands there %d times", edits[i], strings.Count(text, edits[i]))
		}
		text = strings.Replace(text, edits[i], edits[i+1], 1)
	}
	tree["gate/call/call.rego"] = &fstest.MapFile{Data: []byte(text)}
	return tree
}

func explainCall(t *testing.T, e *evaluator.Evaluator, doc string) *analysis.Explanation {
	t.Helper()
	c, err := wire.ParseCall([]byte(doc))
	if err != nil {
		t.Fatal(err)
	}
	x, err := analysis.Explain(t.Context(), e, c)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// explainLines writes the heart of an explanation, one thing a line.
func explainLines(x *analysis.Explanation) string {
	var b strings.Builder
	var branch func(depth int, b *analysis.Branch)
	expression := func(depth int, label string, c *analysis.Expression) {
		fmt.Fprintf(&b, "%s%s %d: %s", strings.Repeat("  ", depth), label, c.Line, c.Source)
		if c.Head {
			b.WriteString(" [head]")
		}
		if c.Tried > 0 {
			fmt.Fprintf(&b, " [%d tried]", c.Tried)
		}
		b.WriteByte('\n')
		for _, v := range c.Values {
			fmt.Fprintf(&b, "%s%s = %s", strings.Repeat("  ", depth+1), v.Source, v.Value)
			if v.Undefined {
				b.WriteString("undefined")
			}
			if v.Absent != "" {
				b.WriteString(", no " + v.Absent)
			}
			if v.From != nil {
				fmt.Fprintf(&b, " (%s:%d)", v.From.Rule, v.From.Line)
			}
			b.WriteByte('\n')
			for i := range v.Because {
				branch(depth+2, &v.Because[i])
			}
		}
	}
	branch = func(depth int, br *analysis.Branch) {
		fmt.Fprintf(&b, "%s%s:%d\n", strings.Repeat("  ", depth), br.Rule, br.Line)
		for i := range br.Held {
			expression(depth+1, "held", &br.Held[i])
		}
		if br.Failed != nil {
			expression(depth+1, "failed", br.Failed)
		}
	}
	branch(0, &x.Decided)
	for i := range x.Passed {
		branch(0, &x.Passed[i])
	}
	return b.String()
}

const (
	explainVeto  = "answer := {\"outcome\": \"deny\", \"reason\": input.policy.veto} if {\n\tis_string(input.policy.veto)\n}"
	explainHuman = "asks_for_person if input.policy.requires_human == true\n"
	explainClean = `{"tool": {"name": "buy", "origin": "first-party"}, "taint": "clean"}`
)

func TestExplainEditedPolicies(t *testing.T) {
	tests := []struct {
		name  string
		edits []string
		doc   string
		want  string
	}{
		{"name compared, for another tool", []string{explainVeto, explainVeto + " else := {\"outcome\": \"deny\", \"reason\": \"no\"} if {\n\tinput.tool.name == \"pay\"\n}"},
			explainClean, `
data.gate.call.answer:74
  held 75: missing == 0
    missing = 0 (data.gate.call.missing:51)
  held 76: transform == "none"
    transform = "none" (data.gate.call.transform:103)
data.gate.call.answer:60
  failed 61: is_string(input.policy.veto)
    input.policy.veto = undefined
data.gate.call.answer:62
  failed 63: input.tool.name == "pay"
    input.tool.name = "buy"
data.gate.call.answer:64
  failed 70: missing > 0
    missing = 0 (data.gate.call.missing:51)
data.gate.call.answer:71
  failed 73: asks_for_person
    asks_for_person = undefined
      data.gate.call.asks_for_person:96
        failed 96: input.policy.requires_human == true
          input.policy.requires_human = false
      data.gate.call.asks_for_person:98
        failed 98: input.policy.sandbox_escalation == true
          input.policy.sandbox_escalation = false
`},
		{"name compared, for that tool", []string{explainVeto, explainVeto + " else := {\"outcome\": \"deny\", \"reason\": \"no\"} if {\n\tinput.tool.name == \"buy\"\n}"},
			explainClean, `
data.gate.call.answer:62
  held 63: input.tool.name == "buy"
    input.tool.name = "buy"
data.gate.call.answer:60
  failed 61: is_string(input.policy.veto)
    input.policy.veto = undefined
`},
		{"prefix, in an extra rule with a helper that is negated", []string{explainHuman, explainHuman + `
asks_for_person if {
	some prefix in ["pay_", "send_"]
	startswith(input.tool.name, prefix)
	not trusted(input.tool.origin)
}

trusted(origin) if origin in {"first-party", "local-sandbox"}
`},
			`{"tool": {"name": "send_mail", "origin": "first-party"}, "taint": "clean"}`, `
data.gate.call.answer:72
  held 73: missing == 0
    missing = 0 (data.gate.call.missing:51)
  held 74: transform == "none"
    transform = "none" (data.gate.call.transform:109)
data.gate.call.answer:60
  failed 61: is_string(input.policy.veto)
    input.policy.veto = undefined
data.gate.call.answer:62
  failed 68: missing > 0
    missing = 0 (data.gate.call.missing:51)
data.gate.call.answer:69
  failed 71: asks_for_person
    asks_for_person = undefined
      data.gate.call.asks_for_person:94
        failed 94: input.policy.requires_human == true
          input.policy.requires_human = false
      data.gate.call.asks_for_person:96
        failed 99: not trusted(input.tool.origin)
          input.tool.origin = "first-party"
          trusted(input.tool.origin) = true (data.gate.call.trusted:102)
      data.gate.call.asks_for_person:104
        failed 104: input.policy.sandbox_escalation == true
          input.policy.sandbox_escalation = false
`},
		{"what the document leaves out is not there for an every", []string{explainHuman, explainHuman + `
asks_for_person if {
	every name in input.grant.base {
		name != "arbitrary-egress"
	}
}
`},
			explainClean, `
data.gate.call.answer:72
  held 73: missing == 0
    missing = 0 (data.gate.call.missing:51)
  held 74: transform == "none"
    transform = "none" (data.gate.call.transform:107)
data.gate.call.answer:60
  failed 61: is_string(input.policy.veto)
    input.policy.veto = undefined
data.gate.call.answer:62
  failed 68: missing > 0
    missing = 0 (data.gate.call.missing:51)
data.gate.call.answer:69
  failed 71: asks_for_person
    asks_for_person = undefined
      data.gate.call.asks_for_person:94
        failed 94: input.policy.requires_human == true
          input.policy.requires_human = false
      data.gate.call.asks_for_person:96
        failed 97: every name in input.grant.base { name != "arbitrary-egress" }
          input.grant.base = undefined, no input.grant
      data.gate.call.asks_for_person:102
        failed 102: input.policy.sandbox_escalation == true
          input.policy.sandbox_escalation = false
`},
		{"every prefix fails", []string{explainHuman, explainHuman + `
asks_for_person if {
	some prefix in ["pay_", "send_"]
	startswith(input.tool.name, prefix)
}
`},
			explainClean, `
data.gate.call.answer:72
  held 73: missing == 0
    missing = 0 (data.gate.call.missing:51)
  held 74: transform == "none"
    transform = "none" (data.gate.call.transform:106)
data.gate.call.answer:60
  failed 61: is_string(input.policy.veto)
    input.policy.veto = undefined
data.gate.call.answer:62
  failed 68: missing > 0
    missing = 0 (data.gate.call.missing:51)
data.gate.call.answer:69
  failed 71: asks_for_person
    asks_for_person = undefined
      data.gate.call.asks_for_person:94
        failed 94: input.policy.requires_human == true
          input.policy.requires_human = false
      data.gate.call.asks_for_person:96
        failed 98: startswith(input.tool.name, prefix) [2 tried]
          input.tool.name = "buy"
          prefix = "pay_"
      data.gate.call.asks_for_person:101
        failed 101: input.policy.sandbox_escalation == true
          input.policy.sandbox_escalation = false
`},
		{"nothing answers: followed to what is undefined", []string{"bits.and(profile.required, bits.negate(taint.granted))",
			"bits.and(profile.required, bits.negate(limit[input.taint]))\n\nlimit := {\"tainted\": 7}"},
			explainClean, `
data.gate.call.decision:24
data.gate.call.decision:35
  failed 43: count(wire.call_problems) > 0
    count(wire.call_problems) = 0
data.gate.call.decision:46
  failed 46: answer [head]
    answer = undefined
      data.gate.call.answer:62
        failed 63: is_string(input.policy.veto)
          input.policy.veto = undefined
      data.gate.call.answer:64
        failed 70: missing > 0
          missing = undefined
            data.gate.call.missing:51
              failed 51: limit[input.taint] [head]
                limit[input.taint] = undefined (data.gate.call.limit:53)
                input.taint = "clean"
      data.gate.call.answer:71
        failed 72: missing == 0
          missing = undefined
            data.gate.call.missing:51
              failed 51: limit[input.taint] [head]
                limit[input.taint] = undefined (data.gate.call.limit:53)
                input.taint = "clean"
      data.gate.call.answer:74
        failed 75: missing == 0
          missing = undefined
            data.gate.call.missing:51
              failed 51: limit[input.taint] [head]
                limit[input.taint] = undefined (data.gate.call.limit:53)
                input.taint = "clean"
      data.gate.call.answer:77
        failed 82: missing == 0
          missing = undefined
            data.gate.call.missing:51
              failed 51: limit[input.taint] [head]
                limit[input.taint] = undefined (data.gate.call.limit:53)
                input.taint = "clean"
      data.gate.call.answer:84
        failed 89: missing == 0
          missing = undefined
            data.gate.call.missing:51
              failed 51: limit[input.taint] [head]
                limit[input.taint] = undefined (data.gate.call.limit:53)
                input.taint = "clean"
`},
		{"an undefined part of the document is named", []string{explainVeto, explainVeto + " else := {\"outcome\": \"deny\", \"reason\": \"no\"} if {\n\tinput.policy.transform.kind == \"rewrite\"\n}"},
			`{"tool": {"name": "buy", "origin": "access-grant"}, "taint": "clean"}`, `
data.gate.call.answer:64
  held 70: missing > 0
    missing = 32 (data.gate.call.missing:51)
data.gate.call.answer:60
  failed 61: is_string(input.policy.veto)
    input.policy.veto = undefined
data.gate.call.answer:62
  failed 63: input.policy.transform.kind == "rewrite"
    input.policy.transform.kind = undefined, no input.policy.transform
`},
		{"the outcome is another rule's, and the computation within a condition is shown", []string{
			`{"outcome": "allow", "reason": ""} if {`, `{"outcome": kind, "reason": ""} if {`,
			"# METADATA\n# title: The verdict asks", `default kind := "allow"

kind := "deny" if count(input.tool.name) + missing > limits.length

limits := {"length": 3}

# METADATA
# title: The verdict asks`},
			explainClean, `
data.gate.call.kind:91
data.gate.call.kind:93
  failed 93: count(input.tool.name) + missing > limits.length
    count(input.tool.name) + missing = 3
    input.tool.name = "buy"
    missing = 0 (data.gate.call.missing:51)
    limits.length = 3 (data.gate.call.limits:95)
`},
		{"an every is shown by the one that fails", []string{explainHuman, explainHuman + `
asks_for_person if {
	every name in input.grant.base {
		name != "arbitrary-egress"
	}
}
`},
			`{"tool": {"name": "buy", "origin": "local-sandbox"}, "grant": {"base": ["local-read", "local-write", "arbitrary-egress", "mutate-external"]},
				"taint": "clean", "policy": {"transform": {"kind": "rewrite", "arguments": {}}}}`, `
data.gate.call.answer:75
  held 80: missing == 0
    missing = 0 (data.gate.call.missing:51)
  held 81: transform == "rewrite"
    transform = "rewrite" (data.gate.call.transform:109)
data.gate.call.answer:60
  failed 61: is_string(input.policy.veto)
    input.policy.veto = undefined
data.gate.call.answer:62
  failed 68: missing > 0
    missing = 0 (data.gate.call.missing:51)
data.gate.call.answer:69
  failed 71: asks_for_person
    asks_for_person = undefined
      data.gate.call.asks_for_person:94
        failed 94: input.policy.requires_human == true
          input.policy.requires_human = false
      data.gate.call.asks_for_person:96
        failed 98: name != "arbitrary-egress"
          name = "arbitrary-egress"
      data.gate.call.asks_for_person:102
        failed 102: input.policy.sandbox_escalation == true
          input.policy.sandbox_escalation = false
data.gate.call.answer:72
  failed 74: transform == "none"
    transform = "rewrite" (data.gate.call.transform:109)
`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := explainLines(explainCall(t, explainOpen(t, explainEdited(t, tt.edits...)), tt.doc))
			if want := strings.TrimPrefix(tt.want, "\n"); got != want {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

// A rule of another shape: no unions, and a function that decides.
func TestExplainFollowsTheOutcome(t *testing.T) {
	const head = `package gate.call

closed := {
	"outcome": "deny", "reason": "closed", "missing": [], "missing_mask": 0, "required": [], "required_mask": 0,
	"granted": [], "granted_mask": 0,
}

`
	skill := &fstest.MapFile{Data: []byte("package gate.skill\n\ndecision := {}\n")}
	tests := []struct{ name, rules, rule string }{
		{"a constant that is taken", "decision := closed if input.taint == \"tainted\"\nelse := closed", "data.gate.call.decision:9"},
		{"a function", "decision := judge(input.taint)\njudge(taint) := closed if taint == \"clean\"", "data.gate.call.judge:9"},
		{"a local", "decision := d if {\n\td := pick\n}\npick := closed if input.taint == \"clean\"\n", "data.gate.call.pick:11"},
		{"another function of OPA", "decision := object.remove(pick, [\"more\"])\npick := object.union(closed, {\"more\": 1}) if input.taint == \"clean\"", "data.gate.call.pick:9"},
		{"a part of another rule", "decision := pick.it\npick := {\"it\": closed} if input.taint == \"clean\"", "data.gate.call.pick:9"},
		{"nothing but a constant", "decision := closed", "data.gate.call.closed:3"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := explainOpen(t, fstest.MapFS{"gate/skill/skill.rego": skill, "gate/call/call.rego": {Data: []byte(head + tt.rules)}})
			d := explainCall(t, e, explainClean).Decided
			if got := fmt.Sprintf("%s:%d", d.Rule, d.Line); got != tt.rule {
				t.Errorf("got %s, want %s", got, tt.rule)
			}
		})
	}
}

func TestExplainConflict(t *testing.T) {
	e := explainOpen(t, explainEdited(t, "default transform := \"none\"\n", "transform := \"none\" if input.taint == \"clean\"\n"))
	c, err := wire.ParseCall([]byte(`{"tool": {"name": "buy", "origin": "first-party"}, "taint": "clean", "policy": {"transform": {"kind": "rewrite", "arguments": {}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	_, err = analysis.Explain(t.Context(), e, c)
	var conflict *analysis.ConflictError
	if !errors.As(err, &conflict) || !errors.Is(err, evaluator.ErrEvaluation) {
		t.Fatalf("got %v", err)
	}
	var lines []int
	for _, b := range conflict.Rules {
		lines = append(lines, b.Line)
	}
	if want := []int{101, 103}; !slices.Equal(lines, want) || !strings.Contains(err.Error(), "gate/call/call.rego:103") {
		t.Errorf("got lines %v, want %v; %v", lines, want, err)
	}
	if _, err := analysis.Explain(t.Context(), e, &capability.Call{}); !errors.Is(err, capability.ErrInvalidCall) {
		t.Errorf("an invalid call: %v", err)
	}
}

// What the answer rests on, with the lines as they are in the default policies.
func TestExplainBasis(t *testing.T) {
	e := explainOpen(t, explainPolicies(t))
	x := explainCall(t, e, `{"tool": {"name": "x", "origin": "fetcher", "destructive": false}, "taint": "tainted", "grant": {"base": ["local-read", "mutate-external"]}}`)
	got, err := json.Marshal(x.Basis)
	if err != nil {
		t.Fatal(err)
	}
	const want = `[{"member":"required","value":8,"names":["arbitrary-egress"],"from":{"rule":"data.gate.profile.required","file":"gate/profile/profile.rego","line":65},` +
		`"where":["origin == \"fetcher\"","not destructive"]},` +
		`{"member":"granted","value":1,"names":["local-read"],"from":{"rule":"data.gate.taint.granted","file":"gate/taint/taint.rego","line":26},"of":[` +
		`{"member":"revoked","value":24,"names":["arbitrary-egress","mutate-external"],"from":{"rule":"data.gate.taint.revoked","file":"gate/taint/taint.rego","line":21},"where":["input.taint == \"tainted\""]},` +
		`{"member":"grant.base","value":17,"names":["local-read","mutate-external"],"from":{"rule":"data.gate.grant.base","file":"gate/grant/grant.rego","line":18},"where":["is_array(input.grant.base)"]}]}]`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// What a document leaves out is told as that, with the branch that applied instead
// of the one that reads it.
func TestExplainTellsWhatIsLeftOut(t *testing.T) {
	const origin, grant = "data.gate.profile.required:93", "data.gate.grant.base:20"
	e := explainOpen(t, explainPolicies(t))
	for doc, want := range map[string]string{
		`{"tool": {"name": "x"}, "taint": "clean"}`:                              origin + " no input.tool.origin; " + grant + " no input.grant",
		`{"tool": {"name": "x", "origin": null}, "grant": {}, "taint": "clean"}`: origin + " no input.tool.origin; " + grant + " no input.grant",
		`{"tool": {"name": "x", "origin": "unknown"}, "taint": "clean"}`:         origin + "; " + grant + " no input.grant",
		`{"tool": {"name": "x"}, "grant": {"base": ["local-read", "local-write", "fixed-connector-read", "arbitrary-egress", "mutate-external"]}, "taint": "tainted"}`: origin +
			" no input.tool.origin; data.gate.grant.base:18",
		`{"tool": {"name": "x", "origin": "fetcher"}, "grant": {"base": []}, "taint": "clean"}`: "data.gate.profile.required:70 no input.tool.destructive, no input.tool.read_only; data.gate.grant.base:18",
	} {
		x := explainCall(t, e, doc)
		var of []string
		for _, b := range []analysis.Basis{x.Basis[0], x.Basis[1].Of[1]} {
			text := fmt.Sprintf("%s:%d", b.From.Rule, b.From.Line)
			for i, part := range b.LeftOut {
				text += []string{" no ", ", no "}[min(i, 1)] + part
			}
			of = append(of, text)
		}
		if got := strings.Join(of, "; "); got != want {
			t.Errorf("%s rests on\n%s, want\n%s", doc, got, want)
		}
		if of := x.Basis[1]; len(of.LeftOut) > 0 {
			t.Errorf("%s: what is granted leaves out %q, which the rule that it is computed with says", doc, of.LeftOut)
		}
	}
}
