package skill

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestFingerprint(t *testing.T) {
	for _, name := range []string{"s", "", ":", "a:b", "a:read_only", "skill_deploy:x:full_access", "naïve\n\x00", "\xff"} {
		for tier := ReadOnly; tier <= FullAccess; tier++ {
			got, gotTier, ok := ParseFingerprint(Fingerprint(name, tier))
			if got != name || gotTier != tier || !ok {
				t.Errorf("%q %v: got %q %v %v", name, tier, got, gotTier, ok)
			}
		}
	}
	if got := Fingerprint("pdf:tools", SandboxEdit); got != "skill_deploy:pdf:tools:sandbox_edit" {
		t.Errorf("got %s", got)
	}
	for _, bad := range []string{
		"", "skill_deploy", "skill_deploy:", "skill_deploy:s", "skill_deploy:s:", "skill_deploy:s:root",
		"skill_deploy:s:Tier(0)", "Skill_deploy:s:read_only", " skill_deploy:s:read_only", "skill_deploy:s:read_only ",
	} {
		if name, tier, ok := ParseFingerprint(bad); ok || name != "" || tier != NoTier {
			t.Errorf("%q: got %q %v", bad, name, tier)
		}
	}
}

func FuzzFingerprint(f *testing.F) {
	f.Add("a", uint8(1), "a:read_only", uint8(1))
	f.Add(":", uint8(2), "::", uint8(3))
	f.Add("a:sandbox_edit", uint8(1), "a", uint8(2))
	f.Fuzz(func(t *testing.T, a string, i uint8, b string, j uint8) {
		s, u := ReadOnly+Tier(i%3), ReadOnly+Tier(j%3)
		x, y := Fingerprint(a, s), Fingerprint(b, u)
		if (x == y) != (a == b && s == u) {
			t.Errorf("%q %v and %q %v: %q and %q", a, s, b, u, x, y)
		}
		if name, tier, ok := ParseFingerprint(x); name != a || tier != s || !ok {
			t.Errorf("%q %v: read back as %q %v", a, s, name, tier)
		}
	})
}

func TestRulingValidate(t *testing.T) {
	edit := Fingerprint("s", SandboxEdit)
	tests := []struct {
		name string
		in   Ruling
		want error
	}{
		{"approved", Ruling{Fingerprint: edit, RequiredTier: SandboxEdit, Decision: Approved}, nil},
		{"rejected", Ruling{Fingerprint: edit, RequiredTier: SandboxEdit, Decision: Rejected}, nil},
		{"higher", Ruling{Fingerprint: edit, RequiredTier: FullAccess, Decision: Approved}, nil},
		{"lower", Ruling{Fingerprint: edit, RequiredTier: ReadOnly, Decision: Approved}, ErrRequiredTier},
		{"lower, rejected", Ruling{Fingerprint: edit, RequiredTier: ReadOnly, Decision: Rejected}, ErrRequiredTier},
		{"no tier", Ruling{Fingerprint: edit, Decision: Approved}, ErrRequiredTier},
		{"invalid tier", Ruling{Fingerprint: edit, RequiredTier: 4, Decision: Approved}, ErrRequiredTier},
		{"no verdict", Ruling{Fingerprint: edit, RequiredTier: FullAccess}, ErrVerdict},
		{"invalid verdict", Ruling{Fingerprint: edit, RequiredTier: FullAccess, Decision: 3}, ErrVerdict},
		{"no fingerprint", Ruling{RequiredTier: FullAccess, Decision: Approved}, ErrFingerprint},
		{"wrong fingerprint", Ruling{Fingerprint: "s:read_only", RequiredTier: FullAccess, Decision: Approved}, ErrFingerprint},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := tt.in.Validate(); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			rec, err := NewMemoryLedger(nil).Record(t.Context(), "ann", tt.in)
			if !errors.Is(err, tt.want) || err != nil && rec != (Record{}) {
				t.Errorf("recorded %+v, %v", rec, err)
			}
		})
	}
}

func ruling(verdict Verdict) Ruling {
	return Ruling{Fingerprint: Fingerprint("s", FullAccess), RequiredTier: FullAccess, Decision: verdict, Reason: "r"}
}

func TestLastRecordWinsAndHistoryStays(t *testing.T) {
	start := time.Date(2030, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))
	now := start
	l := NewMemoryLedger(func() time.Time { now = now.Add(time.Second); return now })
	ctx := t.Context()
	deploy := func() Enforcement {
		a, err := Deploy(ctx, l, "s", FullAccess, Provenance{})
		if err != nil {
			t.Fatal(err)
		}
		return a.Enforcement
	}
	if e := deploy(); e.Pending == nil {
		t.Errorf("never seen: %+v", e)
	}
	for i, verdict := range []Verdict{Approved, Rejected, Approved, Rejected} {
		rec, err := l.Record(ctx, "ann", ruling(verdict))
		if err != nil {
			t.Fatal(err)
		}
		if want := start.Add(time.Duration(i+1) * time.Second); rec.Reviewer != "ann" || !rec.DecidedAt.Equal(want) || rec.DecidedAt.Location() != time.UTC {
			t.Errorf("stamped %+v", rec)
		}
		e := deploy()
		if e.Deploy != (verdict == Approved) || e.Overridden != (verdict == Approved) || e.Blocked != (verdict == Rejected) || e.Pending != nil {
			t.Errorf("%v last: %+v", verdict, e)
		}
		history, err := l.History(ctx, rec.Fingerprint)
		if err != nil || len(history) != i+1 || history[i] != rec || history[0].Decision != Approved {
			t.Errorf("history %+v, %v", history, err)
		}
		history[0].Decision = Rejected // the caller's copy
	}
	if a, err := Deploy(ctx, l, "s", SandboxEdit, Provenance{}); err != nil || a.Enforcement.Pending == nil {
		t.Errorf("another tier: %+v, %v", a, err)
	}
	if h, err := l.History(ctx, "other"); err != nil || len(h) > 0 {
		t.Errorf("history of another: %+v, %v", h, err)
	}
}

