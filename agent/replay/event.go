package replay

import (
	"encoding/json"
	"fmt"

	"github.com/opa-gate/opa-gate/agent/steering"
	"github.com/opa-gate/opa-gate/capability"
)

// A Kind is what an [Event] tells of. The zero Kind is not valid.
type Kind uint8

// The kinds of event.
const (
	Prompt Kind = iota + 1 // a person typed something
	Call                   // the model calls a tool
	Result                 // the call's result enters the session
)

var kindNames = [...]string{Prompt: "prompt", Call: "call", Result: "result"}

// String returns the name of k in a trace, or Kind(N).
func (k Kind) String() string {
	if k >= Prompt && int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// An Event is one thing that happened in a session. On a line of a trace it is an
// object:
//
//	{"kind": "prompt", "session": "s", "task": "t", "text": "…"}
//	{"kind": "call", "session": "s", "task": "t", "id": "1", "tool": "send_email",
//	 "arguments": {…}, "profile": {…}}
//	{"kind": "result", "session": "s", "id": "1"}
//
// Session and task may be left out. A session without a task begins a new one with
// each prompt. Profile is what the operator states of the tool, named as
// in a catalogue; left out, the [Operator] tells. A call without an
// id, or one whose result the trace does not tell of, has its result at once.
type Event struct {
	Line      int
	Kind      Kind
	Session   string
	Task      string
	ID        string          // of a call, and of the call whose result it is; "" if there is none
	Tool      string          // of a call
	Text      string          // of a prompt
	Arguments json.RawMessage // of a call; nil if it tells none
	Stated    *Tool           // of a call; nil if it tells nothing of the tool
}

// A Tool is what the operator states of a tool. The zero Tool is one of unknown
// origin.
type Tool struct {
	Profile  capability.Profile
	Taints   bool // its results taint whatever the profile says
	Steering steering.Tool
	Policy   capability.CallPolicy // whether the operator vetoes its calls, or wants a person asked
}

// An Operator is what the operator states where a trace says nothing.
type Operator struct {
	Grant capability.Grant
	Tool  func(name string) Tool // the zero Tool of one that nobody names
}

// A statement is a Tool as it is written.
type statement struct {
	Origin      string   `json:"origin"`
	ReadOnly    *bool    `json:"read_only"`
	Destructive *bool    `json:"destructive"`
	OpenWorld   *bool    `json:"open_world"`
	Taints      bool     `json:"taints"`
	Effect      string   `json:"effect"`
	Aims        []string `json:"aims"`
	OutsideIf   []string `json:"outside_if"`
}

// tool reads a statement. Left out, the origin and the effect are unknown.
func (s *statement) tool() (*Tool, error) {
	t := &Tool{Taints: s.Taints, Profile: capability.Profile{
		ReadOnly: hint(s.ReadOnly), Destructive: hint(s.Destructive), OpenWorld: hint(s.OpenWorld)}}
	var ok bool
	if s.Origin != "" {
		if t.Profile.Origin, ok = capability.ParseOrigin(s.Origin); !ok {
			return nil, fmt.Errorf("%q is no origin", s.Origin)
		}
	}
	if s.Effect != "" {
		if t.Steering.Effect, ok = capability.ParseEffect(s.Effect); !ok {
			return nil, fmt.Errorf("%q is no effect", s.Effect)
		}
	}
	t.Steering.Aims, t.Steering.OutsideIf = s.Aims, s.OutsideIf
	return t, nil
}

func hint(b *bool) capability.Hint {
	if b == nil {
		return capability.Unset
	}
	return capability.HintOf(*b)
}
