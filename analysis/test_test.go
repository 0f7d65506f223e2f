package analysis_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opa-gate/opa-gate/analysis"
	"github.com/opa-gate/opa-gate/internal/race"
)

func runTests(t *testing.T, dir string, opts *analysis.TestOptions) *analysis.TestReport {
	t.Helper()
	r, err := analysis.Test(t.Context(), dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// withoutTests removes the tests of a working copy.
func withoutTests(t *testing.T, dir string) {
	t.Helper()
	for _, name := range initTree(t, dir) {
		if strings.HasSuffix(name, "_test.rego") {
			if err := os.Remove(filepath.Join(dir, filepath.FromSlash(name))); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// The classes of the default policies, counted by hand. Whatever the taint, an origin
// whose needs can be granted has one class for a veto, and two for each of the four
// other verdicts: something is missing, or the verdict's own answer. A tainted fetcher
// and a tainted unknown always miss something, so they have one for each verdict,
// and so do the four origins that need what nobody is granted.
const (
	classesOfGrantable = 1 + 4*2
	classesOfMissing   = 5
	defaultClasses     = 3*2*classesOfGrantable + 2*(classesOfGrantable+classesOfMissing) + 4*2*classesOfMissing
)

func TestTestOfACopy(t *testing.T) {
	race.SkipSlow(t)
	r := runTests(t, initCopy(t), nil)
	if !r.OK() || len(r.Tests) < 85 {
		t.Errorf("%d tests, OK is %v", len(r.Tests), r.OK())
	}
	if r.Coverage.Percent != 100 || len(r.Coverage.Files) != 13 {
		t.Errorf("coverage %v of %d files, want 100 of 13", r.Coverage.Percent, len(r.Coverage.Files))
	}
	if d := r.Decisions; d.Total != defaultClasses || len(d.Classes) != defaultClasses {
		t.Errorf("%d classes of decisions, want %d", d.Total, defaultClasses)
	}
}

// One test that fails in each way, the line behind it that it fails at, and what
// is said about it.
var testFailures = map[string]struct {
	test        string
	line        int // within test, counted from 1
	message     string
	want, got   string
	differences []analysis.ValueDifference
	values      map[string]string
}{
	"an object": {test: "test_x if {\n\tdecide(tainted) == {\n\t\t\"outcome\": \"allow\",\n\t\t\"reason\": `Check \"web_fetch\" before it could reach an outside address.`,\n\t\t\"missing\": [],\n\t\t\"missing_mask\": 8,\n\t\t\"required\": [\"arbitrary-egress\", \"local-read\"],\n\t\t\"required_mask\": 8,\n\t\t\"granted\": [\"local-read\", \"local-write\", \"fixed-connector-read\"],\n\t\t\"a~/b\": 7,\n\t}\n}",
		line: 2, message: "the values differ", differences: []analysis.ValueDifference{
			{Pointer: "/a~0~1b", Want: []byte("7")},
			{Pointer: "/granted_mask", Got: []byte("7")},
			{Pointer: "/missing/0", Got: []byte(`"arbitrary-egress"`)},
			{Pointer: "/outcome", Want: []byte(`"allow"`), Got: []byte(`"escalate"`)},
			{Pointer: "/required/1", Want: []byte(`"local-read"`)},
		}},
	"a variable": {test: "test_x if {\n\tgot := decide(document)\n\t\"deny\" == got.outcome\n}", line: 3, message: "the values differ", want: `"deny"`, got: `"allow"`},
	"a want that is made": {test: "test_x if {\n\tdecide(document) == object.union(decide_nothing, {\"outcome\": \"deny\"})\n}\n\ndecide_nothing := {\"outcome\": \"allow\"}", line: 2, message: "the values differ", differences: []analysis.ValueDifference{
		{Pointer: "/granted", Got: []byte(`["local-read","local-write","fixed-connector-read","arbitrary-egress","mutate-external"]`)},
		{Pointer: "/granted_mask", Got: []byte("31")},
		{Pointer: "/missing", Got: []byte("[]")},
		{Pointer: "/missing_mask", Got: []byte("0")},
		{Pointer: "/outcome", Want: []byte(`"deny"`), Got: []byte(`"allow"`)},
		{Pointer: "/reason", Got: []byte(`""`)},
		{Pointer: "/required", Got: []byte(`["arbitrary-egress"]`)},
		{Pointer: "/required_mask", Got: []byte("8")},
	}},
	"the other way round":  {test: "test_x if {\n\tanswer := decide(document).outcome\n\twished := \"deny\"\n\twished == answer\n}", line: 4, message: "the values differ", want: `"deny"`, got: `"allow"`},
	"names say which":      {test: "test_x if {\n\twant := data.gate.facts.all\n\tgot := 3\n\twant == got\n}", line: 4, message: "the values differ", want: "31", got: "3"},
	"within every":         {test: "test_x if {\n\tevery text in [\"no\", \"x\"] {\n\t\tgot := decide(with_policy(document, {\"veto\": text}))\n\t\tgot.reason == \"no\"\n\t}\n}", line: 4, message: "the values differ", want: `"no"`, got: `"x"`},
	"a with":               {test: "test_x if {\n\tdata.gate.taint.revoked == 24 with input as {\"taint\": \"clean\"}\n}", line: 2, message: "the values differ", want: "24", got: "0"},
	"undefined":            {test: "test_x if {\n\tdata.gate.taint.revoked == 0 with input as {\"taint\": \"maybe\"}\n}", line: 2, message: "data.gate.taint.revoked is undefined", want: "0", got: "null"},
	"undefined assignment": {test: "test_x if {\n\tx := decide(document).note\n\tx == \"\"\n}", line: 2, message: "the right side is undefined"},
	"more than":            {test: "test_x if {\n\tcount(decide(document).granted) > 7\n}", line: 2, message: "count(decide(document).granted) is 5"},
	"a member":             {test: "test_x if {\n\t\"deny\" in {decide(document).outcome, \"escalate\"}\n}", line: 2, message: `{decide(document).outcome, "escalate"} is ["allow","escalate"]`},
	"not":                  {test: "test_x if {\n\tgot := decide(document).outcome\n\tnot got\n}", line: 3, message: "this is true, and must not be", values: map[string]string{"got": `"allow"`}},
	"behind a not":         {test: "test_x if {\n\tevery text in [\"no\", \"x\"] {\n\t\tgot := decide(with_policy(document, {\"veto\": text}))\n\t\tgot.reason == \"no\"\n\t\tnot got.arguments\n\t}\n}", line: 4, message: "the values differ", want: `"no"`, got: `"x"`},
	"false":                {test: "test_x if {\n\tdata.gate.profile.read_only with input as document\n}", line: 2, message: "this is false"},
	"nowhere":              {test: "test_x if {\n\tdecide(document).note\n}", line: 2, message: "this is undefined"},
	"a helper":             {test: "ok(doc) if {\n\tdecide(doc).outcome == \"deny\"\n}\n\ntest_x if {\n\tok(document)\n}", line: 2, message: "the values differ", want: `"deny"`, got: `"allow"`},
	"a comprehension":      {test: "test_x if {\n\tgot := [n | some n in [1, 2, 3]; n > 2]\n\tgot == [2]\n}", line: 3, message: "the values differ", differences: []analysis.ValueDifference{{Pointer: "/0", Want: []byte("2"), Got: []byte("3")}}},
}

func TestTestExplainsFailures(t *testing.T) {
	race.SkipSlow(t)
	dir := initCopy(t)
	order := []string{}
	text := "package gate.more_test\n\nimport data.gate.call_test.decide\nimport data.gate.call_test.document\nimport data.gate.call_test.tainted\nimport data.gate.call_test.with_policy\n"
	starts := map[string]int{}
	for name, tt := range testFailures {
		id := strings.ReplaceAll(name, " ", "_")
		starts[name] = strings.Count(text, "\n") + 2
		text += "\n" + strings.NewReplacer("test_x", "test_"+id, "ok(doc", "ok_"+id+"(doc").Replace(tt.test) + "\n"
		order = append(order, name)
	}
	const file = "gate/more/more_test.rego"
	checkWrite(t, dir, file, text)
	r := runTests(t, dir, &analysis.TestOptions{Run: `more_test\.`})
	if r.OK() || len(r.Tests) != len(order) {
		t.Fatalf("%d tests, want %d; OK is %v", len(r.Tests), len(order), r.OK())
	}
	for _, result := range r.Tests {
		name := strings.ReplaceAll(strings.TrimPrefix(result.Name, "data.gate.more_test.test_"), "_", " ")
		tt, there := testFailures[name]
		if !there || result.Outcome != analysis.TestFailed || len(result.Failures) != 1 {
			t.Errorf("%s: %s with %d failures", result.Name, result.Outcome, len(result.Failures))
			continue
		}
		f := result.Failures[0]
		if f.File != file || f.Line != starts[name]+tt.line-1 || f.Message != tt.message {
			t.Errorf("%s: %s:%d: %s, want line %d: %s", name, f.File, f.Line, f.Message, starts[name]+tt.line-1, tt.message)
		}
		if tt.want != "" && (string(f.Want) != tt.want || string(f.Got) != tt.got) {
			t.Errorf("%s: want %s, got %s; it should be %s and %s", name, f.Want, f.Got, tt.want, tt.got)
		}
		if tt.differences != nil && !slices.EqualFunc(f.Differences, tt.differences, func(a, b analysis.ValueDifference) bool {
			return a.Pointer == b.Pointer && string(a.Want) == string(b.Want) && string(a.Got) == string(b.Got)
		}) {
			t.Errorf("%s: differences %s", name, f.Differences)
		}
		for name, value := range tt.values {
			if string(f.Values[name]) != value {
				t.Errorf("%s is %s, want %s", name, f.Values[name], value)
			}
		}
	}
}

func TestTestOutcomes(t *testing.T) {
	dir := initCopy(t)
	checkWrite(t, dir, "gate/more/more_test.rego", `package gate.more_test

test_passes if print("said")

test_fails[name] if {
	some name, n in {"one": 1, "two": 2}
	n == 1
}

test_breaks if {
	x == 1
}

x := 1

x := 2 if data.gate.facts.all == 31

todo_test_later if false
`)
	want := map[string]analysis.TestOutcome{
		"test_passes": analysis.TestPassed, "test_fails": analysis.TestFailed,
		"test_breaks": analysis.TestError, "todo_test_later": analysis.TestSkipped,
	}
	r := runTests(t, dir, &analysis.TestOptions{Run: `more_test\.`})
	for _, result := range r.Tests {
		name := strings.TrimPrefix(result.Name, "data.gate.more_test.")
		if result.Outcome != want[name] {
			t.Errorf("%s: %s, want %s", name, result.Outcome, want[name])
		}
		delete(want, name)
		switch name {
		case "test_passes":
			if result.Output != "said\n" {
				t.Errorf("it printed %q", result.Output)
			}
		case "test_fails":
			if len(result.Failures) != 1 || result.Failures[0].Case != "two" || string(result.Failures[0].Got) != "2" || result.Failures[0].Line != 7 {
				t.Errorf("its failures are %+v", result.Failures)
			}
		case "test_breaks":
			if !strings.Contains(result.Message, "conflicting values") {
				t.Errorf("its message is %q", result.Message)
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("these were not passed: %v", want)
	}
}

func TestTestTellsWhyALineIsNotReached(t *testing.T) {
	dir := t.TempDir()
	checkWrite(t, dir, "gate/skill/skill.rego", "package gate.skill\n\ndecision := {}\n")
	checkWrite(t, dir, callRego, `package gate.call

decision := answer

default answer := 0

answer := 1 if {
	input.tool.origin == "fetcher"
	input.tool.read_only == true
	input.taint == "clean"
} else := 2 if {
	input.taint == "clean"
} else := 3

alone if input.taint == "clean"

many if {
	not input.tool.read_only
	input.taint == "tainted"
}

many if input.tool.origin == "admin-grant"

twice := 1 if input.taint == "clean"

twice := 1 if input.tool.name == "t"
`)
	checkWrite(t, dir, "gate/call/call_test.rego", `package gate.call_test

document := {"tool": {"name": "t", "origin": "fetcher", "read_only": false}, "taint": "clean"}

test_answer if data.gate.call.decision == 2 with input as document

test_many if not data.gate.call.many with input as document

test_twice if data.gate.call.twice == 1 with input as document
`)
	want := []analysis.TestGap{
		{Line: 5, Text: "default answer := 0", Why: "the rule had a value of its own in every test"},
		{Line: 7, Text: "answer := 1 if {", Why: "line 9 was false or undefined in every test: input.tool.read_only == true", Because: 9},
		{Line: 8, Text: `input.tool.origin == "fetcher"`, Why: "line 9 was false or undefined in every test: input.tool.read_only == true (OPA's index tells so without a look into the rule)", Because: 9},
		{Line: 9, Text: "input.tool.read_only == true", Why: "line 9 was false or undefined in every test: input.tool.read_only == true", Because: 9},
		{Line: 10, Text: `input.taint == "clean"`, Why: "line 9 was false or undefined in every test: input.tool.read_only == true", Because: 9},
		{Line: 13, Text: "} else := 3", Why: "the branch at line 11 answered in every test that came here", Because: 11},
		{Line: 15, Text: `alone if input.taint == "clean"`, Why: "no test asks for data.gate.call.alone"},
		{Line: 17, Text: "many if {", Why: `line 19 was false or undefined in every test: input.taint == "tainted"`, Because: 19},
		{Line: 18, Text: "not input.tool.read_only", Why: `line 19 was false or undefined in every test: input.taint == "tainted" (OPA's index tells so without a look into the rule)`, Because: 19},
		{Line: 19, Text: `input.taint == "tainted"`, Why: `line 19 was false or undefined in every test: input.taint == "tainted"`, Because: 19},
		{Line: 22, Text: `many if input.tool.origin == "admin-grant"`, Why: `line 22 was false or undefined in every test: input.tool.origin == "admin-grant"`, Because: 22},
	}
	r := runTests(t, dir, nil)
	var gaps []analysis.TestGap
	for _, f := range r.Coverage.Files {
		if f.File == callRego {
			gaps = f.Gaps
		}
	}
	for _, w := range want {
		if !slices.Contains(gaps, w) {
			t.Errorf("no gap %+v", w)
		}
	}
	for _, g := range gaps {
		known := slices.ContainsFunc(want, func(w analysis.TestGap) bool { return w.Line == g.Line })
		if !known && !strings.Contains(g.Why, "OPA") {
			t.Errorf("a gap too many: %+v", g)
		}
	}
}

// A class is touched by a test that asks for the decision with a call of it,
// whatever the test says about the answer; parts of the decision touch none.
func TestTestCountsDecisions(t *testing.T) {
	dir := initCopy(t)
	withoutTests(t, dir)
	checkWrite(t, dir, "gate/call/call_test.rego", `package gate.call_test

document := {"tool": {"name": "t", "origin": "fetcher", "read_only": true}, "taint": "clean"}

test_twice_the_same if {
	data.gate.call.decision.outcome == "allow" with input as document
	data.gate.call.decision.outcome == "allow" with input as object.union(document, {"policy": null})
}

test_another if data.gate.call.decision.outcome == "deny" with input as object.union(document, {"policy": {"veto": "no"}})

test_a_part if data.gate.taint.granted == 7 with input as object.union(document, {"taint": "tainted"})

test_no_call if data.gate.call.decision.outcome == "deny" with input as {"taint": "clean"}
`)
	r := runTests(t, dir, nil)
	d := r.Decisions
	if d.Total != defaultClasses || d.Touched != 2 || d.Calls != 2 || d.Parts != 1 {
		t.Errorf("%d of %d classes by %d calls, %d of parts; want 2 of %d by 2, 1 of parts", d.Touched, d.Total, d.Calls, d.Parts, defaultClasses)
	}
	var touched []string
	for _, c := range d.Classes {
		if c.Touched {
			touched = append(touched, c.Origin+" "+c.Taint+" "+c.Verdict+" "+c.Answer)
		}
	}
	if want := []string{"fetcher clean none allow", "fetcher clean veto deny"}; !slices.Equal(touched, want) {
		t.Errorf("touched %q, want %q", touched, want)
	}
	for _, c := range d.Classes {
		if c.Origin == "local-sandbox" && c.Taint == "clean" && c.Verdict == "none" && c.Answer == "allow" {
			if want := `{"tool":{"name":"some_tool","origin":"local-sandbox"},"taint":"clean"}`; string(c.Example) != want {
				t.Errorf("example %s, want %s", c.Example, want)
			}
		}
	}
}

func TestTestThatCannotBePassed(t *testing.T) {
	broken := initCopy(t)
	checkWrite(t, broken, "gate/more/more_test.rego", "package gate.more_test\n\ntest_x if y\n")
	syntax := initCopy(t)
	checkWrite(t, syntax, "gate/more/more_test.rego", "package gate.more_test\n\ntest_x if {\n")
	none := initCopy(t)
	withoutTests(t, none)
	tests := map[string]struct {
		dir, run, want string
	}{
		"does not compile": {broken, "", "gate/more/more_test.rego:3:11: "},
		"is not Rego":      {syntax, "", "gate/more/more_test.rego:4:1: "},
		"no tests":         {none, "", "there is no test"},
		"none matches":     {initCopy(t), "no_such_test", "no test has a name that matches"},
		"no expression":    {initCopy(t), "(", "the names of tests to run: "},
		"no directory":     {filepath.Join(none, "nowhere"), "", "nowhere"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := analysis.Test(t.Context(), tt.dir, &analysis.TestOptions{Run: tt.run}); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}
