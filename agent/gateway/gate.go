package gateway

import (
	"context"
	"encoding/json"
	"time"

	"github.com/opa-gate/opa-gate/capability"
)

// A Call is one tool call on its way to a server.
type Call struct {
	Session   string // the conversation
	ID        string // the call's own, in the session
	Server    string // the operator's name of the server
	Tool      string // the server's name of the tool
	Profile   capability.Profile
	Arguments json.RawMessage // one JSON object without a name that stands twice

	harmless bool // its result was found not to taint when it was decided
}

// A Verdict is the answer to a call after the approvals that a person gave.
type Verdict struct {
	Outcome capability.Outcome
	Pending *Pending // for an Escalate: what now waits for a person
}

// Pending is an escalation that waits for a person.
type Pending struct {
	ID      string
	Expires time.Time
	Where   string // how a person can answer it, in words: a command, or the address of a page
}

// A Gate decides what passes. Each method may be called by several goroutines,
// and an error of any of them means that nothing passes.
type Gate interface {
	// Begin puts on record that a conversation begins, with nothing in it.
	Begin(ctx context.Context, session string) error

	// Profile completes what a server declares of a tool with what the operator
	// states of it. Origin is the operator's alone.
	Profile(server, tool string, declared capability.Profile) capability.Profile

	// Decide answers a call. An escalation that no approval covers is filed, the
	// same call once, and comes with its Pending.
	Decide(ctx context.Context, c *Call) (Verdict, error)

	// Returned puts on record that a call of the session returned, or failed,
	// before anybody sees with what: its result may taint the conversation.
	Returned(ctx context.Context, c *Call, failed bool) error

	// Answer puts on record what a person said to a pending escalation.
	// Reviewer is who that is, as this program knows it.
	Answer(ctx context.Context, id, reviewer string, approve bool) error

	// Await returns when the pending escalation was answered, by anybody, or
	// has expired.
	Await(ctx context.Context, id string) error
}
