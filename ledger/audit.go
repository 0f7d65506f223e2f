package ledger

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// A Mark is an end of a chain that was seen: what [Ledger.Head] returned then.
type Mark struct {
	Seq  int64
	Hash Hash
}

// ParseMark reads SEQ:HASH.
func ParseMark(text string) (Mark, error) {
	seq, hash, ok := strings.Cut(text, ":")
	n, err := strconv.ParseInt(seq, 10, 64)
	m := Mark{Seq: n}
	if err == nil {
		err = m.Hash.UnmarshalText([]byte(hash))
	}
	if !ok || err != nil || n < 0 {
		return Mark{}, askedf("expected a head as NUMBER:HASH, as an audit prints it, got %.100q", text)
	}
	return m, nil
}

// String returns SEQ:HASH.
func (m Mark) String() string { return strconv.FormatInt(m.Seq, 10) + ":" + m.Hash.String() }

// An Audit is what [Ledger.Audit] found.
type Audit struct {
	Entries int64 // that were read
	Head    Mark  // the last entry
	// Broken is the first entry that is not what was recorded, if there is one.
	Broken *Fault
	// Forged are approvals whose signature is not right, by a key that is trusted.
	Forged []Fault
	// Unverified are approvals signed by keys that are not trusted here.
	Unverified []Fault
}

// A Fault is what is wrong with one entry.
type Fault struct {
	Seq     int64  `json:"seq"`
	Problem string `json:"problem"`
}

// maxFaults bounds how many faults of a kind are named.
const maxFaults = 100

// Sound reports whether nothing was changed or removed, as far as the chain and
// the signatures can tell.
func (a *Audit) Sound() bool { return a.Broken == nil && len(a.Forged) == 0 }

// Audit goes through the whole ledger and proves that no entry was changed,
// inserted or removed, or names the first place where one was. Seen are heads from
// earlier, which must still be in the chain: they find what a chain by itself
// cannot, an end that was cut off or a whole that was made anew. Each, if it is not
// nil, is told how many entries were read so far. The error is that of the store.
func (l *Ledger) Audit(ctx context.Context, seen []Mark, each func(read int64)) (*Audit, error) {
	a := &Audit{}
	open := openings{}
	var before head
	for {
		step, cancel := l.bounded(ctx)
		entries, err := l.store.since(step, before.seq, 1000)
		cancel()
		if err != nil && !errors.Is(err, ErrDamaged) {
			return nil, err
		}
		damage := err
		for i := range entries { // those before the damage
			e := &entries[i]
			if problem := follows(before, e); problem != "" {
				a.Broken = &Fault{before.seq + 1, problem}
				return a, nil
			}
			for _, m := range seen {
				if m.Seq == e.Seq && m.Hash != e.Hash {
					a.Broken = &Fault{e.Seq, "it is another entry than the one that was seen there: everything up to here may have been made anew"}
					return a, nil
				}
			}
			l.auditApproval(a, e)
			open.follow(e)
			before = head{e.Seq, e.Hash, e.At}
			a.Entries, a.Head = e.Seq, Mark{e.Seq, e.Hash}
		}
		if damage != nil {
			a.Broken = &Fault{before.seq + 1, damage.Error()}
			return a, nil
		}
		if each != nil {
			each(a.Entries)
		}
		if len(entries) == 0 {
			break
		}
	}
	step, cancel := l.bounded(ctx)
	defer cancel()
	end, err := l.store.head(step)
	if err != nil && !errors.Is(err, ErrDamaged) {
		return nil, err
	}
	if err != nil || end.seq < before.seq || end.seq == before.seq && (end.hash != before.hash || !end.at.Equal(before.at)) {
		a.Broken = &Fault{before.seq, "it is the last entry, and the ledger's head is another one"}
		return a, nil
	}
	if end.seq > before.seq { // written meanwhile, or removed
		rest, err := l.store.since(step, before.seq, 1)
		if err != nil {
			return nil, err
		}
		if len(rest) == 0 {
			a.Broken = &Fault{before.seq + 1, fmt.Sprintf("it is missing, and so is what came after it: the ledger had %d entries", end.seq)}
			return a, nil
		}
	}
	for _, m := range seen {
		if m.Seq > before.seq {
			a.Broken = &Fault{before.seq + 1, fmt.Sprintf("it is missing, and so is what came after it: entry %d was seen", m.Seq)}
			return a, nil
		}
	}
	a.Broken, err = l.hidden(ctx, open, before)
	if err != nil {
		return nil, err
	}
	return a, nil
}

// follows tells why e is not the entry after h; "" if it is.
func follows(h head, e *Entry) string {
	switch {
	case e.Seq != h.seq+1:
		return fmt.Sprintf("it is missing: the next one is %d", e.Seq)
	case e.Prev != h.hash:
		return "it does not continue the entry before it: one of the two was changed or put in"
	case e.sum() != e.Hash:
		return "it was changed: its hash is not that of its content"
	case e.At.Before(h.at):
		return "it is older than the entry before it"
	}
	return ""
}

// auditApproval verifies the approval in an entry, if there is one.
func (l *Ledger) auditApproval(a *Audit, e *Entry) {
	if e.Kind != kindDecided {
		return
	}
	var r ruling
	fault := func(list *[]Fault, err error) {
		if len(*list) < maxFaults {
			*list = append(*list, Fault{e.Seq, err.Error()})
		}
	}
	if err := e.read(&r); err != nil {
		fault(&a.Forged, err)
		return
	}
	if !r.Approved {
		return
	}
	approval, err := l.keys.Read(r.Token)
	switch {
	case errors.Is(err, ErrUnknownKey):
		fault(&a.Unverified, err)
	case err != nil:
		fault(&a.Forged, err)
	case approval.ID != e.Ref || approval.Scope != r.Scope || approval.Reviewer != r.Reviewer || !approval.Expires.Equal(r.Expires):
		fault(&a.Forged, fmt.Errorf("%w: it says something else than its entry", ErrSignature))
	}
}
