package analysis

import (
	"bytes"
	"cmp"
	"context"
	"reflect"
	"slices"
	"sync"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/skill"
)

// DiffOptions name what is compared.
type DiffOptions struct {
	Old, New string                // what the two are called
	Progress func(done, total int) // called now and then, one call after the other, if it is not nil; done never falls, nor exceeds total
}

// Diff compares what two policies answer, over the whole domain (specification,
// sections 5 and 6): with every text that either of them compares with, and one
// that neither knows. It is exact but where Incomplete says otherwise. Names in a
// grant that grant nothing, and arguments that rules look into, are compared on a sample of calls. The error is
// that of ctx, or one that matches evaluator.ErrPolicy.
func Diff(ctx context.Context, old, new *evaluator.Evaluator, opts *DiffOptions) (*Difference, error) {
	if opts == nil {
		opts = &DiffOptions{}
	}
	m := newMeter(opts.Progress, 2*surveyWeight+compareWeight)
	var surveys [2]*evaluator.Survey
	for i, e := range []*evaluator.Evaluator{old, new} {
		var err error
		surveys[i], err = e.Survey(ctx, m.phase(surveyWeight))
		if err != nil {
			return nil, err
		}
	}
	d := &differ{old: surveys[0], new: surveys[1], before: surveys[0], after: surveys[1], named: true, opts: opts, meter: m}
	return d.diff(ctx, old, new)
}

// diff compares everything.
func (d *differ) diff(ctx context.Context, old, new *evaluator.Evaluator) (*Difference, error) {
	d.result = &Difference{Old: d.opts.Old, New: d.opts.New}
	d.join()
	if err := d.compareCalls(ctx); err != nil {
		return nil, err
	}
	if d.named {
		if err := d.compareNamed(ctx); err != nil {
			return nil, err
		}
		if err := d.compareArguments(ctx, old, new); err != nil {
			return nil, err
		}
	}
	if err := d.compareSkills(ctx, old, new); err != nil {
		return nil, err
	}
	slices.SortFunc(d.result.Changes, func(a, b Change) int {
		return cmp.Or(cmp.Compare(rankOf(a.Direction), rankOf(b.Direction)), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(b.Inputs, a.Inputs), bytes.Compare(a.Example, b.Example))
	})
	return d.result, d.matrix(ctx)
}

// What parts of the comparison take, about, beside surveyWeight.
const (
	compareCallsWeight = 6
	rowsWeight         = 1 // of the changes of calls
	matrixWeight       = 1
	compareWeight      = compareCallsWeight + rowsWeight + skillsWeight + matrixWeight
)

func rankOf(d Direction) int { return slices.Index([]Direction{Widening, Narrowing, Rewording}, d) }

type differ struct {
	old, new      *evaluator.Survey // for the texts, and the calls with them
	before, after answers           // the surveys, but for tests
	kinds         []int             // all of them if it is nil, which it is but in tests
	callsAlone    bool              // skills are left out, in tests
	named         bool              // whether calls with names that grant nothing are compared: but in tests, they are
	opts          *DiffOptions
	meter         *meter // nil: nobody asks
	result        *Difference
}

// join gives both surveys the texts of both, so that they look at the same
// calls.
func (d *differ) join() {
	d.old.Join(d.new)
	d.result.Incomplete = []Uncovered{}
	for i, s := range []*evaluator.Survey{d.old, d.new} {
		for _, b := range s.Incomplete {
			d.result.Incomplete = append(d.result.Incomplete, Uncovered{[]string{"old", "new"}[i], b})
		}
	}
}

// A change is how an answer changed: what one row is about.
type change struct {
	from, to  string
	direction Direction
}

// exact reports whether neither policy tells the texts of kind n apart.
func (d *differ) exact(n int) bool { return d.before.Exact(n) && d.after.Exact(n) }

