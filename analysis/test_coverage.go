package analysis

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/cover"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// A TestCoverage tells which lines of the rules tests reach, counted as opa test
// --coverage counts them.
type TestCoverage struct {
	Percent float64        `json:"percent"`
	Files   []FileCoverage `json:"files"` // by name; tests are no part of it
}

// A FileCoverage tells how many of a file's lines the tests reach, and which they do
// not.
type FileCoverage struct {
	File    string    `json:"file"`
	Percent float64   `json:"percent"`
	Covered int       `json:"covered"` // lines
	Lines   int       `json:"lines"`   // that could be
	Gaps    []TestGap `json:"gaps,omitempty"`
}

// A TestGap is a line that no test reaches, and why.
type TestGap struct {
	Line    int    `json:"line"`
	Text    string `json:"text"`
	Why     string `json:"why"`
	Because int    `json:"because_line,omitempty"` // of the condition that was never true, or of what answered before
}

// A reachTracer keeps what was evaluated, without OPA's shortcuts.
type reachTracer struct {
	evaluated map[place]bool // expressions
	entered   map[place]bool // rules
	exited    map[place]bool
}

// A place is where something begins in a file.
type place struct {
	file   string
	offset int
}

func placeOf(l *ast.Location) place { return place{l.File, l.Offset} }

func (*reachTracer) Enabled() bool               { return true }
func (*reachTracer) Config() topdown.TraceConfig { return topdown.TraceConfig{} }

func (t *reachTracer) TraceEvent(e topdown.Event) {
	switch node := e.Node.(type) {
	case *ast.Rule:
		switch e.Op {
		case topdown.EnterOp:
			t.entered[placeOf(node.Location)] = true
		case topdown.ExitOp:
			t.exited[placeOf(node.Location)] = true
		}
	case *ast.Expr:
		if e.Op == topdown.EvalOp && node.Location != nil {
			t.evaluated[placeOf(node.Location)] = true
		}
	}
}

// coverage reports on the lines that the tests reached. Where there are gaps, the
// tests are run once more with every condition evaluated: OPA's index and
// its early exits leave rules out without a trace of why.
func (s *testSuite) coverage(ctx context.Context, tests []TestResult, seen *testTracer) (TestCoverage, error) {
	modules := map[string]*ast.Module{}
	for name, f := range s.files {
		if !isTestFile(name) {
			modules[name] = f.module
		}
	}
	report := seen.cover.Report(modules)
	var total TestCoverage
	covered, lines := 0, 0
	gaps := false
	for _, name := range slices.Sorted(maps.Keys(modules)) {
		r := report.Files[name]
		f := FileCoverage{File: name, Percent: 100, Covered: r.CoveredLines, Lines: r.CoveredLines + r.NotCoveredLines}
		if f.Lines > 0 {
			f.Percent = 100 * float64(f.Covered) / float64(f.Lines)
		}
		covered, lines, gaps = covered+f.Covered, lines+f.Lines, gaps || len(r.NotCovered) > 0
		total.Files = append(total.Files, f)
	}
	if total.Percent = 100; lines > 0 {
		total.Percent = 100 * float64(covered) / float64(lines)
	}
	if !gaps {
		return total, nil
	}
	reach := &reachTracer{map[place]bool{}, map[place]bool{}, map[place]bool{}}
	for i := range tests {
		if tests[i].Outcome == TestSkipped {
			continue
		}
		_, err := s.ask(ctx, reach, []func(*rego.Rego){rego.Query(tests[i].Name)},
			rego.EvalRuleIndexing(false), rego.EvalEarlyExit(false), rego.EvalPrintHook(nil))
		if err != nil && ctx.Err() != nil {
			return total, ctx.Err()
		}
	}
	for i := range total.Files {
		f := &total.Files[i]
		f.Gaps = s.gaps(f.File, report.Files[f.File], reach)
	}
	return total, nil
}

