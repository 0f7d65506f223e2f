package hook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/opa-gate/opa-gate/agent"
	"github.com/opa-gate/opa-gate/ledger"
)

// A Handler answers hooks. Its fields are set before its first use; it is safe
// for use by several goroutines then.
type Handler struct {
	Gate      *agent.Gate
	Dialect   Dialect       // "" is Claude
	AutoAllow bool          // a call that the policy allows skips the agent's own prompt
	Shadow    bool          // decide and log, and never interfere
	Wait      time.Duration // how long an escalation may wait for a person before the hook answers
	Log       io.Writer     // one line of JSON a decision; nil for none. One Write a line.
}

// Handle answers one event. Project is the folder that the agent works in, ""
// for the one that the event names. Whatever goes wrong is a reply that blocks,
// and with Shadow one that says nothing.
func (h *Handler) Handle(ctx context.Context, input []byte, project string) (r Reply) {
	defer func() {
		if p := recover(); p != nil {
			r = Block(fmt.Sprintf("the gate failed: %v; report this, and make the call again", p))
		}
		if h.Shadow {
			r = nothing()
		}
	}()
	e, err := parseEvent(input)
	if err != nil {
		return h.failed(&event{}, err)
	}
	switch e.Name {
	case preToolUse, preSkillShell:
		return h.before(ctx, e, project)
	case postToolUse, postToolUseFailure:
		return h.after(ctx, e)
	case userPromptSubmit:
		return h.prompt(ctx, e)
	case sessionStart:
		return h.start(ctx, e)
	}
	return h.failed(e, fmt.Errorf("%w: there is no answer to the event %q; take opa-gate out of the hooks for it", ErrEvent, e.Name))
}

// before decides a call.
func (h *Handler) before(ctx context.Context, e *event, project string) Reply {
	if project == "" {
		project = e.Dir
	}
	request := agent.Request{
		Session: e.Session, Tool: e.Tool, CallID: e.Call, Agent: e.Agent, Arguments: e.Input,
		Root: project, Dir: e.Dir, Asks: h.canAsk(e) || h.Shadow,
	}
	first := request
	first.Asks = request.Asks && h.Wait <= 0 // while it waits nobody at the agent can let it run
	v, err := h.Gate.Decide(ctx, first)
	if err == nil && v.Asks() && h.Wait > 0 && v.Pending != "" {
		if err = h.await(ctx, v.Pending); err == nil {
			v, err = h.Gate.Decide(ctx, request) // taint may have come in meanwhile
		}
	} else if err == nil && v.Asks() && first.Asks != request.Asks {
		v, err = h.Gate.Decide(ctx, request)
	}
	if err != nil {
		return h.failed(e, err)
	}
	h.log(record{Session: e.Session, Event: e.Name, Tool: e.Tool, Call: e.Call, Agent: e.Agent,
		Outcome: v.Outcome.Kind.String(), Reason: v.Outcome.Reason, Missing: v.Outcome.Missing.DisplayNames(),
		Taint: v.State.Taint.String(), Seen: v.Seen.String(), Taints: v.Tainting, Pending: v.Pending, Approval: v.Approved})
	return h.answer(e, &v)
}

// await waits for a person, but no longer than h.Wait.
func (h *Handler) await(ctx context.Context, id string) error {
	waiting, cancel := context.WithTimeout(ctx, h.Wait)
	defer cancel()
	err := h.Gate.Approvals.Wait(waiting, id)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil // nobody came
	}
	return err
}

// after takes note of a call's end.
func (h *Handler) after(ctx context.Context, e *event) Reply {
	_, err := h.Gate.Result(ctx, agent.Result{
		Request: agent.Request{Session: e.Session, Tool: e.Tool, CallID: e.Call, Agent: e.Agent, Arguments: e.Input},
		Failed:  e.Name == postToolUseFailure,
	})
	if err != nil {
		return h.failed(e, err)
	}
	return nothing()
}

// prompt takes note that a conversation goes on, and of what the person typed. What
// no person typed may be anybody's text. An event that does not say where its
// prompt comes from is one of an agent that calls the hook for typed ones alone.
func (h *Handler) prompt(ctx context.Context, e *event) Reply {
	_, err := h.Gate.Sessions.Continue(ctx, e.Session)
	if err == nil && e.Source != "" && e.Source != "user" && e.Source != "sdk" {
		_, err = h.Gate.Sessions.Taint(ctx, e.Session, agent.Source{Why: agent.Untyped, Shows: cut(e.Source, 40)})
	}
	if err == nil && (e.Source == "" || e.Source == "user") && e.Agent == "" {
		err = h.Gate.Typed(ctx, e.Session, e.Prompt)
	}
	if err != nil {
		return h.failed(e, err)
	}
	return nothing()
}

// start takes note that a conversation begins, or goes on where it was.
func (h *Handler) start(ctx context.Context, e *event) Reply {
	var err error
	switch e.Source {
	case "startup", "clear":
		_, err = h.Gate.Sessions.Begin(ctx, e.Session)
	default: // resume, fork, compact, and what there will be
		_, err = h.Gate.Sessions.Continue(ctx, e.Session)
	}
	if err != nil {
		return h.failed(e, err)
	}
	return nothing()
}

// failed refuses, and says what to do.
func (h *Handler) failed(e *event, err error) Reply {
	h.log(record{Session: e.Session, Event: e.Name, Tool: e.Tool, Call: e.Call, Agent: e.Agent, Outcome: "error", Reason: err.Error()})
	return Refuse(err)
}

// remedy says what a person can do about an error.
func remedy(err error) string {
	switch {
	case errors.Is(err, ErrEvent), errors.Is(err, agent.ErrRequest), errors.Is(err, agent.ErrSession):
		return "nothing was decided; opa-gate hook --help tells what it reads"
	case errors.Is(err, ledger.ErrInvalid): // nothing is wrong with the gate
		return "nothing was decided; make the call with arguments that a person can approve"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return "nothing was decided in time; make the call again, or give --deadline more time"
	}
	return "nothing was decided; opa-gate hook status tells what is wrong"
}

// A record is one line of the log. It has no arguments: they may hold secrets.
type record struct {
	At       time.Time `json:"at"`
	Session  string    `json:"session"`
	Event    string    `json:"event"`
	Tool     string    `json:"tool,omitempty"`
	Call     string    `json:"call,omitempty"`
	Agent    string    `json:"agent,omitempty"`
	Outcome  string    `json:"outcome"`
	Reason   string    `json:"reason,omitempty"`
	Missing  []string  `json:"missing,omitempty"`
	Taint    string    `json:"taint,omitempty"`
	Seen     string    `json:"seen,omitempty"` // the taint that the call was decided under
	Taints   bool      `json:"taints,omitempty"`
	Pending  string    `json:"pending,omitempty"`
	Approval string    `json:"approval,omitempty"`
	Shadow   bool      `json:"shadow,omitempty"`
}

func (h *Handler) log(r record) {
	if h.Log == nil {
		return
	}
	r.At, r.Shadow = time.Now().UTC(), h.Shadow
	if line, err := json.Marshal(r); err == nil {
		_, _ = h.Log.Write(append(line, '\n')) // a log that is full must not decide anything
	}
}
