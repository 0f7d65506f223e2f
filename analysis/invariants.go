package analysis

import (
	"fmt"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/skill"
)

// answered is a call with what the policies answer to it. The error is that of
// the engine: they have no answer.
type answered struct {
	call    *capability.Call
	outcome capability.Outcome
	err     error
}

// runs reports whether the call is made without a person.
func (a *answered) runs() bool {
	switch a.outcome.Kind {
	case capability.Allow, capability.Modify, capability.Inject:
		return a.err == nil
	}
	return false
}

// A callInvariant is what no answer to a call may break. Broken returns what is
// wrong with a, and the call that it was held against, if there is one.
type callInvariant struct {
	name, title string
	broken      func(a *answered, ask func(*capability.Call) answered) (problem string, against *answered)
}

// callInvariants are those of the specification, sections 2 to 5. That an
// answer is one decision, and its masks agree, the evaluator sees to: the first
// one reports what it refuses.
var callInvariants = []callInvariant{
	{"answered", "Every call has an answer, and one alone.",
		func(a *answered, _ func(*capability.Call) answered) (string, *answered) {
			if a.err != nil {
				return a.err.Error(), nil
			}
			return "", nil
		}},
	{"veto-first", "A veto denies with its own text, whatever else holds.",
		func(a *answered, _ func(*capability.Call) answered) (string, *answered) {
			if a.call.Policy.Vetoed && a.err == nil && (a.outcome.Kind != capability.Deny || a.outcome.Reason != a.call.Policy.Veto) {
				return fmt.Sprintf("a veto is answered with %v and the reason %q", a.outcome.Kind, a.outcome.Reason), nil
			}
			return "", nil
		}},
	{"missing-never-allowed", "What is required and not granted is never allowed.",
		func(a *answered, _ func(*capability.Call) answered) (string, *answered) {
			if lacking := a.outcome.Required.Minus(a.outcome.Granted); a.runs() && !lacking.Empty() {
				return fmt.Sprintf("%v is allowed without %v", a.outcome.Kind, lacking), nil
			}
			return "", nil
		}},
	{"markers-escalate", "What nobody can be granted beforehand always asks a person.",
		func(a *answered, _ func(*capability.Call) answered) (string, *answered) {
			required := a.call.Profile.Required()
			if a.runs() && !required.Intersect(capability.Markers).Empty() {
				return fmt.Sprintf("a tool of origin %v is answered with %v", a.call.Profile.Origin, a.outcome.Kind), nil
			}
			return "", nil
		}},
	{"no-origin-is-unknown", "A call whose tool has no origin goes ahead only where one of unknown origin does.",
		func(a *answered, ask func(*capability.Call) answered) (string, *answered) {
			if !a.call.LeftOut.Has(capability.OriginMember) || !a.runs() {
				return "", nil
			}
			stated := *a.call
			stated.LeftOut &^= capability.OriginMember
			unknown := ask(&stated)
			if !unknown.runs() {
				return fmt.Sprintf("%v for a tool without an origin, and for one of unknown origin %s", a.outcome.Kind, kindOf(&unknown)), &unknown
			}
			return "", nil
		}},
	{"person-asked", "A verdict that asks for a person gets one.",
		func(a *answered, _ func(*capability.Call) answered) (string, *answered) {
			if p := &a.call.Policy; a.runs() && (p.RequiresHuman || p.SandboxEscalation) {
				return fmt.Sprintf("the verdict asks for a person, and the answer is %v", a.outcome.Kind), nil
			}
			return "", nil
		}},
	{"grant-is-a-ceiling", "Nothing is granted beyond the operator's policy.",
		func(a *answered, _ func(*capability.Call) answered) (string, *answered) {
			if more := a.outcome.Granted.Minus(a.call.Grant.Base); a.err == nil && !more.Empty() {
				return fmt.Sprintf("%v is granted, which the operator's policy does not have", more), nil
			}
			return "", nil
		}},
	{"taint-never-adds", "Outside content never adds to what is granted or allowed.",
		func(a *answered, ask func(*capability.Call) answered) (string, *answered) {
			if a.call.Taint != capability.Tainted || a.err != nil {
				return "", nil
			}
			clean := *a.call
			clean.Taint = capability.Clean
			before := ask(&clean)
			switch more := a.outcome.Granted.Minus(before.outcome.Granted); {
			case before.err == nil && !more.Empty():
				return fmt.Sprintf("%v is granted only once outside content is in the conversation", more), &before
			case a.runs() && !before.runs():
				return fmt.Sprintf("%v once outside content is in the conversation, and before that %s", a.outcome.Kind, kindOf(&before)), &before
			}
			return "", nil
		}},
	{"transform-needs-allow", "Arguments are rewritten and notes added only where the call would be allowed as it is.",
		func(a *answered, ask func(*capability.Call) answered) (string, *answered) {
			if a.outcome.Kind != capability.Modify && a.outcome.Kind != capability.Inject {
				return "", nil
			}
			plain := *a.call
			plain.Policy.Transform = capability.Transform{}
			before := ask(&plain)
			if !before.runs() {
				return fmt.Sprintf("%v, and without the transform %s", a.outcome.Kind, kindOf(&before)), &before
			}
			return "", nil
		}},
}

