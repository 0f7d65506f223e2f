package provenance

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// sarif is a report of one run by a scanner named s, with these members and
// with a good invocation.
func sarif(members ...string) string {
	return sarifRuns(`{"tool":{"driver":{"name":"s"}},"invocations":[{"executionSuccessful":true}]` + joined(members) + `}`)
}

func joined(members []string) string {
	if len(members) == 0 {
		return ""
	}
	return "," + strings.Join(members, ",")
}

func sarifRuns(runs ...string) string {
	return `{"version":"2.1.0","runs":[` + strings.Join(runs, ",") + `]}`
}

func results(list ...string) string { return `"results":[` + strings.Join(list, ",") + `]` }

func read(t testing.TB, text string) *Report {
	t.Helper()
	r, err := ReadReport(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return r
}

func TestBrokenReportsAreErrors(t *testing.T) {
	deep := strings.Repeat("[", maxReportDepth) + strings.Repeat("]", maxReportDepth)
	tests := map[string][2]string{ // the text, and what the error has
		"empty":               {"", "it is empty"},
		"blank":               {" \n", "it is empty"},
		"no JSON":             {"no", "invalid"},
		"cut off":             {sarif(results())[:60], "EOF"},
		"something behind":    {sarif(results()) + "{}", "top-level"},
		"null":                {"null", "version"},
		"a list":              {"[]", "expected an object, got an array"},
		"no version":          {`{"runs":[{}]}`, `version "2.1.0", got ""`},
		"old version":         {strings.Replace(sarif(results()), "2.1.0", "2.0.0", 1), `got "2.0.0"`},
		"version as number":   {strings.Replace(sarif(results()), `"2.1.0"`, "2.1", 1), "/version: expected a string, got a number"},
		"no runs":             {sarifRuns(), "it has no runs"},
		"runs null":           {`{"version":"2.1.0","runs":null}`, "it has no runs"},
		"in capitals":         {strings.Replace(sarif(results()), `"runs"`, `"Runs"`, 1), "it has no runs"},
		"a member twice":      {`{"version":"2.1.0","version":"2.1.0","runs":[]}`, "duplicate"},
		"results twice":       {sarif(results(`{"level":"error"}`), results()), "duplicate"},
		"not UTF-8":           {sarif("\"x\":\"\xff\""), "UTF-8"},
		"no tool":             {sarifRuns(`{"results":[]}`), "runs[0]: expected the scanner's name"},
		"second run":          {sarifRuns(`{"tool":{"driver":{"name":"s"}}}`, `{}`), "runs[1]: expected the scanner's name"},
		"no success":          {sarifRuns(`{"tool":{"driver":{"name":"s"}},"invocations":[{"exitCode":0}],"results":[]}`), "expected executionSuccessful"},
		"success as text":     {sarifRuns(`{"tool":{"driver":{"name":"s"}},"invocations":[{"executionSuccessful":"true"}],"results":[]}`), "/runs/0/invocations/0/executionSuccessful: expected true or false, got a string"},
		"results elsewhere":   {sarif(`"externalPropertyFileReferences":{"results":[{"location":{"uri":"r.sarif"}}]}`), "in other files"},
		"results inline":      {`{"version":"2.1.0","inlineExternalProperties":[{}],` + sarif(results())[len(`{"version":"2.1.0",`):], "inlineExternalProperties"},
		"results an object":   {sarif(`"results":{}`), "/runs/0/results: expected an array, got an object"},
		"a level that's none": {sarif(results(`{"level":"fatal"}`)), `results[0]: level: expected error, warning, note or none, got "fatal"`},
		"a kind that's none":  {sarif(results(`{},{"kind":"fine"}`)), `results[1]: kind: expected fail, open, review, pass, notApplicable, informational, got "fine"`},
		"a state that's none": {sarif(results(`{"baselineState":"gone"}`)), "baselineState: expected"},
		"a suppression":       {sarif(results(`{"suppressions":[{}]}`)), "suppressions[0]: kind: expected inSource, external"},
		"a status":            {sarif(results(`{"suppressions":[{"kind":"external","status":"ok"}]}`)), "suppressions[0]: status: expected accepted"},
		"a score":             {sarif(results(`{"properties":{"security-severity":"high"}}`)), "security-severity: expected a number from 0 to 10"},
		"a score above":       {sarif(results(`{"properties":{"security-severity":"10.1"}}`)), "security-severity"},
		"a score below":       {sarif(results(`{"properties":{"security-severity":-1}}`)), "security-severity"},
		"no number":           {sarif(results(`{"properties":{"security-severity":"NaN"}}`)), "security-severity"},
		"a rule's level":      {sarifRuns(`{"tool":{"driver":{"name":"s","rules":[{"id":"r","defaultConfiguration":{"level":"bad"}}]}}}`), "rules[0] of s: level"},
		"a rule's score":      {sarifRuns(`{"tool":{"driver":{"name":"s"},"extensions":[{"name":"e","rules":[{"properties":{"security-severity":true}}]}]}}`), "rules[0] of e"},
		"a hash":              {sarif(`"artifacts":[{"hashes":{"sha-256":"00"}}]`), "artifacts[0]: expected 64 hexadecimal digits"},
		"too many runs":       {sarifRuns(`{}` + strings.Repeat(`,{}`, maxRuns)), "more than 1000 runs"},
		"a long id":           {sarif(results(`{"ruleId":"` + strings.Repeat("/", maxRuleID+1) + `"}`)), "results[0]: the id of its rule has more than 1024 bytes"},
		"a long id of a rule": {sarif(results(`{"rule":{"id":"` + strings.Repeat("/", maxRuleID+1) + `"}}`)), "results[0]: the id of its rule"},
		"too deep":            {sarif(`"properties":{"x":` + deep + `}`), "nested more than 64 deep"},
		"too long":            {sarif(`"x":"` + strings.Repeat("x", MaxReport) + `"`), "more than 32 MiB"},
	}
	for name, tt := range tests {
		r, err := ReadReport(strings.NewReader(tt[0]))
		if r != nil || !errors.Is(err, ErrReport) || !strings.Contains(err.Error(), tt[1]) {
			t.Errorf("%s: got %v, %v, want %q", name, r, err, tt[1])
		}
	}
	broken := errors.New("disk on fire")
	if r, err := ReadReport(failing{broken}); r != nil || !errors.Is(err, broken) || errors.Is(err, ErrReport) {
		t.Errorf("a disk's error: %v, %v", r, err)
	}
	for name, text := range map[string]string{
		"byte order mark": "\ufeff" + sarif(results()),
		"nulls":           sarif(`"results":null,"artifacts":null,"originalUriBaseIds":null,"externalPropertyFileReferences":null`),
		"what is unknown": sarif(`"automationDetails":{"id":"x"},"results":[{"message":{"text":"m"},"x":[{}]}]`),
		"as deep as may":  sarif(`"x":` + deep[4:len(deep)-4]),
	} {
		if _, err := ReadReport(strings.NewReader(text)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// Every level, with every band of security-severity. The rows are levels, the
// columns no score, 0, 3.9, 4.0, 6.9, 7.0, 8.9, 9.0 and 10.
func TestSeverity(t *testing.T) {
	scores := []string{"", "0", "3.9", "4.0", "6.9", "7.0", "8.9", "9.0", "10"}
	const no, lo, me, hi, cr = NoSeverity, Low, Medium, High, Critical
	wants := map[string][9]Severity{
		"":        {me, me, me, me, me, hi, hi, cr, cr}, // SARIF's default is warning
		"none":    {no, lo, lo, me, me, hi, hi, cr, cr},
		"note":    {lo, lo, lo, me, me, hi, hi, cr, cr},
		"warning": {me, me, me, me, me, hi, hi, cr, cr},
		"error":   {cr, hi, hi, hi, hi, hi, hi, cr, cr},
	}
	for level, want := range wants {
		for i, score := range scores {
			for place, text := range severities(level, score) {
				run := &read(t, text).runs[0]
				if got := run.severity(&(*run.Results)[0]); got != want[i] {
					t.Errorf("level %q, score %q, %s: got %v, want %v", level, score, place, got, want[i])
				}
			}
		}
	}
}

// severities writes a finding's level and score in all places where they may
// stand.
func severities(level, score string) map[string]string {
	config, own, property := "", "", ""
	if level != "" {
		config, own = `"defaultConfiguration":{"level":"`+level+`"},`, `"level":"`+level+`",`
	}
	if score != "" {
		property = `"properties":{"security-severity":"` + score + `"},`
	}
	run := func(driver, extension, result string) string {
		return sarifRuns(`{"tool":{"driver":{"name":"s","rules":[` + driver + `]},"extensions":[{"name":"e","rules":[` + extension +
			`]}]},"results":[{` + result + `"message":{"text":"m"}}]}`)
	}
	other := `{"id":"other","defaultConfiguration":{"level":"error"},"properties":{"security-severity":"9.9"}},`
	rule := other + `{` + config + property + `"id":"r"}`
	return map[string]string{
		"at the finding":                 run("", "", own+property),
		"at the rule with its id":        run(rule, "", `"ruleId":"r",`),
		"at the rule with a part of it":  run(rule, "", `"ruleId":"r/part",`),
		"at the rule with its number":    run(rule, "", `"ruleIndex":1,`),
		"at the extension's rule":        run("", rule, `"rule":{"index":1,"toolComponent":{"index":0}},`),
		"at the extension's rule by id":  run("", rule, `"rule":{"id":"r","toolComponent":{"name":"e"}},`),
		"level at the finding, score at": run(other+`{`+property+`"id":"r"}`, "", own+`"ruleId":"r",`),
		"score as a number":              strings.Replace(run("", "", own+property), `"`+score+`"}`, score+"}", 1),
	}
}

func TestSeverityThatIsNotSaid(t *testing.T) {
	for name, text := range map[string]string{
		"open":      sarif(results(`{"kind":"open","level":"note"}`)),
		"review":    sarif(results(`{"kind":"review","level":"none","properties":{"security-severity":"1"}}`)),
		"override":  strings.Replace(sarif(results(`{"ruleId":"r"}`)), `true}`, `true,"ruleConfigurationOverrides":[{"descriptor":{"id":"r"},"configuration":{"level":"error"}}]}`, 1),
		"no effect": sarif(results(`{"level":"none"}`)),
	} {
		run := &read(t, text).runs[0]
		if got := run.severity(&(*run.Results)[0]); got != NoSeverity {
			t.Errorf("%s: got %v", name, got)
		}
	}
	// The worst of the rules that it may be.
	text := sarifRuns(`{"tool":{"driver":{"name":"s","rules":[{"id":"r","defaultConfiguration":{"level":"note"}}]},
		"extensions":[{"name":"e","rules":[{"id":"r","defaultConfiguration":{"level":"error"},"properties":{"security-severity":"9"}}]}]},"results":[{"ruleId":"r"}]}`)
	run := &read(t, text).runs[0]
	if got := run.severity(&(*run.Results)[0]); got != Critical {
		t.Errorf("two rules with one id: got %v", got)
	}
	// The rule whose id a finding's has with two parts behind it, and no other.
	text = sarifRuns(`{"tool":{"driver":{"name":"s","rules":[{"id":"r","defaultConfiguration":{"level":"note"}},{"id":"","defaultConfiguration":{"level":"error"}},
		{"id":"ru","defaultConfiguration":{"level":"error"}}]}},"results":[{"ruleId":"r/u/le"}]}`)
	run = &read(t, text).runs[0]
	if got := run.severity(&(*run.Results)[0]); got != Low {
		t.Errorf("parts of a rule: got %v", got)
	}
	for _, index := range []string{"-1", "7"} { // a number that is no rule's
		text := sarifRuns(`{"tool":{"driver":{"name":"s","rules":[{"id":"r","defaultConfiguration":{"level":"note"}}]}},"results":[{"ruleIndex":` + index + `}]}`)
		run := &read(t, text).runs[0]
		if got := run.severity(&(*run.Results)[0]); got != Medium {
			t.Errorf("index %s: got %v", index, got)
		}
	}
}

func TestSeverityNames(t *testing.T) {
	if got := fmt.Sprint(Severities()); got != "[low medium high critical]" {
		t.Errorf("got %s", got)
	}
	for i, name := range Severities() {
		if s, ok := ParseSeverity(name); !ok || int(s) != i+1 || s.String() != name {
			t.Errorf("%s: got %v, %v", name, s, ok)
		}
	}
	for _, name := range []string{"", "unknown", "LOW", "info"} {
		if s, ok := ParseSeverity(name); ok || s != NoSeverity {
			t.Errorf("%q: got %v", name, s)
		}
	}
	if got := Severity(9).String() + ScanState(9).String(); got != "Severity(9)ScanState(9)" {
		t.Errorf("got %s", got)
	}
}
