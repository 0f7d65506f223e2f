package ledger

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// A Filter says which escalations [Ledger.Escalations] finds. The zero Filter
// finds all of them.
type Filter struct {
	State   State  // 0: any
	Session string // "": any
	Text    string // part of the id, the tool, the arguments (without blanks), the reason, the session, the reviewer or a comment, in capitals or not
	Before  int64  // only what was filed before this entry; 0: all. Page.Next of the page before
	Limit   int    // how many; 0: 50, and at most MaxPage
}

// Bounds of one page, and of the work for it.
const (
	MaxPage      = 500
	maxPageBytes = 16 << 20 // of arguments
	maxLooked    = 20_000   // filings that one page looks at
	filingsRead  = 50       // at a time
)

// A Page is a part of what a [Filter] finds, newest first. It may be short of the
// limit, or empty, although more is there: what says so is Next.
type Page struct {
	Pending []*Pending
	Next    int64 // Filter.Before of the next page; 0: there is none
}

// Escalations finds what was filed, newest first, whatever became of it. The work
// for one page is bounded. Errors are those of a store, or match ErrInvalid.
func (l *Ledger) Escalations(ctx context.Context, f Filter) (*Page, error) {
	switch {
	case f.Limit < 0 || f.Limit > MaxPage:
		return nil, askedf("expected a page of at most %d escalations, got %d", MaxPage, f.Limit)
	case len(f.Text) > maxText:
		return nil, askedf("expected a text to look for of at most %d bytes", maxText)
	case f.Limit == 0:
		f.Limit = 50
	}
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	end, err := l.store.head(ctx)
	if err != nil {
		return nil, err
	}
	s := search{l: l, f: f, needle: newNeedle(f.Text), now: l.after(end)}
	before := f.Before
	for looked, size := 0, 0; ; {
		filings, err := s.filings(ctx, before)
		if err != nil {
			return nil, err
		}
		for i := range filings {
			if len(s.page.Pending) == f.Limit || looked == maxLooked || size > maxPageBytes {
				s.page.Next = before
				return &s.page, nil
			}
			before = filings[i].Seq
			looked++
			p, err := s.look(ctx, &filings[i])
			if err != nil {
				return nil, err
			}
			if p != nil {
				s.page.Pending = append(s.page.Pending, p)
				size += len(p.Arguments)
			}
		}
		if len(filings) < filingsRead {
			return &s.page, nil
		}
	}
}

type search struct {
	l      *Ledger
	f      Filter
	needle needle
	now    time.Time
	page   Page
}

func (s *search) filings(ctx context.Context, before int64) ([]Entry, error) {
	if s.f.State == Waiting { // few among many
		return s.l.store.waitingBefore(ctx, s.now, before, filingsRead)
	}
	return s.l.store.kind(ctx, kindFiled, before, filingsRead)
}

// look returns what became of a filing if the filter wants it, and nil otherwise.
func (s *search) look(ctx context.Context, filed *Entry) (*Pending, error) {
	entries, err := s.l.store.ref(ctx, filed.Ref)
	if err != nil || !s.needle.may(entries) {
		return nil, err
	}
	p, err := pendingOf(entries, s.now)
	if err != nil {
		return nil, err
	}
	if s.f.State != 0 && p.State != s.f.State || s.f.Session != "" && p.Session != s.f.Session || !s.needle.in(p) {
		return nil, nil
	}
	return p, nil
}

// A needle is a text that is looked for, in lower case.
type needle struct {
	text    string
	escaped []byte // as it stands in JSON
}

func newNeedle(text string) needle {
	n := needle{text: strings.ToLower(text)}
	if quoted, err := compact(n.text); err == nil {
		n.escaped = quoted[1 : len(quoted)-1]
	}
	return n
}

// may tells whether the needle can be in entries, without taking them apart.
func (n needle) may(entries []Entry) bool {
	for i := range entries {
		body := bytes.ToLower(entries[i].Body)
		if bytes.Contains(body, n.escaped) || bytes.Contains(body, []byte(`\u`)) || bytes.Contains(body, []byte(`\/`)) ||
			strings.Contains(entries[i].Ref, n.text) {
			return true
		}
	}
	return false
}

