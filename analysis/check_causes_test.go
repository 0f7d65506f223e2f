package analysis_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opa-gate/opa-gate/analysis"
	"github.com/opa-gate/opa-gate/internal/race"
)

// One thing that is wrong is told once, where it is wrong, however many documents show it
// and in however many ways.
func TestCheckTellsACauseOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("thousands of documents for each policy take seconds; it runs without -short")
	}
	for name, tt := range map[string]struct {
		file, from, to, at string
		code               analysis.Code
		message            string
	}{
		"an outcome": {callRego, `answer := {"outcome": "deny", "reason": input.policy.veto}`, `answer := {"outcome": "denied", "reason": input.policy.veto}`,
			"answer := {", analysis.CodeNotADecision, `"denied" is none of its values`},
		"an else": {callRego, "} else := {\"outcome\": \"allow\", \"reason\": \"\"} if {", "} else := {\"outcome\": \"allowed\", \"reason\": \"\"} if {",
			"\"allowed\"", analysis.CodeNotADecision, `"allowed" is none of its values`},
		"names beside a mask": {callRego, `"missing": facts.names[missing],`, `"missing": facts.names[taint.granted],`,
			"\"outcome\": \"escalate\",\n", analysis.CodeNotADecision, "ways"},
		"names of every answer": {callRego, `"required": facts.names[profile.required],`, `"required": facts.names[taint.granted],`,
			"basis := {", analysis.CodeNotADecision, "ways"},
		"an answer without what it says is missing": {callRego, "\t\"missing_mask\": missing,\n", "",
			"\"outcome\": \"escalate\",\n", analysis.CodeNotADecision, "it must list the members of mask 0"},
		"a member too many": {callRego, "} else := {\n\t\"outcome\": \"modify\",", "} else := {\n\t\"outcome\": \"modify\",\n\t\"because\": input.tool.name,",
			"\"outcome\": \"modify\",", analysis.CodeNotADecision, "no such member"},
		"two values": {profileRego, `if origin == "access-revoke"`, `if origin in {"access-revoke", "access-grant", "fetcher", "local-sandbox", "admin-manage"}`,
			`if origin in {"access-revoke"`, analysis.CodeConflict, "has two values"},
		"no decision": {callRego, "package gate.call\n", "package gate.cal\n", "", analysis.CodeNoEntrypoint, `did you mean "gate.cal"?`},
		"no rule":     {callRego, "", "", "package", analysis.CodeNoEntrypoint, `did you mean "desicion"?`},
		"data that is not there": {"gate/taint/taint_test.rego", "import data.gate.taint\n", "import data.gate.tant as taint\n",
			"taint.", analysis.CodeUnknownData, "(also at line"},
		"a skill's tier": {skillRego, `"granted": trust.ceiling,`, `"granted": "root",`, "", analysis.CodeNotADecision, "root"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := initCopy(t)
			if tt.from == "" {
				checkReplace(t, dir, tt.file, "decision :=", "desicion :=")
			} else {
				checkEdit(t, dir, tt.file, tt.from, tt.to)
			}
			r := runCheck(t, dir, &analysis.CheckOptions{Static: tt.code == analysis.CodeUnknownData})
			n := 0
			for _, f := range r.Findings {
				if f.Severity == analysis.SeverityError || f.Code == tt.code {
					n++
				}
				if f.Code == tt.code && (!strings.Contains(f.Message, tt.message) || f.File != tt.file) {
					t.Errorf("want %q in %s, found %s", tt.message, tt.file, checkListed(r))
				}
				// A branch begins where its head does, or the else in front of it.
				if line := checkLine(t, dir, tt.file, tt.at); f.Code == tt.code && tt.at != "" && f.Line != line && f.Line != line-1 && tt.code != analysis.CodeConflict {
					t.Errorf("want it at line %d, found %s", line, checkListed(r))
				}
			}
			if n != 1 {
				t.Errorf("%d findings, want one: %s", n, checkListed(r))
			}
		})
	}
}

// checkReplace replaces a text wherever it stands in a file.
func checkReplace(t *testing.T, dir, name, from, to string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	checkWrite(t, dir, name, strings.ReplaceAll(string(text), from, to))
}

// A rule that takes too much is found where it is, and check ends.
func TestCheckEndsWhatTakesTooMuch(t *testing.T) {
	race.SkipSlow(t)
	for name, condition := range map[string]string{
		"a built-in": "count(numbers.range(1, 100000000)) == 3",
		"a loop":     "count([1 | some i in numbers.range(1, 4000); some j in numbers.range(1, 4000); i == j]) == 3",
	} {
		t.Run(name, func(t *testing.T) {
			dir := initCopy(t)
			checkEdit(t, dir, callRego, "asks_for_person if input.policy.requires_human == true", "asks_for_person if "+condition)
			told := 0
			begin := time.Now()
			r := runCheck(t, dir, &analysis.CheckOptions{Progress: func(done, total int) {
				if done < 0 || done > total {
					t.Errorf("progress %d of %d", done, total)
				}
				told++
			}})
			if took := time.Since(begin); took > time.Minute {
				t.Errorf("it took %v", took)
			}
			if told == 0 {
				t.Error("nobody was told of progress")
			}
			line := checkLine(t, dir, callRego, condition)
			if len(r.Findings) != 1 || r.Findings[0].Code != analysis.CodeEvaluation || r.Findings[0].Line != line ||
				!strings.Contains(r.Findings[0].Message, "a decision takes too much") {
				t.Errorf("want one finding at line %d, found %s", line, checkListed(r))
			}
		})
	}
}
