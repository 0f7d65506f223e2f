package ledger

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/opa-gate/opa-gate/capability"
)

// A Call is what an approval is bound to: one call of one tool in one session,
// under one revision of the policies.
type Call struct {
	Tool      string
	Arguments json.RawMessage      // one JSON object; nil is an empty one
	Transform capability.Transform // of the operator's hook: what runs may be what it made of the arguments
	Session   string               // may be empty; there is no approval for a session then
	Revision  string               // of the policies, such as [evaluator.Evaluator.Digest]
}

// Bounds of a call.
const (
	MaxArguments = 1 << 20 // bytes of arguments, and of what a transform makes of them
	MaxDepth     = 256     // nesting of objects and arrays
	maxText      = 64 << 10
)

// Digest names tool, arguments and transform: equal for two calls if and only if
// these are the same JSON. The order of members and blanks do not count; a number
// is as it is written, so 1 and 1.0 are different. Its errors match ErrInvalid.
func (c *Call) Digest() (Hash, error) {
	arguments, err := canonical(c.Arguments, "the arguments")
	if err != nil {
		return Hash{}, err
	}
	transform := map[string]any{"kind": c.Transform.Kind.String()}
	switch c.Transform.Kind {
	case capability.NoTransform:
	case capability.Rewrite:
		rewritten, err := canonical(c.Transform.Arguments, "the rewritten arguments")
		if err != nil {
			return Hash{}, err
		}
		transform["arguments"] = rewritten
	case capability.InjectContext:
		transform["note"] = c.Transform.Note
	default:
		return Hash{}, fmt.Errorf("%w: transform kind %d is unknown", ErrInvalid, c.Transform.Kind)
	}
	if c.Tool == "" {
		return Hash{}, fmt.Errorf("%w: the call names no tool", ErrInvalid)
	}
	for _, text := range []string{c.Tool, c.Session, c.Revision, c.Transform.Note} {
		if !utf8.ValidString(text) || len(text) > maxText {
			return Hash{}, fmt.Errorf("%w: expected names and notes in UTF-8, of at most %d bytes", ErrInvalid, maxText)
		}
	}
	return digest("opa-gate call 1", c.Tool, arguments, transform)
}

// digest hashes a JSON array of parts, which no two lists of parts share.
func digest(parts ...any) (Hash, error) {
	text, err := compact(parts)
	if err != nil {
		return Hash{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return sha256.Sum256(text), nil
}

// canonical writes an object in one way: members in order, no blanks, numbers as
// they were.
func canonical(object json.RawMessage, what string) (json.RawMessage, error) {
	if object == nil {
		return json.RawMessage("{}"), nil
	}
	if len(object) > MaxArguments {
		return nil, fmt.Errorf("%w: %s have %d bytes, and at most %d can be approved", ErrInvalid, what, len(object), MaxArguments)
	}
	d := jsontext.NewDecoder(bytes.NewReader(object))
	for {
		if _, err := d.ReadToken(); err != nil {
			break // Canonicalize says what is wrong
		}
		if d.StackDepth() > MaxDepth {
			return nil, fmt.Errorf("%w: %s are nested deeper than %d", ErrInvalid, what, MaxDepth)
		}
	}
	value := jsontext.Value(bytes.Clone(object))
	if err := value.Canonicalize(jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false)); err != nil {
		return nil, fmt.Errorf("%w: %s are not JSON as it can be compared: %w", ErrInvalid, what, err)
	}
	if value.Kind() != '{' {
		return nil, fmt.Errorf("%w: expected %s as a JSON object", ErrInvalid, what)
	}
	return json.RawMessage(value), nil
}

// subjects of what is recorded about a call: about exactly it, and about its tool
// in its session.
func (c *Call) subjects(digestOfCall Hash) (call, tool string) {
	exact, _ := digest("opa-gate escalation 1", digestOfCall.String(), c.Session, c.Revision) // texts have one always
	session, _ := digest("opa-gate session approval 1", c.Tool, c.Session, c.Revision)
	return "call:" + exact.String(), "tool:" + session.String()
}
