package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/opa-gate/opa-gate/capability"
)

// The kinds of entry that a conversation's history has, under the subject
// "session:" and its ID.
const (
	KindBegun   = "session.begun"   // the gate saw the conversation begin
	KindTainted = "session.tainted" // a source of outside content, or news about one
	KindCleared = "session.cleared" // a person vouches for the conversation
)

const subjectPrefix = "session:"

// Bounds of a conversation's ID, in bytes, and of the sources that are kept of
// it. Of a conversation with more sources it is told that there are more.
const (
	MaxSessionID = 256
	MaxSources   = 64
)

// Errors of [Sessions], to be told apart with errors.Is.
var (
	// ErrSession: the ID of a conversation is empty, too long, or no plain text.
	ErrSession = errors.New("no session ID")
	// ErrNotCleared: nobody is named, or there is nothing to clear.
	ErrNotCleared = errors.New("the session is not cleared")
	// ErrHistory: a conversation's history has an entry that cannot be read, so
	// nobody knows what it says.
	ErrHistory = errors.New("the session's history cannot be read")
)

// Why says in which way outside content came into a conversation.
type Why string

// The ways. Started is what counts until the end of a call is known.
const (
	Started Why = "started" // a call was let go that can bring it in
	Ended   Why = "ended"   // such a call came to its end
	Failed  Why = "failed"  // such a call failed; its error may carry content too
	Unseen  Why = "unseen"  // the gate did not see the conversation begin
	Untyped Why = "untyped" // a prompt that no person typed
)

func (w Why) valid() bool { return slices.Contains([]Why{Started, Ended, Failed, Unseen, Untyped}, w) }

// A Source is one piece of outside content in a conversation.
type Source struct {
	Why   Why       `json:"why"`
	Tool  string    `json:"tool,omitempty"`
	Call  string    `json:"call,omitempty"` // the call's ID, as the agent names it
	Shows string    `json:"shows,omitempty"`
	Agent string    `json:"agent,omitempty"` // the sub-agent's ID, if one made the call
	At    time.Time `json:"at"`              // when it was first recorded
}

// String says in a few words what the source is.
func (s Source) String() string {
	var b strings.Builder
	switch s.Why {
	case Unseen:
		b.WriteString("a conversation whose beginning the gate did not see")
	case Untyped:
		b.WriteString("a prompt that nobody typed")
	default:
		b.WriteString(s.Tool)
	}
	if s.Shows != "" {
		b.WriteString(" " + s.Shows)
	}
	if s.Call != "" {
		b.WriteString(" (call " + s.Call + ")")
	}
	switch s.Why {
	case Started:
		b.WriteString(", whose end is not known")
	case Failed:
		b.WriteString(", which failed")
	}
	return b.String()
}

// A Clearing is a person's statement that what was in a conversation is no
// longer a danger.
type Clearing struct {
	By      string    `json:"by"`
	Comment string    `json:"comment,omitempty"`
	At      time.Time `json:"at"`
}

// A State is what is known of one conversation.
type State struct {
	ID      string           `json:"session"`
	Taint   capability.Taint `json:"-"`
	Begun   bool             `json:"begun"`          // the gate saw it begin
	First   time.Time        `json:"first,omitzero"` // its first entry
	Last    time.Time        `json:"last,omitzero"`  // its last entry
	Sources []Source         `json:"sources"`        // since it was last cleared, oldest first
	More    bool             `json:"more,omitempty"` // there are more sources than are kept
	Cleared []Clearing       `json:"cleared,omitempty"`
	calls   map[string]int   // from a call's key to its place in Sources
}

// MarshalJSON writes the state with its taint by name.
func (s State) MarshalJSON() ([]byte, error) {
	type plain State
	if s.Sources == nil {
		s.Sources = []Source{}
	}
	return json.Marshal(struct {
		plain
		Taint string `json:"taint"`
	}{plain(s), s.Taint.String()})
}

// Sessions keeps what is known of conversations in a log.
type Sessions struct{ Log Log }

// State returns what is known of a conversation. One that was never seen to
// begin is tainted, until somebody clears it.
func (s *Sessions) State(ctx context.Context, id string) (State, error) {
	if err := checkID(id); err != nil {
		return State{}, err
	}
	history, err := s.Log.Subject(ctx, subjectPrefix+id)
	if err != nil {
		return State{}, err
	}
	return stateOf(id, history)
}

