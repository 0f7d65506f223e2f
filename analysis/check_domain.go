package analysis

import (
	"encoding/json"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/skill"
)

// callKinds is how many calls there are but for their texts: origins and none,
// three annotations of three values each, bases and none, taints, veto, the two
// ways to ask for a person, transforms.
const callKinds = 10 * 27 * 33 * 2 * 2 * 2 * 2 * 3

// A callTexts is what stands in the four places of a call that hold text.
type callTexts struct{ tool, veto, note, arguments string }

var usualTexts = callTexts{"some_tool", "not now", "mind the gap", `{"to":"a"}`}

// callOfKind returns call i of the domain; its coordinates are the digits of i.
func callOfKind(i int, texts callTexts) *capability.Call {
	digit := func(n int) int {
		d := i % n
		i /= n
		return d
	}
	c := &capability.Call{Tool: texts.tool}
	if origin := digit(10); origin < len(capability.Origins()) {
		c.Profile.Origin = capability.Origins()[origin]
	} else {
		c.LeftOut = capability.OriginMember
	}
	c.Taint = []capability.Taint{capability.Clean, capability.Tainted}[digit(2)]
	switch digit(3) {
	case 1:
		c.Policy.Transform = capability.Transform{Kind: capability.Rewrite, Arguments: json.RawMessage(texts.arguments)}
	case 2:
		c.Policy.Transform = capability.Transform{Kind: capability.InjectContext, Note: texts.note}
	}
	if digit(2) == 1 {
		c.Policy.Vetoed, c.Policy.Veto = true, texts.veto
	}
	c.Policy.RequiresHuman = digit(2) == 1
	c.Policy.SandboxEscalation = digit(2) == 1
	hints := []capability.Hint{capability.Unset, capability.No, capability.Yes}
	c.Profile.ReadOnly, c.Profile.Destructive, c.Profile.OpenWorld = hints[digit(3)], hints[digit(3)], hints[digit(3)]
	base := digit(33)
	c.Grant.Base = capability.All.Minus(capability.Set(base))
	if base > int(capability.All) {
		c.Grant.Base = capability.All
		c.LeftOut |= capability.GrantMember
	}
	return c
}

// skillKinds is how many skills are looked at: the flags, the sources, some
// vulnerabilities or none, three records, tiers and approvals.
const skillKinds = 2 * 2 * 2 * 4 * 2 * 3 * 3 * 3

// skillOfKind returns skill i; its coordinates are the digits of i.
func skillOfKind(i int) *skill.Request {
	digit := func(n int) int {
		d := i % n
		i /= n
		return d
	}
	r := &skill.Request{Skill: "some_skill", Requested: skill.ReadOnly + skill.Tier(digit(3)), Approval: skill.Verdict(digit(3))}
	p := &r.Provenance
	p.Signed, p.SignerTrusted, p.Scanned = digit(2) == 1, digit(2) == 1, digit(2) == 1
	p.Source, _ = skill.ParseSource([]string{"unknown", "official", "first_party", "community"}[digit(4)])
	p.Vulnerabilities = uint64(digit(2))
	p.FailCount = []uint64{0, 2, 3}[digit(3)]
	return r
}
