package analysis

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/skill"
)

// authored holds every answer against the author's own invariants, one message
// as one invariant.
func (v *verifier) authored(ctx context.Context) error {
	query, err := v.evaluator.Query(ctx, invariantsRule)
	calls, skills := v.meter.phase(authoredWeight), v.meter.phase(skillsWeight)
	if errors.Is(err, evaluator.ErrNoRule) {
		if skills != nil {
			skills(1, 1)
		}
		return nil
	}
	if err != nil {
		return err
	}
	looked, err := v.mentioned(ctx)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	w := newAuthoredWalk(v, query, end)
	err = overKinds(ctx, v.kinds, calls, func(n int) {
		for c := range v.survey.CallsAmong(n, v.answers.Exact(n) && !looked.any) {
			w.call(ctx, c)
		}
		for c := range looked.samples(v.survey.WithTexts(evaluator.CellCall(n), 0, 0, 0)) {
			w.call(ctx, c)
		}
	})
	if err == nil && v.named {
		// Invariants of the author's own are said to look into arguments, or to leave them alone.
		named := append(namedCalls(), v.arguments.among(func(n int) bool { return v.answers.Exact(n) && !looked.arguments })...)
		err = inParallel(ctx, len(named), nil, func(i int) { w.call(ctx, named[i]) })
	}
	if err == nil {
		requests := looked.requests(v.requests)
		err = inParallel(ctx, len(requests), skills, func(i int) { w.skill(ctx, &requests[i]) })
	}
	if err != nil {
		return context.Cause(ctx)
	}
	w.report(ctx)
	return ctx.Err()
}

func (w *authoredWalk) call(ctx context.Context, c *capability.Call) {
	a := w.ask(ctx, c)
	if a.err != nil {
		return
	}
	value, err := w.query.Call(ctx, c, a.outcome)
	w.addCall(w.messages(ctx, value, err), &a)
}

func (w *authoredWalk) skill(ctx context.Context, r *skill.Request) {
	a, err := w.evaluator.Skill(ctx, r)
	if err != nil {
		return
	}
	value, err := w.query.Skill(ctx, r, a)
	w.addSkill(w.messages(ctx, value, err), r, a)
}

// A textLook is what the author's invariants make of texts.
type textLook struct {
	arguments            bool     // they look into arguments
	any                  bool     // they look at one of a call: if not, calls that differ in texts alone are the same to them
	tools, vetoes, notes []string // to try one at a time, besides those that the survey has
	skills               []string
}

// mentioned adds the texts that the invariants compare a text with to those that
// calls are looked at with, and what they do more with one than to compare it to
// what the verdict does not cover.
func (v *verifier) mentioned(ctx context.Context) (*textLook, error) {
	compiler, store := v.evaluator.Policies()
	data, err := storage.ReadOne(ctx, store, storage.RootPath)
	if err != nil {
		return nil, err
	}
	if value, ok := data.(ast.Value); ok {
		if data, err = ast.JSON(value); err != nil {
			return nil, err
		}
	}
	t := readTexts(compiler)
	v.result.Incomplete = append(v.result.Incomplete, t.blockers()...)
	look := &textLook{arguments: t.looks(argumentsText)}
	for _, of := range []struct {
		kind    textKind
		fresh   string // a text that stands for all others begins so
		known   *[]string
		samples *[]string
	}{
		{toolText, "tool", &v.survey.Tools, &look.tools}, {vetoText, "stop", &v.survey.Vetoes, &look.vetoes},
		{noteText, "note", &v.survey.Notes, &look.notes},
	} {
		*of.samples = t.samples(of.kind, data)
		if t.looks(of.kind) {
			look.any = true
			*of.known = append(*of.known, t.constants(of.kind)...)
		}
		for _, text := range *of.samples {
			if strings.TrimRight(text, "_") == of.fresh {
				*of.known = append(*of.known, text)
			}
		}
		slices.Sort(*of.known)
		*of.known = slices.Compact(*of.known)
	}
	look.skills = append(t.constants(skillText), t.samples(skillText, data)...)
	return look, nil
}

// samples are calls like c with each text to try.
func (l *textLook) samples(c *capability.Call) iter.Seq[*capability.Call] {
	return func(yield func(*capability.Call) bool) {
		try := func(texts []string, member func(*capability.Call) *string) bool {
			for _, text := range texts {
				with := *c
				*member(&with) = text
				if !yield(&with) {
					return false
				}
			}
			return true
		}
		if !try(l.tools, func(c *capability.Call) *string { return &c.Tool }) {
			return
		}
		if c.Policy.Vetoed && !try(l.vetoes, func(c *capability.Call) *string { return &c.Policy.Veto }) {
			return
		}
		if c.Policy.Transform.Kind == capability.InjectContext {
			try(l.notes, func(c *capability.Call) *string { return &c.Policy.Transform.Note })
		}
	}
}