func TestReviewerIsNeverEmpty(t *testing.T) {
	l := NewMemoryLedger(nil)
	if _, err := l.Record(t.Context(), "", ruling(Approved)); !errors.Is(err, ErrReviewer) {
		t.Errorf("got %v", err)
	}
	if _, ok, err := l.Last(t.Context(), ruling(Approved).Fingerprint); ok || err != nil {
		t.Errorf("recorded all the same, %v", err)
	}
}

// fake is a ledger that was filled by something else.
type fake struct {
	Ledger
	last  Record
	ok    bool
	err   error
	asked int
}

func (f *fake) Last(context.Context, string) (Record, bool, error) {
	f.asked++
	return f.last, f.ok, f.err
}

func TestRecordsThatCannotStandCountAsNeverSeen(t *testing.T) {
	narrow, foreign, mute := ruling(Approved), ruling(Approved), ruling(NoVerdict)
	narrow.RequiredTier = SandboxEdit
	foreign.Fingerprint = Fingerprint("other", FullAccess)
	for name, r := range map[string]Ruling{"narrow": narrow, "foreign": foreign, "mute": mute, "empty": {}} {
		l := &fake{last: Record{Ruling: r, Reviewer: "ann"}, ok: true}
		a, err := Deploy(t.Context(), l, "s", FullAccess, Provenance{})
		if err != nil || a.Enforcement.Deploy || a.Enforcement.Pending == nil || l.asked != 1 {
			t.Errorf("%s: %+v, %v", name, a.Enforcement, err)
		}
	}
	l := &fake{last: Record{Ruling: ruling(Approved)}}
	if v, err := LastVerdict(t.Context(), l, Fingerprint("s", FullAccess)); v != NoVerdict || err != nil {
		t.Errorf("no record: %v, %v", v, err)
	}
}

func TestLedgerErrorDeploysNothing(t *testing.T) {
	broken := errors.New("disk on fire")
	l := &fake{last: Record{Ruling: ruling(Approved), Reviewer: "ann"}, ok: true, err: broken}
	a, err := Deploy(t.Context(), l, "s", FullAccess, Provenance{})
	if !errors.Is(err, broken) || a != (Answer{}) {
		t.Errorf("got %+v, %v", a, err)
	}
}

func TestLedgerIsAskedOnlyAboutADeny(t *testing.T) {
	l := &fake{err: errors.New("must not be asked")}
	for _, tier := range []Tier{ReadOnly, FullAccess} {
		a, err := Deploy(t.Context(), l, "s", tier, Provenance{Scanned: true})
		if err != nil || !a.Enforcement.Deploy || a.Enforcement.EffectiveTier != ReadOnly {
			t.Errorf("%v: %+v, %v", tier, a, err)
		}
	}
	a, err := Deploy(t.Context(), l, "s", NoTier, best)
	if err != nil || a.Enforcement.Deploy || !a.Enforcement.Blocked {
		t.Errorf("no tier: %+v, %v", a, err)
	}
	if l.asked > 0 {
		t.Errorf("asked %d times", l.asked)
	}
}

func TestMemoryLedgerConcurrently(t *testing.T) {
	const writers, each = 8, 50
	l := NewMemoryLedger(nil)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for range each {
				if _, err := l.Record(t.Context(), "reviewer "+strconv.Itoa(w), ruling(Approved)); err != nil {
					t.Error(err)
				}
				if _, err := Deploy(t.Context(), l, "s", FullAccess, Provenance{}); err != nil {
					t.Error(err)
				}
				if _, err := l.History(t.Context(), ruling(Approved).Fingerprint); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	h, err := l.History(t.Context(), ruling(Approved).Fingerprint)
	if err != nil || len(h) != writers*each {
		t.Errorf("%d records, %v", len(h), err)
	}
}

func TestRecordJSON(t *testing.T) {
	rec := Record{Ruling: ruling(Approved), Reviewer: "ann <a@b>", DecidedAt: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)}
	want := `{"fingerprint":"skill_deploy:s:full_access","required_tier":"full_access","decision":"approved",` +
		`"reviewer":"ann <a@b>","reason":"r","decided_at":"2030-01-02T03:04:05Z"}`
	if got, err := rec.MarshalJSON(); err != nil || string(got) != want {
		t.Errorf("got %s %v, want %s", got, err, want)
	}
	rec.Evidence = "log"
	got, err := json.Marshal(rec)
	if err != nil || !strings.Contains(string(got), `"reason":"r","evidence":"log","decided_at"`) {
		t.Errorf("got %s %v", got, err)
	}
}
