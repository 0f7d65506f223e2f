package analysis

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"html"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/evaluator"
)

// hostileTexts would be markup, act on a terminal, or not fit.
var hostileTexts = []string{
	"<script>alert(1)</script>", `"><img src=x onerror=alert(1)>`, "</code></pre></details>", "| a | b |", "`code` ```", "](http://x.example)",
	"@somebody #12 http://x.example www.x.example", "![i](j)", "a\u202eb\u2066", "line\n\n# heading\r\n", "\x1b[31mred\x07", "*b* _i_ ~~s~~ :tada:", "{{.Style}}", strings.Repeat("x", 10_000),
}

func sample() *Difference {
	return &Difference{
		Old: "main:policies", New: "policies", Calls: 427_680, Skills: 8_640,
		Changes: []Change{
			{Kind: "call", Direction: Widening, From: "escalate", To: "allow", Inputs: 512,
				Conditions: []Condition{{"tool.origin", []string{"fetcher"}}, {"tool.destructive", []string{"yes"}}, {"taint", []string{"tainted"}}},
				Example:    json.RawMessage(`{"tool": {"name": "tool", "origin": "fetcher", "destructive": true}, "taint": "tainted"}`),
				Before:     json.RawMessage(`{"outcome":"escalate","reason":"Check."}`), After: json.RawMessage(`{"outcome":"allow","reason":""}`)},
			{Kind: "skill", Direction: Narrowing, From: "deployed at full_access", To: "error", Inputs: 1, Example: json.RawMessage(`{"skill":"skill"}`),
				Before: json.RawMessage(`{"outcome":"allow"}`), After: json.RawMessage(`{"error":"call.rego:88: conflict"}`)},
			{Kind: "call", Direction: Rewording, From: "escalate", To: "escalate", Inputs: 96, Example: json.RawMessage(`{"taint":"clean"}`),
				Before: json.RawMessage(`{"outcome":"escalate","reason":"Check."}`), After: json.RawMessage(`{"outcome":"escalate","reason":"Ask."}`)},
		},
		Matrix: []Square{
			{"fetcher", "arbitrary-egress", "clean", []string{"allow"}, []string{"allow"}, false},
			{"fetcher", "arbitrary-egress", "tainted", []string{"escalate"}, []string{"allow", "escalate"}, true},
			{"fetcher", "local-read", "clean", nil, nil, false},
			{"access-grant", "grant-access", "tainted", []string{"escalate"}, []string{"escalate"}, true},
		},
		Incomplete: []Uncovered{
			{"old", evaluator.Blocker{File: "call.rego", Line: 130, Column: 20, Expression: `startswith(x, "pay_")`, Why: "computes with a text", Cells: 19_620}},
			{"new", evaluator.Blocker{File: "call.rego", Line: 130, Column: 20, Expression: `startswith(x, "pay_")`, Why: "computes with a text", Cells: 19_620}},
		},
	}
}

// besieged has a hostile text wherever a text can be.
func besieged() *Difference {
	d := sample()
	for _, text := range hostileTexts {
		quoted, _ := json.Marshal(text)
		answer := json.RawMessage(`{"outcome":"escalate","reason":` + string(quoted) + `,` + string(quoted) + `:1}`)
		d.Changes = append(d.Changes, Change{Kind: "call", Direction: Rewording, From: text, To: text, Inputs: 1,
			Conditions: []Condition{{"tool.name", []string{text}}, {text, []string{text}}},
			Example:    json.RawMessage(`{"tool":{"name":` + string(quoted) + `}}`), Before: answer, After: json.RawMessage(`{"outcome":"escalate"}`)})
		d.Matrix = append(d.Matrix, Square{text, text, text, []string{text}, []string{"deny"}, true})
		d.Incomplete = append(d.Incomplete, Uncovered{"new", evaluator.Blocker{File: text, Expression: text, Why: text}})
		d.Old += text
		d.New += text
	}
	return d
}