// Begin records that the gate sees a conversation begin, with nothing in it.
// Of a conversation that has a history already it changes nothing.
func (s *Sessions) Begin(ctx context.Context, id string) (State, error) {
	return s.update(ctx, id, func(st State, _ time.Time) ([]Draft, error) {
		if !st.First.IsZero() {
			return nil, nil
		}
		return []Draft{{Kind: KindBegun, Body: []byte("{}")}}, nil
	})
}

// Continue records that a conversation goes on. If the gate has no history of
// it, what is in it is not known, and it is tainted.
func (s *Sessions) Continue(ctx context.Context, id string) (State, error) {
	return s.update(ctx, id, func(st State, now time.Time) ([]Draft, error) {
		if !st.First.IsZero() {
			return nil, nil
		}
		return taintDraft(Source{Why: Unseen, At: now})
	})
}

// Taint records a source of outside content. When it returns without an error,
// every process that asks sees the conversation tainted. What is known already
// is not recorded again.
func (s *Sessions) Taint(ctx context.Context, id string, src Source) (State, error) {
	if !src.Why.valid() {
		return State{}, fmt.Errorf("%w: %q is no way in which content comes in", ErrHistory, src.Why)
	}
	// A look first: in a tainted conversation most calls tell nothing new, and
	// reading holds nobody up.
	if st, err := s.State(ctx, id); err != nil || st.tells(src) {
		return st, err
	}
	return s.update(ctx, id, func(st State, now time.Time) ([]Draft, error) {
		if st.tells(src) {
			return nil, nil
		}
		src.At = now
		return taintDraft(src)
	})
}

// Clear records that a person vouches for a conversation: it is clean from
// here on, until content comes in again. By is who does it, as they
// authenticated.
func (s *Sessions) Clear(ctx context.Context, id, by, comment string) (State, error) {
	if strings.TrimSpace(by) == "" {
		return State{}, fmt.Errorf("%w: clearing names who does it", ErrNotCleared)
	}
	return s.update(ctx, id, func(st State, now time.Time) ([]Draft, error) {
		switch {
		case st.First.IsZero():
			return nil, fmt.Errorf("%w: there is no session %q", ErrNotCleared, id)
		case st.Taint == capability.Clean:
			return nil, fmt.Errorf("%w: nothing taints session %q", ErrNotCleared, id)
		}
		body, err := json.Marshal(Clearing{By: by, Comment: comment, At: now})
		return []Draft{{Kind: KindCleared, Body: body}}, err
	})
}

// List returns every conversation that the log knows, the one with the newest
// entry first.
func (s *Sessions) List(ctx context.Context) ([]State, error) {
	const page = 1000
	histories := map[string][]Entry{}
	for seq := int64(0); ; {
		entries, err := s.Log.Since(ctx, seq, page)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			seq = e.Seq
			if id, ok := strings.CutPrefix(e.Subject, subjectPrefix); ok {
				histories[id] = append(histories[id], e)
			}
		}
		if len(entries) < page {
			break
		}
	}
	states := make([]State, 0, len(histories))
	for id, history := range histories {
		st, err := stateOf(id, history)
		if err != nil {
			return nil, err
		}
		states = append(states, st)
	}
	slices.SortFunc(states, func(a, b State) int {
		if n := b.Last.Compare(a.Last); n != 0 {
			return n
		}
		return strings.Compare(a.ID, b.ID)
	})
	return states, nil
}

func (s *Sessions) update(ctx context.Context, id string, f func(State, time.Time) ([]Draft, error)) (State, error) {
	if err := checkID(id); err != nil {
		return State{}, err
	}
	subject := subjectPrefix + id
	var after State
	_, err := s.Log.Update(ctx, subject, func(history []Entry, now time.Time) ([]Draft, error) {
		st, err := stateOf(id, history)
		if err != nil {
			return nil, err
		}
		drafts, err := f(st, now)
		if err != nil {
			return nil, err
		}
		for i := range drafts {
			drafts[i].Subject = subject
			if err := st.take(drafts[i].Kind, drafts[i].Body, now); err != nil {
				return nil, err
			}
		}
		after = st
		return drafts, nil
	})
	if err != nil {
		return State{}, err
	}
	return after, nil
}

