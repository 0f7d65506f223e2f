package ledger

import (
	"context"
	"errors"
	"time"

	"github.com/opa-gate/opa-gate/skill"
)

// A Change is one step of an escalation.
type Change struct {
	Seq     int64     `json:"seq"`
	Event   string    `json:"event"` // filed, decided, used or withdrawn
	At      time.Time `json:"at"`
	Pending *Pending  `json:"escalation"` // as it is now
}

// Changes returns the steps of escalations among the next entries after seq,
// oldest first, and the entry to go on after: seq itself if nothing is new. That
// an escalation expired is no step. Errors are those of a store.
func (l *Ledger) Changes(ctx context.Context, seq int64) ([]Change, int64, error) {
	const atOnce = 100
	entries, err := l.Since(ctx, seq, atOnce)
	if err != nil {
		return nil, seq, err
	}
	var changes []Change
	for i := range entries {
		e := &entries[i]
		switch e.Kind {
		case kindFiled, kindDecided, kindUsed, kindWithdrawn:
			p, err := l.Pending(ctx, e.Ref)
			if errors.Is(err, ErrNotFound) { // an approval from elsewhere was used
				break
			}
			if err != nil {
				return changes, seq, err
			}
			changes = append(changes, Change{e.Seq, e.Kind, e.At, p})
		}
		seq = e.Seq
	}
	return changes, seq, nil
}

// Rulings returns up to limit records about skills before an entry, newest first,
// and the entry to go on before: 0 if there are no more. Before 0 is the end.
// Errors are those of a store.
func (l *Ledger) Rulings(ctx context.Context, before int64, limit int) ([]skill.Record, int64, error) {
	entries, err := l.Kind(ctx, KindRuling, before, limit)
	if err != nil {
		return nil, 0, err
	}
	records, err := recordsOf(entries)
	if err != nil {
		return nil, 0, err
	}
	if len(entries) < limit || limit <= 0 {
		return records, 0, nil
	}
	return records, entries[len(entries)-1].Seq, nil
}
