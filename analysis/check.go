package analysis

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/opa-gate/opa-gate/wire"
)

// A Severity says what a finding means to whoever waits for a verdict.
type Severity string

// The severities of a finding.
const (
	SeverityError   Severity = "error"
	SeverityWarning Severity = "warning"
)

// A Finding is one thing that is wrong with policies, and where.
type Finding struct {
	File     string   `json:"file"`   // within the directory, with slashes
	Line     int      `json:"line"`   // counted from 1
	Column   int      `json:"column"` // counted from 1, in bytes
	Severity Severity `json:"severity"`
	Code     Code     `json:"code"`
	Message  string   `json:"message"` // what is wrong, and what would be right
}

// A Code is the stable name of a kind of finding.
type Code string

// The codes of findings.
const (
	CodeSyntax           Code = "syntax"                    // a file is not Rego
	CodeData             Code = "data"                      // a data file is broken, or says what another one says
	CodeUnformatted      Code = "unformatted"               // a file is not as the formatter writes it
	CodeUnknownInput     Code = "unknown-input"             // a path into the input that no document has
	CodeUnknownData      Code = "unknown-data"              // a path into data that neither rules nor data define
	CodeUnknownFunction  Code = "unknown-function"          // a call of what is not there
	CodeUnsafeVariable   Code = "unsafe-variable"           // a name that nothing gives a value
	CodeType             Code = "type"                      // types that can never agree
	CodeRecursion        Code = "recursion"                 // a rule that depends on itself
	CodeCompile          Code = "compile"                   // whatever else the compiler refuses
	CodeLoad             Code = "load"                      // the program cannot use them for another reason
	CodeNoEntrypoint     Code = "no-entrypoint"             // there is no rule that decides calls, or skills
	CodeEntrypointMark   Code = "unmarked-entrypoint"       // a decision that METADATA does not call an entrypoint
	CodeNotADecision     Code = "not-a-decision"            // an answer that does not have the shape of one
	CodeNoAnswer         Code = "no-answer"                 // a document to which there is no answer
	CodeConflict         Code = "conflict"                  // two rules that give one document two answers
	CodeEvaluation       Code = "evaluation"                // a document on which the evaluation fails
	CodeBrokenDocument   Code = "broken-document"           // a document that breaks its schema and is not denied
	CodeNondeterministic Code = "nondeterministic-built-in" // a decision that depends on a clock, chance or the surroundings
	CodeNetwork          Code = "network-built-in"          // a rule that talks to others
	CodeUnknownValue     Code = "unknown-value"             // a text compared with what can never be it
	CodeUnlikelyName     Code = "unlikely-name"             // a text that is nearly the name of something
	CodeUnusedRule       Code = "unused-rule"               // a rule that nothing depends on
	CodeNotEvaluated     Code = "not-evaluated"             // why the answers were not looked at
)

// CheckOptions say what [Check] does beside looking.
type CheckOptions struct {
	Fix    bool     // rewrite files that are not formatted
	Allow  []string // built-ins that rules may call although they are of the network, or of chance
	Static bool     // ask the policies about no document: what is left takes a fraction of the time

	Progress func(done, total int) // of asking: called now and then, one call after the other, if it is not nil; done never falls, nor exceeds total
}

// A CheckResult is what [Check] found.
type CheckResult struct {
	Findings []Finding // by file, line and column
	Fixed    []string  // the files that were rewritten, as the findings name files
}

// OK reports whether there is no finding that is an error.
func (r *CheckResult) OK() bool {
	return !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity == SeverityError })
}

// A checker collects what is wrong with one directory.
type checker struct {
	dir      string
	allow    []string
	files    []*checkFile // in the order of their names
	data     map[string]any
	findings []Finding
	seen     map[Finding]bool
	missing  []string // rules that decide, and are not there
}

