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
}

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
