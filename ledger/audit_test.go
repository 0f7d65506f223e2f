package ledger

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"
)

// raw opens the database of a ledger behind its back, without what keeps entries
// as they are.
func raw(t testing.TB, k kind, name string) *sql.DB {
	t.Helper()
	driver, drop := "sqlite", "DROP TRIGGER IF EXISTS entries_stay; DROP TRIGGER IF EXISTS entries_last"
	if k.name == "postgres" {
		driver, name, drop = "pgx", name+"&search_path=opa_gate", "DROP TRIGGER IF EXISTS entries_stay ON entries"
	}
	db, err := sql.Open(driver, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	run(t, db, drop)
	return db
}

func run(t testing.TB, db *sql.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.Exec(query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// history fills a ledger with ten entries of every kind there is.
func history(t testing.TB, name string, c *clock) *Ledger {
	t.Helper()
	l := open(t, name, &Options{Keys: ring(1), Now: c.now})
	w := &world{T: t.(*testing.T), l: l, c: c}
	e, f := escalation("t", `{"a":1}`, egress), escalation("u", `{"a":1}`, egress)
	w.decide(w.waits(e, nil), once)    // 1, 2
	w.passes(e, 1)                     // 3
	w.decide(w.waits(f, nil), session) // 4, 5
	w.passes(f, 1)                     // 6
	c.add(time.Second)
	w.decide(w.waits(e, ErrUsed), reject) // 7, 8
	if _, err := l.Record(context.Background(), "ann", ruling1("x", "one")); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Record(context.Background(), "ann", ruling1("y", "two")); err != nil {
		t.Fatal(err)
	}
	return l
}

const historyLength = 10

// The triggers of both databases stand in the way of who changes entries by
// accident.
func TestEntriesStay(t *testing.T) {
	shared(t, func(t *testing.T, k kind) {
		name := k.place(t)
		l := history(t, name, newClock())
		db := l.store.(*database).writes
		for _, query := range []string{"UPDATE entries SET body = body WHERE seq = 3", "DELETE FROM entries WHERE seq = 3", "DELETE FROM entries"} {
			if _, err := db.Exec(query); err == nil {
				t.Errorf("%s works", query)
			}
		}
		if n := sound(t, l); n != historyLength {
			t.Errorf("%d entries", n)
		}
	})
}

// Whatever is done to whichever entry, the first bad one is named.
func TestAuditNames(t *testing.T) {
	const columns = "seq, at, kind, about, subject, ref, body, prev, hash"
	shared(t, func(t *testing.T, k kind) {
		name := k.place(t)
		l := history(t, name, newClock())
		db := raw(t, k, name)
		run(t, db, "CREATE TABLE kept AS SELECT "+columns+" FROM entries")
		run(t, db, "CREATE TABLE kept_head AS SELECT id, seq, hash, at FROM head")
		mark := Mark{}
		mark.Seq, mark.Hash, _ = l.Head(context.Background())
		at := fmt.Sprintf("%d", time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano())
		zeros := "(SELECT hash FROM kept_head)" // 32 bytes that are of another entry
		for n := 1; n <= historyLength; n++ {
			last := n == historyLength
			next := n + 1
			for _, test := range []struct {
				query string
				first int // that is bad; 0: nothing to see
			}{
				{"UPDATE entries SET at = at + 1 WHERE seq = $1", n},
				{"UPDATE entries SET at = " + at + " WHERE seq = $1", n},
				{"UPDATE entries SET kind = 'ruling2' WHERE seq = $1", n},
				{"UPDATE entries SET subject = prev WHERE seq = $1", n},
				{"UPDATE entries SET about = prev WHERE seq = $1", n},
				{"UPDATE entries SET ref = 'x' WHERE seq = $1", n},
				{"UPDATE entries SET body = prev WHERE seq = $1", n},
				{"UPDATE entries SET prev = " + zeros + " WHERE seq = $1", n},
				{"UPDATE entries SET hash = prev WHERE seq = $1", n},
				{"UPDATE entries SET hash = body WHERE seq = $1", n},
				{"DELETE FROM entries WHERE seq = $1", n},
				{"DELETE FROM entries WHERE seq >= $1", n},
				{"UPDATE entries SET seq = 100 WHERE seq = $1", n},
				{"UPDATE entries SET seq = -seq WHERE seq = $1", n},
				// An entry between n and the next: everything behind moves on by one.
				{"UPDATE entries SET seq = seq + 1000 WHERE seq > $1; UPDATE entries SET seq = seq - 999 WHERE seq > 1000; " +
					"INSERT INTO entries SELECT seq + 1, at, kind, about, subject, 'put in', body, hash, prev FROM entries WHERE seq = $1", next},
				// n and the next change places.
				{"UPDATE entries SET seq = 1000 WHERE seq = $1; UPDATE entries SET seq = seq - 1 WHERE seq = $1 + 1; UPDATE entries SET seq = $1 + 1 WHERE seq = 1000", n},
			} {
				if last && strings.Contains(test.query, "$1 + 1") {
					continue // there is no next one
				}
				run(t, db, "DELETE FROM entries")
				run(t, db, "INSERT INTO entries SELECT "+columns+" FROM kept")
				if s := sound(t, l, mark); s != historyLength {
					t.Fatalf("put back: %d", s)
				}
				for query := range strings.SplitSeq(test.query, ";") {
					run(t, db, strings.ReplaceAll(query, "$1", fmt.Sprint(n)))
				}
				a, err := l.Audit(context.Background(), nil, nil)
				if err != nil {
					t.Fatal(err)
				}
				if a.Sound() || a.Broken == nil || a.Broken.Seq != int64(test.first) || a.Broken.Problem == "" {
					t.Errorf("entry %d, %s: expected that %d is named, got %+v", n, test.query, test.first, a.Broken)
				}
			}
		}
		run(t, db, "DELETE FROM entries")
		run(t, db, "INSERT INTO entries SELECT "+columns+" FROM kept")
		for _, query := range []string{"UPDATE head SET seq = seq - 1", "UPDATE head SET seq = seq + 1", "UPDATE head SET at = at + 1",
			"UPDATE head SET hash = (SELECT hash FROM entries WHERE seq = 1)", "DELETE FROM head"} {
			run(t, db, query)
			if a, err := l.Audit(context.Background(), nil, nil); err != nil || a.Broken == nil {
				t.Errorf("%s: %+v, %v", query, a, err)
			}
			run(t, db, "DELETE FROM head")
			run(t, db, "INSERT INTO head SELECT id, seq, hash, at FROM kept_head")
			sound(t, l)
		}
	})
}

// An end that was cut off with its head, and a chain that was made anew, are sound
// by themselves; who saw an earlier head finds them.
func TestAuditByMark(t *testing.T) {
	shared(t, func(t *testing.T, k kind) {
		ctx, name := context.Background(), k.place(t)
		l := history(t, name, newClock())
		var m Mark
		m.Seq, m.Hash, _ = l.Head(ctx)
		db := raw(t, k, name)
		cut := func(seq int) {
			run(t, db, fmt.Sprintf("DELETE FROM entries WHERE seq > %d", seq))
			run(t, db, fmt.Sprintf("UPDATE head SET seq = %[1]d, hash = (SELECT hash FROM entries WHERE seq = %[1]d), at = (SELECT at FROM entries WHERE seq = %[1]d)", seq))
		}
		cut(7) // which filed what was decided in 8, and so would wait again
		a, err := l.Audit(ctx, nil, nil)
		if err != nil || a.Broken == nil || a.Broken.Seq != 7 {
			t.Errorf("a decision that was cut off: %+v, %v", a.Broken, err)
		}
		cut(6)
		sound(t, l)
		a, err = l.Audit(ctx, []Mark{m}, nil)
		if err != nil || a.Broken == nil || a.Broken.Seq != 7 {
			t.Errorf("cut off: %+v, %v", a.Broken, err)
		}
		later := newClock()
		later.add(time.Minute)
		other := history(t, k.place(t), later)
		sound(t, other)
		if a, err := other.Audit(ctx, []Mark{m}, nil); err != nil || a.Broken == nil || a.Broken.Seq != m.Seq {
			t.Errorf("made anew: %+v, %v", a.Broken, err)
		}
		m.Seq, m.Hash, _ = other.Head(ctx)
		sound(t, other, Mark{}, m)
	})
}

// What waits and was taken off the list of what waits is found; what expired or was
// decided need not be on it.
func TestAuditFindsWhatIsHidden(t *testing.T) {
	shared(t, func(t *testing.T, k kind) {
		ctx, name, c := context.Background(), k.place(t), newClock()
		l := history(t, name, c)
		a, err := l.Admit(ctx, escalation("hidden", `{}`, egress))
		if err != nil {
			t.Fatal(err)
		}
		sound(t, l)
		run(t, raw(t, k, name), "DELETE FROM waiting")
		if found, err := l.Audit(ctx, nil, nil); err != nil || found.Broken == nil || found.Broken.Seq != historyLength+1 {
			t.Errorf("a hidden escalation: %+v, %v", found.Broken, err)
		}
		c.add(2 * time.Hour)
		if p, err := l.Pending(ctx, a.Pending.ID); err != nil || p.State != Expired {
			t.Fatalf("%+v, %v", p, err)
		}
		sound(t, l)
	})
}

// A chain that whoever writes to the database made is found by its approvals,
// which they cannot sign.
func TestAuditForged(t *testing.T) {
	ctx, c := context.Background(), newClock()
	l := open(t, "memory:", &Options{Keys: ring(1), Now: c.now})
	a, err := l.Admit(ctx, escalation("t", `{"a":1}`, egress))
	if err != nil {
		t.Fatal(err)
	}
	real := approval(t, Once)
	real.ID = a.Pending.ID
	good := ruling{Approved: true, Scope: Once, Reviewer: "ann", Expires: real.Expires, Token: sign(t, ring(1), real)}
	bodies := []struct {
		name                string
		change              func(r *ruling)
		forged, notVerified int
	}{
		{"as it should be", func(*ruling) {}, 0, 0},
		{"another key", func(r *ruling) { r.Token = sign(t, ring(2), real) }, 0, 1},
		{"no token", func(r *ruling) { r.Token = "" }, 1, 0},
		{"a broken token", func(r *ruling) { r.Token = r.Token[:len(r.Token)-30] + strings.Repeat("A", 30) }, 1, 0},
		{"another scope", func(r *ruling) { r.Scope = ForSession }, 1, 0},
		{"another reviewer", func(r *ruling) { r.Reviewer = "bob" }, 1, 0},
		{"another end", func(r *ruling) { r.Expires = r.Expires.Add(time.Second) }, 1, 0},
		{"a rejection", func(r *ruling) { r.Approved, r.Token = false, "" }, 0, 0},
	}
	for _, b := range bodies {
		r := good
		b.change(&r)
		if err := l.Update(ctx, func(tx *Tx) error {
			_, err := tx.Append(Draft{Kind: kindDecided, Subject: "s", Ref: real.ID, Body: r})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		end, _, _ := l.Head(ctx)
		au, err := l.Audit(ctx, nil, nil)
		if err != nil || au.Broken != nil {
			t.Fatalf("%s: %+v, %v", b.name, au, err)
		}
		count := func(fs []Fault) (n int) {
			for _, f := range fs {
				if f.Seq == end {
					n++
				}
			}
			return n
		}
		if count(au.Forged) != b.forged || count(au.Unverified) != b.notVerified {
			t.Errorf("%s: %+v", b.name, au)
		}
	}
	if err := l.Update(ctx, func(tx *Tx) error {
		_, err := tx.Append(Draft{Kind: kindDecided, Subject: "s", Ref: "r", Body: 7})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if au, err := l.Audit(ctx, nil, nil); err != nil || au.Sound() || au.Forged[len(au.Forged)-1].Seq != 10 {
		t.Errorf("no decision at all: %+v, %v", au, err)
	}
}
