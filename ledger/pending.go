package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/opa-gate/opa-gate/capability"
)

// Kinds of entries about calls.
const (
	kindFiled     = "filed"     // an escalation waits
	kindDecided   = "decided"   // a person approved or rejected it
	kindUsed      = "used"      // an approval let a call pass
	kindWithdrawn = "withdrawn" // the escalation, or the approval, no longer counts
)

// A State says how far an escalation has come. The zero State is none.
type State uint8

// The states.
const (
	Waiting   State = iota + 1
	Approved        // and not used, if it is for once
	Rejected        //
	Used            // approved once, and a call passed
	Expired         // nobody decided it in time
	Withdrawn       // nobody needs to decide it, or the approval was taken back
)

var stateNames = [...]string{Waiting: "waiting", Approved: "approved", Rejected: "rejected", Used: "used",
	Expired: "expired", Withdrawn: "withdrawn"}

// States lists the names of all states.
func States() []string { return stateNames[Waiting:] }

// String returns the name of s; "" if it has none.
func (s State) String() string {
	if s < Waiting || s > Withdrawn {
		return ""
	}
	return stateNames[s]
}

// MarshalText implements encoding.TextMarshaler.
func (s State) MarshalText() ([]byte, error) {
	if s.String() == "" {
		return nil, fmt.Errorf("state %d has no name", s)
	}
	return []byte(s.String()), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *State) UnmarshalText(text []byte) error {
	for i := Waiting; i <= Withdrawn; i++ {
		if stateNames[i] == string(text) {
			*s = i
			return nil
		}
	}
	return fmt.Errorf("there is no state %q", text)
}

// A Pending is an escalation that was filed, and what became of it.
type Pending struct {
	ID          string          `json:"id"`
	State       State           `json:"state"`
	Tool        string          `json:"tool"`
	Arguments   json.RawMessage `json:"arguments"`
	Transform   *Transform      `json:"transform,omitempty"` // nil if there is none
	Missing     []string        `json:"missing"`             // display names
	MissingMask uint16          `json:"missing_mask"`
	Reason      string          `json:"reason"` // for the person; may be empty
	Session     string          `json:"session"`
	Revision    string          `json:"revision"`
	Digest      Hash            `json:"digest"` // see [Call.Digest]
	Filed       time.Time       `json:"filed_at"`
	Expires     time.Time       `json:"expires_at"`
	Decision    *Verdict        `json:"decision,omitempty"`
	Uses        int             `json:"uses"`            // calls that passed
	SessionOK   bool            `json:"session_allowed"` // whether it can be approved for the session
}