func written(t *testing.T, write func(*strings.Builder) error) string {
	t.Helper()
	var b strings.Builder
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func textOf(t *testing.T, d *Difference) string {
	return written(t, func(b *strings.Builder) error { return d.WriteText(b, false) })
}

func markdownOf(t *testing.T, d *Difference) string {
	return written(t, func(b *strings.Builder) error { return d.WriteMarkdown(b) })
}

func htmlOf(t *testing.T, d *Difference) string {
	return written(t, func(b *strings.Builder) error { return d.WriteHTML(b) })
}

func TestText(t *testing.T) {
	want := `2 classes of calls and 1 class of skills are answered differently: 1 permits more (512 inputs), 1 permits less (1 input), 1 is reworded (96 inputs) among those compared, which are not all (see below).
Before: main:policies, after: policies; 427,680 calls and 8,640 skills compared.

more permissive:
tainted, fetcher, destructive: escalate → allow, 512 inputs
    example   {"tool":{"name":"tool","origin":"fetcher","destructive":true},"taint":"tainted"}

more strict:
every skill: deployed at full_access → error, 1 input
    example   {"skill":"skill"}
    error     none → call.rego:88: conflict

reworded:
every call: escalate in other words, 96 inputs
    example   {"taint":"clean"}
    reason    Check. → Ask.

not covered for every text:
Where a policy does more with a text than to compare it as a whole, this covers the texts that the policies mention and one that they do not.
old: call.rego:130:20: startswith(x, "pay_") computes with a text (19,620 kinds of call)
new: call.rego:130:20: startswith(x, "pay_") computes with a text (19,620 kinds of call)
`
	if got := textOf(t, sample()); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	plain := textOf(t, sample())
	coloured := written(t, func(b *strings.Builder) error { return sample().WriteText(b, true) })
	if stripped := regexp.MustCompile("\x1b\\[[0-9]+m").ReplaceAllString(coloured, ""); coloured == plain || stripped != plain {
		t.Errorf("colours change more than colours:\n%s", stripped)
	}
}

func TestTextDoesNothingToATerminal(t *testing.T) {
	for _, line := range strings.Split(textOf(t, besieged()), "\n") {
		if i := strings.IndexFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
			t.Fatalf("%q", line[i:])
		}
	}
	if n, want := strings.Count(textOf(t, besieged()), "    example   "), 3+len(hostileTexts); n != want {
		t.Errorf("%d examples, want %d: a text has made a line", n, want)
	}
}

func TestMarkdown(t *testing.T) {
	got := markdownOf(t, sample())
	for _, want := range []string{
		"### Policy difference\n\n**2 classes of calls and 1 class of skills are answered differently**: 1 permits more",
		"Before: <code>main&#58;policies</code>, after: <code>policies</code>; 427,680 calls",
		"\n#### More permissive\n\n| | calls | before → after | inputs |\n| ---: | --- | --- | ---: |\n| 1 | tainted, fetcher, destructive | escalate → allow | 512 |\n\n<details><summary>1 example</summary>\n\n1\\. tainted, fetcher",
		"\n```json\n{\"tool\":{\"name\":\"tool\",\"origin\":\"fetcher\",\"destructive\":true},\"taint\":\"tainted\"}\n```\n",
		"| 3 | every call | escalate in other words | 96 |",
		"- reason: <code>Check&#46;</code> → <code>Ask&#46;</code>\n",
		"<summary>2 expressions are not covered for every text</summary>\n\n- old: <code>call&#46;rego&#58;130&#58;20</code>: <code>startswith&#40;x, \"pay&#95;\"&#41;</code> computes with a text (19,620 kinds of call)\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %q in:\n%s", want, got)
		}
	}
}

func TestMarkdownKeepsItsMarkup(t *testing.T) {
	got := markdownOf(t, besieged())
	if len(got) > 65_000 {
		t.Errorf("%d bytes do not fit a comment", len(got))
	}
	fenced := regexp.MustCompile("(?s)\n(`{3,})json\n([^\n]*)\n`{3,}\n")
	found := fenced.FindAllStringSubmatch(got, -1)
	if left := strings.Count(got, "Its document is left out here"); len(found)+left != len(besieged().Changes) {
		t.Errorf("%d documents and %d left out, want %d", len(found), left, len(besieged().Changes))
	}
	for _, m := range found {
		if strings.Contains(m[2], m[1]) || !json.Valid([]byte(m[2])) {
			t.Errorf("this ends its own fence, or is no document: %s", m[2])
		}
	}
	rest := fenced.ReplaceAllString(got, "\n")
	rest = regexp.MustCompile(`</?(code|details|summary)>`).ReplaceAllString(rest, "")
	rest = regexp.MustCompile(`[a-z]_[a-z]`).ReplaceAllString(rest, "") // within a word it is only that
	for _, line := range strings.Split(rest, "\n") {
		if strings.ContainsAny(line, "<>`@~_![]{}\x1b\u202e") || strings.Contains(line, "http:") || strings.Contains(line, "www.") {
			t.Errorf("markup is left: %q", line)
		}
		if bars := strings.Count(line, "|"); bars != 0 && bars != 5 {
			t.Errorf("%d bars in a row: %q", bars, line)
		}
	}
	if opened, closed := strings.Count(got, "<details>"), strings.Count(got, "</details>\n"); opened != closed {
		t.Errorf("%d details opened, %d closed", opened, closed)
	}
}

