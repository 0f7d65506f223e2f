package ledger

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/opa-gate/opa-gate/capability"
)

// An Escalation is a call with what the policies answered about it.
type Escalation struct {
	Call     Call
	Outcome  capability.Outcome
	Lifetime time.Duration // how long it waits if it is filed; 0 is that of the ledger's limits
	Token    string        // a signed approval that came with the call, if one did
}

// An Admission is what becomes of a call.
type Admission struct {
	Outcome capability.Outcome // that counts
	Pending *Pending           // what waits for a person now, if anything does
	// Approval is what let the call pass, if an approval did.
	Approval *Approval
	// Refused says why an approval that was there did not help: nil, or an error
	// that matches one of ErrMalformed to ErrWithdrawn.
	Refused error
}

// Admit settles a call. What is not an escalation comes back as it is, and the
// ledger is not touched. An approval that covers the call satisfies steps 2 and 3
// of the decision, and one that is for once is used up by it, whoever else asks at
// the same moment. A rejection of exactly this call denies it for as long as it
// lasts, unless an approval was given later. Otherwise the escalation is filed, unless it waits already.
//
// On an error the outcome is still the escalation. Errors match ErrInvalid for a
// call that cannot be approved, ErrTooMany, or are those of a store.
func (l *Ledger) Admit(ctx context.Context, e *Escalation) (Admission, error) {
	asked := Admission{Outcome: e.Outcome}
	if e.Outcome.Kind != capability.Escalate {
		return asked, nil
	}
	digest, err := e.Call.Digest()
	if err != nil {
		return asked, err
	}
	var settled Admission
	err = l.Update(ctx, func(tx *Tx) error {
		s := settling{l: l, tx: tx, e: e, digest: digest}
		s.callSubject, s.toolSubject = e.Call.subjects(digest)
		err := s.settle()
		settled = s.out
		if err == nil && !s.wrote {
			err = errNothingToWrite
		}
		return err
	})
	if err != nil && !errors.Is(err, errNothingToWrite) {
		return asked, err
	}
	return settled, nil
}

// errNothingToWrite ends a transaction that only read.
var errNothingToWrite = errors.New("nothing to write")

type settling struct {
	l                        *Ledger
	tx                       *Tx
	e                        *Escalation
	digest                   Hash
	callSubject, toolSubject string
	out                      Admission
	wrote                    bool
}

// settle goes by the last word of a person: a rejection of exactly this call
// counts until it ends or an approval is given after it.
func (s *settling) settle() error {
	s.out = Admission{Outcome: s.e.Outcome}
	exact, err := s.tx.Subject(s.callSubject)
	if err != nil {
		return err
	}
	last, err := s.last(exact)
	if err != nil {
		return err
	}
	missing, now := s.e.Outcome.Missing, s.tx.Now()
	var no *Pending
	if last != nil && last.State == Rejected && now.Before(last.Decision.Expires) && missing.SubsetOf(capability.Set(last.MissingMask)) {
		no = last
	}
	var rejection Entry // the zero Entry is before all others
	for i := range exact {
		if no != nil && exact[i].Kind == kindDecided && exact[i].Ref == no.ID {
			rejection = exact[i]
			break // the first one won
		}
	}
	if ok, err := s.approved(exact, &rejection); ok || err != nil {
		return err
	}
	switch {
	case no != nil:
		s.out.Outcome = rejected(s.e, no)
		return nil
	case last != nil && last.State == Waiting && missing == capability.Set(last.MissingMask):
		s.out.Pending = last
		return nil
	case last != nil && last.State == Waiting: // what is missing has changed since
		if err := s.withdraw(last.ID, "the same call was filed again with something else missing"); err != nil {
			return err
		}
	}
	return s.file()
}

// last is the last filing of exactly this call; nil if there is none.
func (s *settling) last(exact []Entry) (*Pending, error) {
	for i := range slices.Backward(exact) {
		if exact[i].Kind == kindFiled {
			all, err := s.tx.w.ref(s.tx.ctx, exact[i].Ref)
			if err != nil {
				return nil, err
			}
			return pendingOf(all, s.tx.Now())
		}
	}
	return nil, nil
}

// approved tries every approval there is: the one that came with the call, those
// for its session, and those of exactly this call, the newest of each first. Those
// given before a rejection do not count.
func (s *settling) approved(exact []Entry, rejection *Entry) (bool, error) {
	if s.e.Token != "" {
		if ok, err := s.try(s.e.Token, rejection.At); ok || err != nil {
			return ok, err
		}
	}
	session, err := s.tx.Subject(s.toolSubject)
	if err != nil {
		return false, err
	}
	for _, about := range [][]Entry{session, exact} {
		newest := true
		for i := range slices.Backward(about) {
			if about[i].Kind != kindDecided || about[i].Seq <= rejection.Seq {
				continue
			}
			var r ruling
			if err := about[i].read(&r); err != nil {
				return false, err
			}
			// Of the old ones, those that are plainly over need no signature read.
			over := !s.tx.Now().Before(r.Expires) || spent(about[i].Ref, r.Scope, about) != nil
			if !r.Approved || over && !newest {
				continue
			}
			newest = false
			if ok, err := s.try(r.Token, time.Time{}); ok || err != nil {
				return ok, err
			}
		}
	}
	return false, nil
}

