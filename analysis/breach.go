package analysis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/skill"
)

// report adds an invariant with what was found about it.
func (v *verifier) report(ctx context.Context, i Invariant, f *finding) {
	if f.inputs > 0 {
		i.Breach = v.breach(ctx, i, f)
	}
	v.result.Invariants = append(v.result.Invariants, i)
}

func (v *verifier) breach(ctx context.Context, i Invariant, f *finding) *Breach {
	b := &Breach{Problem: f.problem, Inputs: f.inputs, Document: f.document, Answer: f.answer, Rules: []Place{}}
	if f.against != nil {
		b.Against = explainCallDocument(f.against.call)
		b.AgainstAnswer = answerOf(f.against.outcome, f.against.err)
	}
	if f.call != nil {
		b.Rules = append(b.Rules, v.decidedBy(ctx, f.call)...)
	}
	if f.request != nil {
		b.Rules = append(b.Rules, v.skillDecidedBy(ctx, f.request)...)
	}
	if f.against != nil {
		b.Rules = append(b.Rules, v.decidedBy(ctx, f.against.call)...)
	}
	if i.File != "" {
		b.Rules = append(b.Rules, Place{invariantsRule, i.File, i.Line})
	}
	b.Rules = slices.Compact(b.Rules)
	switch {
	case i.File != "":
		b.Test = authoredTest(f)
	case f.call != nil:
		b.Test = callTest(i.Name, f.call)
	default:
		b.Test = skillTest(i.Name, f.request)
	}
	return b
}

// decidedBy returns where the branch stands that decided a call; without an
// answer, that is where the rules collide, if they do.
func (v *verifier) decidedBy(ctx context.Context, c *capability.Call) []Place {
	explanation, err := Explain(ctx, v.evaluator, c)
	return places(explanation, err)
}

func (v *verifier) skillDecidedBy(ctx context.Context, r *skill.Request) []Place {
	explanation, err := ExplainSkill(ctx, v.evaluator, r)
	return places(explanation, err)
}

func places(x *Explanation, err error) []Place {
	var conflict *ConflictError
	switch {
	case errors.As(err, &conflict):
		var list []Place
		for _, b := range conflict.Rules {
			list = append(list, b.Place)
		}
		return list
	case err != nil:
		return nil
	}
	list := []Place{x.Decided.Place}
	for _, b := range x.Also {
		list = append(list, b.Place)
	}
	return list
}

// testName is the name of the test that shows a breach.
func testName(invariant string) string { return "test_" + strings.ReplaceAll(invariant, "-", "_") }

// callTest is a test of the decision on c, with what the specification wants.
func callTest(invariant string, c *capability.Call) string {
	want := c.Decide("")
	var b strings.Builder
	fmt.Fprintf(&b, "%s if {\n\tgot := data.gate.call.decision with input as %s\n", testName(invariant), explainCallDocument(c))
	fmt.Fprintf(&b, "\tgot.outcome == %q\n\tgot.missing_mask == %d\n\tgot.required_mask == %d\n\tgot.granted_mask == %d\n}\n",
		want.Kind, want.Missing.Mask(), want.Required.Mask(), want.Granted.Mask())
	return b.String()
}

func skillTest(invariant string, r *skill.Request) string {
	want := r.Decide()
	var b strings.Builder
	fmt.Fprintf(&b, "%s if {\n\tgot := data.gate.skill.decision with input as %s\n", testName(invariant), explainSkillDocument(r))
	fmt.Fprintf(&b, "\tgot.trust == %q\n\tgot.outcome == %q\n\tgot.granted == %s\n\tgot.enforcement.deploy == %v\n}\n",
		want.Trust, want.Outcome, encode(want.Granted), want.Enforcement.Deploy)
	return b.String()
}

// authoredTest is a test that an invariant of the author's own holds.
func authoredTest(f *finding) string {
	member, rule := "call", "data.gate.call.decision"
	if f.request != nil {
		member, rule = "skill", "data.gate.skill.decision"
	}
	return fmt.Sprintf("test_invariant if {\n\tdocument := %s\n\tdecision := %s with input as document\n"+
		"\tcount(%s) == 0 with input as {%q: document, \"decision\": decision}\n}\n", f.document, rule, invariantsRule, member)
}

