package wire

import (
	"encoding/json"
	"fmt"
	"math/big"
	"sync"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/policies"
	"github.com/opa-gate/opa-gate/skill"
)

const argumentsPointer = "/policy/transform/arguments"

var callSchema = sync.OnceValue(func() *Schema { return mustCompile("call.json") })
var skillSchema = sync.OnceValue(func() *Schema { return mustCompile("skill.json") })

// mustCompile panics on a schema that does not compile: the schemas are part
// of the program, and a test compiles them.
func mustCompile(name string) *Schema {
	text, err := policies.Schema(name)
	if err == nil {
		var s *Schema
		if s, err = CompileSchema(name, text); err == nil {
			return s
		}
	}
	panic(fmt.Sprintf("embedded schema %s: %v", name, err))
}

// ParseCall reads one call document (specification, section 7). Its errors are
// *[Error]. The call that it returns is valid in the sense of
// [capability.Call.Validate] and shares no memory with data.
func ParseCall(data []byte) (*capability.Call, error) {
	if c := readCall(data); c != nil {
		return c, nil
	}
	return decodeCall(data)
}

// decodeCall reads any call document, and words what is wrong with it.
func decodeCall(data []byte) (*capability.Call, error) {
	v, err := callSchema().decode(data, argumentsPointer)
	if err != nil {
		return nil, err
	}
	doc := object(v.root)
	tool, policy := object(doc["tool"]), object(doc["policy"])
	c := &capability.Call{
		Tool: text(tool["name"]),
		Profile: capability.Profile{
			ReadOnly:    hint(tool["read_only"]),
			Destructive: hint(tool["destructive"]),
			OpenWorld:   hint(tool["open_world"]),
		},
		Grant:   capability.DefaultGrant(),
		LeftOut: capability.OriginMember | capability.GrantMember,
	}
	if origin, ok := tool["origin"].(string); ok {
		c.Profile.Origin, _ = capability.ParseOrigin(origin)
		c.LeftOut &^= capability.OriginMember
	}
	c.Taint, _ = capability.ParseTaint(text(doc["taint"]))
	if base, ok := object(doc["grant"])["base"].([]any); ok {
		c.Grant = capability.ParseGrant(stringsOf(base))
		c.LeftOut &^= capability.GrantMember
	}
	c.Policy.Veto, c.Policy.Vetoed = policy["veto"].(string)
	c.Policy.RequiresHuman = policy["requires_human"] == true
	c.Policy.SandboxEscalation = policy["sandbox_escalation"] == true
	if transform := object(policy["transform"]); transform != nil {
		t := &c.Policy.Transform
		t.Kind, _ = capability.ParseTransformKind(text(transform["kind"]))
		t.Note = text(transform["note"])
		if object(transform["arguments"]) != nil { // null stands for none
			t.Arguments = v.raw[argumentsPointer]
		}
	}
	return c, nil
}

// ParseSkill reads one skill document (specification, section 7). Its errors
// are *[Error].
func ParseSkill(data []byte) (*skill.Request, error) {
	v, err := skillSchema().decode(data, "")
	if err != nil {
		return nil, err
	}
	doc := object(v.root)
	p := object(doc["provenance"])
	r := &skill.Request{
		Skill: text(doc["skill"]),
		Provenance: skill.Provenance{
			Signed:          p["signed"] == true,
			SignerTrusted:   p["signer_trusted"] == true,
			Scanned:         p["scanned"] == true,
			Vulnerabilities: counter(p["vulnerabilities"]),
			SuccessCount:    counter(p["success_count"]),
			FailCount:       counter(p["fail_count"]),
		},
	}
	r.Requested, _ = skill.ParseTier(text(doc["requested"]))
	r.Provenance.Source, _ = skill.ParseSource(text(p["source"]))
	r.Approval, _ = skill.ParseVerdict(text(doc["approval"]))
	return r, nil
}

// ParseUndecidedSkill is [ParseSkill] where a ledger tells what people decided: a
// document that says it itself is refused.
func ParseUndecidedSkill(data []byte) (*skill.Request, error) {
	r, err := ParseSkill(data)
	if err != nil {
		return nil, err
	}
	if r.Approval != skill.NoVerdict {
		return nil, &Error{Kind: Invalid, Line: 1, Pointer: "/approval",
			Expected: "no approval, because it is looked up in the ledger", Got: r.Approval.String()}
	}
	return r, nil
}

// The four below read values that the schema has already bounded; a null or
// missing one gives the zero value.

func object(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

func hint(v any) capability.Hint {
	b, ok := v.(bool)
	if !ok {
		return capability.Unset
	}
	return capability.HintOf(b)
}

// counter reads an integer of 0 to 2^64-1, which may be written as 1e3 or 2.0.
func counter(v any) uint64 {
	n, ok := v.(json.Number)
	if !ok {
		return 0
	}
	r, ok := new(big.Rat).SetString(n.String())
	if !ok {
		return 0
	}
	return r.Num().Uint64()
}
