package skill

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

const fingerprintPrefix = "skill_deploy:"

// Fingerprint names the ledger entry for deploying the named skill at a tier.
// Two different pairs never share one: no tier's name has a colon, so what
// stands behind the last colon is the tier and the rest is the name, whatever
// characters that has.
func Fingerprint(name string, tier Tier) string {
	return fingerprintPrefix + name + ":" + tier.String()
}

// ParseFingerprint is the inverse of [Fingerprint]; ok is false for a text that
// Fingerprint does not make of a valid tier.
func ParseFingerprint(fingerprint string) (name string, tier Tier, ok bool) {
	rest, ok := strings.CutPrefix(fingerprint, fingerprintPrefix)
	if !ok {
		return "", NoTier, false
	}
	i := strings.LastIndexByte(rest, ':')
	if i < 0 {
		return "", NoTier, false
	}
	tier, ok = ParseTier(rest[i+1:])
	if !ok {
		return "", NoTier, false
	}
	return rest[:i], tier, true
}

// Errors of [Ruling.Validate] and, with ErrReviewer, of every [Ledger.Record].
var (
	// ErrFingerprint: the fingerprint is not one that Fingerprint makes.
	ErrFingerprint = errors.New("not a skill's fingerprint")
	// ErrRequiredTier: the required tier is none, or is lower than the
	// fingerprint's, so that the record could not stand for it.
	ErrRequiredTier = errors.New("required tier too low")
	// ErrVerdict: the decision is neither approved nor rejected.
	ErrVerdict = errors.New("no verdict")
	// ErrReviewer: nobody is known to be asking.
	ErrReviewer = errors.New("no reviewer")
)

// A Ruling is the part of a record that a request can state.
type Ruling struct {
	Fingerprint  string
	RequiredTier Tier
	Decision     Verdict
	Reason       string
	Evidence     string // optional
}

// Validate reports the first thing that keeps r out of a ledger.
func (r Ruling) Validate() error {
	_, tier, ok := ParseFingerprint(r.Fingerprint)
	switch {
	case !ok:
		return fmt.Errorf("%w: %q does not read %sNAME:TIER", ErrFingerprint, r.Fingerprint, fingerprintPrefix)
	case r.Decision != Approved && r.Decision != Rejected:
		return fmt.Errorf("%w: a record says approved or rejected", ErrVerdict)
	case !r.RequiredTier.Valid():
		return fmt.Errorf("%w: %v is no tier", ErrRequiredTier, r.RequiredTier)
	case r.RequiredTier < tier:
		return fmt.Errorf("%w: %v cannot stand for the %v in the fingerprint", ErrRequiredTier, r.RequiredTier, tier)
	}
	return nil
}

// A Record is one entry of a ledger: a ruling, with who made it and when
// (specification, section 6). Both are stamped by the ledger.
type Record struct {
	Ruling
	Reviewer  string
	DecidedAt time.Time // travels as RFC 3339
}

// A Ledger keeps the decisions of people. It only ever appends. The last
// record of a fingerprint wins, either way round. Implementations are safe for
// use by several goroutines.
type Ledger interface {
	// Record validates r, stamps it with the reviewer and the time, and
	// appends it. The reviewer is who authenticated, never part of a request.
	Record(ctx context.Context, reviewer string, r Ruling) (Record, error)
	// Last returns the last record of a fingerprint; ok is false if there is
	// none. An error means that it is not known.
	Last(ctx context.Context, fingerprint string) (r Record, ok bool, err error)
	// History returns every record of a fingerprint, oldest first.
	History(ctx context.Context, fingerprint string) ([]Record, error)
}

// LastVerdict looks up what l last says about a fingerprint. A record that
// would not be accepted today, say because its required tier is too low, counts
// as never seen; it still is the last one, so an earlier record does not come
// back into force through it.
func LastVerdict(ctx context.Context, l Ledger, fingerprint string) (Verdict, error) {
	r, ok, err := l.Last(ctx, fingerprint)
	if err != nil {
		return NoVerdict, err
	}
	if !ok || r.Fingerprint != fingerprint || r.Validate() != nil {
		return NoVerdict, nil
	}
	return r.Decision, nil
}

// Deploy decides what the named skill may be deployed at. It asks the ledger
// only if the gate denies. On an error nothing was decided and nothing may be
// deployed; the Answer is then the zero one.
func Deploy(ctx context.Context, l Ledger, name string, requested Tier, p Provenance) (Answer, error) {
	d := Gate(p, requested)
	verdict := NoVerdict
	if d.Outcome == Deny && requested.Valid() {
		var err error
		if verdict, err = LastVerdict(ctx, l, Fingerprint(name, requested)); err != nil {
			return Answer{}, fmt.Errorf("the ledger could not be asked about skill %q: %w", name, err)
		}
	}
	return Answer{d, Enforce(name, requested, d, verdict)}, nil
}

// MemoryLedger is a Ledger that lasts as long as the process. Make one with
// [NewMemoryLedger].
type MemoryLedger struct {
	now func() time.Time

	mu      sync.RWMutex
	records map[string][]Record
}

// NewMemoryLedger returns an empty ledger that stamps records with now, or
// with time.Now if now is nil.
func NewMemoryLedger(now func() time.Time) *MemoryLedger {
	if now == nil {
		now = time.Now
	}
	return &MemoryLedger{now: now, records: make(map[string][]Record)}
}

// Record implements [Ledger]. Its errors wrap ErrReviewer or one of
// [Ruling.Validate].
func (m *MemoryLedger) Record(_ context.Context, reviewer string, r Ruling) (Record, error) {
	if reviewer == "" {
		return Record{}, fmt.Errorf("%w: a record names who decided", ErrReviewer)
	}
	if err := r.Validate(); err != nil {
		return Record{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	rec := Record{Ruling: r, Reviewer: reviewer, DecidedAt: m.now().UTC()}
	m.records[r.Fingerprint] = append(m.records[r.Fingerprint], rec)
	return rec, nil
}

// Last implements [Ledger].
func (m *MemoryLedger) Last(_ context.Context, fingerprint string) (Record, bool, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	rs := m.records[fingerprint]
	if len(rs) == 0 {
		return Record{}, false, nil
	}
	return rs[len(rs)-1], true, nil
}

// History implements [Ledger].
func (m *MemoryLedger) History(_ context.Context, fingerprint string) ([]Record, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return append([]Record(nil), m.records[fingerprint]...), nil
}
