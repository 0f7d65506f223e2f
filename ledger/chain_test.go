package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opa-gate/opa-gate/skill"
)

func TestChain(t *testing.T) {
	everywhere(t, func(t *testing.T, k kind) {
		ctx, c, name := context.Background(), newClock(), k.place(t)
		l := open(t, name, &Options{Now: c.now})
		if seq, hash, err := l.Head(ctx); seq != 0 || hash != (Hash{}) || err != nil {
			t.Fatalf("an empty ledger has the head %d, %v: %v", seq, hash, err)
		}
		subjects := []string{"a", "b:c", "ü \u202e\x00", strings.Repeat("long ", 20_000), "a"}
		var want []Entry
		for i, subject := range subjects {
			if err := l.Update(ctx, func(tx *Tx) error {
				e, err := tx.Append(Draft{Kind: "k", Subject: subject, Ref: fmt.Sprint("ref", i%2), Body: map[string]string{"html": "<&>\u2028"}})
				want = append(want, e)
				return err
			}); err != nil {
				t.Fatal(err)
			}
			c.add(time.Nanosecond)
		}
		got, err := l.Since(ctx, 0, 100)
		if err != nil || len(got) != len(want) {
			t.Fatalf("got %d entries, %v", len(got), err)
		}
		for i := range got {
			g, w := &got[i], &want[i]
			if !g.At.Equal(w.At) || g.Seq != int64(i+1) || g.Subject != subjects[i] || g.Ref != w.Ref || string(g.Body) != string(w.Body) || g.Hash != w.Hash || g.sum() != w.Hash {
				t.Errorf("entry %d came back as %+v", i+1, g)
			}
			if i > 0 && g.Prev != want[i-1].Hash {
				t.Errorf("entry %d does not follow", g.Seq)
			}
		}
		if es, err := l.Subject(ctx, "a"); err != nil || len(es) != 2 || es[0].Seq != 1 || es[1].Seq != 5 {
			t.Errorf("subject a: %v, %v", es, err)
		}
		for _, q := range []struct {
			before int64
			limit  int
			want   []int64
		}{{0, 2, []int64{5, 4}}, {4, 2, []int64{3, 2}}, {1, 2, nil}, {0, 0, nil}, {0, -1, nil}} {
			es, err := l.Kind(ctx, "k", q.before, q.limit)
			var seqs []int64
			for _, e := range es {
				seqs = append(seqs, e.Seq)
			}
			if err != nil || !slices.Equal(seqs, q.want) {
				t.Errorf("kind before %d, limit %d: %v, %v", q.before, q.limit, seqs, err)
			}
		}
		for _, odd := range []string{"", "other", "k\x00", "\xff"} {
			if es, err := l.Kind(ctx, odd, 0, 9); err != nil || len(es) > 0 {
				t.Errorf("kind %q: %v, %v", odd, es, err)
			}
		}
		for _, q := range []struct{ after, limit, n int }{{3, 9, 2}, {5, 9, 0}, {-3, 1, 1}, {99, 1, 0}, {0, -1, 0}} {
			if es, err := l.Since(ctx, int64(q.after), q.limit); err != nil || len(es) != q.n {
				t.Errorf("since %d, limit %d: %d, %v", q.after, q.limit, len(es), err)
			}
		}
		if n := sound(t, l); n != 5 {
			t.Errorf("audited %d", n)
		}
		if k.shared { // it lasts
			again := open(t, name, nil)
			if seq, hash, err := again.Head(ctx); seq != 5 || hash != want[4].Hash || err != nil {
				t.Errorf("opened again: %d, %v", seq, err)
			}
		}
	})
}