func taintDraft(src Source) ([]Draft, error) {
	body, err := json.Marshal(src)
	return []Draft{{Kind: KindTainted, Body: body}}, err
}

// stateOf reads a history from its beginning.
func stateOf(id string, history []Entry) (State, error) {
	st := State{ID: id}
	for _, e := range history {
		if err := st.take(e.Kind, e.Body, e.At); err != nil {
			return State{}, fmt.Errorf("session %q, entry %d: %w", id, e.Seq, err)
		}
	}
	st.settle()
	return st, nil
}

// take adds one entry. A kind that it does not know may be one of a newer
// program, which would say something about taint: it is an error.
func (s *State) take(kind string, body []byte, at time.Time) error {
	if s.First.IsZero() {
		s.First = at
	}
	if at.After(s.Last) {
		s.Last = at
	}
	switch kind {
	case KindBegun:
		s.Begun = true
	case KindTainted:
		var src Source
		if err := json.Unmarshal(body, &src); err != nil || !src.Why.valid() {
			return fmt.Errorf("%w: this is no source of content", ErrHistory)
		}
		s.add(src)
	case KindCleared:
		var c Clearing
		if err := json.Unmarshal(body, &c); err != nil || c.By == "" {
			return fmt.Errorf("%w: this is no clearing by somebody", ErrHistory)
		}
		s.Cleared = append(s.Cleared, c)
		s.Sources, s.calls, s.More = nil, nil, false
	default:
		return fmt.Errorf("%w: kind %q is unknown", ErrHistory, kind)
	}
	s.settle()
	return nil
}

// add keeps a source, or news about one that is kept.
func (s *State) add(src Source) {
	if i, ok := s.calls[src.key()]; ok {
		if s.Sources[i].Why == Started {
			s.Sources[i].Why = src.Why
		}
		return
	}
	if len(s.Sources) >= MaxSources {
		s.More = true
		return
	}
	if s.calls == nil {
		s.calls = map[string]int{}
	}
	s.calls[src.key()] = len(s.Sources)
	s.Sources = append(s.Sources, src)
}

func (s *State) settle() {
	switch {
	case len(s.Sources) > 0, len(s.Cleared) == 0 && !s.Begun:
		s.Taint = capability.Tainted
	default:
		s.Taint = capability.Clean
	}
}

// tells reports whether the state says already what src would add.
func (s *State) tells(src Source) bool {
	if i, ok := s.calls[src.key()]; ok {
		return src.Why == Started || s.Sources[i].Why != Started // an end is told once
	}
	return s.More
}

// Describe says what taints the conversation, in one sentence for a person; ""
// if nothing does. It names the newest few sources.
func (s *State) Describe() string {
	if s.Taint == capability.Clean {
		return ""
	}
	if len(s.Sources) == 0 {
		return "The conversation counts as tainted because of " + Source{Why: Unseen}.String() + "."
	}
	const named = 3
	sources := s.Sources[max(0, len(s.Sources)-named):]
	texts := make([]string, len(sources))
	for i, src := range sources {
		texts[i] = src.String()
	}
	text := "Outside content came in through " + strings.Join(texts, "; ")
	if n := len(s.Sources) - len(sources); n > 0 || s.More {
		text += "; and more before"
	}
	return text + "."
}

// key tells sources apart. Calls without an ID are one source a tool.
func (s Source) key() string {
	if s.Why == Unseen || s.Why == Untyped {
		return string(s.Why)
	}
	return "call\x00" + s.Tool + "\x00" + s.Call
}

func checkID(id string) error {
	switch {
	case id == "":
		return fmt.Errorf("%w: it is empty", ErrSession)
	case len(id) > MaxSessionID:
		return fmt.Errorf("%w: it has more than %d bytes", ErrSession, MaxSessionID)
	case !utf8.ValidString(id) || strings.IndexFunc(id, unicode.IsControl) >= 0:
		return fmt.Errorf("%w: it has characters that are no text", ErrSession)
	}
	return nil
}
