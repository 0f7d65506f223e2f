package ledger

import (
	"context"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/skill"
)

// A Decision is what a person says about an escalation. The zero Decision rejects.
type Decision struct {
	Approve  bool
	Scope    Scope         // of an approval; 0 is Once
	Comment  string        // may be empty; at most [MaxComment] bytes
	Lifetime time.Duration // how long it counts; 0 is that of the ledger's limits
}

// MaxComment bounds a comment, in bytes.
const MaxComment = 16 << 10

// Decide records what a person decided about the escalation with an id, and signs
// it if they approve. The reviewer is who authenticated, never part of a request.
// Of two who decide at the same moment the first one wins, and the other gets a
// *[DecidedError].
//
// Errors match ErrNotFound, ErrDecided, ErrScope for an approval that the
// escalation cannot have, ErrInvalid, ErrKey, skill.ErrReviewer, or are those of
// a store.
func (l *Ledger) Decide(ctx context.Context, reviewer, id string, d Decision) (*Pending, error) {
	if err := checkReviewer(reviewer); err != nil {
		return nil, err
	}
	lifetime := d.Lifetime
	if lifetime == 0 {
		lifetime = l.limits.Lifetime
	}
	switch {
	case !utf8.ValidString(d.Comment) || len(d.Comment) > MaxComment:
		return nil, fmt.Errorf("%w: expected a comment in UTF-8, of at most %d bytes", ErrInvalid, MaxComment)
	case lifetime < time.Second || lifetime > MaxLifetime:
		return nil, fmt.Errorf("%w: expected a lifetime from a second to %v, got %v", ErrInvalid, MaxLifetime, lifetime)
	case d.Scope > ForSession:
		return nil, fmt.Errorf("%w: there is no scope %d", ErrInvalid, d.Scope)
	}
	return l.change(ctx, id, func(tx *Tx, p *Pending, entries []Entry) (Draft, error) {
		if p.State != Waiting {
			return Draft{}, tooLate(p, entries)
		}
		r := ruling{Approved: d.Approve, Reviewer: reviewer, Comment: d.Comment, Expires: tx.Now().Add(lifetime).Truncate(time.Second)}
		subject := entries[0].Subject
		if d.Approve {
			r.Scope = max(d.Scope, Once)
			if r.Scope == ForSession {
				if !p.SessionOK {
					return Draft{}, unfit(p)
				}
				c := Call{Tool: p.Tool, Session: p.Session, Revision: p.Revision}
				_, subject = c.subjects(p.Digest)
			}
			var err error
			if r.Token, err = l.keys.sign(&Approval{ID: p.ID, Tool: p.Tool, Digest: p.Digest, Coverage: capability.Set(p.MissingMask),
				Session: p.Session, Revision: p.Revision, Scope: r.Scope, Reviewer: reviewer, At: tx.Now(), Expires: r.Expires}); err != nil {
				return Draft{}, err
			}
		}
		return Draft{Kind: kindDecided, Subject: subject, Body: r}, nil
	})
}

// change records what next says comes after the entries of the escalation with an
// id, and returns what becomes of it.
func (l *Ledger) change(ctx context.Context, id string, next func(tx *Tx, p *Pending, entries []Entry) (Draft, error)) (*Pending, error) {
	var changed *Pending
	err := l.Update(ctx, func(tx *Tx) error {
		entries, err := tx.w.ref(tx.ctx, id)
		if err != nil {
			return err
		}
		p, err := pendingOf(entries, tx.Now())
		if err != nil {
			return fmt.Errorf("%.64q: %w", id, err)
		}
		d, err := next(tx, p, entries)
		if err != nil {
			return err
		}
		d.Ref = p.ID
		entry, err := tx.Append(d)
		if err != nil {
			return err
		}
		changed, err = pendingOf(append(entries, entry), tx.Now())
		return err
	})
	if err != nil {
		return nil, err
	}
	return changed, nil
}

func checkReviewer(reviewer string) error {
	if reviewer == "" || !utf8.ValidString(reviewer) || len(reviewer) > 512 {
		return fmt.Errorf("%w: a record names who decided", skill.ErrReviewer)
	}
	return nil
}

func unfit(p *Pending) error {
	if p.Session == "" {
		return fmt.Errorf("%w: the call belongs to no session, so approve it once", ErrScope)
	}
	return fmt.Errorf("%w: who may do what in the system is approved one call at a time, so approve it once", ErrScope)
}

func tooLate(p *Pending, entries []Entry) error {
	e := &DecidedError{ID: p.ID, State: p.State, At: p.Expires}
	switch {
	case p.Decision != nil:
		e.Reviewer, e.At = p.Decision.Reviewer, p.Decision.At
		e.State = Rejected
		if p.Decision.Approved {
			e.State = Approved
		}
	case p.State == Withdrawn:
		e.At = entries[len(entries)-1].At
	}
	return e
}

// Withdraw ends an escalation that waits, or takes back an approval that lets
// calls pass from now on. By is who authenticated, or the program that filed it.
// Errors are those of [Ledger.Decide].
func (l *Ledger) Withdraw(ctx context.Context, by, id, why string) (*Pending, error) {
	if err := checkReviewer(by); err != nil {
		return nil, err
	}
	if !utf8.ValidString(why) || len(why) > MaxComment {
		return nil, fmt.Errorf("%w: expected a reason in UTF-8, of at most %d bytes", ErrInvalid, MaxComment)
	}
	return l.change(ctx, id, func(_ *Tx, p *Pending, entries []Entry) (Draft, error) {
		if p.State != Waiting && p.State != Approved {
			return Draft{}, tooLate(p, entries)
		}
		subject := entries[0].Subject
		for _, e := range entries {
			if e.Kind == kindDecided {
				subject = e.Subject // where an approval for a session is looked for
				break
			}
		}
		return Draft{Kind: kindWithdrawn, Subject: subject, Body: withdrawal{by, why}}, nil
	})
}