func TestRollback(t *testing.T) {
	everywhere(t, func(t *testing.T, k kind) {
		ctx := context.Background()
		l := open(t, k.place(t), nil)
		put := func(tx *Tx, kind, ref string) {
			body := map[string]string{"expires_at": "2100-01-01T00:00:00Z"}
			if _, err := tx.Append(Draft{Kind: kind, Subject: "s", Ref: ref, Body: body}); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Update(ctx, func(tx *Tx) error { put(tx, kindFiled, "old"); put(tx, "k", ""); return nil }); err != nil {
			t.Fatal(err)
		}
		before, hash, _ := l.Head(ctx)
		mine := errors.New("mine")
		err := l.Update(ctx, func(tx *Tx) error {
			put(tx, kindFiled, "new")
			put(tx, kindDecided, "old")
			put(tx, "k", "")
			if e, ok, err := tx.Last("s"); err != nil || !ok || e.Seq != before+3 {
				t.Errorf("a transaction does not see what it appended: %v %v %v", e.Seq, ok, err)
			}
			return mine
		})
		if err != mine {
			t.Errorf("got error %v", err)
		}
		after, hash2, err := l.Head(ctx)
		if after != before || hash != hash2 || err != nil {
			t.Errorf("head %d, then %d: %v", before, after, err)
		}
		if refs, err := l.store.waitingRefs(ctx, "", 9); err != nil || !slices.Equal(refs, []string{"old"}) {
			t.Errorf("what waits: %v, %v", refs, err)
		}
		if es, err := l.Subject(ctx, "s"); err != nil || len(es) != 2 {
			t.Errorf("%d entries, %v", len(es), err)
		}
		ended, cancel := context.WithCancel(ctx)
		cancel()
		if err := l.Update(ended, func(*Tx) error { t.Error("a context that ended runs a transaction"); return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("got error %v", err)
		}
		sound(t, l)
	})
}

func TestWhatCannotBeKept(t *testing.T) {
	everywhere(t, func(t *testing.T, k kind) {
		l := open(t, k.place(t), nil)
		for name, d := range map[string]Draft{
			"no kind":           {Subject: "s"},
			"no subject":        {Kind: "k"},
			"kind too long":     {Kind: strings.Repeat("k", maxName+1), Subject: "s"},
			"subject too long":  {Kind: "k", Subject: strings.Repeat("s", maxName+1)},
			"ref too long":      {Kind: "k", Subject: "s", Ref: strings.Repeat("r", maxName+1)},
			"body too long":     {Kind: "k", Subject: "s", Body: strings.Repeat("b", maxBody)},
			"no JSON":           {Kind: "k", Subject: "s", Body: func() {}},
			"kind with NUL":     {Kind: "k\x00", Subject: "s"},
			"ref with NUL":      {Kind: "k", Subject: "s", Ref: "\x00"},
			"kind not UTF-8":    {Kind: "\xff", Subject: "s"},
			"subject not UTF-8": {Kind: "k", Subject: "s\xc3"},
			"filed, no end":     {Kind: kindFiled, Subject: "s", Ref: "r", Body: 1},
		} {
			err := l.Update(context.Background(), func(tx *Tx) error { _, err := tx.Append(d); return err })
			if !errors.Is(err, ErrInvalid) || errors.Is(err, ErrUnavailable) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if n := sound(t, l); n != 0 {
			t.Errorf("%d entries", n)
		}
	})
}

func TestClockSetBack(t *testing.T) {
	everywhere(t, func(t *testing.T, k kind) {
		ctx, c := context.Background(), newClock()
		l := open(t, k.place(t), &Options{Now: c.now, Keys: ring(1)})
		a, err := l.Admit(ctx, escalation("t", `{}`, egress))
		if err != nil {
			t.Fatal(err)
		}
		c.add(time.Hour) // it has expired
		if _, err := l.Record(ctx, "r", ruling1("x", "")); err != nil {
			t.Fatal(err)
		}
		c.add(-30 * time.Minute)
		if p, err := l.Pending(ctx, a.Pending.ID); err != nil || p.State != Expired {
			t.Errorf("a clock that was set back revives it: %v, %v", p.State, err)
		}
		if _, n, err := l.Waiting(ctx, 9); err != nil || n != 0 {
			t.Errorf("%d wait, %v", n, err)
		}
		if _, err := l.Decide(ctx, "r", a.Pending.ID, Decision{Approve: true}); !errors.Is(err, ErrDecided) {
			t.Errorf("got %v", err)
		}
		rec, err := l.Record(ctx, "r", ruling1("x", ""))
		if err != nil || !rec.DecidedAt.Equal(c.now().Add(30*time.Minute)) {
			t.Errorf("recorded at %v, %v", rec.DecidedAt, err)
		}
		sound(t, l)
	})
}

// ruling1 approves a skill in full.
func ruling1(name, reason string) skill.Ruling {
	return skill.Ruling{Fingerprint: skill.Fingerprint(name, skill.FullAccess), RequiredTier: skill.FullAccess, Decision: skill.Approved, Reason: reason}
}

// Skill fingerprints never meet, however they are spelt, and a long one fits each
// database's index.
func TestSkillFingerprints(t *testing.T) {
	everywhere(t, func(t *testing.T, k kind) {
		ctx := context.Background()
		l := open(t, k.place(t), nil)
		noise := make([]byte, 0, 30_000) // text that nothing compresses
		for x := uint32(1); len(noise) < cap(noise); x = x*1664525 + 1013904223 {
			noise = append(noise, '!'+byte(x>>24)%90)
		}
		names := []string{"", "a", "a:", ":a", "a:b", "a::b", "a b", "a  b", " a", "a ", "A", "ä", "a\u0308", "\u202ea", "a\x00", "a\x00b",
			"a:read_only", "a:full_access", "skill_deploy:a", strings.Repeat("n", 10_000), strings.Repeat("n", 10_001), string(noise), string(noise) + "x"}
		tiers := []skill.Tier{skill.ReadOnly, skill.SandboxEdit, skill.FullAccess}
		for i, name := range names {
			for _, tier := range tiers {
				r := skill.Ruling{Fingerprint: skill.Fingerprint(name, tier), RequiredTier: tier, Decision: skill.Rejected, Reason: fmt.Sprint(i, tier)}
				if _, err := l.Record(ctx, "r", r); err != nil {
					t.Fatalf("%.50q: %v", name, err)
				}
			}
		}
		for i, name := range names {
			for _, tier := range tiers {
				h, err := l.History(ctx, skill.Fingerprint(name, tier))
				if err != nil || len(h) != 1 || h[0].Reason != fmt.Sprint(i, tier) {
					t.Errorf("%.50q at %v: %d records, %v", name, tier, len(h), err)
				}
			}
		}
	})
}

// A ledger is a skill.Ledger: the last record wins, either way round.
func TestRecord(t *testing.T) {
	everywhere(t, func(t *testing.T, k kind) {
		ctx, c := context.Background(), newClock()
		l := open(t, k.place(t), &Options{Now: c.now})
		yes := ruling1("x", "fine")
		yes.Evidence = "seen"
		no := yes
		no.Decision = skill.Rejected
		if _, ok, err := l.Last(ctx, yes.Fingerprint); ok || err != nil {
			t.Errorf("nothing recorded: %v, %v", ok, err)
		}
		for i, r := range []skill.Ruling{yes, no, yes} {
			want := skill.Record{Ruling: r, Reviewer: "me", DecidedAt: c.now()}
			if rec, err := l.Record(ctx, "me", r); err != nil || rec != want {
				t.Fatalf("got %+v, %v", rec, err)
			}
			if rec, ok, err := l.Last(ctx, r.Fingerprint); err != nil || !ok || rec != want {
				t.Errorf("last is %+v, %v, %v", rec, ok, err)
			}
			if h, err := l.History(ctx, r.Fingerprint); err != nil || len(h) != i+1 || h[i] != want {
				t.Errorf("history is %v, %v", h, err)
			}
			c.add(time.Second)
		}
		low, odd, verdict := yes, yes, yes
		low.RequiredTier, odd.Fingerprint, verdict.Decision = skill.ReadOnly, "x", 0
		long := yes
		long.Reason = strings.Repeat("x", maxName+1)
		for _, bad := range []struct {
			reviewer string
			r        skill.Ruling
			want     error
		}{{"", yes, skill.ErrReviewer}, {"\xff", yes, skill.ErrReviewer}, {strings.Repeat("r", 513), yes, skill.ErrReviewer},
			{"me", low, skill.ErrRequiredTier}, {"me", odd, skill.ErrFingerprint}, {"me", verdict, skill.ErrVerdict}, {"me", long, ErrInvalid}} {
			if _, err := l.Record(ctx, bad.reviewer, bad.r); !errors.Is(err, bad.want) {
				t.Errorf("expected %v, got %v", bad.want, err)
			}
		}
		if n := sound(t, l); n != 3 {
			t.Errorf("%d entries", n)
		}
	})
}

// Without a home of the user's own there are no files of the user's own.
func TestHomes(t *testing.T) {
	for home, ok := range map[string]bool{"": false, "home": false, "./home": false, "/home/x": true} {
		t.Setenv("XDG_STATE_HOME", "state") // not absolute: it does not count
		t.Setenv("XDG_CONFIG_HOME", "")
		t.Setenv("HOME", home)
		path, err := DefaultPath()
		if (err == nil) != ok || ok && path != "/home/x/.local/state/opa-gate/ledger.db" || !ok && !errors.Is(err, ErrUnavailable) {
			t.Errorf("HOME=%q: %q, %v", home, path, err)
		}
		path, err = DefaultKeyFile()
		if (err == nil) != ok || ok && path != "/home/x/.config/opa-gate/approvals.key" || !ok && !errors.Is(err, ErrKey) {
			t.Errorf("HOME=%q: %q, %v", home, path, err)
		}
	}
}

func TestNames(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	path, err := DefaultPath()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"", "sqlite:" + dir + "/a b%20#?&c=d.db", dir + "/sub/ledger", path} {
		l := open(t, name, nil)
		if _, err := l.Record(context.Background(), "me", ruling1("x", "")); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	if n := sound(t, open(t, path, nil)); n != 2 {
		t.Errorf("the default file has %d entries, expected those by both names", n)
	}
	for _, name := range []string{"mysql://x", "memory:x", "sqlite:", "http://u:hunter2@x/"} {
		if _, err := Open(context.Background(), name, nil); !errors.Is(err, ErrInvalid) || strings.Contains(err.Error(), "hunter2") ||
			strings.Contains(err.Error(), ErrInvalid.Error()) { // nothing was to be recorded
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"postgres://u:hunter2@127.0.0.1:1/x", "postgres://u:hunter2@[", "postgres://u@127.0.0.1:1/x?password=hunter2"} {
		_, err := Open(context.Background(), name, nil)
		if !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrInvalid) {
			t.Errorf("got %v", err)
		}
		if strings.Contains(err.Error(), "hunter2") || strings.Contains(Redacted(name), "hunter2") {
			t.Errorf("a password is shown: %v, %s", err, Redacted(name))
		}
	}
}

func TestFiles(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", "/state")
	t.Setenv("XDG_CONFIG_HOME", "/config")
	for _, tt := range []struct {
		config Config
		want   string
	}{
		{Config{}, "/state/opa-gate/ledger.db /config/opa-gate/approvals.key"},
		{Config{Name: "l.db", KeyFile: "k"}, "l.db k"},
		{Config{Name: "sqlite:/a/l.db", KeyFile: "k", Trust: []string{"t", "u"}}, "/a/l.db k t u"},
		{Config{Name: "memory:", Trust: []string{"t"}}, " t"},
		{Config{Name: "postgres://u@h/d"}, " /config/opa-gate/approvals.key"},
		{Config{Name: "postgresql:///d", KeyFile: "k"}, " k"},
	} {
		file, keys := tt.config.Files()
		if got := file + " " + strings.Join(keys, " "); got != tt.want {
			t.Errorf("%+v: got %s, want %s", tt.config, got, tt.want)
		}
	}
}
