package analysis

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/opa-gate/opa-gate/evaluator"
)

// A cause is what is wrong with answers, for one reason: the problems that come of it
// differ in what they say of a document, or in where it was noticed.
type cause struct {
	at   *ast.Location
	code Code
	says string // exampleMark is the example
	*answerProblem
	first int // the documents of the problem that is told
	kinds int
	rules [2]Place // of a conflict: that of at, and the other one
}

// exampleMark stands for the example, which is that of all problems of a cause.
const exampleMark = "\x00"

// report turns the problems into findings, one for each cause.
func (a *answerChecker) report(ctx context.Context) {
	causes := map[string]*cause{}
	for _, key := range slices.Sorted(maps.Keys(a.problems)) {
		p := a.problems[key]
		var broken errBroken
		switch {
		case errors.Is(p.err, errSlow), errors.Is(p.err, errMemory):
			a.tooMuch(ctx, p)
			continue
		case errors.As(p.err, &broken):
			a.add(a.ruleOf(p.rule), SeverityError, CodeBrokenDocument,
				"a document that breaks the schema must be denied on any OPA, and %s %s; data.gate.wire has the rules that find such documents", shortJSON(p.shown), broken)
			continue
		}
		c := a.causeOf(ctx, p)
		id := fmt.Sprintf("%s %s:%d %s", p.rule, c.at.File, c.at.Row, c.code)
		if c.code == CodeConflict {
			id = fmt.Sprintf("%s %s %v", p.rule, c.code, c.rules)
		}
		known := causes[id]
		if known == nil {
			c.first = p.count
			c.kinds = 1
			causes[id] = c
			continue
		}
		known.merge(c)
	}
	var list []*cause
	for _, id := range slices.Sorted(maps.Keys(causes)) {
		list = append(list, causes[id])
	}
	for _, c := range byCulprit(list) {
		kind := "calls"
		if c.rule == decisionRules[1] {
			kind = "skills"
		}
		example := fmt.Sprintf("for instance for %s (%d of %d %s that were looked at", shortJSON(c.shown), c.count, a.asked[c.rule], kind)
		if c.kinds > 1 {
			example += fmt.Sprintf("; it is wrong in %d ways", c.kinds)
		}
		a.add(c.at, SeverityError, c.code, "%s", strings.Replace(c.says, exampleMark, example+")", 1))
	}
}

// byCulprit makes one cause of the conflicts that one rule has with several others: the
// rule that has most of them is taken for what is wrong.
func byCulprit(list []*cause) []*cause {
	var kept []*cause
	rest := map[string][]*cause{}
	for _, c := range list {
		if c.rules[0].Rule == "" {
			kept = append(kept, c)
			continue
		}
		rest[c.rules[0].Rule] = append(rest[c.rules[0].Rule], c)
	}
	for _, name := range slices.Sorted(maps.Keys(rest)) {
		for pairs := rest[name]; len(pairs) > 0; {
			conflicts := map[Place]int{}
			for _, c := range pairs {
				for _, r := range c.rules {
					conflicts[r]++
				}
			}
			culprit := pairs[0].rules[0]
			for _, c := range pairs {
				for _, r := range c.rules {
					if conflicts[r] > conflicts[culprit] {
						culprit = r
					}
				}
			}
			var of []*cause
			pairs = slices.DeleteFunc(pairs, func(c *cause) bool {
				has := slices.Contains(c.rules[:], culprit)
				if has {
					of = append(of, c)
				}
				return has
			})
			kept = append(kept, conflictsOf(culprit, of))
		}
	}
	return kept
}

// conflictsOf is one cause for the conflicts of a rule.
func conflictsOf(culprit Place, of []*cause) *cause {
	c := of[0]
	if len(of) == 1 {
		return c
	}
	var lines []string
	for _, other := range of {
		r := other.rules[0]
		if r == culprit {
			r = other.rules[1]
		}
		line := fmt.Sprint(r.Line)
		if r.File != culprit.File {
			line = r.File + ":" + line
		}
		lines = append(lines, line)
	}
	for _, other := range of[1:] {
		c.merge(other)
	}
	slices.Sort(lines)
	lines = slices.Compact(lines)
	c.at = &ast.Location{File: culprit.File, Row: culprit.Line, Col: 1}
	c.says = fmt.Sprintf("%s has two values: this rule applies together with each of those at lines %s, %s; make one of them an else of the other, or exclude its case",
		culprit.Rule, strings.Join(lines, ", "), exampleMark)
	return c
}

// merge adds another problem of the same cause. What most documents show is told.
func (c *cause) merge(other *cause) {
	count := c.count + other.count
	if cmp.Or(cmp.Compare(other.count, c.first), cmp.Compare(len(c.shown), len(other.shown)), bytes.Compare(c.shown, other.shown)) > 0 {
		c.first, c.at, c.says, c.answerProblem = other.count, other.at, other.says, other.answerProblem
	}
	if c.code != CodeConflict {
		c.kinds++
	}
	merged := *c.answerProblem
	merged.count = count
	c.answerProblem = &merged
}

