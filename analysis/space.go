package analysis

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/skill"
)

// A callSpace is the domain of calls as members that each have a few values:
// those of evaluator.CellCall, and the texts that the policies tell apart.
type callSpace struct {
	*space
	survey *evaluator.Survey // for its texts
}

// The dimensions of a callSpace, in the order in which conditions widen: what a
// reader least needs to be told comes first.
const (
	dimOpenWorld = iota
	dimNote      // none, rewrite, and a note: one that is unknown, or one of the known
	dimSandbox
	dimHuman
	dimVeto // none, one that is unknown, or one of the known
	dimBase // one for each grantable capability
)

const (
	dimGrant = iota + dimBase + 5
	dimReadOnly
	dimDestructive
	dimTaint
	dimOrigin
	dimTool // one that is unknown, or one of the known
	dimCount
)

var hintValues = []string{notGiven, "no", "yes"}

// An originChoice is an origin that a document states, or none.
type originChoice struct {
	origin  capability.Origin
	leftOut capability.Members
}

// originChoices are none, and the origins.
func originChoices() []originChoice {
	choices := []originChoice{{capability.Unknown, capability.OriginMember}}
	for _, o := range capability.Origins() {
		choices = append(choices, originChoice{origin: o})
	}
	return choices
}

// give makes it the origin of a call.
func (o originChoice) give(c *capability.Call) {
	c.Profile.Origin, c.LeftOut = o.origin, c.LeftOut&^capability.OriginMember|o.leftOut
}

// grantable are the capabilities that a base can have.
var grantable = func() []capability.Definition {
	var list []capability.Definition
	for _, d := range capability.Taxonomy() {
		if d.Grantable {
			list = append(list, d)
		}
	}
	return list
}()

func newCallSpace(s *evaluator.Survey) *callSpace {
	known := func(values, texts []string, other, format string) []string {
		if len(texts) == 0 {
			return append(values, other)
		}
		quoted := make([]string, len(texts))
		for i, text := range texts {
			quoted[i] = strconv.Quote(text)
		}
		values = append(values, fmt.Sprintf(format, "other than "+strings.Join(quoted, " and ")))
		for _, q := range quoted {
			values = append(values, fmt.Sprintf(format, q))
		}
		return values
	}
	dims := make([]dimension, dimCount)
	dims[dimOpenWorld] = dimension{"tool.open_world", hintValues}
	dims[dimNote] = dimension{"policy.transform.kind", known([]string{"none", "rewrite"}, s.Notes, "inject_context", "an injected note %s")}
	dims[dimSandbox] = dimension{"policy.sandbox_escalation", []string{"no", "yes"}}
	dims[dimHuman] = dimension{"policy.requires_human", []string{"no", "yes"}}
	dims[dimVeto] = dimension{"policy.veto", known([]string{notGiven}, s.Vetoes, "given", "%s")}
	dims[dimGrant] = dimension{"grant", []string{"stated", notGiven}}
	for i, d := range grantable {
		dims[dimBase+i] = dimension{"grant.base", []string{"without " + d.Name, "with " + d.Name}}
	}
	dims[dimReadOnly] = dimension{"tool.read_only", hintValues}
	dims[dimDestructive] = dimension{"tool.destructive", hintValues}
	dims[dimTaint] = dimension{"taint", []string{"clean", "tainted"}}
	dims[dimOrigin] = dimension{"tool.origin", []string{notGiven}}
	dims[dimOrigin].values = append(dims[dimOrigin].values, originNames()...)
	dims[dimTool] = dimension{"tool.name", known(nil, s.Tools, "any", "%s")}
	space := &callSpace{newSpace(dims), s}
	stride := 1
	for _, d := range dims[dimGrant+1:] {
		stride *= len(d.values)
	}
	space.free = func(n int) bool {
		grant := n / stride % 64 // six dimensions of two values
		return grant&1 == 1 && grant != 63
	}
	space.weigh = space.calls
	return space
}

// calls is how many calls a cube has. A grant that is not given stands for one base:
// its calls are where everything is granted, and its points with another base are
// free, so that rows need not tell it from others where the answers are alike.
func (s *callSpace) calls(c *cube) int {
	bases, everything := 1, true
	for i := range grantable {
		values := c.values[dimBase+i]
		bases *= len(values)
		everything = everything && slices.Contains(values, 1)
	}
	grants := 0
	for _, given := range c.values[dimGrant] {
		switch {
		case given == 0:
			grants += bases
		case everything:
			grants++
		}
	}
	return c.size() / bases / len(c.values[dimGrant]) * grants
}

// conditions are those of a cube. Where no grant is given, none has a base.
func (s *callSpace) conditions(c *cube) []Condition {
	conditions := c.conditions()
	if !slices.Contains(c.values[dimGrant], 0) {
		conditions = slices.DeleteFunc(conditions, func(c Condition) bool { return c.Member == "grant.base" })
	}
	return conditions
}

// all is how many calls there are.
func (s *callSpace) all() int {
	bases := 1 << len(grantable)
	return s.size / (2 * bases) * (bases + 1)
}

