package analysis

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// A failedStep is one expression of a test file that was not true.
type failedStep struct {
	at      *ast.Location
	negated bool // with its not; what stands behind a not fails by itself where the not holds
	input   *ast.Term
	locals  map[string]*ast.Term // by the names that stand in the file
	inCase  string
}

// A failureTracer keeps the expressions of test files that were not true.
type failureTracer struct {
	ignored map[*ast.Expr]bool
	inCase  string
	steps   []failedStep
}

func (*failureTracer) Enabled() bool               { return true }
func (*failureTracer) Config() topdown.TraceConfig { return topdown.TraceConfig{PlugLocalVars: true} }

func (t *failureTracer) TraceEvent(e topdown.Event) {
	x, ok := e.Node.(*ast.Expr)
	if !ok {
		return
	}
	if e.Op == topdown.TestCaseOp {
		if names, ok := e.Plug(x.Operand(0)).Value.(*ast.Array); ok {
			var parts []string
			names.Foreach(func(name *ast.Term) {
				text, isText := name.Value.(ast.String)
				if !isText {
					text = ast.String(name.String())
				}
				parts = append(parts, string(text))
			})
			t.inCase = strings.Join(parts, "/")
		}
		return
	}
	if e.Op != topdown.FailOp || t.ignored[x] || x.Location == nil || !isTestFile(x.Location.File) {
		return
	}
	step := failedStep{at: x.Location, negated: x.Negated, input: e.Input(), locals: map[string]*ast.Term{}, inCase: t.inCase}
	e.Locals.Iter(func(name, value ast.Value) bool {
		if shown := string(e.LocalMetadata[name.(ast.Var)].Name); shown != "" && !strings.HasPrefix(shown, ast.LocalVarPrefix) {
			if plugged := e.Plug(ast.NewTerm(value)); plugged.IsGround() {
				step.locals[shown] = plugged
			}
		}
		return false
	})
	t.steps = append(t.steps, step)
}

// explain runs a test that failed once more and finds, for each case of it, the
// expression that it failed at.
func (s *testSuite) explain(ctx context.Context, t *TestResult) []TestFailure {
	if s.closures == nil {
		s.closures = map[*ast.Expr]bool{}
		for _, m := range s.compiler.Modules {
			ast.WalkClosures(m, func(x any) bool {
				if _, ok := x.(*ast.Every); !ok { // what a comprehension leaves out is no failure
					ast.WalkExprs(x, func(x *ast.Expr) bool { s.closures[x] = true; return false })
				}
				return false
			})
		}
	}
	tracer := &failureTracer{ignored: s.closures}
	// Without the index, which leaves out a test whose first condition it can tell.
	if _, err := s.ask(ctx, tracer, []func(*rego.Rego){rego.Query(t.Name)}, rego.EvalRuleIndexing(false)); err != nil {
		return []TestFailure{{File: t.File, Line: t.Line, Message: err.Error()}}
	}
	cases := []string{""}
	if len(t.Failures) > 0 {
		cases = nil
		for _, f := range t.Failures {
			cases = append(cases, f.Case)
		}
	}
	var failures []TestFailure
	for _, name := range cases {
		var steps []failedStep
		for _, step := range tracer.steps {
			if name == "" || step.inCase == name {
				steps = append(steps, step)
			}
		}
		f := s.failure(ctx, t, steps)
		f.Case = name
		failures = append(failures, f)
	}
	return failures
}

// A statement is an expression as it stands in a file, and where it belongs.
type statement struct {
	rule *ast.Rule
	expr *ast.Expr
}

// statements lists the expressions of the rules of a file, those within every
// behind the one that they are in.
func statements(m *ast.Module) (list []statement) {
	var body func(rule *ast.Rule, b ast.Body)
	body = func(rule *ast.Rule, b ast.Body) {
		for _, x := range b {
			list = append(list, statement{rule, x})
			if every, ok := x.Terms.(*ast.Every); ok {
				body(rule, every.Body)
			}
		}
	}
	for _, rule := range m.Rules {
		for r := rule; r != nil; r = r.Else {
			body(r, r.Body)
		}
	}
	return list
}

// statementAt returns the innermost statement around a place.
func (s *testSuite) statementAt(at *ast.Location) (found statement) {
	f := s.files[at.File]
	if f == nil {
		return statement{}
	}
	for _, st := range statements(f.module) {
		l := st.expr.Location
		if l.Offset <= at.Offset && at.Offset < l.Offset+max(len(l.Text), 1) {
			found = st
		}
	}
	return found
}

