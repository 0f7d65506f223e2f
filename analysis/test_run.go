package analysis

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/cover"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/tester"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/opa-gate/opa-gate/evaluator"
)

// A testTracer watches all tests: which lines they reach, and which documents
// they show to the rules.
type testTracer struct {
	cover  *cover.Cover
	inputs map[*ast.Term]bool // the inputs that rules saw: whether the decision on calls was asked for with it
}

func newTestTracer() *testTracer {
	return &testTracer{cover.New(), map[*ast.Term]bool{}}
}

func (*testTracer) Enabled() bool               { return true }
func (*testTracer) Config() topdown.TraceConfig { return topdown.TraceConfig{} }

var callDecision = ast.MustParseRef(decisionRules[0])

func (t *testTracer) TraceEvent(e topdown.Event) {
	t.cover.TraceEvent(e)
	if e.Op != topdown.EnterOp {
		return
	}
	rule, ok := e.Node.(*ast.Rule)
	input := e.Input()
	if !ok || input == nil || isTestFile(rule.Location.File) {
		return
	}
	if decided, seen := t.inputs[input]; !seen || !decided {
		t.inputs[input] = rule.Ref().Equal(callDecision)
	}
}

// run runs the tests whose names match, one after the other, and lists them by file
// and line.
func (s *testSuite) run(ctx context.Context, names string, tracer topdown.QueryTracer) ([]TestResult, error) {
	modules := map[string]*ast.Module{}
	for name, f := range s.files {
		modules[name] = f.module
	}
	_, store := s.evaluator.Policies()
	runner := tester.NewRunner().
		SetCompiler(s.compiler).
		SetStore(store).
		SetModules(modules).
		SetParallel(1).
		SetTimeout(testTimeout).
		CapturePrintOutput(true).
		SetCoverageQueryTracer(tracer).
		Filter(names)
	var results chan *tester.Result
	var err error
	evaluator.WhileCompiling(func() { results, err = runner.RunTests(ctx, nil) })
	if err != nil {
		return nil, testCompileError(err)
	}
	var tests []TestResult
	for r := range results {
		tests = append(tests, testResult(r))
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	slices.SortFunc(tests, func(a, b TestResult) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Name, b.Name))
	})
	return tests, nil
}

func testResult(r *tester.Result) TestResult {
	t := TestResult{
		Name: r.Package + "." + r.Name, File: r.Location.File, Line: r.Location.Row,
		Outcome: TestPassed, Seconds: r.Duration.Seconds(), Output: string(r.Output),
	}
	switch {
	case r.Skip:
		t.Outcome = TestSkipped
	case r.Error != nil:
		t.Outcome, t.Message = TestError, strings.Join(strings.Fields(r.Error.Error()), " ")
	case r.Fail:
		t.Outcome = TestFailed
		for name, sub := range r.SubResults.Iter {
			if sub.Fail && len(sub.SubResults) == 0 {
				t.Failures = append(t.Failures, TestFailure{Case: strings.Join(name, "/")})
			}
		}
	}
	return t
}

// ask evaluates one test, or any other query, before a tracer's eyes.
func (s *testSuite) ask(ctx context.Context, tracer topdown.QueryTracer, query []func(*rego.Rego), options ...rego.EvalOption) (rego.ResultSet, error) {
	_, store := s.evaluator.Policies()
	var prepared rego.PreparedEvalQuery
	var err error
	evaluator.WhileCompiling(func() {
		prepared, err = rego.New(append(query, rego.Compiler(s.compiler), rego.Store(store))...).PrepareForEval(ctx)
	})
	if err != nil {
		return nil, err
	}
	if tracer != nil {
		options = append(options, rego.EvalQueryTracer(tracer))
	}
	ctx, cancel := context.WithTimeout(ctx, testTimeout)
	defer cancel()
	return prepared.Eval(ctx, options...)
}

// toJSON writes a value of Rego as JSON.
func toJSON(t *ast.Term) ([]byte, error) {
	v, err := ast.JSON(t.Value)
	if err != nil {
		return nil, err
	}
	return encode(v), nil
}
