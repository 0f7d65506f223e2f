package analysis

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/evaluator"
)

// Arguments are no part of a kind of call either. Where rules look into them, calls with
// what they look for there are looked at beside the kinds.

// otherArguments are those that no rule knows.
var otherArguments = json.RawMessage(`{"key":"value"}`)

// maxArgumentCalls bounds the calls of an argumentSpace.
const maxArgumentCalls = 1 << 18

// An argumentSpace is the domain of these calls: rewrites, all of them.
type argumentSpace struct {
	*space
	tools   []string
	samples []json.RawMessage // the first is otherArguments
}

// The dimensions of an argumentSpace.
const (
	argumentHints = iota
	argumentPerson
	argumentVeto
	argumentGrant
	argumentTaint
	argumentOrigin
	argumentTool
	argumentSample
	argumentDimensions
)

// argumentHintsOf are the annotations of tools in an argumentSpace, by their value in words.
var argumentHintsOf = []struct {
	value                            string
	readOnly, destructive, openWorld capability.Hint
}{
	{value: "none"}, {"a reader", capability.Yes, capability.No, capability.No}, {"destructive", capability.No, capability.Yes, capability.Yes},
}

// newArgumentSpace returns the space for some arguments and tools; nil without
// arguments.
func newArgumentSpace(s *evaluator.Survey, samples []json.RawMessage) *argumentSpace {
	if len(samples) == 0 {
		return nil
	}
	fresh := s.WithTexts(&capability.Call{}, 0, 0, 0).Tool
	a := &argumentSpace{tools: append([]string{fresh}, s.Tools...), samples: append([]json.RawMessage{otherArguments}, samples...)}
	dims := make([]dimension, argumentDimensions)
	dims[argumentHints] = dimension{member: "annotations"}
	for _, h := range argumentHintsOf {
		dims[argumentHints].values = append(dims[argumentHints].values, h.value)
	}
	dims[argumentPerson] = dimension{"a person", []string{"not asked for", "required by the verdict", "required by the sandbox"}}
	dims[argumentVeto] = dimension{"policy.veto", []string{notGiven, "given"}}
	dims[argumentGrant] = dimension{"grant", []string{notGiven, "of everything", "of nothing"}}
	dims[argumentTaint] = dimension{"taint", []string{"clean", "tainted"}}
	dims[argumentOrigin] = dimension{"tool.origin", append([]string{notGiven}, originNames()...)}
	size := 1
	for _, d := range dims[:argumentTool] {
		size *= len(d.values)
	}
	most := max(maxArgumentCalls/size/len(a.samples), 2) // some names show what comes of arguments with one of them
	a.tools = a.tools[:min(len(a.tools), most)]
	dims[argumentTool] = dimension{member: "tool.name"}
	for i, tool := range a.tools {
		if i == 0 {
			tool = "any other"
		} else {
			tool = strconv.Quote(tool)
		}
		dims[argumentTool].values = append(dims[argumentTool].values, tool)
	}
	dims[argumentSample] = dimension{member: "policy.transform.arguments"}
	for _, sample := range a.samples {
		dims[argumentSample].values = append(dims[argumentSample].values, string(sample))
	}
	a.space = newSpace(dims)
	return a
}

// call returns the call with a number.
func (a *argumentSpace) call(n int) *capability.Call {
	at := make([]int, argumentDimensions)
	for i := argumentDimensions - 1; i >= 0; i-- {
		size := len(a.dims[i].values)
		at[i], n = n%size, n/size
	}
	h := argumentHintsOf[at[argumentHints]]
	c := &capability.Call{Tool: a.tools[at[argumentTool]], Taint: capability.Clean + capability.Taint(at[argumentTaint]),
		Profile: capability.Profile{ReadOnly: h.readOnly, Destructive: h.destructive, OpenWorld: h.openWorld}}
	originChoices()[at[argumentOrigin]].give(c)
	switch at[argumentGrant] {
	case 0:
		c.Grant, c.LeftOut = capability.DefaultGrant(), c.LeftOut|capability.GrantMember
	case 1:
		c.Grant = capability.DefaultGrant()
	}
	c.Policy.RequiresHuman, c.Policy.SandboxEscalation = at[argumentPerson] == 1, at[argumentPerson] == 2
	if at[argumentVeto] == 1 {
		c.Policy.Vetoed, c.Policy.Veto = true, "stop"
	}
	c.Policy.Transform = capability.Transform{Kind: capability.Rewrite, Arguments: a.samples[at[argumentSample]]}
	return c
}

// argumentCalls are calls with arguments that rules look for.
type argumentCalls []*capability.Call

// newArgumentCalls are those with arguments that the rules of e look for.
func newArgumentCalls(ctx context.Context, e *evaluator.Evaluator, s *evaluator.Survey) (argumentCalls, error) {
	uses, err := readArguments(ctx, e)
	if err != nil {
		return nil, err
	}
	space := newArgumentSpace(s, argumentSamples(uses))
	if space == nil {
		return nil, nil
	}
	calls := make(argumentCalls, space.size)
	for n := range calls {
		calls[n] = space.call(n)
	}
	return calls, nil
}

// among leaves out those of exact kinds, where one answer stands for all arguments.
func (a argumentCalls) among(exact func(n int) bool) (calls []*capability.Call) {
	for _, c := range a {
		if !exact(cellOf(c)) {
			calls = append(calls, c)
		}
	}
	return calls
}

// compareArguments finds those of these calls that are answered differently because of their
// arguments: of the others, the kinds of call tell.
func (d *differ) compareArguments(ctx context.Context, old, new *evaluator.Evaluator) error {
	var uses []argumentUses
	for _, e := range []*evaluator.Evaluator{old, new} {
		of, err := readArguments(ctx, e)
		if err != nil {
			return err
		}
		uses = append(uses, of...)
	}
	space := newArgumentSpace(d.old, argumentSamples(uses))
	if space == nil {
		return nil
	}
	type pair struct {
		before, after answered
		change        change
	}
	pairs := make([]*pair, space.size)
	err := inParallel(ctx, space.size, nil, func(n int) {
		c := space.call(n)
		if d.exact(cellOf(c)) {
			return
		}
		before, beforeErr := d.before.Decide(ctx, c)
		after, afterErr := d.after.Decide(ctx, c)
		p := &pair{before: answered{c, before, beforeErr}, after: answered{c, after, afterErr}}
		if ch, differs := compareOutcomes(c, before, beforeErr, after, afterErr); differs {
			p.change = ch
		}
		pairs[n] = p
	})
	if err != nil {
		return err
	}
	changed := map[change]*region{}
	for n, p := range pairs {
		if p == nil {
			continue
		}
		d.result.Arguments++
		if other := pairs[n-n%len(space.samples)]; p.change != (change{}) && p.change != other.change { // the sample is the last dimension
			changedRegion(changed, p.change, space.space).set(n)
		}
	}
	for ch, r := range changed {
		for _, c := range r.cubes() {
			out := Change{Kind: "call", Direction: ch.direction, From: ch.from, To: ch.to, Inputs: c.size(), Conditions: c.conditions()}
			c.each(func(n int) bool {
				if doc := callDocument(pairs[n].before.call, false); out.Example == nil || smaller(doc, out.Example) {
					p := pairs[n]
					out.Example = doc
					out.Before, out.After = answerOf(p.before.outcome, p.before.err), answerOf(p.after.outcome, p.after.err)
				}
				return true
			})
			d.result.Changes = append(d.result.Changes, out)
		}
	}
	return nil
}
