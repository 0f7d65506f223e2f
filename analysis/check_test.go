package analysis_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opa-gate/opa-gate/analysis"
	"github.com/opa-gate/opa-gate/internal/race"
)

// checkEdit replaces the one occurrence of a text in a file of a working copy.
func checkEdit(t *testing.T, dir, name, from, to string) {
	t.Helper()
	path := filepath.Join(dir, filepath.FromSlash(name))
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), from); n != 1 {
		t.Fatalf("%s has %q %d times, want once", name, from, n)
	}
	checkWrite(t, dir, name, strings.Replace(string(text), from, to, 1))
}

func checkWrite(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

// checkLine returns the line, counted from 1, in which text first stands.
func checkLine(t *testing.T, dir, name, text string) int {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	before, _, found := strings.Cut(string(content), text)
	if !found {
		t.Fatalf("%s does not hold %q", name, text)
	}
	return strings.Count(before, "\n") + 1
}

func runCheck(t *testing.T, dir string, opts *analysis.CheckOptions) *analysis.CheckResult {
	t.Helper()
	r, err := analysis.Check(t.Context(), dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func checkListed(r *analysis.CheckResult) string {
	var b strings.Builder
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "\n\t%s:%d:%d: %s: %s [%s]", f.File, f.Line, f.Column, f.Severity, f.Message, f.Code)
	}
	return b.String()
}

func TestCheckFindsNothingInACopy(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes minutes under the race detector; it runs without -short")
	}
	if r := runCheck(t, initCopy(t), nil); len(r.Findings) > 0 {
		t.Errorf("found %s", checkListed(r))
	}
}

const (
	callRego    = "gate/call/call.rego"
	taintRego   = "gate/taint/taint.rego"
	profileRego = "gate/profile/profile.rego"
	skillRego   = "gate/skill/skill.rego"
)

