package analysis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/opa-gate/opa-gate/evaluator"
)

// TestOptions say which tests [Test] runs.
type TestOptions struct {
	Run string // a regular expression that matches somewhere in data.PACKAGE.NAME; "" is every test
}

// A TestReport is what the tests of a directory of policies have shown.
type TestReport struct {
	Tests     []TestResult     `json:"tests"` // by file and line
	Coverage  TestCoverage     `json:"coverage"`
	Decisions *TestedDecisions `json:"decisions"`
}

// A TestOutcome is how a test ended.
type TestOutcome string

// The outcomes of a test.
const (
	TestPassed  TestOutcome = "pass"
	TestFailed  TestOutcome = "fail"
	TestError   TestOutcome = "error" // it could not be evaluated
	TestSkipped TestOutcome = "skip"  // its name begins with todo_
)

// A TestResult is one test.
type TestResult struct {
	Name     string        `json:"name"` // such as data.gate.call_test.test_allow
	File     string        `json:"file"`
	Line     int           `json:"line"`
	Outcome  TestOutcome   `json:"outcome"`
	Seconds  float64       `json:"seconds"`
	Output   string        `json:"output,omitempty"` // what it printed
	Message  string        `json:"message,omitempty"`
	Failures []TestFailure `json:"failures,omitempty"` // one a case; the innermost expression that failed
}

// A TestFailure is the expression that a test failed at.
type TestFailure struct {
	Case       string `json:"case,omitempty"` // of a test that has cases
	File       string `json:"file"`
	Line       int    `json:"line"`
	Column     int    `json:"column"`
	Expression string `json:"expression"`
	Message    string `json:"message"` // what is the matter with it, in words
	// Of an equality, the two values; null is one that is undefined. Want is the one
	// that the test states, as far as can be told, or the right one.
	Want        json.RawMessage   `json:"want,omitempty"`
	Got         json.RawMessage   `json:"got,omitempty"`
	Differences []ValueDifference `json:"differences,omitempty"`
	// Of any other expression, the values of its variables.
	Values map[string]json.RawMessage `json:"values,omitempty"`
}

// OK reports whether no test failed.
func (r *TestReport) OK() bool {
	for i := range r.Tests {
		if o := r.Tests[i].Outcome; o == TestFailed || o == TestError {
			return false
		}
	}
	return true
}

// testTimeout bounds each test, and not the policies that it tests.
const testTimeout = time.Minute

// Test runs the tests of the policies in dir, with OPA's own runner, and tells
// why those fail that do, which lines no test reaches and why, and which
// decisions no test asks for.
//
// An error means that they could not be run at all: dir cannot be read, the
// policies or the tests do not compile, no test is there, or ctx ended.
func Test(ctx context.Context, dir string, opts *TestOptions) (*TestReport, error) {
	if opts == nil {
		opts = &TestOptions{}
	}
	if _, err := regexp.Compile(opts.Run); err != nil {
		return nil, fmt.Errorf("the names of tests to run: %w", err)
	}
	s, err := newTestSuite(ctx, dir)
	if err != nil {
		return nil, err
	}
	report := &TestReport{}
	tracer := newTestTracer()
	if report.Tests, err = s.run(ctx, opts.Run, tracer); err != nil {
		return nil, err
	}
	if len(report.Tests) == 0 && opts.Run != "" {
		return nil, fmt.Errorf("no test has a name that matches %s", opts.Run)
	}
	if len(report.Tests) == 0 {
		return nil, fmt.Errorf("%s: there is no test: a rule test_… in a file …_test.rego", dir)
	}
	for i := range report.Tests {
		if t := &report.Tests[i]; t.Outcome == TestFailed {
			t.Failures = s.explain(ctx, t)
		}
	}
	if report.Coverage, err = s.coverage(ctx, report.Tests, tracer); err != nil {
		return nil, err
	}
	report.Decisions, err = s.decisions(ctx, tracer)
	return report, err
}

// A testSuite is policies and their tests, compiled together.
type testSuite struct {
	files     map[string]*checkFile // that are Rego
	evaluator *evaluator.Evaluator  // of the policies alone
	compiler  *ast.Compiler
	closures  map[*ast.Expr]bool // the expressions within comprehensions
}

// newTestSuite reads and parses; the runner compiles.
func newTestSuite(ctx context.Context, dir string) (*testSuite, error) {
	files, err := readCheckFiles(dir)
	if err != nil {
		return nil, err
	}
	s := &testSuite{files: map[string]*checkFile{}}
	for _, f := range files {
		if f.err != nil {
			return nil, fmt.Errorf("%s: %w", dir, testCompileError(f.err))
		}
		if f.module != nil {
			s.files[f.name] = f
		}
	}
	if s.evaluator, err = evaluator.New(ctx, &evaluator.Options{Dir: dir}); err != nil {
		return nil, err
	}
	if s.compiler, err = evaluator.NewCompiler(); err != nil {
		return nil, err
	}
	s.compiler.WithEnablePrintStatements(true)
	return s, nil
}

// A compileError is what keeps tests from being run, in words.
type compileError struct {
	text string
	err  ast.Errors
}

// Error implements error.
func (e *compileError) Error() string { return e.text }

// Unwrap returns what OPA's compiler says.
func (e *compileError) Unwrap() error { return e.err }

// testCompileError words what keeps tests from being run.
func testCompileError(err error) error {
	var list ast.Errors
	if !errors.As(err, &list) || len(list) == 0 {
		return err
	}
	e := list[0]
	text := evaluator.Describe(e)
	if e.Location != nil {
		text = fmt.Sprintf("%s:%d:%d: %s", e.Location.File, e.Location.Row, max(e.Location.Col, 1), text)
	}
	if more := len(list) - 1; more > 0 {
		text += fmt.Sprintf(", and %d more: policy check tells all", more)
	}
	return &compileError{text, list}
}

// isTestName reports whether a rule is a test by its name.
func isTestName(name string) bool {
	return strings.HasPrefix(name, "test_") || strings.HasPrefix(name, "todo_test_")
}

// source is what a line of a file holds, without blanks around it.
func (s *testSuite) source(file string, line int) string {
	f := s.files[file]
	if f == nil {
		return ""
	}
	lines := strings.Split(string(f.text), "\n")
	if line < 1 || line > len(lines) {
		return ""
	}
	return strings.TrimSpace(lines[line-1])
}
