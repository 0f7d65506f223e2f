package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/internal/testpostgres"
	"github.com/opa-gate/opa-gate/skill"
)

// million is how many records a lookup has to find its own among.
const million = 1_000_000

// fill records rulings of many skills, in transactions of many.
func fill(l *Ledger, n int) error {
	ctx := context.Background()
	for done := 0; done < n; {
		if err := l.Update(ctx, func(tx *Tx) error {
			for range min(50_000, n-done) {
				b := newRecord(skill.Record{Ruling: ruling1(fmt.Sprint("skill-", done), "looked at it"), Reviewer: "ann", DecidedAt: tx.Now()})
				if _, err := tx.Append(Draft{Kind: KindRuling, Subject: rulingSubject(b.Fingerprint), Body: b}); err != nil {
					return err
				}
				done++
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkLookup asks for the last record of a skill, among a million records on
// SQLite, and reports the median.
func BenchmarkLookup(b *testing.B) {
	ctx := context.Background()
	l := open(b, filepath.Join(b.TempDir(), "ledger.db"), nil)
	l.patient = time.Minute
	for _, quick := range []string{"PRAGMA cache_size = -1000000", "PRAGMA synchronous = OFF"} { // of the one connection that writes
		run(b, l.store.(*database).writes, quick)
	}
	started := time.Now()
	if err := fill(l, million); err != nil {
		b.Fatal(err)
	}
	b.Logf("%d records made in %v", million, time.Since(started).Round(time.Second))
	for _, of := range []struct {
		name string
		ask  int
	}{{"one", 1}, {"thousand", 1000}, {"all", million}} {
		fingerprints := make([]string, min(of.ask, 100_000))
		for i := range fingerprints {
			fingerprints[i] = ruling1(fmt.Sprint("skill-", rand.IntN(million)), "").Fingerprint
		}
		b.Run(of.name, func(b *testing.B) {
			b.ReportAllocs()
			var took []time.Duration
			for i := 0; b.Loop(); i++ {
				start := time.Now()
				r, ok, err := l.Last(ctx, fingerprints[i%len(fingerprints)])
				took = append(took, time.Since(start))
				if err != nil || !ok || r.Decision != skill.Approved {
					b.Fatal(r, ok, err)
				}
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, "µs/median")
		})
	}
}

// places are a new ledger each, whose records outlast the machine.
func places(b *testing.B, f func(b *testing.B, name string)) {
	b.Run("sqlite", func(b *testing.B) { f(b, filepath.Join(b.TempDir(), "ledger.db")) })
	b.Run("postgres", func(b *testing.B) {
		server := testpostgres.New(b)
		server.Start(b)
		f(b, server.Database(b))
	})
}

// BenchmarkRecord reports the records a second, by one writer and by sixteen with
// a connection each, as sixteen processes have.
func BenchmarkRecord(b *testing.B) {
	places(b, func(b *testing.B, name string) {
		for _, writers := range []int{1, 16} {
			b.Run(fmt.Sprint(writers), func(b *testing.B) {
				ledgers := make([]*Ledger, writers)
				for i := range ledgers {
					ledgers[i] = open(b, name, nil)
				}
				var left atomic.Int64
				left.Store(int64(b.N))
				b.ResetTimer()
				var wg sync.WaitGroup
				for i, l := range ledgers {
					wg.Go(func() {
						for left.Add(-1) >= 0 {
							if _, err := l.Record(context.Background(), "ann", ruling1(fmt.Sprint("skill-", i), "looked at it")); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
			})
		}
	})
}

// BenchmarkAdmitAllowed is a call that needs no person: the ledger is not touched.
func BenchmarkAdmitAllowed(b *testing.B) {
	l := newLedger(nil, nil)
	e := escalation("t", `{"a":1}`, 0)
	e.Outcome.Kind = capability.Allow
	b.ReportAllocs()
	for b.Loop() {
		if a, err := l.Admit(context.Background(), e); err != nil || a.Outcome.Kind != capability.Allow {
			b.Fatal(a, err)
		}
	}
}

// BenchmarkAdmitCycle is the life of an escalation: filed, approved, and passed.
func BenchmarkAdmitCycle(b *testing.B) {
	cycle := func(b *testing.B, name string) {
		l := open(b, name, &Options{Keys: ring(1)})
		b.ResetTimer()
		for i := range b.N {
			e := escalation("t", "", egress)
			e.Call.Arguments = json.RawMessage(fmt.Sprintf(`{"n":%d}`, i))
			a, err := l.Admit(context.Background(), e)
			if err != nil || a.Pending == nil {
				b.Fatal(a, err)
			}
			if _, err := l.Decide(context.Background(), "ann", a.Pending.ID, Decision{Approve: true}); err != nil {
				b.Fatal(err)
			}
			if a, err = l.Admit(context.Background(), e); err != nil || a.Outcome.Kind != capability.Allow {
				b.Fatal(a, err)
			}
		}
	}
	b.Run("memory", func(b *testing.B) { cycle(b, "memory:") })
	places(b, cycle)
}

// Whoever needs no person costs no memory either.
func TestAdmitAllowedAllocatesNothing(t *testing.T) {
	l := newLedger(nil, nil)
	e := escalation("t", `{"a":1}`, 0)
	e.Outcome.Kind = capability.Allow
	if n := testing.AllocsPerRun(100, func() {
		if _, err := l.Admit(context.Background(), e); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