// One edit a kind of finding. The finding must be at the line where at stands after
// the edit, and say what would be right.
var checkFindings = map[string]struct {
	file, from, to string
	at             string // in file; "" is its first line
	severity       analysis.Severity
	code           analysis.Code
	message        string
}{
	"a brace is missing": {callRego, "asks_for_person if input.policy.requires_human == true", "asks_for_person if {",
		"", analysis.SeverityError, analysis.CodeSyntax, "unexpected"},
	"broken data": {"gate/settings/data.json", "{", "{{", "", analysis.SeverityError, analysis.CodeData, "it cannot be read"},
	"no JSON":     {"gate/settings/data.json", "this system\"", "this system\",", "", analysis.SeverityError, analysis.CodeData, "it cannot be read: it is not JSON: invalid character"},
	"line ends of another system": {taintRego, "revoked := 0 if input.taint == \"clean\"\n", "revoked := 0 if input.taint == \"clean\"\r\n",
		"", analysis.SeverityError, analysis.CodeUnformatted, "its line ends are CRLF, which a fix mends"},
	"a byte order mark": {taintRego, "# METADATA\n# title: What taint revokes", "\ufeff# METADATA\n# title: What taint revokes",
		"", analysis.SeverityError, analysis.CodeUnformatted, "it begins with a byte order mark"},
	"not formatted": {taintRego, `revoked := 0 if input.taint == "clean"`, `revoked  :=  0 if input.taint == "clean"`,
		"revoked  :=", analysis.SeverityError, analysis.CodeUnformatted, "which a fix mends"},
	"misspelt input": {callRego, "is_string(input.policy.veto)", "is_string(input.policy.vetto)",
		"vetto", analysis.SeverityError, analysis.CodeUnknownInput, `there is no input.policy.vetto; did you mean "veto"?`},
	"misspelt rule of another package": {callRego, "count(grant.unknown) > 0", "count(grant.unkown) > 0",
		"grant.unkown", analysis.SeverityError, analysis.CodeUnknownData, `data.gate.grant.unkown; did you mean "unknown"?`},
	"misspelt package": {callRego, "import data.gate.grant\n", "import data.gate.grand as grant\n",
		"grant.unknown]", analysis.SeverityError, analysis.CodeUnknownData, `data.gate.grand; did you mean "grant"?`},
	"misspelt fact": {profileRego, `facts.bit["grant-access"]`, `facts.bit["grant-acess"]`,
		"grant-acess", analysis.SeverityError, analysis.CodeUnknownData, `did you mean "grant-access"?`},
	"misspelt setting": {"gate/escalation/escalation.rego", "system := settings.system if", "system := settings.sytem if",
		"settings.sytem", analysis.SeverityError, analysis.CodeUnknownData, `did you mean "system"?`},
	"misspelt built-in": {callRego, "is_string(input.policy.veto)", "is_sting(input.policy.veto)",
		"is_sting", analysis.SeverityError, analysis.CodeUnknownFunction, `there is no function is_sting; did you mean "is_string"?`},
	"misspelt local rule": {profileRego, "required := facts.bit[\"fixed-connector-read\"] if {\n\torigin in connectors", "required := facts.bit[\"fixed-connector-read\"] if {\n\torigin in conectors",
		"conectors", analysis.SeverityError, analysis.CodeUnsafeVariable, `nothing gives conectors a value; did you mean "connectors"?`},
	"types that never agree": {callRego, "missing > 0\n", "missing + \"x\" > 0\n",
		`missing + "x"`, analysis.SeverityError, analysis.CodeType, "invalid argument"},
	"recursion": {"gate/trust/trust.rego", `signed if input.provenance.signed == true`, `signed if level == "official"`,
		`signed if level`, analysis.SeverityError, analysis.CodeRecursion, "recursive"},
	"an import too many": {taintRego, "import data.gate.grant\n", "import data.gate.grant\nimport data.gate.profile\n",
		"import data.gate.profile", analysis.SeverityError, analysis.CodeCompile, "unused"},
	"origin that does not exist": {profileRego, `if origin == "access-grant"`, `if origin == "acess-grant"`,
		`"acess-grant"`, analysis.SeverityError, analysis.CodeUnknownValue, `is never "acess-grant"; did you mean "access-grant"?`},
	"taint that does not exist": {taintRego, `input.taint == "tainted"`, `input.taint == "dirty"`,
		`"dirty"`, analysis.SeverityError, analysis.CodeUnknownValue, `input.taint is never "dirty", expected clean, tainted`},
	"kind of transform that does not exist": {callRego, `transform == "rewrite"`, `transform == "rewritten"`,
		`"rewritten"`, analysis.SeverityError, analysis.CodeUnknownValue, `did you mean "rewrite"?`},
	"origin in a set": {profileRego, `connectors := {"first-party", "registered-connector"}`, `connectors := {"first-party", "registerd-connector"}`,
		"\torigin in connectors", analysis.SeverityError, analysis.CodeUnknownValue, `is never "registerd-connector"; did you mean "registered-connector"?`},
	"tier in an object": {skillRego, `rank := {"read_only": 1,`, `rank := {"readonly": 1,`,
		`"readonly"`, analysis.SeverityError, analysis.CodeUnknownValue, `did you mean "read_only"?`},
	"level that no rule gives": {"gate/trust/trust.rego", `if level == "verified"`, `if level == "verifyed"`,
		`"verifyed"`, analysis.SeverityError, analysis.CodeUnknownValue, `data.gate.trust.level is never "verifyed"; did you mean "verified"?`},
	"capability in the base": {callRego, "asks_for_person if input.policy.requires_human == true", `asks_for_person if "local-wirte" in input.grant.base`,
		"local-wirte", analysis.SeverityWarning, analysis.CodeUnknownValue, `"local-wirte" is no capability: a document may have it in input.grant.base, where it grants nothing; did you mean "local-write"?`},
	"another name in the base": {callRego, "asks_for_person if input.policy.requires_human == true", `asks_for_person if "superuser" in input.grant.base`,
		"superuser", analysis.SeverityWarning, analysis.CodeUnknownValue, `"superuser" is no capability`},
	"a marker in the base": {callRego, "asks_for_person if input.policy.requires_human == true", `asks_for_person if "grant-access" in input.grant.base`,
		"\"grant-access\" in", analysis.SeverityWarning, analysis.CodeUnknownValue, `"grant-access" is a capability that nobody can be granted beforehand`},
	"capability as an argument": {"gate/escalation/escalation.rego", `lacks(missing, "grant-access")`, `lacks(missing, "grant-acces")`,
		`"grant-acces"`, analysis.SeverityWarning, analysis.CodeUnlikelyName, `did you mean "grant-access"?`},
	"no decision": {callRego, "package gate.call", "package gate.calls",
		"", analysis.SeverityError, analysis.CodeNoEntrypoint, "nothing is decided by data.gate.call.decision"},
	"an unmarked decision": {callRego, "# entrypoint: true\n", "",
		"default decision :=", analysis.SeverityWarning, analysis.CodeEntrypointMark, `"entrypoint: true"`},
	"an answer that is none": {callRego, `answer := {"outcome": "deny", "reason": input.policy.veto}`, `answer := {"outcome": "denied", "reason": input.policy.veto}`,
		"answer := {", analysis.SeverityError, analysis.CodeNotADecision, `/outcome`},
	"a skill's answer that is none": {skillRego, `"granted": trust.ceiling,`, `"granted": "root",`,
		"} else := {\n\t\"trust\": trust.level,\n\t\"ceiling\": trust.ceiling,\n\t\"granted\": \"root\"", analysis.SeverityError, analysis.CodeNotADecision, `/granted`},
	"two answers": {profileRego, `if origin == "access-revoke"`, `if origin in {"access-revoke", "access-grant"}`,
		`if origin in {"access-revoke"`, analysis.SeverityError, analysis.CodeConflict, "data.gate.profile.required has two values: this rule and the one at line "},
	"two answers to a name": {callRego, `transform := input.policy.transform.kind if is_object(input.policy.transform)`,
		"transform := input.policy.transform.kind if is_object(input.policy.transform)\n\ntransform := \"rewrite\" if startswith(input.tool.name, \"pay_\")",
		`"rewrite" if startswith`, analysis.SeverityError, analysis.CodeConflict, `"name":"pay_`},
	"a built-in that fails": {callRego, "asks_for_person if input.policy.requires_human == true", "asks_for_person if numbers.range_step(1, 2, 0)",
		"numbers.range_step", analysis.SeverityError, analysis.CodeEvaluation, "step must be a positive"},
	"a broken document allowed": {"gate/wire/call.rego", `not optional_string(policy, "veto")`, `not optional_string(policy, "vet")`,
		"", analysis.SeverityError, analysis.CodeBrokenDocument, `"policy":{"veto":1}} is answered with allow`},
	"a clock": {callRego, "asks_for_person if input.policy.requires_human == true", "asks_for_person if time.now_ns() > 5",
		"time.now_ns", analysis.SeverityError, analysis.CodeNondeterministic, "data.gate.call.decision depends on it"},
	"the network": {callRego, "asks_for_person if input.policy.requires_human == true", `asks_for_person if http.send({"method": "get", "url": "http://localhost:1"}).status_code == 200`,
		"http.send", analysis.SeverityError, analysis.CodeNetwork, "or allow http.send"},
	"the network in a test": {"gate/taint/taint_test.rego", "test_clean_revokes_nothing if {", "test_clean_revokes_nothing if {\n\tcount(net.lookup_ip_addr(\"localhost\")) > 0",
		"net.lookup_ip_addr", analysis.SeverityError, analysis.CodeNetwork, "or allow net.lookup_ip_addr"},
	"a rule for nobody": {taintRego, "# METADATA\n# title: The mask that the call is granted", "idle := 1\n\n# METADATA\n# title: The mask that the call is granted",
		"idle", analysis.SeverityWarning, analysis.CodeUnusedRule, "nothing uses data.gate.taint.idle"},
	"a rule for a test": {"gate/invariants/invariants_test.rego", "invariants.breach == set() with input as answered(\"fetcher\", \"allow\")", "invariants.breach == set() with input as answered(\"fetcher\", \"allow\")\n\tdata.gate.settings.idle == 1",
		"settings.idle", analysis.SeverityError, analysis.CodeUnknownData, "data.gate.settings.idle"},
}