// failure finds the expression at which a test, or one of its cases, failed: the
// furthest that was met, and of several attempts at it the last. A test that asks
// a helper of the tests which says no failed there.
func (s *testSuite) failure(ctx context.Context, t *TestResult, steps []failedStep) TestFailure {
	last, furthest := -1, statement{}
	for i, step := range steps {
		st := s.statementAt(step.at)
		if st.expr == nil || st.rule.Location.Row != t.Line || step.at.File != t.File || st.expr.Negated != step.negated {
			continue
		}
		if furthest.expr == nil || st.expr.Location.Offset >= furthest.expr.Location.Offset {
			last, furthest = i, st
		}
	}
	if last < 0 {
		f := TestFailure{File: t.File, Line: t.Line, Column: 1, Expression: s.source(t.File, t.Line)}
		f.Message = "no expression of the test failed: its value is not true"
		return f
	}
	step := steps[last]
	if !isComparison(furthest.expr) {
		for i := last - 1; i >= 0; i-- {
			st := s.statementAt(steps[i].at)
			if st.expr == nil {
				continue
			}
			if isTestName(st.rule.Head.Name.String()) {
				break
			}
			if isComparison(st.expr) && s.mentions(furthest.expr, st.rule) {
				step, furthest = steps[i], st
				break
			}
		}
	}
	return s.describe(ctx, furthest, step)
}

// mentions reports whether an expression names a rule.
func (s *testSuite) mentions(x *ast.Expr, rule *ast.Rule) bool {
	found := false
	ast.WalkVars(x, func(v ast.Var) bool {
		found = found || v == rule.Head.Name
		return false
	})
	return found
}

// isComparison reports whether an expression compares two values.
func isComparison(x *ast.Expr) bool {
	if !x.IsCall() && !x.IsEquality() || len(x.Operands()) != 2 {
		return false
	}
	switch x.Operator().String() {
	case ast.Equality.Name, ast.Equal.Name, ast.NotEqual.Name, ast.LessThan.Name, ast.LessThanEq.Name,
		ast.GreaterThan.Name, ast.GreaterThanEq.Name, ast.Member.Name:
		return true
	}
	return false
}

// describe tells what is the matter with an expression: it evaluates its parts by
// themselves, with the values that its variables had.
func (s *testSuite) describe(ctx context.Context, st statement, step failedStep) TestFailure {
	l := st.expr.Location
	f := TestFailure{File: l.File, Line: l.Row, Column: l.Col, Expression: strings.Join(strings.Fields(string(l.Text)), " ")}
	if withs := withText(st.expr); withs != "" && !strings.Contains(f.Expression, withs) {
		f.Expression += " " + withs
	}
	switch {
	case st.expr.Negated:
		f.Message = "this is true, and must not be"
	case isComparison(st.expr):
		s.compare(ctx, st, step, &f)
		return f
	case st.expr.IsAssignment():
		f.Message = "the right side is undefined"
	case st.expr.IsEvery():
		f.Message = "this does not hold for every member"
	default:
		f.Message = "this is false or undefined"
		if term, ok := st.expr.Terms.(*ast.Term); ok {
			f.Message = "this is undefined"
			if _, defined := s.value(ctx, st, step, term); defined {
				f.Message = "this is false"
			}
		}
	}
	f.Values = s.used(st.expr, step)
	return f
}

func withText(x *ast.Expr) string {
	var parts []string
	for _, w := range x.With {
		parts = append(parts, strings.Join(strings.Fields(w.String()), " "))
	}
	return strings.Join(parts, " ")
}

// compare fills in the two values of a comparison, and what is different.
func (s *testSuite) compare(ctx context.Context, st statement, step failedStep, f *TestFailure) {
	got, want := st.expr.Operand(0), st.expr.Operand(1)
	if s.asks(st, want) > s.asks(st, got) {
		got, want = want, got
	}
	wantValue, wantDefined := s.value(ctx, st, step, want)
	gotValue, gotDefined := s.value(ctx, st, step, got)
	f.Want, f.Got = []byte("null"), []byte("null")
	if wantDefined {
		f.Want = encode(wantValue)
	}
	if gotDefined {
		f.Got = encode(gotValue)
	}
	operator := st.expr.Operator().String()
	equality := operator == ast.Equality.Name || operator == ast.Equal.Name
	switch {
	case !gotDefined:
		f.Message = oneText(got) + " is undefined"
	case !wantDefined:
		f.Message = oneText(want) + " is undefined"
	case equality:
		f.Message = "the values differ"
		f.Differences = valueDifferences(wantValue, gotValue)
	default:
		left, right := f.Got, f.Want
		if st.expr.Operand(0) == want {
			left, right = right, left
		}
		var sides []string
		for i, value := range [][]byte{left, right} {
			if side := st.expr.Operand(i); !ast.IsConstant(side.Value) {
				sides = append(sides, oneText(side)+" is "+shortJSON(value))
			}
		}
		f.Message = strings.Join(sides, ", and ")
		f.Want, f.Got = nil, nil
	}
}

