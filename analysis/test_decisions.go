package analysis

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/wire"
)

// TestedDecisions tells which decisions on calls tests ask for. Calls are
// told apart by class: what matters to the answer, and few enough to read.
type TestedDecisions struct {
	Percent float64         `json:"percent"` // of the classes
	Touched int             `json:"touched"` // classes with a call that a test asks data.gate.call.decision about
	Total   int             `json:"total"`
	Calls   int             `json:"calls"`      // different calls that tests ask about
	Parts   int             `json:"parts_only"` // calls that tests show to other rules only; they touch no class
	Classes []DecisionClass `json:"classes"`
}

// A DecisionClass is the calls of one origin, under one taint, with one verdict of
// the hook, that get one answer.
type DecisionClass struct {
	Origin  string          `json:"origin"`
	Taint   string          `json:"taint"`
	Verdict string          `json:"verdict"` // veto, person, rewrite, inject_context or none: the first of them that is there
	Answer  string          `json:"answer"`  // the outcome; of an escalate also why
	Touched bool            `json:"touched"`
	Example json.RawMessage `json:"example"` // a call of it
}

// The answers that an escalate is told apart by.
const (
	escalateMissing = "escalate, something is missing"
	escalateAsked   = "escalate, a person is asked for"
)

// classOf returns the class of a call, without an example.
func classOf(c *capability.Call, o *capability.Outcome) DecisionClass {
	class := DecisionClass{Origin: c.Profile.Origin.String(), Taint: c.Taint.String(), Verdict: "none", Answer: o.Kind.String()}
	switch p := &c.Policy; {
	case p.Vetoed:
		class.Verdict = "veto"
	case p.RequiresHuman || p.SandboxEscalation:
		class.Verdict = "person"
	case p.Transform.Kind != capability.NoTransform:
		class.Verdict = p.Transform.Kind.String()
	}
	if o.Kind == capability.Escalate {
		class.Answer = escalateAsked
		if !o.Missing.Empty() {
			class.Answer = escalateMissing
		}
	}
	return class
}

// classGrid is the calls by whose answers the classes are found: each origin and
// taint with the annotations that can matter, bases of everything, of nothing and of
// all but one, and each verdict. An origin that is left out is looked at where the
// grant is too, and the full grant that is stated with a tool that says nothing of
// itself: policies for which they are something else show it there. The plainest
// come first, as examples.
func classGrid() []*capability.Call {
	grants := []capability.Set{capability.All, capability.All} // left out, and stated
	for missing := range capability.All.All() {
		grants = append(grants, capability.All.Minus(capability.SetOf(missing)))
	}
	grants = append(grants, 0)
	annotations := []capability.Profile{
		{}, {ReadOnly: capability.Yes}, {Destructive: capability.No},
		{ReadOnly: capability.Yes, Destructive: capability.Yes}, {OpenWorld: capability.No},
	}
	verdicts := []capability.CallPolicy{
		{}, {Vetoed: true, Veto: usualTexts.veto}, {RequiresHuman: true}, {SandboxEscalation: true},
		{Transform: capability.Transform{Kind: capability.Rewrite, Arguments: json.RawMessage(usualTexts.arguments)}},
		{Transform: capability.Transform{Kind: capability.InjectContext, Note: usualTexts.note}},
	}
	var calls []*capability.Call
	for i, base := range grants {
		leftOut := i == 0
		for _, profile := range annotations {
			if profile.OpenWorld != capability.Unset && !leftOut || profile != (capability.Profile{}) && base == capability.All && !leftOut {
				continue // it is the result that open_world speaks of: a policy that reads it at all shows so with no grant
			}
			for _, origin := range originChoices() {
				if origin.leftOut != 0 && !leftOut {
					continue
				}
				for _, taint := range []capability.Taint{capability.Clean, capability.Tainted} {
					for _, verdict := range verdicts {
						c := &capability.Call{Tool: usualTexts.tool, Profile: profile, Grant: capability.Grant{Base: base}, Taint: taint, Policy: verdict}
						if leftOut {
							c.LeftOut = capability.GrantMember
						}
						origin.give(c)
						calls = append(calls, c)
					}
				}
			}
		}
	}
	return calls
}

// decisions tells which classes of calls the tests ask about. What is no valid
// call document, such as one of its parts, is none. A call to which the policies
// have no answer is in no class: policy check finds it.
func (s *testSuite) decisions(ctx context.Context, seen *testTracer) (*TestedDecisions, error) {
	d := &TestedDecisions{}
	asked := map[string]*capability.Call{}
	parts := map[string]bool{}
	for input, decided := range seen.inputs {
		value, err := toJSON(input)
		if err != nil {
			continue
		}
		call, err := wire.ParseCall(value)
		if err != nil {
			continue
		}
		key := string(callDocument(call, false))
		if decided {
			asked[key] = call
		} else {
			parts[key] = true
		}
	}
	for key := range parts {
		if asked[key] == nil {
			d.Parts++
		}
	}
	d.Calls = len(asked)
	calls := classGrid()
	grid := len(calls)
	for _, call := range asked {
		calls = append(calls, call)
	}
	classes := make([]*DecisionClass, len(calls))
	engine := s.evaluator.Interpreter()
	err := inParallel(ctx, len(calls), nil, func(i int) {
		if o, err := engine.Decide(ctx, calls[i]); err == nil {
			class := classOf(calls[i], &o)
			classes[i] = &class
		}
	})
	if err != nil {
		return nil, err
	}
	index := map[string]int{}
	for i, class := range classes {
		if class == nil {
			continue
		}
		key := class.Origin + "\n" + class.Taint + "\n" + class.Verdict + "\n" + class.Answer
		at, there := index[key]
		if !there {
			at = len(d.Classes)
			index[key] = at
			class.Example = json.RawMessage(documentLine(callDocument(calls[i], false)))
			d.Classes = append(d.Classes, *class)
		}
		d.Classes[at].Touched = d.Classes[at].Touched || i >= grid
	}
	origins := capability.Origins()
	verdicts := []string{"none", "veto", "person", capability.Rewrite.String(), capability.InjectContext.String()}
	slices.SortStableFunc(d.Classes, func(a, b DecisionClass) int {
		x, _ := capability.ParseOrigin(a.Origin)
		y, _ := capability.ParseOrigin(b.Origin)
		return cmp.Or(cmp.Compare(slices.Index(origins, x), slices.Index(origins, y)),
			cmp.Compare(a.Taint, b.Taint), cmp.Compare(slices.Index(verdicts, a.Verdict), slices.Index(verdicts, b.Verdict)),
			cmp.Compare(a.Answer, b.Answer))
	})
	d.Total = len(d.Classes)
	for _, class := range d.Classes {
		if class.Touched {
			d.Touched++
		}
	}
	if d.Total > 0 {
		d.Percent = 100 * float64(d.Touched) / float64(d.Total)
	}
	return d, nil
}
