package analysis

import (
	"bytes"
	"encoding/json"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/skill"
)

// encode writes v as JSON on one line, with nothing escaped for HTML: documents
// are there to be pasted. What this package encodes always can be.
func encode(v any) json.RawMessage {
	text, err := marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

// marshal is encode for what others have put together.
func marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(buf.Bytes(), "\n"), nil
}

// answerOf returns an answer as a document, or {"error": TEXT}.
func answerOf(a json.Marshaler, err error) json.RawMessage {
	if err == nil {
		var text []byte
		if text, err = a.MarshalJSON(); err == nil {
			return text
		}
	}
	return encode(map[string]string{"error": err.Error()})
}

// A document writes a JSON object with its members in the order in which they are
// added.
type document struct{ bytes.Buffer }

func (d *document) add(name string, value any) {
	if d.Len() > 0 {
		d.WriteString(", ")
	}
	d.Write(encode(name))
	d.WriteString(": ")
	if raw, ok := value.(json.RawMessage); ok { // as it is, blanks too
		d.Write(raw)
		return
	}
	d.Write(encode(value))
}

func (d *document) raw() json.RawMessage { return json.RawMessage("{" + d.String() + "}") }

// callDocument writes a call as a wire document: whole, as the policies see it,
// with what the gate states of a verdict where a document leaves it out, as a test
// that asks OPA alone has to do; or with no more than it must say.
func callDocument(c *capability.Call, whole bool) json.RawMessage {
	var policy, doc document
	doc.add("tool", toolDocument(c))
	if !c.LeftOut.Has(capability.GrantMember) {
		var grant document
		grant.add("base", append(append([]string{}, c.Grant.Base.CoverageNames()...), c.Grant.Unknown...))
		doc.add("grant", grant.raw())
	}
	doc.add("taint", c.Taint.String())
	p := &c.Policy
	if p.Vetoed {
		policy.add("veto", p.Veto)
	}
	if whole || p.RequiresHuman {
		policy.add("requires_human", p.RequiresHuman)
	}
	if whole || p.SandboxEscalation {
		policy.add("sandbox_escalation", p.SandboxEscalation)
	}
	if t := &p.Transform; t.Kind != capability.NoTransform {
		var transform document
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

// skillDocument is callDocument for a skill.
func skillDocument(r *skill.Request, whole bool) json.RawMessage {
	var provenance, doc document
	doc.add("skill", r.Skill)
	doc.add("requested", r.Requested.String())
	p := &r.Provenance
	for _, flag := range []struct {
		name string
		is   bool
	}{{"signed", p.Signed}, {"signer_trusted", p.SignerTrusted}, {"scanned", p.Scanned}} {
		if whole || flag.is {
			provenance.add(flag.name, flag.is)
		}
	}
	for _, count := range []struct {
		name string
		n    uint64
	}{{"vulnerabilities", p.Vulnerabilities}, {"success_count", p.SuccessCount}, {"fail_count", p.FailCount}} {
		if whole || count.n > 0 {
			provenance.add(count.name, count.n)
		}
	}
	if whole || p.Source != skill.UnknownSource {
		provenance.add("source", p.Source.String())
	}
	if provenance.Len() > 0 {
		doc.add("provenance", provenance.raw())
	}
	if r.Approval != skill.NoVerdict {
		doc.add("approval", r.Approval.String())
	}
	return doc.raw()
}

// toolDocument writes the tool of a call.
func toolDocument(c *capability.Call) json.RawMessage {
	var tool document
	tool.add("name", c.Tool)
	if !c.LeftOut.Has(capability.OriginMember) {
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
	return tool.raw()
}