// asks tells which side of an equality is what the rules answered, and which is what
// a test wants: the higher the number, the more it asks. The names that the author
// has given say most, then whether a rule of the policies is behind it.
func (s *testSuite) asks(st statement, t *ast.Term) int {
	score := 0
	switch {
	case isName(t, "want", "wanted", "expected", "exp"):
		score -= 2
	case isName(t, "got", "actual", "act"):
		score += 2
	}
	if s.dependsOnRules(st, t, map[ast.Var]bool{}) {
		score++
	}
	return score
}

// dependsOnRules reports whether a part of a test's expression depends on a rule
// that is no test's.
func (s *testSuite) dependsOnRules(st statement, t *ast.Term, seen map[ast.Var]bool) (depends bool) {
	m := s.files[st.expr.Location.File].module
	ast.WalkVars(t, func(v ast.Var) bool {
		if seen[v] {
			return false
		}
		seen[v] = true
		if v == ast.DefaultRootDocument.Value.(ast.Var) {
			depends = true
		}
		for _, i := range m.Imports {
			if i.Name() == v && !strings.Contains(i.Path.String(), "_test") {
				depends = true
			}
		}
		for _, other := range statements(m) { // what a local variable was made of
			if other.rule == st.rule && other.expr.IsAssignment() && other.expr.Operand(0).Value.Compare(v) == 0 {
				depends = depends || s.dependsOnRules(st, other.expr.Operand(1), seen)
			}
		}
		uses := &ruleUses{compiler: s.compiler}
		reached := map[*ast.Rule]bool{}
		path := m.Package.Path.Append(ast.StringTerm(string(v)))
		for _, i := range m.Imports {
			if ref, ok := i.Path.Value.(ast.Ref); ok && i.Name() == v {
				path = ref
			}
		}
		uses.reach(s.compiler.GetRules(path), func(r *ast.Rule) bool {
			if reached[r] {
				return false
			}
			reached[r] = true
			depends = depends || !isTestFile(r.Location.File)
			return true
		})
		return false
	})
	return depends
}

func isName(t *ast.Term, names ...string) bool {
	v, ok := t.Value.(ast.Var)
	return ok && slices.Contains(names, string(v))
}

func oneText(t *ast.Term) string {
	text := t.String()
	if t.Location != nil && len(t.Location.Text) > 1 {
		text = string(t.Location.Text)
	}
	return strings.Join(strings.Fields(text), " ")
}

// value evaluates a part of a statement by itself.
func (s *testSuite) value(ctx context.Context, st statement, step failedStep, t *ast.Term) (any, bool) {
	const result = "value_of_this_part"
	m := s.files[st.expr.Location.File].module
	var body ast.Body
	for _, name := range usedNames(t, step) {
		body.Append(ast.Assign.Expr(ast.VarTerm(name), step.locals[name]))
	}
	x := ast.Assign.Expr(ast.VarTerm(result), t.Copy())
	for _, w := range st.expr.With {
		for _, name := range usedNames(w.Value, step) {
			body.Append(ast.Assign.Expr(ast.VarTerm(name), step.locals[name]))
		}
		x.With = append(x.With, w.Copy())
	}
	seen := map[string]bool{}
	body = slices.DeleteFunc(body, func(x *ast.Expr) bool {
		text := x.Operand(0).String()
		defer func() { seen[text] = true }()
		return seen[text]
	})
	body.Append(x)
	for i := range body {
		body[i].Index = i
	}
	var options []rego.EvalOption
	if step.input != nil {
		options = append(options, rego.EvalParsedInput(step.input.Value))
	}
	results, err := s.ask(ctx, nil, []func(*rego.Rego){rego.ParsedQuery(body), rego.ParsedPackage(m.Package), rego.ParsedImports(m.Imports)}, options...)
	if err != nil || len(results) == 0 {
		return nil, false
	}
	v, ok := results[0].Bindings[result]
	return v, ok
}

// usedNames lists the variables in x that had a value.
func usedNames(x any, step failedStep) (names []string) {
	ast.WalkVars(x, func(v ast.Var) bool {
		if name := string(v); step.locals[name] != nil && !slices.Contains(names, name) {
			names = append(names, name)
		}
		return false
	})
	slices.SortFunc(names, cmp.Compare)
	return names
}

// used returns the values of the variables of an expression.
func (s *testSuite) used(x *ast.Expr, step failedStep) map[string]json.RawMessage {
	values := map[string]json.RawMessage{}
	for _, name := range usedNames(x, step) {
		if v, err := ast.JSON(step.locals[name].Value); err == nil {
			values[name] = encode(v)
		}
	}
	return values
}
