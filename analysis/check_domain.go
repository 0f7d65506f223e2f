package analysis

import (
	"bytes"
	"encoding/json"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/skill"
)

// callKinds is how many calls there are but for their texts: origins,
// three annotations of three values each, bases, taints, veto, the two ways to
// ask for a person, transforms.
const callKinds = 9 * 27 * 32 * 2 * 2 * 2 * 2 * 3

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
	c.Profile.Origin = capability.Origins()[digit(9)]
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
	c.Grant.Base = capability.All.Minus(capability.Set(digit(32)))
	return c
}

// wireCall returns the wire document of a call. Short leaves out what means
// the same when it is not there; otherwise the document has every member that the
// evaluator shows to policies, which can tell the two apart.
func wireCall(c *capability.Call, short bool) []byte {
	hint := func(h capability.Hint) any {
		if h == capability.Unset {
			return nil
		}
		return h == capability.Yes
	}
	p := &c.Policy
	document := wireObject{{"tool", wireObject{
		{"name", c.Tool}, {"origin", c.Profile.Origin.String()}, {"read_only", hint(c.Profile.ReadOnly)},
		{"destructive", hint(c.Profile.Destructive)}, {"open_world", hint(c.Profile.OpenWorld)},
	}}}
	if !short || c.Grant.Base != capability.All || len(c.Grant.Unknown) > 0 {
		document = append(document, wireMember{"grant", wireObject{{"base", append(append([]string{}, c.Grant.Base.CoverageNames()...), c.Grant.Unknown...)}}})
	}
	document = append(document, wireMember{"taint", c.Taint.String()})
	verdict := wireObject{{"veto", nil}, {"requires_human", nil}, {"sandbox_escalation", nil}, {"transform", nil}}
	if p.Vetoed {
		verdict[0].value = p.Veto
	}
	if p.RequiresHuman || !short {
		verdict[1].value = p.RequiresHuman
	}
	if p.SandboxEscalation || !short {
		verdict[2].value = p.SandboxEscalation
	}
	switch t := p.Transform; t.Kind {
	case capability.Rewrite:
		verdict[3].value = wireObject{{"kind", t.Kind.String()}, {"arguments", t.Arguments}}
	case capability.InjectContext:
		verdict[3].value = wireObject{{"kind", t.Kind.String()}, {"note", t.Note}}
	}
	if !short || p.Vetoed || p.RequiresHuman || p.SandboxEscalation || p.Transform.Kind != capability.NoTransform {
		document = append(document, wireMember{"policy", verdict})
	}
	return mustJSON(document)
}

// A wireObject is a JSON object whose members keep their order; one without a value is
// left out.
type wireObject []wireMember

type wireMember struct {
	name  string
	value any
}

// MarshalJSON implements json.Marshaler.
func (o wireObject) MarshalJSON() ([]byte, error) {
	text := []byte{'{'}
	for _, m := range o {
		if m.value == nil {
			continue
		}
		if len(text) > 1 {
			text = append(text, ',')
		}
		text = append(append(append(text, mustJSON(m.name)...), ':'), mustJSON(m.value)...)
	}
	return append(text, '}'), nil
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

// wireSkill returns the wire document of a skill, with every member that the
// evaluator shows to policies.
func wireSkill(r *skill.Request) []byte {
	p := &r.Provenance
	document := wireObject{
		{"skill", r.Skill}, {"requested", r.Requested.String()},
		{"provenance", wireObject{
			{"signed", p.Signed}, {"signer_trusted", p.SignerTrusted}, {"scanned", p.Scanned},
			{"vulnerabilities", p.Vulnerabilities}, {"success_count", p.SuccessCount}, {"fail_count", p.FailCount},
			{"source", p.Source.String()},
		}},
	}
	if r.Approval != skill.NoVerdict {
		document = append(document, wireMember{"approval", r.Approval.String()})
	}
	return mustJSON(document)
}

// mustJSON writes a value that this package made, on one line and with nothing
// escaped for HTML.
func mustJSON(v any) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err)
	}
	return bytes.TrimRight(buf.Bytes(), "\n")
}