func TestCheckFinds(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes minutes under the race detector; it runs without -short")
	}
	for name, tt := range checkFindings {
		t.Run(name, func(t *testing.T) {
			dir := initCopy(t)
			checkEdit(t, dir, tt.file, tt.from, tt.to)
			line := 1
			if tt.at != "" {
				line = checkLine(t, dir, tt.file, tt.at)
			}
			answers := []analysis.Code{analysis.CodeNotADecision, analysis.CodeNoAnswer, analysis.CodeConflict,
				analysis.CodeEvaluation, analysis.CodeBrokenDocument}
			r := runCheck(t, dir, &analysis.CheckOptions{Static: !slices.Contains(answers, tt.code)})
			if !slices.ContainsFunc(r.Findings, func(f analysis.Finding) bool {
				return f.Code == tt.code && f.Severity == tt.severity && strings.Contains(f.Message, tt.message) &&
					(f.File == tt.file && f.Line == line || tt.at == "")
			}) {
				t.Errorf("want %s:%d: %s: %s [%s], found %s", tt.file, line, tt.severity, tt.message, tt.code, checkListed(r))
			}
			if r.OK() != (tt.severity == analysis.SeverityWarning) {
				t.Errorf("OK is %v, found %s", r.OK(), checkListed(r))
			}
		})
	}
}

