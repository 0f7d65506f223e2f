package analysis

import (
	"context"
	"fmt"

	"github.com/opa-gate/opa-gate/capability"
)

// Names in a grant that grant nothing are no part of a kind of call: there is no
// end of them. What rules can do with one shows on a few calls with each name
// that is a capability's, and one that is nobody's: such calls are looked at beside the
// kinds, without a verdict.

// unknownName is the name of no capability.
const unknownName = "no-such-capability"

// namesThatGrantNothing are the capabilities that no operator can grant, and
// unknownName.
func namesThatGrantNothing() []string {
	var names []string
	for _, d := range capability.Taxonomy() {
		if !d.Grantable {
			names = append(names, d.Name)
		}
	}
	return append(names, unknownName)
}

// namedSpace is the domain of these calls.
func namedSpace() *space {
	dims := []dimension{
		{"tool.read_only", hintValues},
		{"tool.destructive", hintValues},
		{"grant.base", []string{"of everything else", "of nothing else"}},
		{"taint", []string{"clean", "tainted"}},
		{member: "tool.origin"},
		{member: "grant.base"},
	}
	dims[4].values = append([]string{notGiven}, originNames()...)
	for _, name := range namesThatGrantNothing() {
		dims[5].values = append(dims[5].values, fmt.Sprintf("with %q, which grants nothing", name))
	}
	return newSpace(dims)
}

// namedCalls are these calls, in the order of namedSpace.
func namedCalls() []*capability.Call {
	var calls []*capability.Call
	for hints := range 9 {
		for _, base := range []capability.Set{capability.All, 0} {
			for _, taint := range []capability.Taint{capability.Clean, capability.Tainted} {
				for _, origin := range originChoices() {
					for _, name := range namesThatGrantNothing() {
						c := &capability.Call{Tool: "tool", Taint: taint, Grant: capability.Grant{Base: base, Unknown: []string{name}},
							Profile: capability.Profile{ReadOnly: capability.Hint(hints / 3), Destructive: capability.Hint(hints % 3)}}
						origin.give(c)
						calls = append(calls, c)
					}
				}
			}
		}
	}
	return calls
}

// compareNamed finds those of these calls that are answered differently.
func (d *differ) compareNamed(ctx context.Context) error {
	calls, space := namedCalls(), namedSpace()
	type pair struct{ before, after answered }
	pairs := make([]pair, len(calls))
	err := inParallel(ctx, len(calls), nil, func(i int) {
		c := calls[i]
		before, beforeErr := d.before.Decide(ctx, c)
		after, afterErr := d.after.Decide(ctx, c)
		pairs[i] = pair{answered{c, before, beforeErr}, answered{c, after, afterErr}}
	})
	if err != nil {
		return err
	}
	d.result.Named = len(calls)
	changed := map[change]*region{}
	for i, p := range pairs {
		if ch, differs := compareOutcomes(calls[i], p.before.outcome, p.before.err, p.after.outcome, p.after.err); differs {
			changedRegion(changed, ch, space).set(i)
		}
	}
	for ch, r := range changed {
		for _, c := range r.cubes() {
			out := Change{Kind: "call", Direction: ch.direction, From: ch.from, To: ch.to, Inputs: c.size(), Conditions: c.conditions()}
			c.each(func(i int) bool {
				if doc := callDocument(calls[i], false); out.Example == nil || smaller(doc, out.Example) {
					p := &pairs[i]
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
