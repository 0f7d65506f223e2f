package analysis

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/skill"
)

const (
	quickSpread    = 1024 // calls from all over the domain, behind the grid
	quickTexts     = 8    // texts that rules compare with
	quickTextCalls = 64   // calls for each of them
	quickGrace     = time.Second
)

// quickCalls lists the calls that a round puts to the policies, the most telling
// first: some with the texts that the changed rules compare with; the grid that
// classes of decisions are told by (every origin, taint and verdict, the
// annotations that can matter, a base of everything, of nothing, and of all but
// one); some with the texts that other rules compare with; and some from all over
// the domain. Of the grid and the last, those of origins that the changed rules
// mention come first.
func quickCalls(texts []string, t *touch) []*capability.Call {
	changed := slices.Sorted(maps.Keys(t.texts))
	texts = slices.DeleteFunc(texts, func(text string) bool { return t.texts[text] })
	calls := textCallsOf(changed)
	later := func(c *capability.Call) int {
		if t.origins[c.Profile.Origin] {
			return 0
		}
		return 1
	}
	spread := make([]*capability.Call, quickSpread)
	for i := range spread {
		spread[i] = spreadCall(i, usualTexts)
	}
	for _, part := range [][]*capability.Call{classGrid(), textCallsOf(texts), spread} {
		slices.SortStableFunc(part, func(a, b *capability.Call) int { return cmp.Compare(later(a), later(b)) })
		calls = append(calls, part...)
	}
	seen := map[callKey]bool{}
	return slices.DeleteFunc(calls, func(c *capability.Call) bool {
		key := keyOf(c)
		again := seen[key]
		seen[key] = true
		return again
	})
}

// textCallsOf returns calls with each of the first few texts.
func textCallsOf(texts []string) []*capability.Call {
	var calls []*capability.Call
	for _, text := range texts[:min(len(texts), quickTexts)] {
		forms := []string{text, text + "x", "x" + text} // a rule may look for a part
		for i := range quickTextCalls {
			calls = append(calls, spreadCall(i, callTexts{forms[i%len(forms)], text, text, usualTexts.arguments}))
		}
	}
	return calls
}

// A callKey is a call, for a map.
type callKey struct {
	kind                        int
	tool, veto, note, arguments string
}

func keyOf(c *capability.Call) callKey {
	return callKey{cellOf(c), c.Tool, c.Policy.Veto, c.Policy.Transform.Note, string(c.Policy.Transform.Arguments)}
}

// A skillAnswer is what the policies answer to a skill.
type skillAnswer struct {
	answer skill.Answer
	err    error
}

// A quickLook puts a spread of documents to policies, for as long as it has time.
type quickLook struct {
	*verifier
	engine   *evaluator.Interpreter // no two of the calls are of a kind, so nothing is gained by compiling
	before   *goodState             // nil: there is none
	deadline time.Time
	hard     context.Context // ends when even a document that was begun must be

	mu      sync.Mutex
	calls   map[callKey]answered
	skills  map[int]skillAnswer
	changes map[quickChange]*WatchChange
	held    int // documents that were held against the answers before
}

type quickChange struct {
	kind string
	change
}

// A WatchChange is a way in which answers are others than those of the last good
// state, among the documents that a round has looked at.
type WatchChange struct {
	Kind      string          `json:"kind"` // "call" or "skill"
	Direction Direction       `json:"direction"`
	From      string          `json:"from"`
	To        string          `json:"to"`
	Inputs    int             `json:"inputs"`
	Example   json.RawMessage `json:"example"` // the smallest
	Before    json.RawMessage `json:"before"`
	After     json.RawMessage `json:"after"`
}

// over reports whether the time is up: nothing is begun any more.
func (q *quickLook) over() bool { return time.Now().After(q.deadline) || q.hard.Err() != nil }