// redeclaration is checked over pairs of profiles rather than call by call.
const (
	redeclarationName  = "redeclaration-never-narrows"
	redeclarationTitle = "A tool that is declared anew requires no less than before."
)

func kindOf(a *answered) string {
	if a.err != nil {
		return "no answer"
	}
	return a.outcome.Kind.String()
}

// A skillInvariant is what no answer to a skill may break.
type skillInvariant struct {
	name, title string
	broken      func(r *skill.Request, a skill.Answer, err error) string
}

// skillInvariants are those of the specification, section 6.
var skillInvariants = []skillInvariant{
	{"skill-answered", "Every skill has an answer, and one alone.",
		func(_ *skill.Request, _ skill.Answer, err error) string {
			if err != nil {
				return err.Error()
			}
			return ""
		}},
	{"trust-is-a-ceiling", "No skill is granted more than its trust allows, or than was requested.",
		func(r *skill.Request, a skill.Answer, err error) string {
			switch {
			case err != nil:
				return ""
			case a.Granted > a.Trust.Ceiling():
				return fmt.Sprintf("%v is granted at trust %v", a.Granted, a.Trust)
			case a.Granted > r.Requested:
				return fmt.Sprintf("%v is granted, and %v was requested", a.Granted, r.Requested)
			}
			return ""
		}},
	{"no-deploy-unasked", "A skill that is denied is deployed only if a person approved it.",
		func(r *skill.Request, a skill.Answer, err error) string {
			if err == nil && a.Outcome == skill.Deny && a.Enforcement.Deploy && r.Approval != skill.Approved {
				return "it is denied, nobody approved it, and it is deployed"
			}
			return ""
		}},
}

// partners returns the kinds whose answers the invariants hold against that of
// kind n.
func partners(n int) []int {
	c := evaluator.CellCall(n)
	var kinds []int
	if c.Taint == capability.Tainted {
		clean := *c
		clean.Taint = capability.Clean
		kinds = append(kinds, cellOf(&clean))
	}
	if c.Policy.Transform.Kind != capability.NoTransform {
		plain := *c
		plain.Policy.Transform = capability.Transform{}
		kinds = append(kinds, cellOf(&plain))
	}
	if c.LeftOut.Has(capability.OriginMember) {
		stated := *c
		stated.LeftOut &^= capability.OriginMember
		kinds = append(kinds, cellOf(&stated))
	}
	return kinds
}

// cellOf is evaluator.CellOf for calls that have a kind.
func cellOf(c *capability.Call) int {
	n, ok := evaluator.CellOf(c)
	if !ok {
		panic("a call of no kind")
	}
	return n
}