// gaps lists the lines of a file that are not covered, each once.
func (s *testSuite) gaps(file string, r *cover.FileReport, reach *reachTracer) []TestGap {
	var gaps []TestGap
	add := func(l *ast.Location, why string, because int) {
		if r.IsCovered(l.Row) || slices.ContainsFunc(gaps, func(g TestGap) bool { return g.Line == l.Row }) {
			return
		}
		gaps = append(gaps, TestGap{Line: l.Row, Text: s.source(file, l.Row), Why: why, Because: because})
	}
	isGap := func(l *ast.Location) bool {
		return slices.ContainsFunc(r.NotCovered, func(n cover.Range) bool { return n.Start.Row == l.Row && n.Start.Col == l.Col })
	}
	for _, rule := range s.compiler.Modules[file].Rules {
		var before *ast.Rule
		for branch := rule; branch != nil; branch = branch.Else {
			source := s.sourceRule(file, branch)
			why, because := s.whyNot(branch, before, reach)
			if source != nil {
				if isGap(source.Head.Location) {
					add(source.Head.Location, why, because)
				}
				ast.WalkExprs(source.Body, func(x *ast.Expr) bool {
					if isGap(x.Location) {
						why, because := why, because
						if because != 0 && because != x.Location.Row && reach.evaluated[placeOf(x.Location)] {
							why += " (OPA's index tells so without a look into the rule)"
						}
						add(x.Location, why, because)
					}
					return false
				})
			}
			before = branch
		}
	}
	slices.SortFunc(gaps, func(a, b TestGap) int { return cmp.Compare(a.Line, b.Line) })
	return gaps
}

// sourceRule returns a branch as it stands in the file.
func (s *testSuite) sourceRule(file string, compiled *ast.Rule) (found *ast.Rule) {
	for _, rule := range s.files[file].module.Rules {
		for r := rule; r != nil; r = r.Else {
			if placeOf(r.Location) == placeOf(compiled.Location) {
				found = r
			}
		}
	}
	return found
}

// whyNot tells why a branch did not answer in any test, or not all of it was
// evaluated, and the line to look at, if there is one.
func (s *testSuite) whyNot(branch, before *ast.Rule, reach *reachTracer) (why string, line int) {
	at := placeOf(branch.Location)
	asked := slices.ContainsFunc(s.compiler.GetRulesExact(branch.Ref().GroundPrefix()), func(r *ast.Rule) bool {
		return reach.entered[placeOf(r.Location)]
	})
	switch {
	case !asked:
		return fmt.Sprintf("no test asks for %s", branch.Ref().GroundPrefix()), 0
	case !reach.entered[at] && before != nil && reach.exited[placeOf(before.Location)]:
		return fmt.Sprintf("the branch at line %d answered in every test that came here", before.Location.Row), before.Location.Row
	case !reach.entered[at] && before != nil:
		return fmt.Sprintf("no test comes as far as the branch before it, at line %d", before.Location.Row), before.Location.Row
	case !reach.entered[at] && branch.Default:
		return "the rule had a value of its own in every test", 0
	case !reach.entered[at]:
		return fmt.Sprintf("no test asks for %s with arguments that fit", branch.Ref().GroundPrefix()), 0
	case reach.exited[at]:
		return "another rule of this name answered the same before, and OPA asked no further", 0
	}
	// The last expression that was evaluated is the one that stopped all tests.
	var stop *ast.Location
	for _, x := range branch.Body {
		if x.Location != nil && reach.evaluated[placeOf(x.Location)] {
			stop = x.Location
		}
	}
	if stop == nil {
		return fmt.Sprintf("no test asks for %s with arguments that fit", branch.Ref().GroundPrefix()), 0
	}
	text := strings.Join(strings.Fields(string(stop.Text)), " ")
	if st := s.statementAt(stop); st.expr != nil && st.expr.Location.Row == stop.Row {
		text = strings.Join(strings.Fields(string(st.expr.Location.Text)), " ")
		if st.expr.Negated && !strings.HasPrefix(text, "not ") {
			text = "not " + text
		}
	}
	return fmt.Sprintf("line %d was false or undefined in every test: %s", stop.Row, text), stop.Row
}