// causeOf tells what a problem comes of, and where.
func (a *answerChecker) causeOf(ctx context.Context, p *answerProblem) *cause {
	c := &cause{at: a.ruleOf(p.rule), code: CodeEvaluation, answerProblem: p}
	say := func(code Code, format string, args ...any) *cause {
		c.code, c.says = code, fmt.Sprintf(format, args...)
		return c
	}
	var evaluation *topdown.Error
	var answer *evaluator.AnswerError
	switch {
	case errors.As(p.err, &evaluation):
		if evaluation.Location != nil && evaluation.Location.File != "" {
			c.at = evaluation.Location
		}
		if evaluation.Code != topdown.ConflictErr {
			return say(CodeEvaluation, "%s, %s", evaluation.Message, exampleMark)
		}
		if at, rules, says, ok := a.conflict(ctx, p, c.at); ok {
			c.at, c.rules = at, rules
			return say(CodeConflict, "%s, %s; make one of them an else of the other, or exclude its case", says, exampleMark)
		}
		return say(CodeConflict, "%s, %s", evaluation.Message, exampleMark)
	case errors.As(p.err, &answer):
		where := "the answer"
		if answer.Pointer != "" {
			where += " at " + answer.Pointer
		}
		if at := a.branchOf(ctx, p, answer.Pointer); at != nil {
			c.at = at
		}
		return say(CodeNotADecision, "%s does not have the shape of a decision: %s, %s", where, answer.Problem, exampleMark)
	case errors.Is(p.err, evaluator.ErrUndefined):
		return say(CodeNoAnswer, "there is no answer, %s; give the rule a default that denies", exampleMark)
	}
	return say(CodeEvaluation, "%v, %s", p.err, exampleMark)
}

// branchOf is where the branch stands that gave what is wrong with an answer: the
// member that is wrong, or if that is not there or nobody chose it, the outcome. Nil
// means that it is not known.
func (a *answerChecker) branchOf(ctx context.Context, p *answerProblem, pointer string) *ast.Location {
	r := newExplainRecorder()
	var traced *evaluator.Traced
	switch {
	case p.call != nil:
		_, traced, _ = a.evaluator.TraceCall(ctx, p.call, r)
	case p.request != nil:
		_, traced, _ = a.evaluator.TraceSkill(ctx, p.request, r)
	}
	if traced == nil {
		return nil
	}
	x := &explainer{ctx, r, traced}
	member, _, _ := strings.Cut(strings.TrimPrefix(pointer, "/"), "/")
	for _, of := range []string{member, "outcome"} {
		if of == "" {
			continue
		}
		flow, _, err := x.flow(of)
		if err != nil || len(flow) < 2 && of != "outcome" {
			continue
		}
		f, found := flow[len(flow)-1], false
		for _, of := range slices.Backward(flow) { // a constant is not wrong by itself, but where it was taken
			if x.chooses(of) || !of.rule.Head.Value.IsGround() {
				f, found = of, true
				break
			}
		}
		if found || of == "outcome" {
			return f.rule.Location
		}
	}
	return nil
}

// conflict tells which rules are at odds over a document, and where one of them is.
func (a *answerChecker) conflict(ctx context.Context, p *answerProblem, at *ast.Location) (*ast.Location, [2]Place, string, bool) {
	var err error
	switch {
	case p.call != nil:
		_, err = explainTrace(ctx, a.evaluator, p.call)
	case p.request != nil:
		_, err = explainSkillTrace(ctx, a.evaluator, p.request)
	}
	var conflict *ConflictError
	if !errors.As(err, &conflict) {
		return nil, [2]Place{}, "", false
	}
	here, other := conflict.Rules[0], conflict.Rules[1]
	if other.File == at.File && other.Line == at.Row {
		here, other = other, here
	}
	place := fmt.Sprintf("the one at line %d", other.Line)
	if other.File != here.File {
		place += " of " + other.File
	}
	if here.File != at.File || here.Line != at.Row {
		at = &ast.Location{File: here.File, Row: here.Line, Col: 1}
	}
	return at, [2]Place{here.Place, other.Place}, fmt.Sprintf("%s has two values: this rule and %s both apply", here.Rule, place), true
}

// shortJSON writes a document on one line, cut where it gets too long to read.
func shortJSON(document []byte) string {
	const longest = 400
	var buf bytes.Buffer
	if json.Compact(&buf, document) != nil {
		return string(document)
	}
	if text := []rune(buf.String()); len(text) > longest {
		return string(text[:longest]) + "…"
	}
	return buf.String()
}