func TestMarkdownLeavesOutWhatDoesNotFit(t *testing.T) {
	d := sample()
	for range 2_000 {
		d.Changes = append(d.Changes, d.Changes[0])
	}
	got := markdownOf(t, d)
	if len(got) > 65_000 || !strings.Contains(got, " classes are left out here for the length") || !strings.Contains(got, "#### Reworded") {
		t.Errorf("%d bytes, ending %q", len(got), got[len(got)-300:])
	}
}

func TestMarkdownStaysShortWhateverItIsGiven(t *testing.T) {
	d := sample()
	long := strings.Repeat("<", 10_000)
	d.Old, d.New = long, long
	for range 200 {
		d.Incomplete = append(d.Incomplete, Uncovered{"new", evaluator.Blocker{File: long, Expression: long, Why: long}})
	}
	d.Changes[0].Example = json.RawMessage(`"` + strings.Repeat("x", 100_000) + `"`)
	d.Changes[0].Conditions = []Condition{{"tool.name", []string{long}}}
	got := markdownOf(t, d)
	if len(got) > 65_000 || strings.Contains(got, "classes are left out") || !strings.Contains(got, "Its document is left out here for the length.") {
		t.Errorf("%d bytes: %.2000s", len(got), got)
	}
}

func TestMarkdownText(t *testing.T) {
	for text, want := range map[string]string{
		"tainted, fetcher": "tainted, fetcher", "escalate → inject_context": "escalate → inject_context",
		"_i_": "<code>&#95;i&#95;</code>", "a.b": "<code>a&#46;b</code>", "a__b": "<code>a&#95;&#95;b</code>", "": "",
	} {
		if got := markdownText(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestHTML(t *testing.T) {
	got := htmlOf(t, sample())
	for _, want := range []string{
		"<h1>2 classes of calls and 1 class of skills are answered differently.</h1>",
		`<td class="square changed" title="fetcher, arbitrary-egress, tainted: changed, before escalate, after allow or escalate">`,
		`title="access-grant, grant-access, tainted: changed, escalate in other words"`,
		`title="fetcher, arbitrary-egress, clean: allow, unchanged"`,
		"marks what changed: 2 of 3 squares",
		"<dd><span class=\"side\">before</span> <span>Check.</span></dd>",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %q", want)
		}
	}
	if strings.Contains(got, "local-read") {
		t.Error("a row in which no call is")
	}
	if n := strings.Count(got, `class="square changed"`); n != 2 {
		t.Errorf("%d squares are marked", n)
	}
	_, style, _ := strings.Cut(got, "<style>")
	style, _, _ = strings.Cut(style, "</style>")
	sum := sha256.Sum256([]byte(style))
	if !strings.Contains(html.UnescapeString(got), "style-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'") {
		t.Error("the page forbids its own style")
	}
}

func TestHTMLIsOfTheTemplateAlone(t *testing.T) {
	tag := regexp.MustCompile(`<(/?[a-zA-Z!][a-zA-Z0-9]*)`)
	known := map[string]bool{}
	for _, m := range tag.FindAllStringSubmatch(differencePage, -1) {
		known[m[1]] = true
	}
	got := htmlOf(t, besieged())
	for _, m := range tag.FindAllStringSubmatch(got, -1) {
		if !known[m[1]] {
			t.Errorf("a tag that the template does not have: %s", m[0])
		}
	}
	if strings.ContainsAny(got, "\x1b\u202e\u2066\r") {
		t.Error("a character that hides or reorders others")
	}
	if regexp.MustCompile(`(href|src)="?http`).MatchString(got) {
		t.Error("a link to somewhere else")
	}
}

func TestEmptyDifference(t *testing.T) {
	d := &Difference{Calls: 2, Skills: 1}
	const want = "The two policies answer every one of 2 calls and 1 skill alike."
	for name, got := range map[string]string{"text": textOf(t, d), "Markdown": markdownOf(t, d), "HTML": htmlOf(t, d)} {
		if !strings.Contains(got, want) {
			t.Errorf("%s lacks the sentence: %s", name, got)
		}
		if strings.Contains(got, "<table") || strings.Contains(got, "| ---") {
			t.Errorf("%s has a table of nothing", name)
		}
	}
}

func TestJSONHasNoNullLists(t *testing.T) {
	for _, d := range []*Difference{{}, {Changes: []Change{{Conditions: []Condition{{Member: "taint"}}, Example: json.RawMessage(`"<"`)}}, Matrix: []Square{{}}}} {
		got := written(t, func(b *strings.Builder) error { return d.WriteJSON(b) })
		if strings.Count(got, "\n") != 1 || !strings.HasSuffix(got, "\n") {
			t.Errorf("not one line: %q", got)
		}
		if strings.Contains(got, `\u003c`) {
			t.Errorf("escaped for HTML: %s", got)
		}
		for _, list := range []string{"changes", "matrix", "incomplete", "conditions", "values"} {
			if strings.Contains(got, `"`+list+`":null`) {
				t.Errorf("%s is null: %s", list, got)
			}
		}
		if len(d.Matrix) > 0 && !strings.Contains(got, `"before":[],"after":[],"changed":false`) {
			t.Errorf("a square's lists are null: %s", got)
		}
		var back Difference
		if err := json.Unmarshal([]byte(got), &back); err != nil {
			t.Error(err)
		}
	}
	var b strings.Builder
	if err := (&Difference{Changes: []Change{{Example: json.RawMessage("{")}}}).WriteJSON(&b); err == nil || b.Len() > 0 {
		t.Errorf("a broken example is written: %q, %v", b.String(), err)
	}
}

type fullDisk struct{}

var errFullDisk = errors.New("full disk")

func (fullDisk) Write([]byte) (int, error) { return 0, errFullDisk }

func TestAFailedWriteIsReported(t *testing.T) {
	d := sample()
	for name, err := range map[string]error{"text": d.WriteText(fullDisk{}, false), "Markdown": d.WriteMarkdown(fullDisk{}),
		"HTML": d.WriteHTML(fullDisk{}), "JSON": d.WriteJSON(fullDisk{})} {
		if !errors.Is(err, errFullDisk) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Where a text is not followed is told with the policies that it is in, and where
// these are.
func TestUncoveredSaysWhose(t *testing.T) {
	d := sample()
	d.Incomplete = append(d.Incomplete, Uncovered{"new", evaluator.Blocker{Why: "changes by itself"}})
	d.Relocate(func(file string) string { return "was/" + file }, func(file string) string { return "is/" + file })
	var document struct {
		Incomplete []map[string]any `json:"incomplete"`
	}
	text := written(t, func(b *strings.Builder) error { return d.WriteJSON(b) })
	if err := json.Unmarshal([]byte(text), &document); err != nil {
		t.Fatal(err)
	}
	for i, want := range []map[string]any{{"of": "old", "file": "was/call.rego"}, {"of": "new", "file": "is/call.rego"}, {"of": "new"}} {
		got := document.Incomplete[i]
		if got["of"] != want["of"] || got["file"] != want["file"] || got["why"] == nil {
			t.Errorf("%v, want %v", got, want)
		}
	}
	for format, got := range map[string]string{"text": textOf(t, d), "Markdown": html.UnescapeString(markdownOf(t, d)), "HTML": htmlOf(t, d)} {
		for of, file := range map[string]string{"old": "was/call.rego:130:20", "new": "is/call.rego:130:20"} {
			if !regexp.MustCompile(of + `: (<code[a-z="\s]*>)?` + file).MatchString(got) {
				t.Errorf("%s does not say that %s is of the %s policies:\n%s", format, file, of, got)
			}
		}
	}
}

// Every outcome of a call and of a skill has a colour.
func TestOutcomeColours(t *testing.T) {
	outcomes := map[string]bool{"error": true}
	for _, k := range []capability.Kind{capability.Allow, capability.Modify, capability.Inject, capability.Escalate, capability.Deny} {
		outcomes[k.String()] = true
	}
	for _, r := range skillRequests() {
		outcomes[deployment(r.Decide(), nil)] = true
	}
	if len(outcomes) < 6+5 { // three tiers, pending, blocked
		t.Fatalf("outcomes are %v", outcomes)
	}
	classes := map[string]bool{}
	for outcome := range outcomes {
		class := outcomeOf(outcome).Class
		classes[class] = true
		if !strings.Contains(differenceStyle, ".outcome."+class+" ") || strings.Count(differenceStyle, "--"+class+": ") != 2 {
			t.Errorf("%s is of class %s, which has no colours for light and dark", outcome, class)
		}
	}
	if len(classes) != 4 {
		t.Errorf("classes are %v", classes)
	}
}
