package capability

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
)

// A Kind is the gate's answer to one call. The zero Kind is invalid: no code
// path that forgets to decide can look like an allow.
type Kind uint8

// The five answers. Their wire names are the metric labels.
const (
	Allow Kind = iota + 1
	Modify
	Inject
	Escalate
	Deny
)

var kindNames = [...]string{
	Allow:    "allow",
	Modify:   "modify",
	Inject:   "inject_context",
	Escalate: "escalate",
	Deny:     "deny",
}

// ParseKind returns the answer with that wire name, and whether there is one.
func ParseKind(name string) (Kind, bool) {
	for k := Allow; k <= Deny; k++ {
		if kindNames[k] == name {
			return k, true
		}
	}
	return 0, false
}

// Valid reports whether k is one of the five answers.
func (k Kind) Valid() bool { return k >= Allow && k <= Deny }

// String returns the wire name of k, or Kind(N) if k is not valid.
func (k Kind) String() string {
	if k.Valid() {
		return kindNames[k]
	}
	return "Kind(" + strconv.Itoa(int(k)) + ")"
}

// An Outcome is the gate's decision on one call, with what it rests on: the
// decision document of specification, section 7. The zero Outcome is invalid.
type Outcome struct {
	Kind      Kind
	Reason    string // for a person; empty where the surface has its own prompt
	Missing   Set    // required minus granted, for an escalation by step 2 only
	Required  Set
	Granted   Set
	Arguments json.RawMessage // for Modify: the new arguments
	Note      string          // for Inject: the note to the model
	Warnings  []string        // what a person should mend, such as unknown names
}

// Equal reports whether o and p are the same decision: every member, with
// arguments compared as JSON values whose numbers count as they are written.
func (o Outcome) Equal(p Outcome) bool {
	return o.Kind == p.Kind && o.Reason == p.Reason && o.Missing == p.Missing &&
		o.Required == p.Required && o.Granted == p.Granted && o.Note == p.Note &&
		slices.Equal(o.Warnings, p.Warnings) && equalJSON(o.Arguments, p.Arguments)
}

func equalJSON(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, errX := decodeJSON(a)
	y, errY := decodeJSON(b)
	return errX == nil && errY == nil && reflect.DeepEqual(x, y)
}

func decodeJSON(text []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	err := dec.Decode(&v)
	return v, err
}
