package main

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/wire"
)

// printReport writes a report for a person: the sentence that matters, then the
// expressions that are the reason, then the rules.
func printReport(p *printer, r *evaluator.Report, all bool) {
	c := yellow
	if r.Interpreted == 0 && r.NamedToOPA == 0 {
		c = green
	}
	p.paint(c, headline(r), 0)
	_ = p.WriteByte('\n')
	if r.Off != "" {
		p.note("nothing can be compiled: " + r.Off)
	}
	printBlockers(p, "interpreted (decided by OPA each time) because of", r.Blockers, false)
	printBlockers(p, "per-tool (from a table for each tool) because of", r.Blockers, true)
	printRules(p, r, all)
}

func printBlockers(p *printer, title string, blockers []evaluator.Blocker, perTool bool) {
	titled := false
	for i := range blockers {
		b := &blockers[i]
		if b.PerTool != perTool {
			continue
		}
		if !titled {
			p.title(title)
			titled = true
		}
		_, _ = p.WriteString(wire.Printable(blocker(b)) + "\n")
	}
}

// title writes the heading of a group.
func (p *printer) title(text string) {
	_ = p.WriteByte('\n')
	p.paint(faint, text+":", 0)
	_ = p.WriteByte('\n')
}

// headline says in one sentence how calls are answered, what is slow first.
func headline(r *evaluator.Report) string {
	var b strings.Builder
	switch {
	case r.Interpreted == 0 && r.PerTool == 0:
		fmt.Fprintf(&b, "All %s are answered from a table", kinds(r.Cells))
	case r.Interpreted == 0:
		fmt.Fprintf(&b, "All %s are answered from a table, %s%s from a table for each tool",
			kinds(r.Cells), grouped(r.PerTool), share(r.PerTool, r.Cells))
	case r.Interpreted == r.Cells:
		fmt.Fprintf(&b, "All %s are decided by OPA each time", kinds(r.Cells))
	default:
		fmt.Fprintf(&b, "%s of %s%s are decided by OPA each time", grouped(r.Interpreted), kinds(r.Cells), share(r.Interpreted, r.Cells))
		if r.PerTool > 0 {
			fmt.Fprintf(&b, ", %s%s are answered from a table for each tool", grouped(r.PerTool), share(r.PerTool, r.Cells))
		}
	}
	if r.Excepted > 0 {
		fmt.Fprintf(&b, "; in %s%s a rule names tools, each of which has a table of its own", grouped(r.Excepted), share(r.Excepted, r.Cells))
		if r.NamedToOPA > 0 {
			fmt.Fprintf(&b, ", and in %s%s of these OPA decides for one of them each time", grouped(r.NamedToOPA), share(r.NamedToOPA, r.Cells))
		}
	}
	b.WriteByte('.')
	return b.String()
}

// blocker writes an expression behind its place, as compilers do, so that an
// editor finds it.
func blocker(b *evaluator.Blocker) string {
	text := b.Why
	if b.Expression != "" {
		text = b.Expression + " " + text
	}
	if b.File != "" {
		text = fmt.Sprintf("%s:%d:%d: %s", b.File, b.Line, b.Column, text)
	}
	return text + " (" + kinds(b.Cells) + ")"
}

// printRules lists the rules by file. Those that are compiled or unused are only
// counted, unless all are asked for. So are all of them if nothing is compiled:
// none is the reason then.
func printRules(p *printer, r *evaluator.Report, all bool) {
	counts := map[evaluator.RuleStatus]int{}
	var shown []evaluator.Rule
	width := 0
	for _, rule := range r.Rules {
		counts[rule.Status]++
		simple := rule.Status == evaluator.RuleCompiled || rule.Status == evaluator.RuleUnused || r.Off != ""
		if all || !simple {
			shown = append(shown, rule)
			width = max(width, utf8.RuneCountInString(wire.Printable(rule.Name)))
		}
	}
	file := ""
	for _, rule := range shown {
		if rule.File != file {
			file = rule.File
			p.title("rules of " + wire.Printable(file))
		}
		pad(p, fmt.Sprintf("%5d  %s", rule.Line, wire.Printable(rule.Name)), len("12345  ")+width+2)
		p.paint(statusColour(rule.Status), string(rule.Status), 0)
		_ = p.WriteByte('\n')
	}
	var parts []string
	for _, s := range []evaluator.RuleStatus{evaluator.RuleInterpreted, evaluator.RulePerTool, evaluator.RuleCompiled, evaluator.RuleUnused} {
		if n := counts[s]; n > 0 {
			parts = append(parts, strconv.Itoa(n)+" "+string(s))
		}
	}
	text := counted(len(r.Rules), "rule", "rules") + ": " + strings.Join(parts, ", ")
	if len(shown) < len(r.Rules) {
		text += "; --all lists them all"
	}
	_, _ = p.WriteString("\n" + text + "\n")
}

func statusColour(s evaluator.RuleStatus) colour {
	switch s {
	case evaluator.RuleCompiled:
		return green
	case evaluator.RuleUnused:
		return faint
	default:
		return yellow
	}
}

// kinds counts kinds of call.
func kinds(n int) string {
	if n == 1 {
		return "1 kind of call"
	}
	return grouped(n) + " kinds of call"
}

// manyOf counts what there can be many of.
func manyOf(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return grouped(n) + " " + one + "s"
}

// grouped writes a number with a comma every three digits.
func grouped(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// share writes a part of a whole in brackets; all of it goes without saying.
// What is rounded is never made nothing, nor all.
func share(part, whole int) string {
	switch tenths := (part*2000 + whole) / (2 * whole); {
	case part == whole:
		return ""
	case tenths == 0 && part > 0:
		return " (less than 0.1 %)"
	case tenths == 1000 && part < whole:
		return " (more than 99.9 %)"
	default:
		return fmt.Sprintf(" (%d.%d %%)", tenths/10, tenths%10)
	}
}
