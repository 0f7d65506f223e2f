package evaluator

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/opa-gate/opa-gate/evaluator/internal/symbolic"
)

// A Report tells how much of the policies' decision on a call is compiled: how
// many cells of its finite domain, which rules, and what prevents the rest. Of
// the tables of single tools it knows those of the tools that the policies name;
// for policies that take a name apart, it takes one that none knows.
type Report struct {
	Cells       int       `json:"cells"`         // of the domain: every call but for its texts
	Compiled    int       `json:"compiled"`      // answered from one table, whatever the texts
	PerTool     int       `json:"per_tool"`      // answered from a table of each tool
	Excepted    int       `json:"excepted"`      // of the compiled: some tools have a table of their own
	Interpreted int       `json:"interpreted"`   // decided by OPA each time
	Rules       []Rule    `json:"rules"`         // in the order of the files
	Blockers    []Blocker `json:"blockers"`      // most cells first
	Off         string    `json:"off,omitempty"` // why nothing can be compiled; "" if something can
}

// A Rule is one rule of the policies.
type Rule struct {
	Name   string     `json:"name"` // such as data.gate.call.answer
	File   string     `json:"file"`
	Line   int        `json:"line"`
	Status RuleStatus `json:"status"`
}

// A RuleStatus says how a rule takes part in decisions on calls.
type RuleStatus string

// The statuses of a rule.
const (
	RuleCompiled    RuleStatus = "compiled"    // nothing in it needs OPA
	RulePerTool     RuleStatus = "per-tool"    // each tool gets a table of its own because of it
	RuleInterpreted RuleStatus = "interpreted" // calls that reach a blocker in it are OPA's
	RuleUnused      RuleStatus = "unused"      // no decision on a call depends on it
)

// A Blocker is an expression because of which calls are not answered from the
// one table.
type Blocker struct {
	File       string `json:"file,omitempty"` // "" if it stands nowhere
	Line       int    `json:"line,omitempty"`
	Column     int    `json:"column,omitempty"`
	Expression string `json:"expression,omitempty"`
	Why        string `json:"why"`
	PerTool    bool   `json:"per_tool"` // a table of each tool answers
	Cells      int    `json:"cells"`    // in which it is the first that is met, for any tool that was looked at
}

// Report goes through the whole finite domain. It calls progress, if that is
// not nil, now and then with the number of cells done and of all. The error is
// that of ctx.
func (e *Evaluator) Report(ctx context.Context, progress func(done, total int)) (*Report, error) {
	m := e.compiled
	report := &Report{Cells: pageCount * pageCells}
	if off := m.off.Load(); off != nil {
		report.Off = *off
	}
	program, err := plan(ctx, m.compiler, m.store, m.texts)
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		report.Off = err.Error()
	}
	if report.Off != "" {
		report.Interpreted = report.Cells
		report.Rules = m.rules(nil, nil)
		return report, nil
	}
	total, err := m.survey(ctx, program, progress)
	if err != nil {
		return nil, err
	}
	report.Compiled, report.PerTool = total.compiled, total.perTool
	report.Excepted, report.Interpreted = total.excepted, total.interpreted
	for b, cells := range total.blockers {
		b.Cells = cells
		report.Blockers = append(report.Blockers, b)
	}
	slices.SortFunc(report.Blockers, func(a, b Blocker) int {
		return cmp.Or(cmp.Compare(b.Cells, a.Cells), cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Why, b.Why))
	})
	report.Rules = m.rules(program, report.Blockers)
	return report, nil
}

// A survey counts what the cells of some pages are.
type survey struct {
	compiled, perTool, excepted, interpreted int
	blockers                                 map[Blocker]int
}

func (m *compiled) survey(ctx context.Context, program *symbolic.Program, progress func(done, total int)) (*survey, error) {
	total := &survey{blockers: map[Blocker]int{}}
	var mu sync.Mutex // of total and progress
	var nextPage atomic.Int64
	done := 0
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for ctx.Err() == nil {
				page := int(nextPage.Add(1)) - 1
				if page >= pageCount {
					return
				}
				part := m.surveyPage(ctx, program, page)
				mu.Lock()
				total.add(part)
				if done++; progress != nil {
					progress(done*pageCells, pageCount*pageCells)
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	return total, ctx.Err()
}

func (s *survey) add(part *survey) {
	s.compiled += part.compiled
	s.perTool += part.perTool
	s.excepted += part.excepted
	s.interpreted += part.interpreted
	for b, n := range part.blockers {
		s.blockers[b] += n
	}
}

func (m *compiled) surveyPage(ctx context.Context, program *symbolic.Program, page int) *survey {
	s := &survey{blockers: map[Blocker]int{}}
	for i := range pageCells {
		c := callAt(place{page, i})
		answer, err := m.symbolic(ctx, program, c, m.texts.Text(symbolic.Tool))
		s.count(m, answer, err, false)
		var dependence *symbolic.Dependence
		if errors.As(err, &dependence) && dependence.OnTool { // what the table of a tool would meet
			answer, err := m.symbolic(ctx, program, c, c.Tool)
			s.count(m, answer, err, true)
		}
		if err != nil {
			continue
		}
		for _, tool := range answer.Except {
			if _, err := m.symbolic(ctx, program, c, tool); errors.As(err, &dependence) {
				s.block(dependence)
			}
		}
	}
	return s
}

func (s *survey) block(d *symbolic.Dependence) {
	s.blockers[Blocker{File: d.File, Line: d.Row, Column: d.Col,
		Expression: oneLine(d.Expression), Why: d.Why, PerTool: d.OnTool}]++
}

// count counts one cell: in the table for all, or in that of one tool.
func (s *survey) count(m *compiled, answer *symbolic.Answer, err error, ofTool bool) {
	if err == nil {
		_, err = newCell(m.texts, answer)
	}
	var dependence *symbolic.Dependence
	switch {
	case err == nil && ofTool:
		s.perTool++
	case err == nil:
		s.compiled++
		if len(answer.Except) > 0 {
			s.excepted++
		}
	case errors.As(err, &dependence):
		s.block(dependence)
		if !dependence.OnTool {
			s.interpreted++
		}
	default:
		s.blockers[Blocker{Why: err.Error()}]++
		s.interpreted++
	}
}

// oneLine returns the text of an expression on one line.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// rules lists the rules of the policies with what they are in program; none
// means that nothing is compiled.
func (m *compiled) rules(program *symbolic.Program, blockers []Blocker) []Rule {
	var rules []Rule
	for file, module := range m.compiler.Modules {
		for _, rule := range module.Rules {
			r := Rule{Name: rule.Ref().GroundPrefix().String(), File: file, Line: rule.Loc().Row, Status: RuleUnused}
			switch {
			case program == nil:
				r.Status = RuleInterpreted
			case program.Uses(r.Name):
				r.Status = RuleCompiled
			}
			rules = append(rules, r)
		}
	}
	slices.SortFunc(rules, func(a, b Rule) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	for _, b := range blockers {
		// The rule that a line belongs to is the last that begins before it.
		after, _ := slices.BinarySearchFunc(rules, b, func(r Rule, b Blocker) int {
			return cmp.Or(cmp.Compare(r.File, b.File), cmp.Compare(r.Line, b.Line+1))
		})
		if after == 0 || rules[after-1].File != b.File {
			continue
		}
		switch r := &rules[after-1]; {
		case !b.PerTool:
			r.Status = RuleInterpreted
		case r.Status != RuleInterpreted:
			r.Status = RulePerTool
		}
	}
	return rules
}