// requests are some requests, and the same under each name to try.
func (l *textLook) requests(all []skill.Request) []skill.Request {
	list := slices.Clone(all)
	for _, name := range l.skills {
		for _, r := range all {
			r.Skill = name
			list = append(list, r)
		}
	}
	return list
}

// authoredWalk collects what the author's invariants say.
type authoredWalk struct {
	*verifier
	query *evaluator.Query
	rules []evaluator.RuleSource
	end   context.CancelCauseFunc // of the walk; nil: nothing ends early

	mu    sync.Mutex
	found []sentences // of each rule
	err   error       // the first failure of a rule
}

func newAuthoredWalk(v *verifier, query *evaluator.Query, end context.CancelCauseFunc) *authoredWalk {
	rules := query.Sources()
	return &authoredWalk{verifier: v, query: query, rules: rules, end: end, found: make([]sentences, len(rules))}
}

// maxSentences bounds the sentences of one rule that are shown, each with its own
// breach: one that holds a name or a mask has as many forms as there are.
const maxSentences = 100

// The sentences that a rule says: the first of them by the alphabet, whatever
// order they are found in, and the others as one.
type sentences struct {
	kept map[string]*finding
	seen map[string]bool // and kept, or one of the others
	rest finding
}

// finding returns where a breach goes that a sentence says.
func (s *sentences) finding(message string) *finding {
	if f, ok := s.kept[message]; ok {
		return f
	}
	if s.seen[message] {
		return &s.rest
	}
	if s.seen == nil {
		s.kept, s.seen = map[string]*finding{}, map[string]bool{}
	}
	s.seen[message] = true
	if len(s.kept) == maxSentences {
		last := slices.Max(slices.Collect(maps.Keys(s.kept)))
		if message > last {
			return &s.rest
		}
		s.rest.merge(s.kept[last])
		delete(s.kept, last)
	}
	f := &finding{}
	s.kept[message] = f
	return f
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
	if w.end != nil {
		w.end(w.err)
	}
}

// addCall adds what the rule says of a call.
func (w *authoredWalk) addCall(messages []string, a *answered) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, message := range messages {
		w.found[w.saidBy(message)].finding(message).addCall(message, a, nil)
	}
}

// addSkill does so of a skill.
func (w *authoredWalk) addSkill(messages []string, r *skill.Request, a skill.Answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, message := range messages {
		f := w.found[w.saidBy(message)].finding(message)
		f.add(message, skillDocument(r, false), func() { f.request, f.answer = r, answerOf(a, nil) })
	}
}

// saidBy returns the rule that has the most of a message in its text.
func (w *authoredWalk) saidBy(message string) int {
	by, longest := 0, 0
	for i := range w.found {
		if w.found[i].seen[message] {
			return i
		}
	}
	for i, p := range w.rules {
		if n := common(message, p.Text); n > longest {
			longest, by = n, i
		}
	}
	return by
}

// report adds one invariant for each message, and one that holds if there is
// none.
func (w *authoredWalk) report(ctx context.Context) {
	invariant := func(i int, title string) Invariant {
		return Invariant{Name: "gate.invariants", Title: title, File: w.rules[i].File, Line: w.rules[i].Line}
	}
	type one struct {
		Invariant
		*finding
	}
	var said, rests []one
	for i := range w.found {
		s := &w.found[i]
		for message, f := range s.kept {
			said = append(said, one{invariant(i, message), f})
		}
		if n := len(s.seen) - len(s.kept); n > 0 {
			title := "and " + number(n, "more sentence", "more sentences")
			s.rest.problem = title
			rests = append(rests, one{invariant(i, title), &s.rest})
		}
	}
	if len(said) == 0 {
		w.result.Invariants = append(w.result.Invariants, invariant(0, "The policies' own invariants."))
		return
	}
	slices.SortFunc(said, func(a, b one) int { return strings.Compare(a.Title, b.Title) })
	for _, o := range append(said, rests...) {
		w.verifier.report(ctx, o.Invariant, o.finding)
	}
}

// common returns the length of the longest text that is in both.
func common(a, b string) int {
	longest := 0
	for i := range a {
		for i+longest < len(a) && strings.Contains(b, a[i:i+longest+1]) {
			longest++
		}
	}
	return longest
}