func rejected(e *Escalation, p *Pending) capability.Outcome {
	o := e.Outcome
	o.Kind, o.Missing = capability.Deny, 0
	o.Reason = fmt.Sprintf("A person rejected this call of %q", e.Call.Tool)
	if p.Decision.Comment != "" {
		o.Reason += ": " + p.Decision.Comment
	}
	if !strings.HasSuffix(o.Reason, ".") {
		o.Reason += "."
	}
	return o
}

// try has an approval let the call pass, if it covers it and was given after
// a time, to the second.
func (s *settling) try(token string, after time.Time) (bool, error) {
	a, err := s.l.keys.Read(token)
	if err == nil {
		err = a.Covers(&s.e.Call, s.e.Outcome.Missing, s.tx.Now())
	}
	if err == nil && !a.At.After(after.Truncate(time.Second)) {
		err = fmt.Errorf("%w: exactly this call was rejected since", ErrWithdrawn)
	}
	if err == nil {
		var about []Entry
		if about, err = s.about(a); err != nil {
			return false, err
		}
		err = spent(a.ID, a.Scope, about)
	}
	if err != nil {
		if s.out.Refused == nil {
			s.out.Refused = err
		}
		return false, nil
	}
	outcome := s.e.Outcome.Approved(a.Coverage, s.e.Call.Transform)
	if outcome.Kind == capability.Escalate {
		return false, nil
	}
	use := struct {
		Digest Hash   `json:"digest"`
		Scope  Scope  `json:"scope"`
		By     string `json:"reviewer"`
	}{s.digest, a.Scope, a.Reviewer}
	if _, err := s.tx.Append(Draft{Kind: kindUsed, Subject: s.callSubject, Ref: a.ID, Body: use}); err != nil {
		return false, err
	}
	s.out, s.wrote = Admission{Outcome: outcome, Approval: a}, true
	return true, nil
}

// about returns entries that tell whether an approval still counts. Those of one
// for a session are without its uses, of which there may be many.
func (s *settling) about(a *Approval) ([]Entry, error) {
	if a.Scope == ForSession {
		return s.tx.Subject(s.toolSubject)
	}
	return s.tx.w.ref(s.tx.ctx, a.ID)
}

// spent reports why the approval with an id no longer counts.
func spent(id string, scope Scope, entries []Entry) error {
	for _, e := range entries {
		switch {
		case e.Ref != id:
		case e.Kind == kindWithdrawn:
			return ErrWithdrawn
		case e.Kind == kindUsed && scope == Once:
			return fmt.Errorf("%w, at %s", ErrUsed, e.At.Format(time.RFC3339))
		}
	}
	return nil
}

// file has the escalation wait.
func (s *settling) file() error {
	lifetime := s.e.Lifetime
	if lifetime == 0 {
		lifetime = s.l.limits.Lifetime
	}
	if lifetime < 0 || lifetime > MaxLifetime {
		return fmt.Errorf("%w: expected a lifetime of up to %v, got %v", ErrInvalid, MaxLifetime, lifetime)
	}
	if err := s.tx.w.lapse(s.tx.ctx, s.tx.Now()); err != nil {
		return err
	}
	n, err := s.tx.w.count(s.tx.ctx, s.tx.Now())
	if err != nil {
		return err
	}
	if n >= s.l.limits.Waiting {
		return fmt.Errorf("%w: %d do, and no more are taken until some are decided or expire", ErrTooMany, n)
	}
	c, o := &s.e.Call, &s.e.Outcome
	arguments := c.Arguments // as they came; a person reads them
	if arguments == nil {
		arguments = json.RawMessage("{}")
	}
	f := filing{Tool: c.Tool, Arguments: arguments, Missing: o.Missing.Mask(), Reason: o.Reason, Session: c.Session,
		Revision: c.Revision, Digest: s.digest, Expires: s.tx.Now().Add(lifetime)}
	if t := c.Transform; t.Kind != capability.NoTransform {
		f.Transform = &Transform{t.Kind.String(), t.Arguments, t.Note}
	}
	entry, err := s.tx.Append(Draft{Kind: kindFiled, Subject: s.callSubject, Ref: newID(), Body: f})
	if err != nil {
		return err
	}
	s.wrote = true
	s.out.Pending, err = pendingOf([]Entry{entry}, s.tx.Now())
	return err
}

func (s *settling) withdraw(id, why string) error {
	s.wrote = true
	_, err := s.tx.Append(Draft{Kind: kindWithdrawn, Subject: s.callSubject, Ref: id, Body: withdrawal{"opa-gate", why}})
	return err
}

// newID is a name that nobody can guess and a person can type.
func newID() string {
	var random [10]byte
	_, _ = rand.Read(random[:]) // never fails, or ends the process
	return strings.ToLower(base32.StdEncoding.EncodeToString(random[:]))
}