// One run tells everything: what the compiler finds in one of its stages hides
// nothing of the others.
func TestCheckFindsEverythingAtOnce(t *testing.T) {
	dir := initCopy(t)
	checkEdit(t, dir, taintRego, `input.taint == "tainted"`, `input.taint == "taintd"`)
	checkEdit(t, dir, callRego, "import data.gate.grant\n", "import data.gate.grant\nimport data.gate.trust\n")
	checkEdit(t, dir, callRego, "is_string(input.policy.veto)", "is_sting(input.policy.veto)")
	checkEdit(t, dir, callRego, "count(grant.unknown) > 0", "count(grant.unknown)  > 0")
	checkEdit(t, dir, skillRego, "rank[input.requested] <= rank", "rank[input.request] <= rank")
	checkWrite(t, dir, "gate/other/other.rego", "package gate.other\n\nx := {\n")
	want := map[analysis.Code]string{
		analysis.CodeUnknownValue:    taintRego,
		analysis.CodeUnknownFunction: callRego,
		analysis.CodeUnformatted:     callRego,
		analysis.CodeCompile:         callRego,
		analysis.CodeUnknownInput:    skillRego,
		analysis.CodeSyntax:          "gate/other/other.rego",
	}
	r := runCheck(t, dir, nil)
	for code, file := range want {
		if !slices.ContainsFunc(r.Findings, func(f analysis.Finding) bool { return f.Code == code && f.File == file }) {
			t.Errorf("no finding %s in %s, found %s", code, file, checkListed(r))
		}
	}
	for _, f := range r.Findings {
		if f.Code == analysis.CodeUnusedRule || f.Code == analysis.CodeUnknownData || f.Code == analysis.CodeNoEntrypoint {
			t.Errorf("this follows from another finding: %v", f)
		}
	}
	if !slices.IsSortedFunc(r.Findings, func(a, b analysis.Finding) int {
		return strings.Compare(a.File+fmt.Sprintf(":%09d", a.Line), b.File+fmt.Sprintf(":%09d", b.Line))
	}) {
		t.Errorf("not in order: %s", checkListed(r))
	}
}

const checkClosed = `{
	"outcome": "deny", "reason": "closed", "missing": [], "missing_mask": 0, "required": [], "required_mask": 0,
	"granted": [], "granted_mask": 0,
}`