// Check looks for everything that is wrong with the policies in dir: tests and
// data too. It goes on after a problem as far as that makes sense: answers
// are looked at only if the policies can be loaded.
//
// An error means that dir could not be read, that the options are wrong, or
// that ctx ended. The result is there all the same, with the files that were
// rewritten until then. Nobody else in the program may change the files meanwhile.
func Check(ctx context.Context, dir string, opts *CheckOptions) (*CheckResult, error) {
	if opts == nil {
		opts = &CheckOptions{}
	}
	result := &CheckResult{}
	if err := checkAllowed(opts.Allow); err != nil {
		return result, err
	}
	files, err := readCheckFiles(dir)
	if err != nil {
		return result, err
	}
	c := &checker{dir: dir, allow: opts.Allow, files: files, seen: map[Finding]bool{}}
	result.Fixed, err = c.checkFormat(opts.Fix)
	if err != nil {
		return result, err
	}
	c.checkSyntax()
	c.checkData()
	compiler, err := c.checkCompile()
	if err != nil {
		return result, err
	}
	c.checkEntrypoints()
	if compiler != nil {
		uses := newRuleUses(compiler.Compiler)
		c.checkBuiltins(uses)
		c.checkDataPaths(compiler)
		c.checkPathConflicts(compiler.Compiler)
		c.checkValues(compiler)
		if compiler.whole && len(c.missing) == 0 { // else nearly all rules are
			c.checkUnused(compiler.Compiler, uses)
		}
		if compiler.whole && !opts.Static {
			if err := c.checkAnswers(ctx, uses, opts.Progress); err != nil {
				return result, err
			}
		}
	}
	c.findings = slices.DeleteFunc(c.findings, func(f Finding) bool { // the error says the same with more certainty
		return f.Code == CodeUnlikelyName && slices.ContainsFunc(c.findings, func(g Finding) bool {
			return g.Code == CodeUnknownValue && g.File == f.File && g.Line == f.Line
		})
	})
	c.unrepeat()
	slices.SortFunc(c.findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column),
			cmp.Compare(a.Code, b.Code), cmp.Compare(a.Message, b.Message))
	})
	result.Findings = c.findings
	return result, nil
}

// unrepeat makes one finding of those that say the same of a path into data, within one file.
func (c *checker) unrepeat() {
	type path struct {
		file, message string
	}
	times := map[path][]int{} // lines
	slices.SortStableFunc(c.findings, func(a, b Finding) int { return cmp.Compare(a.Line, b.Line) })
	c.findings = slices.DeleteFunc(c.findings, func(f Finding) bool {
		if f.Code != CodeUnknownData {
			return false
		}
		p := path{f.File, f.Message}
		times[p] = append(times[p], f.Line)
		return len(times[p]) > 1
	})
	for i, f := range c.findings {
		if lines := times[path{f.File, f.Message}]; f.Code == CodeUnknownData && len(lines) > 1 {
			c.findings[i].Message += fmt.Sprintf(" (also at %s)", wordsOfLines(lines[1:]))
		}
	}
}

// wordsOfLines lists the numbers of some lines, each once.
func wordsOfLines(lines []int) string {
	const listed = 5
	lines = slices.Compact(lines)
	var numbers []string
	for _, line := range lines[:min(len(lines), listed)] {
		numbers = append(numbers, fmt.Sprint(line))
	}
	text := "line "
	if len(lines) > 1 {
		text = "lines "
	}
	text += strings.Join(numbers, ", ")
	if more := len(lines) - listed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// add records a finding, once.
func (c *checker) add(at *ast.Location, s Severity, code Code, format string, args ...any) {
	f := Finding{File: at.File, Line: max(at.Row, 1), Column: max(at.Col, 1), Severity: s, Code: code, Message: fmt.Sprintf(format, args...)}
	if !c.seen[f] {
		c.seen[f] = true
		c.findings = append(c.findings, f)
	}
}

// failed reports whether an error was found so far that keeps the policies from
// being loaded. A file that is not formatted does not.
func (c *checker) failed() bool {
	return slices.ContainsFunc(c.findings, func(f Finding) bool {
		return f.Severity == SeverityError && f.Code != CodeUnformatted && f.Code != CodeUnknownData &&
			f.Code != CodeUnknownValue && f.Code != CodeNetwork && f.Code != CodeNondeterministic
	})
}

// didYouMean is the end of a message about a wrong name; without a name that is
// near it lists what there is, if that is not much.
func didYouMean(name string, candidates []string) string {
	const listed = 12
	switch nearest := wire.Nearest(name, candidates); {
	case nearest != "":
		return fmt.Sprintf("; did you mean %q?", nearest)
	case len(candidates) == 0 || len(candidates) > listed:
		return ""
	default:
		return ", expected " + strings.Join(candidates, ", ")
	}
}

// The rules that decide.
var decisionRules = []string{"data.gate.call.decision", "data.gate.skill.decision"}

// checkDirectory refuses what is not a directory.
func checkDirectory(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return err
	case !info.IsDir() && strings.HasSuffix(dir, ".rego"):
		return fmt.Errorf("%s is a file, expected a directory of policies: name the one that it is in, %s", dir, filepath.Dir(dir))
	case !info.IsDir():
		return fmt.Errorf("%s is a file, expected a directory of policies", dir)
	}
	return nil
}
