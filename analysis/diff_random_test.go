package analysis

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/opa-gate/opa-gate/capability"
)

// A minimalRule is one branch of a small policy, in Rego and in Go.
type minimalRule struct {
	conditions []minimalCondition
	answer     minimalAnswer
}

type minimalCondition struct {
	rego  string
	holds func(c *capability.Call) bool
}

type minimalAnswer struct {
	rego string
	give func(c *capability.Call) capability.Outcome
}

// A condition on a member that a document leaves out is undefined, and fails.
var minimalConditions = []minimalCondition{
	{`input.taint == "tainted"`, func(c *capability.Call) bool { return c.Taint == capability.Tainted }},
	{`input.tool.origin == "fetcher"`, func(c *capability.Call) bool { return c.Profile.Origin == capability.Fetcher }},
	{`input.tool.origin in {"unknown", "admin-grant"}`, func(c *capability.Call) bool {
		return !c.LeftOut.Has(capability.OriginMember) && (c.Profile.Origin == capability.Unknown || c.Profile.Origin == capability.AdminGrant)
	}},
	{`input.tool.read_only == true`, func(c *capability.Call) bool { return c.Profile.ReadOnly == capability.Yes }},
	{`input.tool.destructive == false`, func(c *capability.Call) bool { return c.Profile.Destructive == capability.No }},
	{`input.tool.open_world`, func(c *capability.Call) bool { return c.Profile.OpenWorld == capability.Yes }},
	{`is_string(input.policy.veto)`, func(c *capability.Call) bool { return c.Policy.Vetoed }},
	{`input.policy.requires_human`, func(c *capability.Call) bool { return c.Policy.RequiresHuman }},
	{`not input.policy.sandbox_escalation`, func(c *capability.Call) bool { return !c.Policy.SandboxEscalation }},
	{`input.policy.transform.kind == "rewrite"`, func(c *capability.Call) bool { return c.Policy.Transform.Kind == capability.Rewrite }},
	{`not input.tool.origin`, func(c *capability.Call) bool { return c.LeftOut.Has(capability.OriginMember) }},
	{`"local-read" in input.grant.base`, func(c *capability.Call) bool {
		return !c.LeftOut.Has(capability.GrantMember) && c.Grant.Base&1 != 0
	}},
	{`count(input.grant.base) > 2`, func(c *capability.Call) bool {
		return !c.LeftOut.Has(capability.GrantMember) && len(c.Grant.Base.CoverageNames()) > 2
	}},
	{`not input.grant`, func(c *capability.Call) bool { return c.LeftOut.Has(capability.GrantMember) }},
	{`input.tool.name == "a"`, func(c *capability.Call) bool { return c.Tool == "a" }},
	{`input.tool.name in {"a", "b"}`, func(c *capability.Call) bool { return c.Tool == "a" || c.Tool == "b" }},
	{`input.policy.veto == "x"`, func(c *capability.Call) bool { return c.Policy.Vetoed && c.Policy.Veto == "x" }},
	{`input.policy.transform.note == "n"`, func(c *capability.Call) bool {
		return c.Policy.Transform.Kind == capability.InjectContext && c.Policy.Transform.Note == "n"
	}},
}

