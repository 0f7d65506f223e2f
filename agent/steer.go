package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/opa-gate/opa-gate/agent/steering"
	"github.com/opa-gate/opa-gate/capability"
)

// KindTyped is the kind of entry that keeps a prompt as a person typed it, under
// the subject "typed:" and the conversation's ID. Its reference is the digest of
// the prompt.
const KindTyped = "session.typed"

const typedPrefix = "typed:"

// MaxKept bounds what one conversation keeps of prompts, in bytes. A prompt beyond
// it is not kept, and what it says counts as not typed.
const MaxKept = 4 * steering.MaxTyped

// Typed takes note of a prompt that a person typed into a conversation. It keeps
// it only if the policies ask who wrote a call's arguments (Steers). Clearing a
// conversation does not forget it.
func (g *Gate) Typed(ctx context.Context, session, prompt string) error {
	if !g.Steers || prompt == "" || len(prompt) > steering.MaxTyped {
		return nil
	}
	if err := checkID(session); err != nil {
		return err
	}
	body, err := json.Marshal(prompt)
	if err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(prompt))
	ref, subject := hex.EncodeToString(sum[:]), typedPrefix+session
	_, err = g.Sessions.Log.Update(ctx, subject, func(history []Entry, _ time.Time) ([]Draft, error) {
		size := len(body)
		for _, e := range history {
			if e.Ref == ref {
				return nil, nil
			}
			size += len(e.Body)
		}
		if size > MaxKept {
			return nil, nil
		}
		return []Draft{{Kind: KindTyped, Subject: subject, Ref: ref, Body: body}}, nil
	})
	return err
}

// typed is what people typed into a conversation.
func (g *Gate) typed(ctx context.Context, session string) (*steering.Typed, error) {
	history, err := g.Sessions.Log.Subject(ctx, typedPrefix+session)
	if err != nil {
		return nil, err
	}
	out := &steering.Typed{}
	for _, e := range history {
		var prompt string
		if e.Kind != KindTyped || json.Unmarshal(e.Body, &prompt) != nil {
			return nil, fmt.Errorf("%w: session %q, entry %d: this is no prompt", ErrHistory, session, e.Seq)
		}
		out.Add(prompt)
	}
	return out, nil
}

// seen is the taint under which a call is decided. It is the session's, but where
// the session is tainted and the policies look at who wrote the arguments. Those
// are the ones with which the call will be made. With an error it is tainted.
//
// Nothing is relaxed for a sub-agent: a model wrote its task, which may ask for
// another one of the things that the person typed than the person meant.
func (g *Gate) seen(ctx context.Context, r *Request, v *Verdict) (capability.Taint, error) {
	if !g.Steers || r.Agent != "" || v.State.Taint != capability.Tainted {
		return v.State.Taint, nil
	}
	typed, err := g.typed(ctx, r.Session)
	if err != nil {
		return capability.Tainted, err
	}
	arguments := r.Arguments
	if v.Transform.Kind == capability.Rewrite {
		arguments = v.Transform.Arguments
	}
	if len(arguments) == 0 {
		arguments = json.RawMessage("{}")
	}
	facts := steering.Look(&v.Tool.Steering, arguments, typed)
	taint, err := g.tainter().CallTaint(ctx, &capability.Steering{
		Session: v.State.Taint, Tool: r.Tool, Profile: v.Profile,
		Effect: facts.Effect, Aim: facts.Aim, Payload: facts.Payload,
	})
	if err != nil || !taint.Valid() {
		return capability.Tainted, err
	}
	return taint, nil
}