// point returns where a call of kind n is whose texts are the given ones of
// those that the survey knows, 0 being one that it does not.
func (s *callSpace) point(c *capability.Call, tool, veto, note int) []int {
	at := make([]int, dimCount)
	at[dimOpenWorld], at[dimReadOnly], at[dimDestructive] = int(c.Profile.OpenWorld), int(c.Profile.ReadOnly), int(c.Profile.Destructive)
	at[dimTaint] = int(c.Taint - capability.Clean)
	if !c.LeftOut.Has(capability.OriginMember) {
		at[dimOrigin] = 1 + int(c.Profile.Origin)
	}
	if c.LeftOut.Has(capability.GrantMember) {
		at[dimGrant] = 1
	}
	if c.Policy.SandboxEscalation {
		at[dimSandbox] = 1
	}
	if c.Policy.RequiresHuman {
		at[dimHuman] = 1
	}
	if c.Policy.Vetoed {
		at[dimVeto] = 1 + veto
	}
	at[dimNote] = int(c.Policy.Transform.Kind)
	if c.Policy.Transform.Kind == capability.InjectContext {
		at[dimNote] += note
	}
	for i, d := range grantable {
		if c.Grant.Base.Has(d.Capability) {
			at[dimBase+i] = 1
		}
	}
	at[dimTool] = tool
	return at
}

// each calls visit for the points of the calls of kind n: i counts the calls of
// Survey.CallsAmong. With exact there is one call, which stands for all texts.
func (s *callSpace) each(n int, exact bool, visit func(i, point int)) {
	c := evaluator.CellCall(n)
	vetoes, notes := 1, 1
	if c.Policy.Vetoed {
		vetoes += len(s.survey.Vetoes)
	}
	if c.Policy.Transform.Kind == capability.InjectContext {
		notes += len(s.survey.Notes)
	}
	i := 0
	for tool := range 1 + len(s.survey.Tools) {
		for veto := range vetoes {
			for note := range notes {
				visit(i, s.number(s.point(c, tool, veto, note)))
				if !exact {
					i++
				}
			}
		}
	}
}

// example returns the call with the shortest document in a cube: where it can, one
// without a grant.
func (s *callSpace) example(c *cube) *capability.Call {
	if notGiven := c.with(dimGrant, 1); slices.Contains(c.values[dimGrant], 1) && s.calls(notGiven) > 0 {
		c = notGiven
		for i := range grantable {
			c = c.with(dimBase+i, 1)
		}
	}
	build := func(base int) *capability.Call {
		at := make([]int, dimCount)
		for i, values := range c.values {
			at[i] = values[0]
			if i >= dimBase && i < dimBase+len(grantable) && len(values) > 1 {
				at[i] = base
			}
		}
		return s.call(at)
	}
	all, none := build(1), build(0)
	if len(callDocument(none, false)) < len(callDocument(all, false)) {
		return none
	}
	return all
}

// call returns the call at a point.
func (s *callSpace) call(at []int) *capability.Call {
	c := &capability.Call{Taint: capability.Clean + capability.Taint(at[dimTaint]), Profile: capability.Profile{
		Origin: capability.Origin(max(at[dimOrigin]-1, 0)), ReadOnly: capability.Hint(at[dimReadOnly]),
		Destructive: capability.Hint(at[dimDestructive]), OpenWorld: capability.Hint(at[dimOpenWorld])}}
	for i, d := range grantable {
		if at[dimBase+i] == 1 {
			c.Grant.Base |= capability.Set(d.Capability)
		}
	}
	if at[dimOrigin] == 0 {
		c.LeftOut |= capability.OriginMember
	}
	if at[dimGrant] == 1 {
		c.LeftOut |= capability.GrantMember
	}
	c.Policy.Vetoed = at[dimVeto] > 0
	c.Policy.RequiresHuman, c.Policy.SandboxEscalation = at[dimHuman] == 1, at[dimSandbox] == 1
	c.Policy.Transform.Kind = capability.TransformKind(min(at[dimNote], int(capability.InjectContext)))
	veto, note := at[dimVeto]-1, at[dimNote]-int(capability.InjectContext)
	return s.survey.WithTexts(c, at[dimTool], max(veto, 0), max(note, 0))
}

// newSkillSpace is the domain of skills, in the order of skillRequests.
func newSkillSpace() *space {
	flag := []string{"no", "yes"}
	counts := make([]string, len(counters))
	for i, c := range counters {
		counts[i] = fmt.Sprintf("%d after %d successes", c[1], c[0])
	}
	sources := []string{}
	for s := skill.UnknownSource; validSource(s); s++ {
		sources = append(sources, s.String())
	}
	return newSpace([]dimension{
		{"requested", []string{"read_only", "sandbox_edit", "full_access"}},
		{"approval", []string{notGiven, "approved", "rejected"}},
		{"provenance.source", sources},
		{"provenance.scanned", flag}, {"provenance.signer_trusted", flag}, {"provenance.signed", flag},
		{"provenance.vulnerabilities", []string{"0", "1", "18446744073709551615"}},
		{"provenance.fail_count", counts},
	})
}
