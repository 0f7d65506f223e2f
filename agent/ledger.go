package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/ledger"
)

// OnLedger returns a [Log] and [Approvals] that a ledger keeps. Escalations wait
// as long as the ledger's limits say.
func OnLedger(l *ledger.Ledger) *Ledger { return &Ledger{ledger: l} }

// A Ledger is both a [Log] and [Approvals].
type Ledger struct {
	ledger *ledger.Ledger

	mu      sync.Mutex
	writing bool
	waiting []*update
}

// An update is one that waits for its turn.
type update struct {
	ctx     context.Context
	subject string
	f       func([]Entry, time.Time) ([]Draft, error)
	added   []Entry
	err     error
	done    chan struct{}
}

// Update implements [Log]. Updates that come while another one is written are
// written together: making them durable is what takes time, and it is done once.
func (l *Ledger) Update(ctx context.Context, subject string, f func([]Entry, time.Time) ([]Draft, error)) ([]Entry, error) {
	u := &update{ctx: ctx, subject: subject, f: f, done: make(chan struct{})}
	l.mu.Lock()
	l.waiting = append(l.waiting, u)
	lead := !l.writing
	l.writing = true
	l.mu.Unlock()
	if lead {
		go l.write()
	}
	select {
	case <-u.done:
		return u.added, u.err
	case <-ctx.Done(): // it may be written still; whoever asked must take it for not written
		return nil, ctx.Err()
	}
}

// write writes what waits until nothing does.
func (l *Ledger) write() {
	for {
		l.mu.Lock()
		batch := l.waiting
		l.waiting = nil
		l.writing = len(batch) > 0
		l.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), writeTime)
		err := l.ledger.Update(ctx, func(tx *ledger.Tx) error {
			for _, u := range batch {
				u.added, u.err = nil, nil
				if err := u.run(tx); err != nil {
					return err
				}
			}
			return nil
		})
		cancel()
		for _, u := range batch {
			if err != nil && u.err == nil {
				u.added, u.err = nil, err
			}
			close(u.done)
		}
	}
}

// writeTime bounds one step of writing.
const writeTime = 15 * time.Second

// run adds one update to a transaction. An error of its function is its own; the
// error that it returns is that of the transaction.
func (u *update) run(tx *ledger.Tx) (failed error) {
	if u.err = u.ctx.Err(); u.err != nil {
		return nil
	}
	history, err := tx.Subject(u.subject)
	if err != nil {
		return err
	}
	drafts, err := u.draft(entriesOf(history), tx.Now())
	if err != nil {
		u.err = err
		return nil
	}
	for _, d := range drafts {
		e, err := tx.Append(ledger.Draft{Kind: d.Kind, Subject: d.Subject, Ref: d.Ref, Body: json.RawMessage(d.Body)})
		if err != nil {
			return err
		}
		u.added = append(u.added, entryOf(&e))
	}
	return nil
}

// draft calls the update's function, whose fault must not end the others.
func (u *update) draft(history []Entry, now time.Time) (drafts []Draft, err error) {
	defer func() {
		if p := recover(); p != nil {
			drafts, err = nil, fmt.Errorf("%w: %v", ErrPanic, p)
		}
	}()
	return u.f(history, now)
}

// Subject implements [Log].
func (l *Ledger) Subject(ctx context.Context, subject string) ([]Entry, error) {
	entries, err := l.ledger.Subject(ctx, subject)
	return entriesOf(entries), err
}

// Since implements [Log].
func (l *Ledger) Since(ctx context.Context, seq int64, limit int) ([]Entry, error) {
	entries, err := l.ledger.Since(ctx, seq, limit)
	return entriesOf(entries), err
}

// Admit implements [Approvals].
func (l *Ledger) Admit(ctx context.Context, c Case, o capability.Outcome) (Admission, error) {
	settled, err := l.ledger.Admit(ctx, &ledger.Escalation{
		Call: ledger.Call{
			Tool: c.Tool, Arguments: c.Arguments, Transform: c.Policy.Transform, Session: c.Session, Revision: c.Revision,
		},
		Outcome: o,
	})
	if err != nil {
		return Admission{}, err
	}
	out := Admission{Outcome: settled.Outcome}
	if settled.Pending != nil {
		out.Pending = settled.Pending.ID
	}
	if settled.Approval != nil {
		out.Approved = settled.Approval.ID
	}
	return out, nil
}

// Wait implements [Approvals].
func (l *Ledger) Wait(ctx context.Context, id string) error {
	_, err := l.ledger.Wait(ctx, id)
	return err
}

// Withdraw implements [Approvals].
func (l *Ledger) Withdraw(ctx context.Context, id, why string) error {
	_, err := l.ledger.Withdraw(ctx, "opa-gate", id, why)
	return err
}

func entriesOf(entries []ledger.Entry) []Entry {
	out := make([]Entry, len(entries))
	for i := range entries {
		out[i] = entryOf(&entries[i])
	}
	return out
}

func entryOf(e *ledger.Entry) Entry {
	return Entry{Seq: e.Seq, At: e.At, Kind: e.Kind, Subject: e.Subject, Ref: e.Ref, Body: e.Body}
}
