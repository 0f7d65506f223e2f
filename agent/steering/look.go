package steering

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/opa-gate/opa-gate/capability"
)

// Bounds of a call's arguments. Of what exceeds one, nothing is known.
const (
	MaxArguments = 1 << 20 // bytes
	MaxLeaves    = 256     // values that are neither object nor array, and names in inner objects
	MaxDepth     = 16      // nesting of objects and arrays
	MaxText      = 64 << 10
)

// A Tool is what the operator says of a tool beyond its profile. The zero Tool is
// one of which nothing is known.
type Tool struct {
	Effect capability.Effect

	// Aims are the arguments that say where a call goes, and how much goes there:
	// addresses, accounts, channels, amounts. Without any the aim is not known.
	Aims []string

	// OutsideIf are the arguments with which a tool whose effect is OwnUndoable
	// reaches others after all, such as the participants of an event.
	OutsideIf []string
}

// Facts are what is known of one call. The zero Facts is: nothing.
type Facts struct {
	Effect  capability.Effect
	Aim     capability.Aim
	Payload capability.Payload
}

// Look tells what is known of a call of tool with these arguments, a JSON object,
// in a session in which a person typed what typed holds. Arguments that are left
// out, broken or beyond a bound leave everything unknown but an effect that does not
// depend on them.
func Look(tool *Tool, arguments []byte, typed *Typed) Facts {
	if tool == nil || !tool.Effect.Valid() {
		return Facts{}
	}
	facts := Facts{Effect: tool.Effect}
	members, err := read(arguments, tool)
	if err != nil {
		if len(tool.OutsideIf) > 0 {
			facts.Effect = capability.UnknownEffect
		}
		return facts
	}
	facts.Payload = capability.TypedPayload
	aims, typedAims := 0, 0
	for _, m := range members {
		if facts.Effect == capability.OwnUndoable && len(m.leaves) > 0 && slices.Contains(tool.OutsideIf, m.name) {
			facts.Effect = capability.Outside
		}
		for _, l := range m.leaves {
			if m.aim {
				aims++
				if !m.nested && typed.aim(l) {
					typedAims++
				}
				continue
			}
			facts.Payload = min(facts.Payload, typed.payload(l))
		}
	}
	switch {
	case len(tool.Aims) == 0:
		facts.Aim = capability.UnknownAim
	case aims == 0:
		facts.Aim = capability.NoAim
	case aims == typedAims:
		facts.Aim = capability.TypedAim
	default:
		facts.Aim = capability.UntypedAim
	}
	return facts
}

// A leaf is a value that is neither object nor array, or the name of a member of
// an inner object. Null and the empty text are none: they say nothing.
type leaf struct {
	kind jsontext.Kind // of a string, a number, or KindTrue and KindFalse
	text string        // of a string or a number
	name bool          // it is a name
}

// A member is one argument.
type member struct {
	name   string
	aim    bool
	nested bool // it holds an object
	leaves []leaf
}

var errBound = errors.New("the arguments exceed a bound, or name one argument in two ways")

// read takes arguments apart. A name that is that of an aim but for its case makes
// them unreadable: some server might take the one for the other.
func read(arguments []byte, tool *Tool) ([]member, error) {
	if len(arguments) > MaxArguments {
		return nil, errBound
	}
	d := jsontext.NewDecoder(bytes.NewReader(arguments)) // refuses repeated names and broken UTF-8
	if d.PeekKind() != jsontext.KindBeginObject {
		return nil, errBound
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	var members []member
	left := MaxLeaves
	for d.PeekKind() != jsontext.KindEndObject {
		token, err := d.ReadToken()
		if err != nil {
			return nil, err
		}
		m := member{name: token.String()}
		for _, known := range [][]string{tool.Aims, tool.OutsideIf} {
			for _, name := range known {
				if strings.EqualFold(name, m.name) && name != m.name {
					return nil, errBound
				}
			}
		}
		m.aim = slices.Contains(tool.Aims, m.name)
		if err := m.read(d, &left); err != nil {
			return nil, err
		}
		members = append(members, m)
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, errBound
	}
	return members, nil
}

// read takes one value apart.
func (m *member) read(d *jsontext.Decoder, left *int) error {
	for outer := d.StackDepth(); ; {
		token, err := d.ReadToken()
		if err != nil {
			return err
		}
		l := leaf{kind: token.Kind()}
		switch l.kind {
		case jsontext.KindBeginObject, jsontext.KindBeginArray:
			m.nested = m.nested || l.kind == jsontext.KindBeginObject
			if d.StackDepth() > MaxDepth {
				return errBound
			}
		case jsontext.KindString, jsontext.KindNumber:
			l.text = token.String()
			if len(l.text) > MaxText {
				return errBound
			}
			if kind, n := d.StackIndex(d.StackDepth()); d.StackDepth() > outer && kind == jsontext.KindBeginObject && n%2 == 1 {
				l.name = true
			}
			if l.text != "" {
				m.leaves = append(m.leaves, l)
				*left--
			}
		case jsontext.KindTrue, jsontext.KindFalse:
			m.leaves = append(m.leaves, l)
			*left--
		}
		if *left < 0 {
			return errBound
		}
		if d.StackDepth() == outer {
			return nil
		}
	}
}
