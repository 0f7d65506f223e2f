package ledger

import (
	"context"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/opa-gate/opa-gate/skill"
)

// KindRuling is the kind of entries about skills.
const KindRuling = "ruling"

// record is the body of an entry about a skill: the record of specification,
// section 6.
type record struct {
	Fingerprint  string    `json:"fingerprint"`
	RequiredTier string    `json:"required_tier"`
	Decision     string    `json:"decision"`
	Reviewer     string    `json:"reviewer"`
	Reason       string    `json:"reason"`
	Evidence     string    `json:"evidence,omitempty"`
	DecidedAt    time.Time `json:"decided_at"`
	ImportedBy   string    `json:"imported_by,omitempty"` // who brought it from elsewhere
}

var _ skill.Ledger = (*Ledger)(nil)

// rulingSubject keeps fingerprints of skills apart from all other subjects.
func rulingSubject(fingerprint string) string { return "skill:" + fingerprint }

// Record implements [skill.Ledger]. Its errors match those of
// [skill.Ruling.Validate], skill.ErrReviewer, ErrInvalid, or are those of a store.
func (l *Ledger) Record(ctx context.Context, reviewer string, r skill.Ruling) (skill.Record, error) {
	if err := checkReviewer(reviewer); err != nil {
		return skill.Record{}, err
	}
	var out skill.Record
	err := l.Update(ctx, func(tx *Tx) error {
		b := newRecord(skill.Record{Ruling: r, Reviewer: reviewer, DecidedAt: tx.Now()})
		if err := b.check(); err != nil {
			return err
		}
		_, err := tx.Append(Draft{Kind: KindRuling, Subject: rulingSubject(r.Fingerprint), Body: b})
		out = b.record()
		return err
	})
	if err != nil {
		return skill.Record{}, err
	}
	return out, nil
}

func newRecord(r skill.Record) *record {
	return &record{Fingerprint: r.Fingerprint, RequiredTier: r.RequiredTier.String(), Decision: r.Decision.String(),
		Reviewer: r.Reviewer, Reason: r.Reason, Evidence: r.Evidence, DecidedAt: r.DecidedAt.UTC()}
}

// check reports what keeps b out of a ledger.
func (b *record) check() error {
	for _, text := range []string{b.Fingerprint, b.Reason, b.Evidence} {
		if !utf8.ValidString(text) || len(text) > maxName {
			return fmt.Errorf("%w: expected texts in UTF-8, of at most %d bytes", ErrInvalid, maxName)
		}
	}
	if err := b.record().Validate(); err != nil {
		return err
	}
	return checkReviewer(b.Reviewer)
}

// record is b as package skill has it. Names that do not exist become the zero
// values, which count for nothing.
func (b *record) record() skill.Record {
	tier, _ := skill.ParseTier(b.RequiredTier)
	verdict, _ := skill.ParseVerdict(b.Decision)
	return skill.Record{
		Ruling:   skill.Ruling{Fingerprint: b.Fingerprint, RequiredTier: tier, Decision: verdict, Reason: b.Reason, Evidence: b.Evidence},
		Reviewer: b.Reviewer, DecidedAt: b.DecidedAt,
	}
}

// Last implements [skill.Ledger].
func (l *Ledger) Last(ctx context.Context, fingerprint string) (skill.Record, bool, error) {
	e, ok, err := l.store.last(ctx, rulingSubject(fingerprint))
	if err != nil || !ok {
		return skill.Record{}, false, err
	}
	var b record
	if err := e.read(&b); err != nil {
		return skill.Record{}, false, err
	}
	return b.record(), true, nil
}

// History implements [skill.Ledger].
func (l *Ledger) History(ctx context.Context, fingerprint string) ([]skill.Record, error) {
	entries, err := l.Subject(ctx, rulingSubject(fingerprint))
	if err != nil {
		return nil, err
	}
	return recordsOf(entries)
}

// recordsOf reads entries about skills.
func recordsOf(entries []Entry) ([]skill.Record, error) {
	records := make([]skill.Record, len(entries))
	for i := range entries {
		var b record
		if err := entries[i].read(&b); err != nil {
			return nil, err
		}
		records[i] = b.record()
	}
	return records, nil
}
