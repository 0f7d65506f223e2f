package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// A Ledger is an open ledger. Make one with [Open]. It is safe for use by several
// goroutines; several processes may have the same one open.
type Ledger struct {
	store   store
	keys    *Keyring
	now     func() time.Time
	limits  Limits
	patient time.Duration // how long a step may take if its context does not say
	poll    time.Duration // how often somebody who waits looks
}

// Options say how a ledger is used. Nil and zero members mean the defaults.
type Options struct {
	Keys   *Keyring         // to sign and verify approvals; nil: no approval counts and none is given
	Now    func() time.Time // time.Now
	Limits Limits
}

// Limits bound what waits.
type Limits struct {
	Waiting  int           // escalations that wait at the same time; default 10,000
	Lifetime time.Duration // how long an escalation waits, and an approval counts; default an hour
}

// MaxLifetime bounds how long escalations wait and approvals count.
const MaxLifetime = 30 * 24 * time.Hour

func newLedger(s store, opts *Options) *Ledger {
	if opts == nil {
		opts = &Options{}
	}
	l := &Ledger{store: s, keys: opts.Keys, now: opts.Now, limits: opts.Limits, patient: 15 * time.Second, poll: 100 * time.Millisecond}
	if l.keys == nil {
		l.keys = &Keyring{}
	}
	if l.now == nil {
		l.now = time.Now
	}
	if l.limits.Waiting <= 0 {
		l.limits.Waiting = 10_000
	}
	if l.limits.Lifetime <= 0 {
		l.limits.Lifetime = time.Hour
	}
	return l
}

// Close gives back what the ledger holds.
func (l *Ledger) Close() error { return l.store.close() }

// bounded has every step end some time.
func (l *Ledger) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, l.patient)
}

// A Tx is one writing transaction: nobody else writes meanwhile, and what it
// appends is there as a whole or not at all.
type Tx struct {
	ctx  context.Context
	w    writer
	end  head
	time time.Time
}

// Update runs f in a writing transaction. If f returns an error nothing is
// appended, and Update returns that error. Once Update returns nil, what was
// appended outlasts the process and the machine.
func (l *Ledger) Update(ctx context.Context, f func(tx *Tx) error) error {
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	return l.store.update(ctx, func(w writer) error {
		end, err := w.head(ctx)
		if err != nil {
			return err
		}
		return f(&Tx{ctx: ctx, w: w, end: end, time: l.after(end)})
	})
}

// after is the time of what follows h. A clock that was set back does not bring
// back what has expired.
func (l *Ledger) after(h head) time.Time {
	now := l.now().UTC().Round(0)
	if now.Before(h.at) {
		return h.at
	}
	return now
}

// Now is the time of the transaction: that of the clock, or of the last entry if
// the clock was set back since.
func (tx *Tx) Now() time.Time { return tx.time }

// Subject returns all entries of a subject, oldest first.
func (tx *Tx) Subject(subject string) ([]Entry, error) { return tx.w.subject(tx.ctx, subject) }

// Last returns the last entry of a subject; ok is false if it has none.
func (tx *Tx) Last(subject string) (e Entry, ok bool, err error) { return tx.w.last(tx.ctx, subject) }

// Append appends an entry.
func (tx *Tx) Append(d Draft) (Entry, error) {
	e, err := tx.end.entry(d, tx.time)
	if err != nil {
		return Entry{}, err
	}
	return e, tx.put(e)
}

// put appends an entry that follows the head, and keeps what waits.
func (tx *Tx) put(e Entry) error {
	if err := tx.w.put(tx.ctx, e); err != nil {
		return err
	}
	tx.end = head{e.Seq, e.Hash, e.At}
	switch e.Kind {
	case kindFiled:
		var f struct {
			Expires time.Time `json:"expires_at"`
		}
		if err := json.Unmarshal(e.Body, &f); err != nil {
			return fmt.Errorf("%w: entry %d: %w", ErrInvalid, e.Seq, err)
		}
		return tx.w.open(tx.ctx, e.Ref, e.Seq, f.Expires)
	case kindDecided, kindWithdrawn:
		return tx.w.shut(tx.ctx, e.Ref)
	}
	return nil
}

// Subject returns all entries of a subject, oldest first.
func (l *Ledger) Subject(ctx context.Context, subject string) ([]Entry, error) {
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	return l.store.subject(ctx, subject)
}

// Since returns up to limit entries after seq, oldest first.
func (l *Ledger) Since(ctx context.Context, seq int64, limit int) ([]Entry, error) {
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	return l.store.since(ctx, seq, limit)
}

// Kind returns up to limit entries of a kind before seq, newest first; seq 0 is
// the end.
func (l *Ledger) Kind(ctx context.Context, kind string, before int64, limit int) ([]Entry, error) {
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	return l.store.kind(ctx, kind, before, limit)
}

// Head returns the number and the hash of the last entry; 0 and the zero hash if
// there is none.
func (l *Ledger) Head(ctx context.Context) (int64, Hash, error) {
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	h, err := l.store.head(ctx)
	return h.seq, h.hash, err
}