// A Transform is that of a call's policy, as the specification writes it.
type Transform struct {
	Kind      string          `json:"kind"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Note      string          `json:"note,omitempty"`
}

// A Verdict is what a person decided about an escalation.
type Verdict struct {
	Approved bool      `json:"approved"`
	Scope    Scope     `json:"scope,omitzero"`
	Reviewer string    `json:"reviewer"`
	Comment  string    `json:"comment"`
	At       time.Time `json:"at"`
	Expires  time.Time `json:"expires_at"`      // when the approval or the rejection ends
	Token    string    `json:"token,omitempty"` // the signed approval; see [Keyring.Read]
}

// filing is the body of an entry filed.
type filing struct {
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	Transform *Transform      `json:"transform,omitempty"`
	Missing   uint16          `json:"missing_mask"`
	Reason    string          `json:"reason"`
	Session   string          `json:"session"`
	Revision  string          `json:"revision"`
	Digest    Hash            `json:"digest"`
	Expires   time.Time       `json:"expires_at"`
}

// ruling is the body of an entry decided.
type ruling struct {
	Approved bool      `json:"approved"`
	Scope    Scope     `json:"scope,omitzero"`
	Reviewer string    `json:"reviewer"`
	Comment  string    `json:"comment"`
	Expires  time.Time `json:"expires_at"`
	Token    string    `json:"token,omitempty"`
}

// withdrawal is the body of an entry withdrawn.
type withdrawal struct {
	By     string `json:"by"`
	Reason string `json:"reason"`
}

func (f *filing) call() (*Call, error) {
	c := &Call{Tool: f.Tool, Arguments: f.Arguments, Session: f.Session, Revision: f.Revision}
	if t := f.Transform; t != nil {
		kind, ok := capability.ParseTransformKind(t.Kind)
		if !ok {
			return nil, fmt.Errorf("%w: there is no transform %q", ErrDamaged, t.Kind)
		}
		c.Transform = capability.Transform{Kind: kind, Arguments: t.Arguments, Note: t.Note}
	}
	digest, err := c.Digest()
	if err != nil || digest != f.Digest {
		return nil, fmt.Errorf("%w: an escalation has another digest than its call", ErrDamaged)
	}
	return c, nil
}

// pendingOf makes a Pending of all entries with one ref, in order.
func pendingOf(entries []Entry, now time.Time) (*Pending, error) {
	if len(entries) == 0 || entries[0].Kind != kindFiled {
		return nil, ErrNotFound
	}
	first := &entries[0]
	var f filing
	if err := first.read(&f); err != nil {
		return nil, err
	}
	if _, err := f.call(); err != nil {
		return nil, fmt.Errorf("entry %d: %w", first.Seq, err)
	}
	missing := capability.Set(f.Missing)
	p := &Pending{ID: first.Ref, State: Waiting, Tool: f.Tool, Arguments: f.Arguments, Transform: f.Transform,
		Missing: missing.DisplayNames(), MissingMask: f.Missing, Reason: f.Reason, Session: f.Session, Revision: f.Revision,
		Digest: f.Digest, Filed: first.At, Expires: f.Expires, SessionOK: forSession(f.Session, missing)}
	for i := range entries[1:] {
		e := &entries[1+i]
		switch e.Kind {
		case kindDecided:
			if p.Decision != nil {
				continue // the first one won
			}
			var r ruling
			if err := e.read(&r); err != nil {
				return nil, err
			}
			p.Decision = &Verdict{r.Approved, r.Scope, r.Reviewer, r.Comment, e.At, r.Expires, r.Token}
			p.State = Rejected
			if r.Approved {
				p.State = Approved
			}
		case kindUsed:
			p.Uses++
			if p.Decision != nil && p.Decision.Scope == Once {
				p.State = Used
			}
		case kindWithdrawn:
			if p.State == Waiting || p.State == Approved {
				p.State = Withdrawn
			}
		}
	}
	if p.State == Waiting && !now.Before(p.Expires) {
		p.State = Expired
	}
	return p, nil
}

// forSession tells whether an escalation can be approved for a whole session: acts
// that nobody is ever granted are approved one by one.
func forSession(session string, missing capability.Set) bool {
	return session != "" && missing.SubsetOf(capability.All)
}

// Pending returns an escalation. Its errors match ErrNotFound or those of a store.
func (l *Ledger) Pending(ctx context.Context, id string) (*Pending, error) {
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	entries, err := l.store.ref(ctx, id)
	if err != nil {
		return nil, err
	}
	end, err := l.store.head(ctx)
	if err != nil {
		return nil, err
	}
	p, err := pendingOf(entries, l.after(end))
	if err != nil {
		return nil, fmt.Errorf("%.64q: %w", id, err)
	}
	return p, nil
}

// Waiting returns up to limit escalations that wait, newest first, and how many
// there are.
func (l *Ledger) Waiting(ctx context.Context, limit int) ([]*Pending, int, error) {
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	end, err := l.store.head(ctx)
	if err != nil {
		return nil, 0, err
	}
	now := l.after(end)
	n, err := l.store.count(ctx, now)
	if err != nil || n == 0 || limit <= 0 {
		return nil, n, err
	}
	entries, err := l.store.waiting(ctx, now, 0, limit)
	if err != nil {
		return nil, 0, err
	}
	waiting := make([]*Pending, len(entries))
	for i := range entries {
		if waiting[i], err = pendingOf(entries[i:i+1], now); err != nil {
			return nil, 0, err
		}
	}
	return waiting, n, nil
}

// Wait returns the escalation as soon as it no longer waits. It looks every tenth
// of a second, and goes on while the ledger is not available. The error is that of
// ctx, with the ledger's if it was away to the end.
func (l *Ledger) Wait(ctx context.Context, id string) (*Pending, error) {
	tick := time.NewTicker(l.poll)
	defer tick.Stop()
	for {
		p, err := l.Pending(ctx, id)
		if err != nil && !errors.Is(err, ErrUnavailable) || err == nil && p.State != Waiting {
			return p, err
		}
		select {
		case <-ctx.Done():
			return p, errors.Join(ctx.Err(), err)
		case <-tick.C:
		}
	}
}
