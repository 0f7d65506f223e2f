package evaluator

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/opa-gate/opa-gate/capability"
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
	Interpreted int       `json:"interpreted"`   // decided by OPA each time
	Excepted    int       `json:"excepted"`      // of the compiled: tools that the policies name have tables of their own
	NamedToOPA  int       `json:"named_to_opa"`  // of the excepted: OPA decides each time for such a tool
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
	Cells      int    `json:"cells"`    // in which it is the first that is met, for a tool that was looked at
}

// Report goes through the whole finite domain. It calls progress, if that is
// not nil, now and then with the number of cells done and of all. The error is
// that of ctx.
func (e *Evaluator) Report(ctx context.Context, progress func(done, total int)) (*Report, error) {
	m := e.compiled
	report := &Report{Cells: Cells}
	program, err := m.wholePlan(ctx)
	if err != nil {
		report.Off = err.Error()
		report.Interpreted = report.Cells
		report.Rules = m.rules(nil, nil)
		return report, nil
	}
	blockers := map[Blocker]int{}
	var mu sync.Mutex // of both
	err = overPages(ctx, progress, func(page int) error {
		by := newFollower(program)
		for i := range pageCells {
			seen := map[Blocker]bool{}
			count, err := m.countCell(ctx, by, callAt(place{page, i}), seen)
			if err != nil {
				return err
			}
			mu.Lock()
			report.Compiled += count.Compiled
			report.PerTool += count.PerTool
			report.Interpreted += count.Interpreted
			report.Excepted += count.Excepted
			report.NamedToOPA += count.NamedToOPA
			for b := range seen {
				blockers[b]++
			}
			mu.Unlock()
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	report.Blockers = sortBlockers(blockers)
	report.Rules = m.rules(program, report.Blockers)
	return report, nil
}

// countCell counts the cell of one call and notes what stands in its way.
func (m *compilation) countCell(ctx context.Context, by follower, c *capability.Call, seen map[Blocker]bool) (count Report, err error) {
	f, err := m.followWith(ctx, by, c, nil, symbolic.Tool)
	if err != nil {
		return count, err
	}
	if f.blocker != nil {
		seen[*f.blocker] = true
	}
	switch {
	case f.cell.byTool: // what the table of some tool would meet
		own, err := m.followWith(ctx, by, c, ofTool(c.Tool), symbolic.Tool)
		if err != nil {
			return count, err
		}
		if own.blocker != nil {
			seen[*own.blocker] = true
			count.Interpreted++
		} else {
			count.PerTool++
		}
		return count, nil
	case !f.cell.decided:
		count.Interpreted++
		return count, nil
	}
	count.Compiled++
	for _, tool := range f.cell.except {
		count.Excepted = 1
		own, err := m.followWith(ctx, by, c, ofTool(tool), symbolic.Tool)
		if err != nil {
			return count, err
		}
		if own.blocker != nil {
			seen[*own.blocker] = true
			count.NamedToOPA = 1
		}
	}
	return count, nil
}

// oneLine returns the text of an expression on one line.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// rules lists the rules of the policies with what they are in program; none
// means that nothing is compiled.
func (m *compilation) rules(program *symbolic.Program, blockers []Blocker) []Rule {
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
