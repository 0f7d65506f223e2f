package analysis

import (
	"bytes"
	"encoding/json"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/skill"
)

// An explainObject writes a JSON object with its members in the order in which
// they are added.
type explainObject struct{ bytes.Buffer }

func (o *explainObject) add(name string, value any) {
	if o.Len() > 0 {
		o.WriteString(", ")
	}
	o.Write(explainEncode(name))
	o.WriteString(": ")
	o.Write(explainEncode(value))
}

func (o *explainObject) raw() json.RawMessage { return json.RawMessage("{" + o.String() + "}") }

// explainEncode writes names, texts, flags, counts and lists of names, which
// have a JSON form always; raw JSON stays as it is.
func explainEncode(v any) []byte {
	if raw, ok := v.(json.RawMessage); ok {
		return raw
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v)
	return bytes.TrimSpace(buf.Bytes())
}

// explainCallDocument writes a call as a wire document that says no more than
// it must.
func explainCallDocument(c *capability.Call) json.RawMessage {
	var tool, policy, doc explainObject
	tool.add("name", c.Tool)
	if c.Profile.Origin != capability.Unknown {
		tool.add("origin", c.Profile.Origin.String())
	}
	for _, hint := range []struct {
		name string
		is   capability.Hint
	}{{"read_only", c.Profile.ReadOnly}, {"destructive", c.Profile.Destructive}, {"open_world", c.Profile.OpenWorld}} {
		if hint.is != capability.Unset {
			tool.add(hint.name, hint.is == capability.Yes)
		}
	}
	doc.add("tool", tool.raw())
	if c.Grant.Base != capability.All || len(c.Grant.Unknown) > 0 {
		var grant explainObject
		names := append(c.Grant.Base.CoverageNames(), c.Grant.Unknown...)
		if names == nil {
			names = []string{}
		}
		grant.add("base", names)
		doc.add("grant", grant.raw())
	}
	doc.add("taint", c.Taint.String())
	if p := &c.Policy; p.Vetoed {
		policy.add("veto", p.Veto)
	}
	if c.Policy.RequiresHuman {
		policy.add("requires_human", true)
	}
	if c.Policy.SandboxEscalation {
		policy.add("sandbox_escalation", true)
	}
	if t := &c.Policy.Transform; t.Kind != capability.NoTransform {
		var transform explainObject
		transform.add("kind", t.Kind.String())
		if t.Kind == capability.Rewrite {
			transform.add("arguments", t.Arguments)
		} else {
			transform.add("note", t.Note)
		}
		policy.add("transform", transform.raw())
	}
	if policy.Len() > 0 {
		doc.add("policy", policy.raw())
	}
	return doc.raw()
}

// explainSkillDocument writes a request as a wire document that says no more
// than it must.
func explainSkillDocument(q *skill.Request) json.RawMessage {
	var provenance, doc explainObject
	doc.add("skill", q.Skill)
	doc.add("requested", q.Requested.String())
	p := &q.Provenance
	for _, flag := range []struct {
		name string
		is   bool
	}{{"signed", p.Signed}, {"signer_trusted", p.SignerTrusted}, {"scanned", p.Scanned}} {
		if flag.is {
			provenance.add(flag.name, true)
		}
	}
	for _, count := range []struct {
		name string
		n    uint64
	}{{"vulnerabilities", p.Vulnerabilities}, {"success_count", p.SuccessCount}, {"fail_count", p.FailCount}} {
		if count.n > 0 {
			provenance.add(count.name, count.n)
		}
	}
	if p.Source != skill.UnknownSource {
		provenance.add("source", p.Source.String())
	}
	if provenance.Len() > 0 {
		doc.add("provenance", provenance.raw())
	}
	if q.Approval != skill.NoVerdict {
		doc.add("approval", q.Approval.String())
	}
	return doc.raw()
}
