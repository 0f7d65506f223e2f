package capability

import "encoding/json"

// TransformKind says what the operator's hook made of a call's arguments.
type TransformKind uint8

// The kinds of transform. The zero kind changes nothing.
const (
	NoTransform TransformKind = iota
	Rewrite
	InjectContext
)

// ParseTransformKind returns the kind with that wire name, and whether there
// is one.
func ParseTransformKind(name string) (TransformKind, bool) {
	switch name {
	case "none":
		return NoTransform, true
	case "rewrite":
		return Rewrite, true
	case "inject_context":
		return InjectContext, true
	}
	return NoTransform, false
}

// Valid reports whether k is one of the three kinds.
func (k TransformKind) Valid() bool { return k <= InjectContext }

// String returns the wire name of k; an invalid kind has none and gives "".
func (k TransformKind) String() string {
	switch k {
	case NoTransform:
		return "none"
	case Rewrite:
		return "rewrite"
	case InjectContext:
		return "inject_context"
	}
	return ""
}

// A Transform is what the operator's hook made of a call's arguments.
type Transform struct {
	Kind      TransformKind
	Arguments json.RawMessage // for Rewrite: the new arguments, one JSON object
	Note      string          // for InjectContext: the note to the model
}

// A CallPolicy is the operator's verdict on one call (specification,
// section 5). The zero CallPolicy has no verdict.
type CallPolicy struct {
	Vetoed            bool   // a veto is present; its text may be empty
	Veto              string // the veto's text
	RequiresHuman     bool
	SandboxEscalation bool
	Transform         Transform
}

// DefaultSystem is what the sentences for a person call this system.
const DefaultSystem = "this system"

// Decide gives the answer to one call of tool: the precedence of
// specification, section 5. It is a pure function of its arguments, has no
// error and is total: an invalid transform kind is a deny.
//
// Decide is set algebra only and names no capability. Sentences in it call the
// system [DefaultSystem]; [Call.Decide] takes another name.
func Decide(required, granted Set, p CallPolicy, tool string) Outcome {
	return decide(required, granted, &p, tool, DefaultSystem)
}

func decide(required, granted Set, p *CallPolicy, tool, system string) Outcome {
	o := Outcome{Required: required, Granted: granted}
	switch missing := required.Minus(granted); {
	case p.Vetoed || p.Veto != "": // a text that nobody flagged is closed, too
		o.Kind, o.Reason = Deny, p.Veto
	case !missing.Empty():
		o.Kind, o.Missing, o.Reason = Escalate, missing, Reason(missing, tool, system)
	case p.RequiresHuman || p.SandboxEscalation:
		o.Kind = Escalate
	case p.Transform.Kind == NoTransform:
		o.Kind = Allow
	case p.Transform.Kind == Rewrite:
		o.Kind, o.Arguments = Modify, p.Transform.Arguments
	case p.Transform.Kind == InjectContext:
		o.Kind, o.Note = Inject, p.Transform.Note
	default:
		o.Kind, o.Reason = Deny, "The call names a transform that the gate does not know."
	}
	return o
}

// Reason returns the sentence for the person who is asked about a call of tool
// with missing capabilities: the first match of the list in specification,
// section 5. It names the tool and claims only what the missing set tells.
// System is what the sentence calls this system.
func Reason(missing Set, tool, system string) string {
	switch {
	case missing.Has(GrantAccess):
		return `"` + tool + `" would let someone into ` + system + `, so confirm exactly who it is.`
	case missing.Has(RevokeAccess):
		return `"` + tool + `" would remove someone's access to ` + system + `, so confirm exactly whose it is.`
	case missing.Has(GrantAdmin):
		return `"` + tool + `" would make someone an admin of ` + system + `, so confirm exactly who it is.`
	case missing.Has(ManageAdmin):
		return `"` + tool + `" would take away someone's admin role in ` + system + `, so confirm exactly whose it is.`
	case missing.Has(ArbitraryEgress) && missing.Has(MutateExternal):
		return `Outside content may be in this conversation, so check "` + tool + `" before it could send something out or change something beyond it.`
	case missing.Has(ArbitraryEgress):
		return `Check "` + tool + `" before it could reach an outside address.`
	case missing.Has(MutateExternal):
		return `Check "` + tool + `" before it could change something beyond this conversation.`
	default:
		return `"` + tool + `" needs more access than this conversation has.`
	}
}