func (n needle) in(p *Pending) bool {
	if n.text == "" {
		return true
	}
	texts := []string{p.ID, p.Tool, p.Reason, p.Session, string(p.Arguments)}
	if d := p.Decision; d != nil {
		texts = append(texts, d.Reviewer, d.Comment)
	}
	if slices.ContainsFunc(texts, n.inText) || n.inJSON(p.Arguments) {
		return true
	}
	return p.Transform != nil && (n.inText(p.Transform.Note) || n.inJSON(p.Transform.Arguments))
}

func (n needle) inText(text string) bool { return strings.Contains(strings.ToLower(text), n.text) }

// inJSON looks into the texts of a JSON value, however they are escaped.
func (n needle) inJSON(value json.RawMessage) bool {
	d := jsontext.NewDecoder(bytes.NewReader(value))
	for {
		t, err := d.ReadToken()
		if err != nil {
			return false
		}
		if k := t.Kind(); (k == jsontext.KindString || k == jsontext.KindNumber) && n.inText(t.String()) {
			return true
		}
	}
}

// ErrAmbiguous: several escalations have ids that begin so.
var ErrAmbiguous = errors.New("several escalations begin so")

// Find returns the id of the one escalation that begins with prefix: of those that
// wait if any of them does, otherwise of all. Errors match ErrNotFound or
// ErrAmbiguous, or are those of a store.
func (l *Ledger) Find(ctx context.Context, prefix string) (string, error) {
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	prefix = strings.ToLower(prefix)
	if prefix == "" {
		return "", fmt.Errorf("%w: %w", ErrNotFound, askedf("expected an id, or how it begins"))
	}
	if exact, err := l.store.ref(ctx, prefix); err != nil || len(exact) > 0 && exact[0].Kind == kindFiled {
		return prefix, err
	}
	const shown = 3
	ids, err := l.store.refs(ctx, prefix, shown+1)
	if err == nil && len(ids) == 0 {
		ids, err = l.store.named(ctx, prefix, shown+1)
	}
	switch {
	case err != nil:
		return "", err
	case len(ids) == 0:
		return "", fmt.Errorf("%.64q: %w", prefix, ErrNotFound)
	case len(ids) == 1:
		return ids[0], nil
	}
	more := ""
	if len(ids) > shown {
		ids, more = ids[:shown], " and more"
	}
	return "", fmt.Errorf("%.64q: %w: %s%s", prefix, ErrAmbiguous, strings.Join(ids, ", "), more)
}

func (r rows) waitingBefore(ctx context.Context, now time.Time, before int64, limit int) ([]Entry, error) {
	if before <= 0 {
		before = math.MaxInt64
	}
	return r.entries(ctx, `WHERE seq IN (SELECT seq FROM waiting WHERE expires > $1 AND seq < $2 ORDER BY seq DESC LIMIT $3)
		ORDER BY seq DESC`, now.UnixNano(), before, limit)
}

func (r rows) named(ctx context.Context, prefix string, limit int) ([]string, error) {
	var refs []string
	err := r.each(ctx, `SELECT DISTINCT ref FROM entries WHERE ref <> '' AND substr(ref, 1, $1) = $2 ORDER BY ref LIMIT $3`,
		[]any{len(prefix), prefix, limit}, func(scan func(...any) error) error {
			var ref string
			err := scan(&ref)
			refs = append(refs, ref)
			return err
		})
	return refs, err
}

func (m *memory) waitingBefore(ctx context.Context, now time.Time, before int64, limit int) ([]Entry, error) {
	defer m.mu.RUnlock()
	return m.read().waitingBefore(ctx, now, before, limit)
}

func (m *memory) named(ctx context.Context, prefix string, limit int) ([]string, error) {
	defer m.mu.RUnlock()
	return m.read().named(ctx, prefix, limit)
}

func (s *state) waitingBefore(_ context.Context, now time.Time, before int64, limit int) ([]Entry, error) {
	var es []Entry
	for _, o := range s.opened {
		if now.Before(o.expires) && (before <= 0 || o.seq < before) {
			es = append(es, s.entries[o.seq-1])
		}
	}
	slices.SortFunc(es, func(a, b Entry) int { return cmp.Compare(b.Seq, a.Seq) })
	return es[:min(limit, len(es))], nil
}

func (s *state) named(_ context.Context, prefix string, limit int) ([]string, error) {
	var refs []string
	for ref, seqs := range s.byRef {
		if ref != "" && len(seqs) > 0 && strings.HasPrefix(ref, prefix) {
			refs = append(refs, ref)
		}
	}
	slices.Sort(refs)
	return refs[:min(limit, len(refs))], nil
}
