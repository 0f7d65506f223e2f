package ledger

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opa-gate/opa-gate/capability"
)

// historyOf has n escalations, of which the third was approved and the fourth
// rejected.
func historyOf(t *testing.T, name string, n int) (*Ledger, []string) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	ring := &Keyring{}
	ring.Sign(key)
	l, err := Open(context.Background(), name, &Options{Keys: ring})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	ids := make([]string, n)
	for i := range ids {
		a, err := l.Admit(context.Background(), &Escalation{
			Call: Call{Tool: fmt.Sprintf("tool%d", i), Session: []string{"even", "odd"}[i%2], Revision: "r",
				Arguments: json.RawMessage(fmt.Sprintf(`{"n": %d, "to": "Z\u00fcrich", "q": "a \"quoted\" thing"}`, i))},
			Outcome: capability.Outcome{Kind: capability.Escalate, Missing: capability.SetOf(capability.ArbitraryEgress), Reason: "why"},
		})
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = a.Pending.ID
	}
	for i, d := range map[int]Decision{2: {Approve: true, Comment: "Fine by Me"}, 3: {}} {
		if _, err := l.Decide(context.Background(), "local:ann", ids[i], d); err != nil {
			t.Fatal(err)
		}
	}
	return l, ids
}

func TestEscalations(t *testing.T) {
	for _, name := range []string{"memory:", filepath.Join(t.TempDir(), "l.db")} {
		l, ids := historyOf(t, name, 7)
		for _, tt := range []struct {
			filter Filter
			want   []int
		}{
			{Filter{}, []int{6, 5, 4, 3, 2, 1, 0}},
			{Filter{State: Waiting}, []int{6, 5, 4, 1, 0}},
			{Filter{State: Approved}, []int{2}},
			{Filter{State: Rejected}, []int{3}},
			{Filter{State: Used}, nil},
			{Filter{Session: "odd"}, []int{5, 3, 1}},
			{Filter{Session: "odd", State: Waiting}, []int{5, 1}},
			{Filter{Session: "none"}, nil},
			{Filter{Text: "TOOL4"}, []int{4}},
			{Filter{Text: ids[5]}, []int{5}},
			{Filter{Text: "zürich", Session: "odd"}, []int{5, 3, 1}},
			{Filter{Text: `a "quoted"`, State: Rejected}, []int{3}},
			{Filter{Text: "fine by me"}, []int{2}},
			{Filter{Text: "local:ANN"}, []int{3, 2}},
			{Filter{Text: "missing_mask"}, nil}, // no text that a person sees
			{Filter{Text: `"n":3`}, []int{3}},
		} {
			// A limit of two pages through all of it.
			for _, limit := range []int{0, 2} {
				f := tt.filter
				f.Limit = limit
				var got []int
				for {
					page, err := l.Escalations(context.Background(), f)
					if err != nil {
						t.Fatal(err)
					}
					if limit > 0 && len(page.Pending) > limit {
						t.Fatalf("%+v: a page of %d", f, len(page.Pending))
					}
					for _, p := range page.Pending {
						for i, id := range ids {
							if id == p.ID {
								got = append(got, i)
							}
						}
					}
					if page.Next == 0 {
						break
					}
					f.Before = page.Next
				}
				if fmt.Sprint(got) != fmt.Sprint(tt.want) {
					t.Errorf("%s: %+v finds %v, want %v", name, f, got, tt.want)
				}
			}
		}
		for _, f := range []Filter{{Limit: -1}, {Limit: MaxPage + 1}, {Text: strings.Repeat("x", maxText+1)}} {
			if _, err := l.Escalations(context.Background(), f); !errors.Is(err, ErrInvalid) {
				t.Errorf("limit %d: error %v", f.Limit, err)
			}
		}
	}
}

// A page with large arguments ends early and says so.
func TestEscalationsBytes(t *testing.T) {
	l := newLedger(newMemory(), nil)
	large := json.RawMessage(`{"a":"` + strings.Repeat("x", MaxArguments-10) + `"}`)
	for i := range 20 {
		_, err := l.Admit(context.Background(), &Escalation{Call: Call{Tool: fmt.Sprint(i), Arguments: large},
			Outcome: capability.Outcome{Kind: capability.Escalate}})
		if err != nil {
			t.Fatal(err)
		}
	}
	page, err := l.Escalations(context.Background(), Filter{})
	if err != nil || len(page.Pending) != 17 || page.Next == 0 {
		t.Fatalf("%d escalations, next %d, error %v", len(page.Pending), page.Next, err)
	}
	rest, err := l.Escalations(context.Background(), Filter{Before: page.Next})
	if err != nil || len(rest.Pending) != 3 || rest.Next != 0 {
		t.Fatalf("%d escalations, next %d, error %v", len(rest.Pending), rest.Next, err)
	}
}

func TestFind(t *testing.T) {
	for _, name := range []string{"memory:", filepath.Join(t.TempDir(), "l.db")} {
		l, ids := historyOf(t, name, 40)
		for _, i := range []int{0, 2, 3, 39} {
			for _, prefix := range []string{ids[i], strings.ToUpper(ids[i]), ids[i][:12]} {
				if got, err := l.Find(context.Background(), prefix); err != nil || got != ids[i] {
					t.Errorf("%s: %q is %q, error %v", name, prefix, got, err)
				}
			}
		}
		// Forty ids begin with at most 32 characters.
		ambiguous := 0
		for _, id := range ids {
			if _, err := l.Find(context.Background(), id[:1]); errors.Is(err, ErrAmbiguous) {
				ambiguous++
			} else if err != nil {
				t.Error(err)
			}
		}
		if ambiguous == 0 {
			t.Error("no prefix is ambiguous")
		}
		for _, prefix := range []string{"", "0", "nobody"} {
			if got, err := l.Find(context.Background(), prefix); !errors.Is(err, ErrNotFound) {
				t.Errorf("%q is %q, error %v", prefix, got, err)
			}
		}
	}
}

// BenchmarkEscalations looks for what is not there, page by page.
func BenchmarkEscalations(b *testing.B) {
	ctx := context.Background()
	l, err := Open(ctx, filepath.Join(b.TempDir(), "l.db"), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	const filings = 20_000
	err = l.Update(ctx, func(tx *Tx) error {
		for i := range filings {
			c := Call{Tool: "t", Arguments: json.RawMessage(fmt.Sprintf(`{"n":%d}`, i))}
			digest, err := c.Digest()
			if err != nil {
				return err
			}
			f := filing{Tool: c.Tool, Arguments: c.Arguments, Digest: digest, Expires: tx.Now().Add(time.Second)}
			if _, err := tx.Append(Draft{Kind: kindFiled, Subject: fmt.Sprint(i), Ref: newID(), Body: f}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		page, err := l.Escalations(ctx, Filter{Text: "nowhere"})
		if err != nil || len(page.Pending) > 0 {
			b.Fatal(page, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*filings), "ns/filing")
}