// ask answers a call, each once. ok is false if there was no time to.
func (q *quickLook) ask(c *capability.Call) (a answered, ok bool) {
	key := keyOf(c)
	q.mu.Lock()
	a, ok = q.calls[key]
	q.mu.Unlock()
	if ok {
		a.call = c
		return a, true
	}
	o, err := q.engine.Decide(q.hard, c)
	if err != nil && q.hard.Err() != nil {
		return answered{}, false
	}
	a = answered{c, o, err}
	q.mu.Lock()
	q.calls[key] = a
	q.mu.Unlock()
	return a, true
}

// lookAtCalls holds calls against the invariants, and against the answers before.
// It returns for how many there was time.
func (q *quickLook) lookAtCalls(ctx context.Context, calls []*capability.Call, authored *authoredWalk) (int, error) {
	findings := make([]finding, len(callInvariants))
	var looked atomic.Int64
	err := inParallel(ctx, len(calls), nil, func(i int) {
		if q.over() {
			return
		}
		a, ok := q.ask(calls[i])
		if !ok {
			return
		}
		looked.Add(1)
		for j := range callInvariants {
			complete := true
			problem, against := callInvariants[j].broken(&a, func(c *capability.Call) answered {
				other, ok := q.ask(c)
				complete = complete && ok
				return other
			})
			if problem != "" && complete {
				findings[j].addCall(problem, &a, against)
			}
		}
		q.authoredCall(authored, &a)
		q.compareCall(&a)
	})
	if err != nil {
		return 0, err
	}
	var again finding
	q.redeclared(ctx, &again)
	q.result.Calls = len(q.calls)
	for i := range callInvariants {
		q.report(ctx, Invariant{Name: callInvariants[i].name, Title: callInvariants[i].title}, &findings[i])
	}
	q.report(ctx, Invariant{Name: redeclarationName, Title: redeclarationTitle}, &again)
	return int(looked.Load()), ctx.Err()
}

func (q *quickLook) authoredCall(w *authoredWalk, a *answered) {
	if w == nil || a.err != nil {
		return
	}
	value, err := w.query.Call(q.hard, a.call, a.outcome)
	w.addCall(w.messages(q.hard, value, err), a)
}

// redeclared holds what tools require against what they require once they are
// declared anew, for each origin and every two declarations, everything else in
// the call being plain.
func (q *quickLook) redeclared(ctx context.Context, f *finding) {
	origins := originChoices()
	_ = inParallel(ctx, len(origins), nil, func(i int) {
		answers := map[capability.Profile]answered{}
		for n := range 27 {
			p := capability.Profile{Origin: origins[i].origin, ReadOnly: capability.Hint(n % 3),
				Destructive: capability.Hint(n / 3 % 3), OpenWorld: capability.Hint(n / 9)}
			if q.over() {
				return
			}
			a, ok := q.ask(&capability.Call{Tool: usualTexts.tool, Profile: p, Grant: capability.DefaultGrant(),
				LeftOut: capability.GrantMember | origins[i].leftOut, Taint: capability.Clean})
			if ok && a.err == nil {
				answers[p] = a
			}
		}
		for p, old := range answers {
			for next := range answers {
				now, there := answers[p.Redeclare(next)]
				if less := old.outcome.Required.Minus(now.outcome.Required); there && !less.Empty() {
					f.addCall("declared anew it no longer requires "+less.String(), &now, &old)
				}
			}
		}
	})
}

// compareCall holds an answer against the one before.
func (q *quickLook) compareCall(a *answered) {
	if q.before == nil {
		return
	}
	old, known := q.before.calls[keyOf(a.call)]
	if !known { // it was not looked at then
		o, err := q.before.evaluator.Interpreter().Decide(q.hard, a.call)
		if err != nil && q.hard.Err() != nil {
			return
		}
		old = answered{outcome: o, err: err}
	}
	ch, differs := compareOutcomes(a.call, old.outcome, old.err, a.outcome, a.err)
	q.changed(differs, quickChange{"call", ch}, func() (example, before, after []byte) {
		return callDocument(a.call, false), answerOf(old.outcome, old.err), answerOf(a.outcome, a.err)
	})
}