// compareCalls finds the calls that are answered differently, and puts them into
// rows.
func (d *differ) compareCalls(ctx context.Context) error {
	space := newCallSpace(d.old)
	changed := map[change]*region{}
	var mu sync.Mutex // of changed
	err := overKinds(ctx, d.kinds, d.meter.phase(compareCallsWeight), func(n int) {
		exact := d.exact(n)
		found, any := d.compareKind(ctx, n, exact)
		if exact && any {
			// Answers that copy a text can be the same for one of the known ones.
			exact = len(d.old.Tools)+len(d.old.Vetoes)+len(d.old.Notes) == 0
			if !exact {
				found, any = d.compareKind(ctx, n, exact)
			}
		}
		if !any {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		space.each(n, exact, func(i, point int) {
			if found[i] != (change{}) {
				changedRegion(changed, found[i], space.space).set(point)
			}
		})
	})
	if err != nil {
		return err
	}
	d.result.Calls = space.all()
	progress, done := d.meter.phase(rowsWeight), 0
	for ch, r := range changed {
		for _, c := range r.cubes() {
			d.result.Changes = append(d.result.Changes, d.callChange(ctx, space, ch, c))
		}
		if done++; progress != nil {
			progress(done, len(changed))
		}
	}
	return ctx.Err()
}

// compareKind compares the answers to the calls of a kind: found is the change of
// each, the zero change being none, and any whether there is one.
func (d *differ) compareKind(ctx context.Context, n int, exact bool) (found []change, any bool) {
	for c := range d.old.CallsAmong(n, exact) {
		before, beforeErr := d.before.Decide(ctx, c)
		after, afterErr := d.after.Decide(ctx, c)
		ch, differs := compareOutcomes(c, before, beforeErr, after, afterErr)
		if !differs {
			ch = change{}
		}
		any = any || differs
		found = append(found, ch)
	}
	return found, any
}

// changedRegion returns the region of a change, which it makes if need be.
func changedRegion(changed map[change]*region, ch change, s *space) *region {
	r, ok := changed[ch]
	if !ok {
		r = newRegion(s)
		changed[ch] = r
	}
	return r
}

// callChange describes one row.
func (d *differ) callChange(ctx context.Context, space *callSpace, ch change, c *cube) Change {
	example := space.example(c)
	before, beforeErr := d.before.Decide(ctx, example)
	after, afterErr := d.after.Decide(ctx, example)
	return Change{Kind: "call", Direction: ch.direction, From: ch.from, To: ch.to, Inputs: space.calls(c),
		Conditions: space.conditions(c), Example: callDocument(example, false),
		Before: answerOf(before, beforeErr), After: answerOf(after, afterErr)}
}

// compareOutcomes says how the answer to c changed, if it did.
func compareOutcomes(c *capability.Call, before capability.Outcome, beforeErr error, after capability.Outcome, afterErr error) (change, bool) {
	if beforeErr != nil && afterErr != nil {
		return change{}, false // undecided both times: refused both times
	}
	if beforeErr == nil && afterErr == nil && before.Equal(after) {
		return change{}, false
	}
	ch := change{from: plainName(c, before, beforeErr), to: plainName(c, after, afterErr), direction: Rewording}
	a, b := permits(ch.from), permits(ch.to)
	switch {
	case b > a:
		ch.direction = Widening
	case b < a:
		ch.direction = Narrowing
	case ch.from == ch.to && before.Missing != after.Missing: // both ask: about less, about more, or about other things
		switch {
		case after.Missing.SubsetOf(before.Missing):
			ch.direction = Widening
		case before.Missing.SubsetOf(after.Missing):
			ch.direction = Narrowing
		}
	}
	return ch, true
}

func nameOf(o capability.Outcome, err error) string {
	if err != nil {
		return "error"
	}
	return o.Kind.String()
}

// plainName is nameOf, with allow for what the call's own transform asks for: a
// call that may be made is modified or gets a note because its hook wants that,
// and no row needs to say so.
func plainName(c *capability.Call, o capability.Outcome, err error) string {
	asked := [...]capability.Kind{capability.NoTransform: capability.Allow, capability.Rewrite: capability.Modify, capability.InjectContext: capability.Inject}
	if err == nil && o.Kind == asked[c.Policy.Transform.Kind] {
		return capability.Allow.String()
	}
	return nameOf(o, err)
}

// permits ranks outcomes by what happens without anybody's doing: a call is
// refused, waits for a person, is made with arguments or a note that nobody asked
// for, or is made as it is. An answer that is none is a refusal.
func permits(outcome string) int {
	switch outcome {
	case capability.Allow.String():
		return 3
	case capability.Modify.String(), capability.Inject.String():
		return 2
	case capability.Escalate.String():
		return 1
	default:
		return 0
	}
}

// compareSkills does the same for skills, whose domain is a list.
func (d *differ) compareSkills(ctx context.Context, old, new *evaluator.Evaluator) error {
	requests := skillRequests()
	if d.callsAlone {
		requests = nil
	}
	type pair struct {
		before, after       skill.Answer
		beforeErr, afterErr error
	}
	pairs := make([]pair, len(requests))
	err := inParallel(ctx, len(requests), d.meter.phase(skillsWeight), func(i int) {
		p := &pairs[i]
		p.before, p.beforeErr = old.Skill(ctx, &requests[i])
		p.after, p.afterErr = new.Skill(ctx, &requests[i])
	})
	if err != nil {
		return err
	}
	d.result.Skills = len(requests)
	space := newSkillSpace()
	changed := map[change]*region{}
	for i, p := range pairs {
		if p.beforeErr != nil && p.afterErr != nil || p.beforeErr == nil && p.afterErr == nil && reflect.DeepEqual(p.before, p.after) {
			continue
		}
		ch := change{deployment(p.before, p.beforeErr), deployment(p.after, p.afterErr), Rewording}
		switch a, b := tierOf(p.before, p.beforeErr), tierOf(p.after, p.afterErr); {
		case b > a:
			ch.direction = Widening
		case b < a:
			ch.direction = Narrowing
		}
		changedRegion(changed, ch, space).set(i)
	}
	for ch, r := range changed {
		for _, c := range r.cubes() {
			out := Change{Kind: "skill", Direction: ch.direction, From: ch.from, To: ch.to, Inputs: c.size(), Conditions: c.conditions()}
			c.each(func(i int) bool {
				if doc := skillDocument(&requests[i], false); out.Example == nil || len(doc) < len(out.Example) {
					out.Example = doc
					out.Before, out.After = answerOf(pairs[i].before, pairs[i].beforeErr), answerOf(pairs[i].after, pairs[i].afterErr)
				}
				return true
			})
			d.result.Changes = append(d.result.Changes, out)
		}
	}
	return nil
}

// deployedAt comes before the tier that a skill is deployed at.
const deployedAt = "deployed at "

// deployment names what happens to a skill.
func deployment(a skill.Answer, err error) string {
	switch e := &a.Enforcement; {
	case err != nil:
		return "error"
	case e.Deploy:
		return deployedAt + e.EffectiveTier.String()
	case e.Blocked:
		return "blocked"
	default:
		return "pending"
	}
}

// tierOf ranks what happens to a skill: nothing, waiting, or the tier it gets.
func tierOf(a skill.Answer, err error) int {
	switch e := &a.Enforcement; {
	case err != nil || e.Blocked:
		return 0
	case e.Deploy:
		return 1 + int(e.EffectiveTier)
	default:
		return 1
	}
}

// matrix fills the squares: calls without a verdict under the default grant, stated
// or not. Calls of tools whose origin is not given are among those of unknown ones.
func (d *differ) matrix(ctx context.Context) error {
	progress := d.meter.phase(matrixWeight)
	for i, origin := range capability.Origins() {
		for _, def := range capability.Taxonomy() {
			for _, taint := range []capability.Taint{capability.Clean, capability.Tainted} {
				d.result.Matrix = append(d.result.Matrix, d.square(ctx, origin, def, taint))
			}
		}
		if progress != nil {
			progress(i+1, len(capability.Origins()))
		}
	}
	return ctx.Err()
}

func (d *differ) square(ctx context.Context, origin capability.Origin, def capability.Definition, taint capability.Taint) Square {
	s := Square{Origin: origin.String(), Capability: def.Name, Taint: taint.String(), Before: []string{}, After: []string{}}
	for i := range 27 * 4 {
		c := &capability.Call{Tool: "tool", Taint: taint, Grant: capability.DefaultGrant(), LeftOut: capability.Members(i / 27), Profile: capability.Profile{Origin: origin,
			ReadOnly: capability.Hint(i % 3), Destructive: capability.Hint(i / 3 % 3), OpenWorld: capability.Hint(i / 9 % 3)}}
		if c.Validate() != nil {
			continue // an origin that is not given, and is known
		}
		n := cellOf(c)
		for c := range d.old.CallsAmong(n, d.exact(n)) {
			before, beforeErr := d.before.Decide(ctx, c)
			after, afterErr := d.after.Decide(ctx, c)
			inBefore, inAfter := before.Required.Has(def.Capability), after.Required.Has(def.Capability)
			if inBefore && !slices.Contains(s.Before, nameOf(before, beforeErr)) {
				s.Before = append(s.Before, nameOf(before, beforeErr))
			}
			if inAfter && !slices.Contains(s.After, nameOf(after, afterErr)) {
				s.After = append(s.After, nameOf(after, afterErr))
			}
			if _, differs := compareOutcomes(c, before, beforeErr, after, afterErr); differs && (inBefore || inAfter) {
				s.Changed = true
			}
		}
	}
	byPrecedence := func(a, b string) int { return cmp.Compare(precedence(a), precedence(b)) }
	slices.SortFunc(s.Before, byPrecedence)
	slices.SortFunc(s.After, byPrecedence)
	return s
}

// precedence orders outcomes as the specification lists them.
func precedence(kind string) int {
	k, _ := capability.ParseKind(kind)
	return int(k)
}
