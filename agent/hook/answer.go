package hook

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/opa-gate/opa-gate/agent"
	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/wire"
)

// The exit codes of a hook. All others let the call run.
const (
	ExitDone  = 0
	ExitBlock = 2
)

// A Reply is what a hook answers. The zero Reply says nothing, which leaves the
// call to the agent's own permissions.
type Reply struct {
	Stdout []byte // one JSON object
	Stderr string // one line for the model or the person
	Exit   int    // ExitDone or ExitBlock
}

// Block is the reply that refuses, with one line that says why.
func Block(why string) Reply {
	// Some errors have lines, set in with tabs. In JSON that is told, a line can only
	// end between members.
	lines := strings.FieldsFunc(why, func(r rune) bool { return r == '\n' || r == '\r' })
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return Reply{Stderr: "opa-gate: " + cut(wire.Printable(strings.Join(lines, " ")), maxReason) + "\n", Exit: ExitBlock}
}

// Refuse is the reply that refuses because something failed, with one line that
// says what, and what to do.
func Refuse(err error) Reply { return Block(err.Error() + "; " + remedy(err)) }

// A Dialect is the agent whose answers a hook gives.
type Dialect string

// The dialects.
const (
	Claude Dialect = "claude"
	Codex  Dialect = "codex" // allow is an empty object, and nothing asks
)

// Bounds of texts in an answer, in bytes.
const (
	maxReason  = 4000
	maxContext = 9500 // agents cut at 10,000 characters
)

// said is the one object of an answer. A member that is left out is not there at
// all: an agent may take one that it does not know for a failed hook.
type said struct {
	Event    string          `json:"hookEventName"`
	Decision string          `json:"permissionDecision,omitempty"`
	Reason   string          `json:"permissionDecisionReason,omitempty"`
	Input    json.RawMessage `json:"updatedInput,omitempty"`
	Context  string          `json:"additionalContext,omitempty"`
}

func nothing() Reply { return Reply{Stdout: []byte("{}\n")} }

func say(s said) Reply {
	s.Reason, s.Context = cut(s.Reason, maxReason), cut(s.Context, maxContext)
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(map[string]said{"hookSpecificOutput": s}); err != nil {
		return Block("the answer cannot be written: " + err.Error())
	}
	return Reply{Stdout: buf.Bytes()}
}

// answer turns a verdict into the reply of a dialect.
func (h *Handler) answer(e *event, v *agent.Verdict) Reply {
	switch v.Outcome.Kind {
	case capability.Allow, capability.Modify, capability.Inject:
		if h.Dialect == Codex {
			return h.codexRuns(v)
		}
		return h.runs(e, v)
	case capability.Escalate:
		return h.asks(e, v)
	case capability.Deny:
		reason := v.Outcome.Reason
		if reason == "" {
			reason = "The policy does not allow this call."
		}
		return h.deny(e, reason)
	}
	return Block("there is no verdict on this call")
}

func (h *Handler) runs(e *event, v *agent.Verdict) Reply {
	s := said{Event: e.Name, Context: v.Outcome.Note, Input: v.Outcome.Arguments}
	switch {
	case h.AutoAllow:
		s.Decision, s.Reason = "allow", "The policy allows this call."
	case v.Outcome.Kind == capability.Modify:
		// Changed arguments travel with allow or ask only, and an allow would
		// skip the agent's own prompt.
		s.Decision, s.Reason = "ask", "The policy changes this call's arguments."
	case v.Outcome.Kind == capability.Allow:
		return nothing()
	}
	return say(s)
}

// codexRuns: where nothing can be changed or added, a call that has to be is
// refused.
func (h *Handler) codexRuns(v *agent.Verdict) Reply {
	switch v.Outcome.Kind {
	case capability.Allow:
		return nothing()
	case capability.Modify:
		return Block("the policy changes this call's arguments, and this agent's hooks cannot change any; make the call with: " + string(v.Outcome.Arguments))
	default:
		return Block("the policy adds a note to this call, and this agent's hooks cannot pass it on")
	}
}

// asks puts an escalation to the person at the agent if there is one who will
// be asked, and refuses it otherwise, with where it can be approved.
func (h *Handler) asks(e *event, v *agent.Verdict) Reply {
	parts := []string{v.Outcome.Reason}
	if parts[0] == "" {
		parts[0] = "A person has to confirm this call."
		if v.Sandbox {
			parts[0] = "This reaches outside the project's folder, or to what starts programs, so a person has to confirm it."
		}
	}
	if !v.Outcome.Missing.Empty() {
		if why := v.State.Describe(); why != "" {
			parts = append(parts, why)
		}
	}
	if h.canAsk(e) {
		s := said{Event: e.Name, Decision: "ask", Reason: strings.Join(parts, " ")}
		switch v.Transform.Kind { // what the person agrees to is the call as it has to be made
		case capability.Rewrite:
			s.Input = v.Transform.Arguments
		case capability.InjectContext:
			s.Context = v.Transform.Note
		}
		return say(s)
	}
	if v.Pending == "" {
		parts = append(parts, "Nobody can be asked here.")
	} else {
		parts = append(parts, "It waits for a person: opa-gate approvals approve "+v.Pending+". Then make the same call again.")
	}
	return h.deny(e, strings.Join(parts, " "))
}

// canAsk reports whether the agent puts an ask to a person. In modes that are
// there to ask nobody it may be approved or decided without one.
func (h *Handler) canAsk(e *event) bool {
	if h.Dialect == Codex {
		return false
	}
	switch e.Mode {
	case "", "default", "acceptEdits", "plan":
		return true
	}
	return false
}

func (h *Handler) deny(e *event, reason string) Reply {
	if h.Dialect == Codex {
		return Block(reason)
	}
	return say(said{Event: e.Name, Decision: "deny", Reason: reason})
}

// cut returns text with at most n bytes, at the border of a character.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "…"
}
