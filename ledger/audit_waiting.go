package ledger

import (
	"cmp"
	"context"
	"fmt"
	"slices"
)

// openings are filings that nobody has decided, by what the entries say.
type openings map[string]Entry

// follow takes an entry into account.
func (o openings) follow(e *Entry) {
	switch e.Kind {
	case kindFiled:
		o[e.Ref] = *e
	case kindDecided, kindWithdrawn:
		delete(o, e.Ref)
	}
}

// hidden returns the first filing that waits and that lists of what waits do not
// have: the index that they come from is no part of the chain.
func (l *Ledger) hidden(ctx context.Context, o openings, end head) (*Fault, error) {
	if len(o) == 0 {
		return nil, nil
	}
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	listed, err := l.store.waiting(ctx, l.after(end), 0, len(o)+l.limits.Waiting)
	if err != nil {
		return nil, err
	}
	for i := range listed {
		delete(o, listed[i].Ref)
	}
	left := make([]Entry, 0, len(o))
	for _, e := range o {
		left = append(left, e)
	}
	slices.SortFunc(left, func(a, b Entry) int { return cmp.Compare(a.Seq, b.Seq) })
	for i := range left {
		entries, err := l.store.ref(ctx, left[i].Ref) // somebody may have decided it meanwhile
		if err != nil {
			return nil, err
		}
		p, err := pendingOf(entries, l.after(end))
		if err != nil {
			return &Fault{left[i].Seq, err.Error()}, nil
		}
		if p.State == Waiting {
			return &Fault{left[i].Seq, fmt.Sprintf("escalation %s waits, and was taken out of the list of what waits", p.ID)}, nil
		}
	}
	return nil, nil
}