func TestCheckOfOnesOwnPolicies(t *testing.T) {
	tests := map[string]struct {
		call string
		code analysis.Code
		want string
	}{
		"another name":      {"desicion := " + checkClosed, analysis.CodeNoEntrypoint, `this package has no rule decision, which decides; did you mean "desicion"?`},
		"a text":            {"decision := \"deny\"", analysis.CodeNotADecision, "it must be an object"},
		"no answer":         {"decision := " + checkClosed + " if input.taint == \"clean\"", analysis.CodeNoAnswer, "give the rule a default that denies"},
		"conflicting":       {"decision := " + checkClosed + "\n\ndecision := \"deny\" if input.taint == \"clean\"", analysis.CodeConflict, "data.gate.call.decision has two values"},
		"an allow too many": {"decision := object.union(" + checkClosed + ", {\"outcome\": \"allow\"})", analysis.CodeBrokenDocument, "is answered with allow"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			checkWrite(t, dir, callRego, "package gate.call\n\n"+tt.call+"\n")
			checkWrite(t, dir, skillRego, "package gate.skill\n\ndecision := "+checkClosed+"\n")
			r := runCheck(t, dir, nil)
			if !slices.ContainsFunc(r.Findings, func(f analysis.Finding) bool {
				return f.Code == tt.code && f.File == callRego && strings.Contains(f.Message, tt.want)
			}) {
				t.Errorf("want %s: %s, found %s", tt.code, tt.want, checkListed(r))
			}
		})
	}
}

func TestCheckFixes(t *testing.T) {
	dir := initCopy(t)
	checkEdit(t, dir, taintRego, `revoked := 0 if input.taint == "clean"`, `revoked  :=  0 if input.taint == "clean"`)
	path := filepath.Join(dir, filepath.FromSlash(taintRego))
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	before := initTree(t, dir)
	r := runCheck(t, dir, &analysis.CheckOptions{Fix: true, Static: true})
	if len(r.Findings) > 0 || !slices.Equal(r.Fixed, []string{taintRego}) {
		t.Errorf("fixed %q, found %s", r.Fixed, checkListed(r))
	}
	want, err := os.ReadFile(filepath.FromSlash("../policies/" + taintRego))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != string(want) {
		t.Errorf("it is now, error %v:\n%s", err, got)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("its mode is now %v, error %v", info.Mode(), err)
	}
	if after := initTree(t, dir); !slices.Equal(before, after) {
		t.Errorf("the directory holds %q now", after)
	}
	if r := runCheck(t, dir, &analysis.CheckOptions{Fix: true, Static: true}); len(r.Fixed) > 0 {
		t.Errorf("fixed again: %q", r.Fixed)
	}
}

// What was rewritten is told also if an error follows.
func TestCheckTellsWhatItFixedBeforeAnError(t *testing.T) {
	tests := map[string]func(t *testing.T, dir string) (context.Context, []string){
		"interrupted": func(t *testing.T, dir string) (context.Context, []string) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			return ctx, []string{callRego, taintRego}
		},
		"a file that cannot be replaced": func(t *testing.T, dir string) (context.Context, []string) {
			away := filepath.Join(dir, filepath.FromSlash(taintRego))
			outside := filepath.Join(t.TempDir(), "deep", "taint.rego")
			if err := os.Mkdir(filepath.Dir(outside), 0o777); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(os.Rename(away, outside), os.Symlink(outside, away), os.Chmod(filepath.Dir(outside), 0o555)); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.Chmod(filepath.Dir(outside), 0o777) })
			if f, err := os.CreateTemp(filepath.Dir(outside), ""); err == nil {
				_ = f.Close()
				t.Skip("nothing is forbidden to this user")
			}
			return t.Context(), []string{callRego}
		},
	}
	for name, prepare := range tests {
		t.Run(name, func(t *testing.T) {
			dir := initCopy(t)
			checkEdit(t, dir, callRego, "asks_for_person if input.policy.requires_human == true", "asks_for_person if  input.policy.requires_human == true")
			checkEdit(t, dir, taintRego, `revoked := 0 if input.taint == "clean"`, `revoked  :=  0 if input.taint == "clean"`)
			ctx, want := prepare(t, dir)
			r, err := analysis.Check(ctx, dir, &analysis.CheckOptions{Fix: true})
			if err == nil || r == nil || !slices.Equal(r.Fixed, want) {
				t.Errorf("got %+v, error %v; want that %q were rewritten, and an error", r, err, want)
			}
		})
	}
}

