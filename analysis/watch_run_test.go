package analysis_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opa-gate/opa-gate/analysis"
)

// A watched is a watcher that runs, and what it has told.
type watched struct {
	t      *testing.T
	rounds chan *analysis.WatchRound
	wholes chan *analysis.WatchWhole
	notes  chan string
	stop   func()
}

// watchRun begins to watch. What it tells is waited for, however busy the machine
// is, and everything must have been waited for by the end.
func watchRun(t *testing.T, dir string, opts *analysis.WatchOptions) *watched {
	t.Helper()
	w, err := analysis.NewWatcher(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	run := &watched{t: t, rounds: make(chan *analysis.WatchRound, 100), wholes: make(chan *analysis.WatchWhole, 100), notes: make(chan string, 100)}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- w.Run(ctx, &analysis.WatchEvents{
			Round: func(r *analysis.WatchRound) { run.rounds <- r },
			Whole: func(w *analysis.WatchWhole) { run.wholes <- w },
			Note:  func(text string) { run.notes <- text },
		})
	}()
	stopped := false
	run.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("it ended with %v", err)
		}
		if n := len(run.rounds) + len(run.notes); n > 0 {
			t.Errorf("%d rounds or notes were not waited for", n)
		}
	}
	t.Cleanup(run.stop)
	return run
}

func (w *watched) round() *analysis.WatchRound { return awaited(w.t, w.rounds) }

func awaited[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(5 * time.Minute):
		t.Fatal("nothing was told")
		panic("not reached")
	}
}

// quickly is for what does not depend on the documents that are looked at.
var quickly = &analysis.WatchOptions{Budget: 50 * time.Millisecond, Quick: true}