// invariantsRule is where authors write invariants of their own.
const invariantsRule = "data.gate.invariants.breach"

// authored holds every answer against the author's own invariants, one message
// as one invariant.
func (v *verifier) authored(ctx context.Context) error {
	query, err := v.evaluator.Query(ctx, invariantsRule)
	if errors.Is(err, evaluator.ErrNoRule) {
		return nil
	}
	if err != nil {
		return err
	}
	w := &authoredWalk{verifier: v, query: query, findings: map[string]*finding{}}
	v.mentioned(query)
	err = overKinds(ctx, func(n int) {
		for c := range v.survey.CallsAmong(n, v.survey.Exact(n) && len(v.survey.Tools)+len(v.survey.Vetoes)+len(v.survey.Notes) == 0) {
			a := v.ask(ctx, c)
			if a.err != nil {
				continue
			}
			value, err := query.Call(ctx, c, a.outcome)
			for _, message := range w.messages(ctx, value, err) {
				w.finding(message).addCall(message, &a, nil)
			}
		}
	})
	if err != nil {
		return err
	}
	requests := skillRequests()
	overSkills(ctx, requests, func(i int) {
		r := &requests[i]
		a, err := v.evaluator.Skill(ctx, r)
		if err != nil {
			return
		}
		value, err := query.Skill(ctx, r, a)
		for _, message := range w.messages(ctx, value, err) {
			f := w.finding(message)
			f.add(message, explainSkillDocument(r), func() { f.request, f.answer = r, answerOf(a, nil) })
		}
	})
	if w.err != nil {
		return w.err
	}
	w.report(ctx)
	return ctx.Err()
}

// mentioned adds the texts that the invariants mention to those that calls are
// looked at with.
func (v *verifier) mentioned(query *evaluator.Query) {
	for _, text := range query.Texts() {
		for _, list := range []*[]string{&v.survey.Tools, &v.survey.Vetoes, &v.survey.Notes} {
			if !slices.Contains(*list, text) {
				*list = append(*list, text)
			}
		}
	}
	for _, list := range []*[]string{&v.survey.Tools, &v.survey.Vetoes, &v.survey.Notes} {
		slices.Sort(*list)
	}
}

// authoredWalk collects what the author's invariants say.
type authoredWalk struct {
	*verifier
	query    *evaluator.Query
	mu       sync.Mutex
	findings map[string]*finding // by message
	err      error               // the first failure of a rule
}

// messages returns what the rule says; a failure ends the walk.
func (w *authoredWalk) messages(ctx context.Context, value any, err error) []string {
	if err != nil {
		if ctx.Err() == nil {
			w.fail(fmt.Errorf("%s: %w", invariantsRule, err))
		}
		return nil
	}
	list, ok := value.([]any)
	if !ok {
		w.fail(fmt.Errorf("%s: expected a set of sentences, got %s", invariantsRule, encode(value)))
	}
	messages := make([]string, len(list))
	for i, item := range list {
		text, ok := item.(string)
		if !ok {
			text = string(encode(item))
		}
		messages[i] = text
	}
	return messages
}

func (w *authoredWalk) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
}

func (w *authoredWalk) finding(message string) *finding {
	w.mu.Lock()
	defer w.mu.Unlock()
	f, ok := w.findings[message]
	if !ok {
		f = &finding{}
		w.findings[message] = f
	}
	return f
}

// report adds one invariant for each message, and one that holds if there is
// none.
func (w *authoredWalk) report(ctx context.Context) {
	places := w.query.Sources()
	i := Invariant{Name: "gate.invariants", Title: "The policies' own invariants.", File: places[0].File, Line: places[0].Line}
	if len(w.findings) == 0 {
		w.result.Invariants = append(w.result.Invariants, i)
		return
	}
	messages := make([]string, 0, len(w.findings))
	for message := range w.findings {
		messages = append(messages, message)
	}
	slices.Sort(messages)
	for _, message := range messages {
		one := i
		one.Title = message
		for _, p := range places { // the rule that has the message in its text, if one has
			if strings.Contains(p.Text, message) {
				one.File, one.Line = p.File, p.Line
			}
		}
		w.verifier.report(ctx, one, w.findings[message])
	}
}
