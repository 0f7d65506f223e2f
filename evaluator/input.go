package evaluator

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/skill"
)

// member is one member of an input object; one without a value is left out.
type member struct {
	name  string
	value *ast.Term
}

func objectOf(members ...member) *ast.Term {
	pairs := make([][2]*ast.Term, 0, len(members))
	for _, m := range members {
		if m.value != nil {
			pairs = append(pairs, [2]*ast.Term{ast.InternedTerm(m.name), m.value})
		}
	}
	return ast.ObjectTerm(pairs...)
}

// callInput builds the canonical call document.
func callInput(c *capability.Call) (ast.Value, error) {
	policy, err := policyTerm(&c.Policy)
	if err != nil {
		return nil, err
	}
	return callOf(toolTerm(c), grantTerm(c), policy, c.Taint), nil
}

// callOf puts a call document together; without a grant if it is nil.
func callOf(tool, grant, policy *ast.Term, taint capability.Taint) ast.Value {
	return objectOf(
		member{"tool", tool},
		member{"grant", grant},
		member{"taint", ast.InternedTerm(taint.String())},
		member{"policy", policy},
	).Value
}

func toolTerm(c *capability.Call) *ast.Term {
	return objectOf(
		member{"name", ast.StringTerm(c.Tool)},
		member{"origin", originTerm(c)},
		member{"read_only", hintTerm(c.Profile.ReadOnly)},
		member{"destructive", hintTerm(c.Profile.Destructive)},
		member{"open_world", hintTerm(c.Profile.OpenWorld)},
	)
}

func originTerm(c *capability.Call) *ast.Term {
	if c.LeftOut.Has(capability.OriginMember) {
		return nil
	}
	return ast.InternedTerm(c.Profile.Origin.String())
}

func grantTerm(c *capability.Call) *ast.Term {
	if c.LeftOut.Has(capability.GrantMember) {
		return nil
	}
	g := &c.Grant
	var base []*ast.Term
	for _, name := range g.Base.CoverageNames() {
		base = append(base, ast.InternedTerm(name))
	}
	for _, name := range g.Unknown {
		base = append(base, ast.StringTerm(name))
	}
	return objectOf(member{"base", ast.ArrayTerm(base...)})
}

func policyTerm(p *capability.CallPolicy) (*ast.Term, error) {
	transform := member{"transform", nil}
	switch p.Transform.Kind {
	case capability.Rewrite:
		arguments, err := parseJSON(p.Transform.Arguments)
		if err != nil {
			return nil, err
		}
		transform.value = objectOf(kindMember(p), member{"arguments", arguments})
	case capability.InjectContext:
		transform.value = objectOf(kindMember(p), member{"note", ast.StringTerm(p.Transform.Note)})
	}
	var veto *ast.Term
	if p.Vetoed {
		veto = ast.StringTerm(p.Veto)
	}
	return objectOf(
		member{"veto", veto},
		member{"requires_human", ast.InternedTerm(p.RequiresHuman)},
		member{"sandbox_escalation", ast.InternedTerm(p.SandboxEscalation)},
		transform,
	), nil
}

// inputs builds call documents that share the terms of what is the same in
// them. It belongs to one goroutine.
type inputs struct {
	tools    map[toolKey]*ast.Term
	grants   map[grantKey]*ast.Term
	policies map[policyKey]*ast.Term
}

type toolKey struct {
	name    string
	profile capability.Profile
	leftOut capability.Members
}

type grantKey struct {
	base    capability.Set
	leftOut capability.Members
}

type policyKey struct {
	vetoed, human, sandbox bool
	kind                   capability.TransformKind
	veto, note, arguments  string
}

func newInputs() *inputs {
	return &inputs{map[toolKey]*ast.Term{}, map[grantKey]*ast.Term{}, map[policyKey]*ast.Term{}}
}

// call is callInput for a call whose grant has no unknown names.
func (in *inputs) call(c *capability.Call) (ast.Value, error) {
	tool := toolKey{c.Tool, c.Profile, c.LeftOut & capability.OriginMember}
	if in.tools[tool] == nil {
		in.tools[tool] = toolTerm(c)
	}
	grant := grantKey{c.Grant.Base, c.LeftOut & capability.GrantMember}
	if _, ok := in.grants[grant]; !ok {
		in.grants[grant] = grantTerm(c)
	}
	p := &c.Policy
	policy := policyKey{p.Vetoed, p.RequiresHuman, p.SandboxEscalation, p.Transform.Kind,
		p.Veto, p.Transform.Note, string(p.Transform.Arguments)}
	if in.policies[policy] == nil {
		term, err := policyTerm(p)
		if err != nil {
			return nil, err
		}
		in.policies[policy] = term
	}
	return callOf(in.tools[tool], in.grants[grant], in.policies[policy], c.Taint), nil
}

func kindMember(p *capability.CallPolicy) member {
	return member{"kind", ast.InternedTerm(p.Transform.Kind.String())}
}

func hintTerm(h capability.Hint) *ast.Term {
	switch h {
	case capability.Yes:
		return ast.InternedTerm(true)
	case capability.No:
		return ast.InternedTerm(false)
	default:
		return nil
	}
}

// skillInput builds the canonical skill document.
func skillInput(r *skill.Request) ast.Value {
	p := &r.Provenance
	var approval *ast.Term
	if r.Approval != skill.NoVerdict {
		approval = ast.InternedTerm(r.Approval.String())
	}
	return objectOf(
		member{"skill", ast.StringTerm(r.Skill)},
		member{"requested", ast.InternedTerm(r.Requested.String())},
		member{"provenance", objectOf(
			member{"signed", ast.InternedTerm(p.Signed)},
			member{"signer_trusted", ast.InternedTerm(p.SignerTrusted)},
			member{"scanned", ast.InternedTerm(p.Scanned)},
			member{"vulnerabilities", counterTerm(p.Vulnerabilities)},
			member{"success_count", counterTerm(p.SuccessCount)},
			member{"fail_count", counterTerm(p.FailCount)},
			member{"source", ast.InternedTerm(p.Source.String())},
		)},
		member{"approval", approval},
	).Value
}

// counterTerm writes the count as text: the upper half of its range does not
// fit an int.
func counterTerm(n uint64) *ast.Term {
	return ast.NumberTerm(json.Number(strconv.FormatUint(n, 10)))
}

// parseJSON reads one JSON text with every number kept as it is written.
func parseJSON(text []byte) (*ast.Term, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	value, err := ast.InterfaceToValue(v)
	if err != nil {
		return nil, err
	}
	return ast.NewTerm(value), nil
}
