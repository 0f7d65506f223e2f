package hook

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/opa-gate/opa-gate/wire"
)

// The events that a hook is called for.
const (
	preToolUse         = "PreToolUse"
	preSkillShell      = "PreSkillShellCommand"
	postToolUse        = "PostToolUse"
	postToolUseFailure = "PostToolUseFailure"
	userPromptSubmit   = "UserPromptSubmit"
	sessionStart       = "SessionStart"
)

// Events returns the names of the events that a dialect's hook is to be called
// for.
func Events(d Dialect) []string {
	if d == Codex { // which has no event for a call that failed
		return []string{preToolUse, postToolUse, userPromptSubmit, sessionStart}
	}
	return []string{preToolUse, postToolUse, postToolUseFailure, userPromptSubmit, sessionStart}
}

// ErrEvent: what the agent wrote is no event that a hook can answer.
var ErrEvent = errors.New("the hook's input cannot be used")

// An event is what of an agent's input counts. Members that it does not have
// are left to the agent: it adds some with each version.
type event struct {
	Name    string
	Session string
	Dir     string
	Mode    string
	Agent   string
	Tool    string
	Input   json.RawMessage
	Call    string
	Source  string // how a session starts, or where a prompt comes from
	Prompt  string
}

// parseEvent reads one event. Two readers that take a text for different things
// are a way around a gate, so a member that is given twice is an error, and a
// name in another case is another member, which Go's decoder would take for it.
func parseEvent(input []byte) (*event, error) {
	switch v := jsontext.Value(input); {
	case len(input) > wire.MaxBytes:
		return nil, fmt.Errorf("%w: it has more than %d bytes", ErrEvent, wire.MaxBytes)
	case len(input) == 0:
		return nil, fmt.Errorf("%w: it is empty, expected one JSON object from the agent", ErrEvent)
	case !v.IsValid() || v.Kind() != '{':
		return nil, fmt.Errorf("%w: it is not one plain JSON object", ErrEvent)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(input, &members); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrEvent, err)
	}
	e := &event{Input: members["tool_input"]}
	for name, into := range map[string]*string{
		"hook_event_name": &e.Name, "session_id": &e.Session, "cwd": &e.Dir, "permission_mode": &e.Mode, "agent_id": &e.Agent,
		"tool_name": &e.Tool, "tool_use_id": &e.Call, "source": &e.Source,
	} {
		raw, given := members[name]
		if !given || string(raw) == "null" {
			continue
		}
		if err := json.Unmarshal(raw, into); err != nil {
			return nil, fmt.Errorf("%w: %s is not a text", ErrEvent, name)
		}
	}
	if json.Unmarshal(members["prompt"], &e.Prompt) != nil {
		e.Prompt = "" // a prompt in another form is one that nobody typed
	}
	if string(e.Input) == "null" {
		e.Input = nil
	}
	if e.Name == "" {
		return nil, fmt.Errorf("%w: it has no hook_event_name", ErrEvent)
	}
	if e.Session == "" {
		return nil, fmt.Errorf("%w: it has no session_id", ErrEvent)
	}
	return e, nil
}