// changed counts a comparison, and a change if it is one.
func (q *quickLook) changed(differs bool, ch quickChange, document func() (example, before, after []byte)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held++
	if !differs {
		return
	}
	c := q.changes[ch]
	if c == nil {
		c = &WatchChange{Kind: ch.kind, Direction: ch.direction, From: ch.from, To: ch.to}
		q.changes[ch] = c
	}
	c.Inputs++
	example, before, after := document()
	if c.Example == nil || cmp.Or(cmp.Compare(len(example), len(c.Example)), bytes.Compare(example, c.Example)) < 0 {
		c.Example, c.Before, c.After = example, before, after
	}
}

// lookAtSkills does the same for skills.
func (q *quickLook) lookAtSkills(ctx context.Context, authored *authoredWalk) error {
	findings := make([]finding, len(skillInvariants))
	err := inParallel(ctx, skillKinds, nil, func(i int) {
		i = i * stride % skillKinds // as far as the time goes, from everywhere
		if q.over() {
			return
		}
		r := skillOfKind(i)
		answer, err := q.engine.Skill(q.hard, r)
		if err != nil && q.hard.Err() != nil {
			return
		}
		a := skillAnswer{answer, err}
		q.mu.Lock()
		q.skills[i] = a
		q.mu.Unlock()
		for j := range skillInvariants {
			if problem := skillInvariants[j].broken(r, answer, err); problem != "" {
				findings[j].add(problem, skillDocument(r, false), func() {
					findings[j].request, findings[j].answer = r, answerOf(answer, err)
				})
			}
		}
		q.authoredSkill(authored, r, a)
		q.compareSkill(i, r, a)
	})
	q.result.Skills = len(q.skills)
	for i := range skillInvariants {
		q.report(ctx, Invariant{Name: skillInvariants[i].name, Title: skillInvariants[i].title}, &findings[i])
	}
	return err
}

func (q *quickLook) authoredSkill(w *authoredWalk, r *skill.Request, a skillAnswer) {
	if w == nil || a.err != nil {
		return
	}
	value, err := w.query.Skill(q.hard, r, a.answer)
	w.addSkill(w.messages(q.hard, value, err), r, a.answer)
}

func (q *quickLook) compareSkill(i int, r *skill.Request, a skillAnswer) {
	if q.before == nil {
		return
	}
	old, known := q.before.skills[i]
	if !known {
		answer, err := q.before.evaluator.Skill(q.hard, r)
		if err != nil && q.hard.Err() != nil {
			return
		}
		old = skillAnswer{answer, err}
	}
	differs := (old.err == nil || a.err == nil) && !(old.err == nil && a.err == nil && reflect.DeepEqual(old.answer, a.answer))
	ch := change{deployment(old.answer, old.err), deployment(a.answer, a.err), Rewording}
	switch x, y := tierOf(old.answer, old.err), tierOf(a.answer, a.err); {
	case y > x:
		ch.direction = Widening
	case y < x:
		ch.direction = Narrowing
	}
	q.changed(differs, quickChange{"skill", ch}, func() (example, before, after []byte) {
		return skillDocument(r, false), answerOf(old.answer, old.err), answerOf(a.answer, a.err)
	})
}

// openAuthored prepares the author's own invariants; nil is none.
func (q *quickLook) openAuthored(ctx context.Context) (*authoredWalk, error) {
	query, err := q.evaluator.Query(ctx, invariantsRule)
	if errors.Is(err, evaluator.ErrNoRule) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return newAuthoredWalk(q.verifier, query, nil), nil
}

// sortedChanges lists the changes as a difference does.
func (q *quickLook) sortedChanges() []WatchChange {
	list := []WatchChange{}
	for _, c := range q.changes {
		list = append(list, *c)
	}
	slices.SortFunc(list, func(a, b WatchChange) int {
		return cmp.Or(cmp.Compare(rankOf(a.Direction), rankOf(b.Direction)), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(b.Inputs, a.Inputs), bytes.Compare(a.Example, b.Example))
	})
	return list
}