func TestWatchRun(t *testing.T) {
	dir := initCopy(t)
	w := watchRun(t, dir, quickly)
	if first := w.round(); !first.OK {
		t.Fatal(watchTold(first))
	}

	// A burst of writes is one round: in place, beside and moved over, a new directory.
	for i := range 20 {
		checkWrite(t, dir, callRego, strings.Replace(readText(t, dir, callRego), "# METADATA", fmt.Sprintf("# %d\n# METADATA", i), 1))
		beside := filepath.Join(dir, "gate", "taint", ".taint.rego.swp")
		if err := os.WriteFile(beside, []byte(readText(t, dir, taintRego)+"\n"), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(beside, filepath.Join(dir, filepath.FromSlash(taintRego))); err != nil {
			t.Fatal(err)
		}
		checkWrite(t, dir, "gate/pay/deep/pay.rego", "package gate.pay.deep\n\nx := 1\n")
		checkWrite(t, dir, "gate/call/pay.rego", "package gate.call\n\nasks_for_person if startswith(input.tool.name, \"pay_\")\n")
	}
	burst := w.round()
	if want := []string{callRego, "gate/call/pay.rego", "gate/pay/deep/pay.rego", taintRego}; !slices.Equal(burst.Changed, want) {
		t.Errorf("changed: %q, want %q", burst.Changed, want)
	}
	if burst.Quick.SameCalls || !burst.Quick.SameSkills {
		t.Errorf("a burst: %s", watchTold(burst))
	}

	// What is no part of the policies, and what is written as it was, is no change;
	// what comes after it is the next round.
	checkWrite(t, dir, "gate/call/notes.txt", "x")
	checkWrite(t, dir, callRego, readText(t, dir, callRego))
	time.Sleep(300 * time.Millisecond)
	checkWrite(t, dir, "gate/pay/deep/pay.rego", "package gate.pay.deep\n\nx := 2\n")
	if r := w.round(); !slices.Equal(r.Changed, []string{"gate/pay/deep/pay.rego"}) {
		t.Errorf("changed: %q", r.Changed)
	}

	// The directory goes for a moment, and comes back another one.
	away := dir + ".away"
	if err := os.Rename(dir, away); err != nil {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond)
	checkWrite(t, away, "gate/pay/deep/pay.rego", "package gate.pay.deep\n\nx := 3\n")
	if err := os.Rename(away, dir); err != nil {
		t.Fatal(err)
	}
	if r := w.round(); !slices.Equal(r.Changed, []string{"gate/pay/deep/pay.rego"}) {
		t.Errorf("changed: %q", r.Changed)
	}

	// It goes for longer: that is said, and that it is back.
	if err := os.Rename(dir, away); err != nil {
		t.Fatal(err)
	}
	if note := awaited(t, w.notes); !strings.Contains(note, "waiting") || !strings.Contains(note, dir) {
		t.Errorf("a directory that is gone: %s", note)
	}
	if err := os.Rename(away, dir); err != nil {
		t.Fatal(err)
	}
	if note := awaited(t, w.notes); !strings.Contains(note, "again") {
		t.Errorf("a directory that is back: %s", note)
	}
	w.stop()
}

// goroutine returns which one it is called by.
func goroutine() string {
	text := make([]byte, 64)
	text = text[:runtime.Stack(text, false)]
	return strings.Join(strings.Fields(string(text))[:2], " ")
}

// Whoever is told has no need of a lock: everything is told by one goroutine, the
// end of a progress too, also where a save cuts it off.
func TestWatchTellsOneAfterTheOther(t *testing.T) {
	dir := t.TempDir()
	checkWrite(t, dir, callRego, denyingCalls)
	checkWrite(t, dir, skillRego, denyingSkills)
	if _, err := analysis.Check(t.Context(), dir, &analysis.CheckOptions{Fix: true, Static: true}); err != nil {
		t.Fatal(err)
	}
	w, err := analysis.NewWatcher(dir, &analysis.WatchOptions{Budget: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var by []string // not locked
	var told []string
	note := func(what string) {
		by, told = append(by, goroutine()), append(told, what)
	}
	rounds := 0
	err = w.Run(ctx, &analysis.WatchEvents{
		Round: func(*analysis.WatchRound) {
			if note("round"); rounds == 1 {
				cancel()
			}
			rounds++
		},
		Progress: func(_, total int) {
			if total == 0 {
				note("end")
				return
			}
			if note("progress"); rounds == 1 {
				checkWrite(t, dir, "gate/more.rego", "package gate.more\n\nx := 1\n")
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if told = slices.Compact(told); !slices.Equal(told[:4], []string{"round", "progress", "end", "round"}) {
		t.Errorf("told: %q", told)
	}
	if by = slices.Compact(by); !slices.Equal(by, []string{goroutine()}) {
		t.Errorf("by %q, want %q alone", by, goroutine())
	}
}

// Policies that deny everything: few rules, so that every kind of call is looked
// at in seconds.
const (
	denyingCalls = `package gate.call

# METADATA
# entrypoint: true
decision := {
	"outcome": outcome, "reason": reason, "missing": [], "missing_mask": 0, "required": [], "required_mask": 0,
	"granted": [], "granted_mask": 0,
}

default reason := ""

reason := input.policy.veto

outcome := "deny"
`
	denyingSkills = `package gate.skill

# METADATA
# entrypoint: true
decision := {
	"trust": "untrusted", "ceiling": null, "granted": null, "outcome": "deny", "reason": "closed",
	"enforcement": {
		"deploy": false, "effective_tier": null, "overridden": false, "blocked": true, "pending": null, "reason": "closed",
	},
}
`
	// Allowed to one kind of call in thousands.
	rareOutcome = `outcome := "allow" if {
	input.grant.base == ["local-read"]
	input.tool.origin == "access-grant"
	input.tool.read_only == true
	input.tool.destructive == true
	input.tool.open_world == true
	input.policy.sandbox_escalation == false
	input.policy.requires_human == false
	not input.policy.veto
	not input.policy.transform
} else := "deny"
`
)

// What a spread does not find the whole verification does, and the state is not
// good any more.
func TestWatchWhole(t *testing.T) {
	if os.Getenv("OPA_GATE_EXHAUSTIVE") == "" {
		t.Skip("it verifies every kind of call, and more than once; make exhaustive runs it")
	}
	dir := t.TempDir()
	checkWrite(t, dir, callRego, denyingCalls)
	checkWrite(t, dir, skillRego, denyingSkills)
	w := watchRun(t, dir, &analysis.WatchOptions{Budget: 10 * time.Minute})
	first := w.round()
	// The formatter writes these in more lines, and says so.
	checked, err := analysis.Check(t.Context(), dir, &analysis.CheckOptions{Fix: true, Static: true})
	if err != nil || !checked.OK() {
		t.Fatalf("%+v, %v", checked, err)
	}
	if len(checked.Fixed) > 0 {
		first = w.round()
	}
	proven := awaited(t, w.wholes)
	if !first.OK || !proven.OK() || proven.Verification.Calls < 110592 || !proven.State.Equal(first.Time) {
		t.Fatalf("%s, %+v", watchTold(first), proven)
	}

	checkEdit(t, dir, callRego, "outcome := \"deny\"\n", rareOutcome)
	rare := w.round()
	if !rare.OK || len(rare.Quick.Changes) > 0 {
		t.Fatalf("the spread finds what only the whole should: %s", watchTold(rare))
	}
	broken := awaited(t, w.wholes)
	if broken.OK() || !slices.Contains(brokenNames(broken.Verification), "markers-escalate") || !broken.State.Equal(rare.Time) {
		t.Fatalf("%+v", broken)
	}

	// A harmless edit instead is held against the first state, and then as a whole.
	checkEdit(t, dir, callRego, `outcome := "allow" if`, `outcome := "escalate" if`)
	harmless := w.round()
	if !harmless.OK || !harmless.Quick.Since.Equal(first.Time) {
		t.Fatalf("%s", watchTold(harmless))
	}
	if again := awaited(t, w.wholes); !again.OK() || again.Verification == nil {
		t.Fatalf("%+v", again)
	}
	d := awaited(t, w.wholes)
	if d.Difference == nil || len(d.Difference.Changes) != 1 || d.Difference.Changes[0].Inputs != 2 || !d.Since.Equal(first.Time) || !d.State.Equal(harmless.Time) {
		t.Fatalf("%+v", d)
	}

	// It was proven: a comment changes nothing about that, and nothing is left to do.
	checkEdit(t, dir, callRego, "default reason", "# Whatever the hook says.\ndefault reason")
	if r := w.round(); !r.OK || !r.Quick.SameCalls || !r.Quick.Since.Equal(harmless.Time) {
		t.Fatalf("%s", watchTold(r))
	}
	time.Sleep(time.Second)
	w.stop()
	if n := len(w.wholes); n > 0 {
		t.Errorf("%d more wholes", n)
	}
}

func readText(t *testing.T, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
