package agent

import (
	"context"
	"encoding/json"
	"time"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/ledger"
)

// OnLedger returns a [Log] and [Approvals] that a ledger keeps. Escalations wait
// as long as the ledger's limits say.
func OnLedger(l *ledger.Ledger) *Ledger { return &Ledger{l} }

// A Ledger is both a [Log] and [Approvals].
type Ledger struct{ ledger *ledger.Ledger }

// Update implements [Log].
func (l *Ledger) Update(ctx context.Context, subject string, f func([]Entry, time.Time) ([]Draft, error)) ([]Entry, error) {
	var added []Entry
	err := l.ledger.Update(ctx, func(tx *ledger.Tx) error {
		added = nil
		history, err := tx.Subject(subject)
		if err != nil {
			return err
		}
		drafts, err := f(entriesOf(history), tx.Now())
		if err != nil {
			return err
		}
		for _, d := range drafts {
			e, err := tx.Append(ledger.Draft{Kind: d.Kind, Subject: d.Subject, Ref: d.Ref, Body: json.RawMessage(d.Body)})
			if err != nil {
				return err
			}
			added = append(added, entryOf(&e))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return added, nil
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
