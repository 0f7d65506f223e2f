package capability

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// A Call is one tool call as the gate decides it: the wire document of
// specification, section 7, after its names were read. The zero Call is not
// valid.
type Call struct {
	Tool    string // the tool's name; not empty
	Profile Profile
	Grant   Grant
	Taint   Taint
	Policy  CallPolicy
	LeftOut Members // what the document left to its default, which stands above
}

// Members are members of a call document that have a default which is a value
// like others. Whether one was stated is nothing to the decision that the
// specification demands, but edited policies may give it another default.
type Members uint8

// The members that can be left out. The zero value leaves out none.
const (
	OriginMember Members = 1 << iota // tool.origin: [Unknown]
	GrantMember                      // grant, or its base: [DefaultGrant]
)

// Has reports whether every member of other is in m.
func (m Members) Has(other Members) bool { return m&other == other }

// Decide runs the native reference on c. System is what sentences for a person
// call this system; empty means [DefaultSystem]. The call must be valid; see
// [Call.Validate]. An invalid taint grants nothing.
func (c *Call) Decide(system string) Outcome {
	if system == "" {
		system = DefaultSystem
	}
	o := decide(c.Profile.Required(), c.Grant.Under(c.Taint), &c.Policy, c.Tool, system)
	for _, name := range c.Grant.Unknown {
		o.Warnings = append(o.Warnings, `unknown capability "`+name+`"`)
	}
	return o
}

// ErrInvalidCall is wrapped by every error of [Call.Validate].
var ErrInvalidCall = errors.New("invalid call")

// Validate reports the first thing in c that no wire document could say. Its
// errors wrap [ErrInvalidCall]. Documents read by package wire are valid.
func (c *Call) Validate() error {
	switch p := &c.Profile; {
	case c.Tool == "":
		return fmt.Errorf("%w: the tool has no name", ErrInvalidCall)
	case !p.Origin.Valid():
		return fmt.Errorf("%w: %v is no origin", ErrInvalidCall, p.Origin)
	case !p.ReadOnly.Valid() || !p.Destructive.Valid() || !p.OpenWorld.Valid():
		return fmt.Errorf("%w: an annotation is neither given nor left out", ErrInvalidCall)
	case c.LeftOut.Has(OriginMember) && p.Origin != Unknown:
		return fmt.Errorf("%w: the origin is left out, and is %v", ErrInvalidCall, p.Origin)
	case c.LeftOut.Has(GrantMember) && (c.Grant.Base != All || len(c.Grant.Unknown) > 0):
		return fmt.Errorf("%w: the grant is left out, and is not the default one", ErrInvalidCall)
	case c.LeftOut&^(OriginMember|GrantMember) != 0:
		return fmt.Errorf("%w: members %#x are left out, which cannot be", ErrInvalidCall, uint8(c.LeftOut))
	case !c.Taint.Valid():
		return fmt.Errorf("%w: %v is neither clean nor tainted", ErrInvalidCall, c.Taint)
	}
	for _, text := range [...]string{c.Tool, c.Policy.Veto, c.Policy.Transform.Note} {
		if !utf8.ValidString(text) {
			return fmt.Errorf("%w: the text %q is not valid UTF-8", ErrInvalidCall, text)
		}
	}
	for _, name := range c.Grant.Unknown {
		if !utf8.ValidString(name) {
			return fmt.Errorf("%w: the name %q is not valid UTF-8", ErrInvalidCall, name)
		}
	}
	if !c.Policy.Vetoed && c.Policy.Veto != "" {
		return fmt.Errorf("%w: there is a veto's text and no veto", ErrInvalidCall)
	}
	switch t := &c.Policy.Transform; {
	case t.Arguments != nil && t.Kind != Rewrite:
		return fmt.Errorf("%w: arguments belong to a rewrite", ErrInvalidCall)
	case t.Note != "" && t.Kind != InjectContext:
		return fmt.Errorf("%w: a note belongs to an injected context", ErrInvalidCall)
	}
	switch t := &c.Policy.Transform; t.Kind {
	case NoTransform, InjectContext:
	case Rewrite:
		if raw := bytes.TrimLeft(t.Arguments, " \t\r\n"); len(raw) == 0 || raw[0] != '{' || !json.Valid(raw) {
			return fmt.Errorf("%w: a rewrite's arguments must be one JSON object", ErrInvalidCall)
		}
	default:
		return fmt.Errorf("%w: transform kind %d is unknown", ErrInvalidCall, t.Kind)
	}
	return nil
}