// Rules that are at odds are named, wherever they stand, whatever they decide.
func TestCheckNamesConflictingRules(t *testing.T) {
	tests := map[string]struct {
		call, skill string
		at          int
		want        string
	}{
		"of calls": {call: "decision := " + checkClosed + "\n\ndecision := \"deny\" if input.taint == \"clean\"\n",
			want: "data.gate.call.decision has two values: this rule and the one at line "},
		"on one line": {call: "decision := object.union(" + checkClosed + ", {\"reason\": word})\n\nword := \"a\"\n\nword := \"b\" if input.taint == \"clean\"\n",
			want: "data.gate.call.word has two values: this rule and the one at line "},
		"a function": {call: "decision := object.union(" + checkClosed + ", {\"reason\": word(input.taint)})\n\nword(x) := \"a\" if x != \"tainted\"\n\nword(_) := \"b\"\n",
			want: "data.gate.call.word has two values: this rule and the one at line "},
		"of skills": {skill: "decision := " + checkClosed + "\n\ndecision := \"deny\" if input.requested == \"full_access\"\n",
			want: "data.gate.skill.decision has two values: this rule and the one at line "},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range map[string]string{callRego: "package gate.call\n\n" + tt.call, skillRego: "package gate.skill\n\n" + tt.skill} {
				if !strings.Contains(text, "decision") {
					text += "decision := " + checkClosed + "\n"
				}
				checkWrite(t, dir, file, text)
			}
			r := runCheck(t, dir, nil)
			if !slices.ContainsFunc(r.Findings, func(f analysis.Finding) bool {
				return f.Code == analysis.CodeConflict && strings.Contains(f.Message, tt.want) &&
					!strings.Contains(f.Message, fmt.Sprintf("line %d both", f.Line))
			}) {
				t.Errorf("want a conflict: %s, found %s", tt.want, checkListed(r))
			}
		})
	}
}

func TestCheckAllows(t *testing.T) {
	race.SkipSlow(t)
	dir := initCopy(t)
	checkEdit(t, dir, callRego, "asks_for_person if input.policy.requires_human == true", "asks_for_person if time.now_ns() > 5")
	if r := runCheck(t, dir, &analysis.CheckOptions{Allow: []string{"time.now_ns"}}); len(r.Findings) > 0 {
		t.Errorf("found %s", checkListed(r))
	}
	checkEdit(t, dir, callRego, "time.now_ns() > 5", `http.send({"method": "get", "url": "http://localhost:1"}).status_code == 200`)
	r := runCheck(t, dir, &analysis.CheckOptions{Allow: []string{"http.send"}})
	if !r.OK() || len(r.Findings) != 1 || r.Findings[0].Code != analysis.CodeNotEvaluated {
		t.Errorf("want one warning that nothing was sent, found %s", checkListed(r))
	}
	for name, want := range map[string]string{
		"http.sent": `there is no built-in "http.sent" to allow; did you mean "http.send"?`,
		"concat":    "concat need not be allowed",
	} {
		if _, err := analysis.Check(t.Context(), dir, &analysis.CheckOptions{Allow: []string{name}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--allow %s: error %v, want %s", name, err, want)
		}
	}
}

func TestCheckOfWhatIsNoDirectory(t *testing.T) {
	empty := t.TempDir()
	file := filepath.Join(empty, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{empty, file, filepath.Join(empty, "nowhere")} {
		if _, err := analysis.Check(t.Context(), dir, nil); err == nil {
			t.Errorf("%s was checked", dir)
		}
	}
}