var minimalAnswers = []minimalAnswer{
	{"ok", func(*capability.Call) capability.Outcome { return capability.Outcome{Kind: capability.Allow} }},
	{`object.union(ok, {"outcome": "escalate", "reason": "ask"})`, func(*capability.Call) capability.Outcome {
		return capability.Outcome{Kind: capability.Escalate, Reason: "ask"}
	}},
	{`object.union(ok, {"outcome": "escalate", "missing": ["local-read"], "missing_mask": 1, "required": ["local-read"], "required_mask": 1})`,
		func(*capability.Call) capability.Outcome {
			return capability.Outcome{Kind: capability.Escalate, Missing: 1, Required: 1}
		}},
	{`object.union(ok, {"outcome": "escalate", "missing": ["local-read", "local-write"], "missing_mask": 3, "required": ["local-read", "local-write"], "required_mask": 3})`,
		func(*capability.Call) capability.Outcome {
			return capability.Outcome{Kind: capability.Escalate, Missing: 3, Required: 3}
		}},
	{`object.union(ok, {"outcome": "deny", "reason": "a"})`, func(*capability.Call) capability.Outcome {
		return capability.Outcome{Kind: capability.Deny, Reason: "a"}
	}},
	{`object.union(ok, {"outcome": "deny", "reason": input.tool.name})`, func(c *capability.Call) capability.Outcome {
		return capability.Outcome{Kind: capability.Deny, Reason: c.Tool}
	}},
	{`object.union(ok, {"outcome": "deny", "reason": concat(": ", [input.tool.name, "no"])})`, func(c *capability.Call) capability.Outcome {
		return capability.Outcome{Kind: capability.Deny, Reason: c.Tool + ": no"}
	}},
	{`object.union(ok, {"outcome": "modify", "arguments": {"k": 1}})`, func(*capability.Call) capability.Outcome {
		return capability.Outcome{Kind: capability.Modify, Arguments: json.RawMessage(`{"k":1}`)}
	}},
	{`object.union(ok, {"outcome": "inject_context", "note": "mind"})`, func(*capability.Call) capability.Outcome {
		return capability.Outcome{Kind: capability.Inject, Note: "mind"}
	}},
}

// A minimalPolicy is tried branch by branch. A call that none answers has no
// answer.
type minimalPolicy []minimalRule

func (p minimalPolicy) rego() string {
	var b strings.Builder
	b.WriteString("decision := ")
	for i, rule := range p {
		if i > 0 {
			b.WriteString(" else := ")
		}
		b.WriteString(rule.answer.rego + " if {\n\tinput.tool\n")
		for _, c := range rule.conditions {
			b.WriteString("\t" + c.rego + "\n")
		}
		b.WriteString("}")
	}
	return b.String() + "\n"
}

var errNoBranch = fmt.Errorf("no branch answers")

func (p minimalPolicy) ask(c *capability.Call) answered {
	for _, rule := range p {
		if !slices.ContainsFunc(rule.conditions, func(m minimalCondition) bool { return !m.holds(c) }) {
			return answered{c, rule.answer.give(c), nil}
		}
	}
	return answered{c, capability.Outcome{}, errNoBranch}
}

// randomPolicy has an answer to every call if it is total.
func randomPolicy(random *rand.Rand, total bool) minimalPolicy {
	var p minimalPolicy
	for range 2 + random.IntN(3) {
		rule := minimalRule{answer: minimalAnswers[random.IntN(len(minimalAnswers))]}
		for range 1 + random.IntN(3) {
			rule.conditions = append(rule.conditions, minimalConditions[random.IntN(len(minimalConditions))])
		}
		p = append(p, rule)
	}
	if total || random.IntN(3) > 0 {
		p = append(p, minimalRule{answer: minimalAnswers[random.IntN(len(minimalAnswers))]})
	}
	return p
}

// mutated is a policy with one thing changed.
func mutated(random *rand.Rand, p minimalPolicy) minimalPolicy {
	q := slices.Clone(p)
	i := random.IntN(len(q))
	last := len(p[len(p)-1].conditions) == 0 && i == len(p)-1
	rule := minimalRule{slices.Clone(q[i].conditions), q[i].answer}
	switch n := len(rule.conditions); {
	case last || random.IntN(4) == 0: // a last branch stays one
		rule.answer = minimalAnswers[random.IntN(len(minimalAnswers))]
	case random.IntN(3) == 0:
		rule.conditions = append(rule.conditions, minimalConditions[random.IntN(len(minimalConditions))])
	case random.IntN(2) == 0:
		if n > 0 {
			rule.conditions[random.IntN(n)] = minimalConditions[random.IntN(len(minimalConditions))]
		}
	default:
		if n > 0 {
			rule.conditions = rule.conditions[:n-1]
		}
	}
	q[i] = rule
	return q
}
