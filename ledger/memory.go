package ledger

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"
)

// memory is a store that lasts as long as the process.
type memory struct {
	mu    sync.RWMutex
	state state
}

func newMemory() *memory {
	return &memory{state: state{subjects: map[string][]int64{}, byRef: map[string][]int64{}, opened: map[string]opening{}}}
}

func (m *memory) close() error { return nil }

func (m *memory) update(ctx context.Context, f func(w writer) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	m.state.undo = nil
	err := f(&m.state)
	if err != nil {
		for _, undo := range slices.Backward(m.state.undo) {
			undo()
		}
	}
	m.state.undo = nil
	return err
}

func (m *memory) read() *state { m.mu.RLock(); return &m.state }

func (m *memory) head(ctx context.Context) (head, error) {
	defer m.mu.RUnlock()
	return m.read().head(ctx)
}

func (m *memory) last(ctx context.Context, subject string) (Entry, bool, error) {
	defer m.mu.RUnlock()
	return m.read().last(ctx, subject)
}

func (m *memory) subject(ctx context.Context, subject string) ([]Entry, error) {
	defer m.mu.RUnlock()
	return m.read().subject(ctx, subject)
}

func (m *memory) ref(ctx context.Context, ref string) ([]Entry, error) {
	defer m.mu.RUnlock()
	return m.read().ref(ctx, ref)
}

func (m *memory) since(ctx context.Context, seq int64, limit int) ([]Entry, error) {
	defer m.mu.RUnlock()
	return m.read().since(ctx, seq, limit)
}

func (m *memory) kind(ctx context.Context, kind string, before int64, limit int) ([]Entry, error) {
	defer m.mu.RUnlock()
	return m.read().kind(ctx, kind, before, limit)
}

func (m *memory) waiting(ctx context.Context, now time.Time, before int64, limit int) ([]Entry, error) {
	defer m.mu.RUnlock()
	return m.read().waiting(ctx, now, before, limit)
}

func (m *memory) count(ctx context.Context, now time.Time) (int, error) {
	defer m.mu.RUnlock()
	return m.read().count(ctx, now)
}

func (m *memory) refs(ctx context.Context, prefix string, limit int) ([]string, error) {
	defer m.mu.RUnlock()
	return m.read().refs(ctx, prefix, limit)
}

func (m *memory) waitingRefs(ctx context.Context, prefix string, limit int) ([]string, error) {
	defer m.mu.RUnlock()
	return m.read().waitingRefs(ctx, prefix, limit)
}

// state is what a memory holds, to whoever has its lock.
type state struct {
	entries  []Entry
	subjects map[string][]int64 // numbers of entries
	byRef    map[string][]int64
	opened   map[string]opening
	undo     []func() // of the transaction under way
}

type opening struct {
	seq     int64
	expires time.Time
}

func (s *state) head(context.Context) (head, error) {
	if len(s.entries) == 0 {
		return head{}, nil
	}
	e := &s.entries[len(s.entries)-1]
	return head{e.Seq, e.Hash, e.At}, nil
}

func (s *state) last(_ context.Context, subject string) (Entry, bool, error) {
	seqs := s.subjects[subject]
	if len(seqs) == 0 {
		return Entry{}, false, nil
	}
	return s.entries[seqs[len(seqs)-1]-1], true, nil
}

func (s *state) subject(_ context.Context, subject string) ([]Entry, error) {
	return s.pick(s.subjects[subject]), nil
}

func (s *state) ref(_ context.Context, ref string) ([]Entry, error) { return s.pick(s.byRef[ref]), nil }

func (s *state) pick(seqs []int64) []Entry {
	var es []Entry
	for _, seq := range seqs {
		es = append(es, s.entries[seq-1])
	}
	return es
}

func (s *state) since(_ context.Context, seq int64, limit int) ([]Entry, error) {
	from := int(min(max(seq, 0), int64(len(s.entries))))
	return slices.Clone(s.entries[from:min(from+limit, len(s.entries))]), nil
}

func (s *state) kind(_ context.Context, kind string, before int64, limit int) ([]Entry, error) {
	var es []Entry
	for _, e := range slices.Backward(s.entries) {
		if len(es) == limit {
			break
		}
		if e.Kind == kind && (before <= 0 || e.Seq < before) {
			es = append(es, e)
		}
	}
	return es, nil
}

func (s *state) waiting(_ context.Context, now time.Time, before int64, limit int) ([]Entry, error) {
	var es []Entry
	for _, o := range s.opened {
		if now.Before(o.expires) && (before <= 0 || o.seq < before) {
			es = append(es, s.entries[o.seq-1])
		}
	}
	slices.SortFunc(es, func(a, b Entry) int { return cmp.Compare(b.Seq, a.Seq) })
	return es[:min(limit, len(es))], nil
}

func (s *state) count(_ context.Context, now time.Time) (int, error) {
	n := 0
	for _, o := range s.opened {
		if now.Before(o.expires) {
			n++
		}
	}
	return n, nil
}

func (s *state) refs(_ context.Context, prefix string, limit int) ([]string, error) {
	var refs []string
	for ref, seqs := range s.byRef {
		if len(seqs) > 0 && strings.HasPrefix(ref, prefix) { // none are left of what was undone
			refs = append(refs, ref)
		}
	}
	slices.Sort(refs)
	return refs[:min(limit, len(refs))], nil
}

func (s *state) waitingRefs(_ context.Context, prefix string, limit int) ([]string, error) {
	var refs []string
	for ref := range s.opened {
		if strings.HasPrefix(ref, prefix) {
			refs = append(refs, ref)
		}
	}
	slices.Sort(refs)
	return refs[:min(limit, len(refs))], nil
}

func (s *state) put(_ context.Context, e Entry) error {
	s.entries = append(s.entries, e)
	s.subjects[e.Subject] = append(s.subjects[e.Subject], e.Seq)
	if e.Ref != "" {
		s.byRef[e.Ref] = append(s.byRef[e.Ref], e.Seq)
	}
	s.undo = append(s.undo, func() {
		s.entries = s.entries[:len(s.entries)-1]
		s.subjects[e.Subject] = s.subjects[e.Subject][:len(s.subjects[e.Subject])-1]
		if e.Ref != "" {
			s.byRef[e.Ref] = s.byRef[e.Ref][:len(s.byRef[e.Ref])-1]
		}
	})
	return nil
}

func (s *state) open(_ context.Context, ref string, seq int64, expires time.Time) error {
	if _, ok := s.opened[ref]; !ok {
		s.opened[ref] = opening{seq, expires}
		s.undo = append(s.undo, func() { delete(s.opened, ref) })
	}
	return nil
}

func (s *state) shut(_ context.Context, ref string) error {
	if o, ok := s.opened[ref]; ok {
		delete(s.opened, ref)
		s.undo = append(s.undo, func() { s.opened[ref] = o })
	}
	return nil
}

func (s *state) lapse(ctx context.Context, now time.Time) error {
	for ref, o := range s.opened {
		if !now.Before(o.expires) {
			_ = s.shut(ctx, ref)
		}
	}
	return nil
}
