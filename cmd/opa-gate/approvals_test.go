package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/internal/testpostgres"
	"github.com/opa-gate/opa-gate/ledger"
)

func TestInWords(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		after time.Duration
		want  string
	}{
		{0, "now"},
		{999 * time.Millisecond, "now"},
		{-999 * time.Millisecond, "now"},
		{time.Second, "in 1 second"},
		{-time.Second, "1 second ago"},
		{119 * time.Second, "in 119 seconds"},
		{120 * time.Second, "in 2 minutes"},
		{42*time.Minute + 59*time.Second, "in 42 minutes"},
		{-time.Hour, "60 minutes ago"},
		{2 * time.Hour, "in 2 hours"},
		{47 * time.Hour, "in 47 hours"},
		{-30 * 24 * time.Hour, "30 days ago"},
	} {
		if got := inWords(now, now.Add(tt.after)); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.after, got, tt.want)
		}
	}
}

// A broken ledger is told with how much of it was read, be it one entry.
func TestBrokenAudit(t *testing.T) {
	for n, want := range map[int64]string{0: "0 entries read", 1: "1 entry read", 2: "2 entries read"} {
		var out bytes.Buffer
		p := &printer{Writer: bufio.NewWriter(&out)}
		showAudit(p, &ledger.Audit{Entries: n, Broken: &ledger.Fault{Seq: n + 1, Problem: "it is missing"}})
		if err := p.Flush(); err != nil || !strings.Contains(out.String(), want+"\n") {
			t.Errorf("%d: %q, %v, want %q", n, out.String(), err, want)
		}
	}
}

// Every capability has words for a person.
func TestMeanings(t *testing.T) {
	for _, d := range capability.Taxonomy() {
		if meanings[d.Capability] == "" {
			t.Errorf("%s has no meaning", d.Name)
		}
	}
	if len(meanings) != len(capability.Taxonomy()) {
		t.Error("there are meanings of what there is not")
	}
}

// file has one escalation wait in the ledger of that name.
func file(t *testing.T, name, tool string) *ledger.Pending {
	t.Helper()
	l, err := ledger.Open(context.Background(), name, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	a, err := l.Admit(context.Background(), &ledger.Escalation{Call: ledger.Call{Tool: tool, Session: "s", Revision: "r"},
		Outcome: capability.Outcome{Kind: capability.Escalate, Missing: capability.SetOf(capability.ArbitraryEgress)}})
	if err != nil {
		t.Fatal(err)
	}
	return a.Pending
}

// On a terminal the call is shown, and only a yes approves it.
func TestApproveAsks(t *testing.T) {
	e := file(t, filepath.Join(t.TempDir(), "l.db"), "send\x1b[2J")
	for answer, want := range map[string]bool{"y\n": true, "YES\n": true, " yes": true, "n\n": false, "\n": false, "": false, "yea\n": false} {
		for _, session := range []bool{false, true} {
			var stderr bytes.Buffer
			cmd := &cobra.Command{}
			cmd.SetIn(strings.NewReader(answer))
			cmd.SetErr(&stderr)
			d := deciding{forSession: session}
			got, err := d.ask(context.Background(), cmd, e)
			var code exitError
			if got != want || want != (err == nil) || !want && (!errors.As(err, &code) || code != exitCheck) {
				t.Errorf("%q: approved %v, error %v", answer, got, err)
			}
			text := stderr.String()
			question := "Let exactly this call pass, once? [y/N]"
			if session {
				question = "Let every call of this tool in this session pass, with any arguments? [y/N]"
			}
			if !strings.Contains(text, question) || !strings.Contains(text, `send\x1b[2J`) || strings.Contains(text, "\x1b") || !strings.Contains(text, "arbitrary-egress") {
				t.Errorf("%q is asked with %q", answer, text)
			}
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = r.Close(), w.Close() }()
	cmd := &cobra.Command{}
	cmd.SetIn(r)
	cmd.SetErr(&bytes.Buffer{})
	if ok, err := (&deciding{}).ask(ctx, cmd, e); ok || !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: approved %v, error %v", ok, err)
	}
}

// Of many who decide at once one wins, and each of the others is told who.
func TestApproversRace(t *testing.T) {
	name := filepath.Join(t.TempDir(), "l.db")
	key := filepath.Join(t.TempDir(), "key")
	e := file(t, name, "t")
	type result struct {
		code   int
		stderr string
	}
	const approvers = 8
	results := make(chan result, approvers)
	for i := range approvers {
		verb := []string{"approve", "reject"}[i%2]
		go func() {
			var stdout, stderr bytes.Buffer
			code := run([]string{"approvals", verb, e.ID, "--ledger", name, "--key", key}, strings.NewReader(""), &stdout, &stderr)
			results <- result{code, stderr.String()}
		}()
	}
	won := 0
	for range approvers {
		switch r := <-results; {
		case r.code == exitDone:
			won++
		case r.code != exitCheck || !strings.Contains(r.stderr, "no longer waits: local:"):
			t.Errorf("code %d: %s", r.code, r.stderr)
		}
	}
	if won != 1 {
		t.Errorf("%d won", won)
	}
}

// Watch tells what waits and what happens, until Ctrl-C.
func TestWatchEscalations(t *testing.T) {
	name, key := filepath.Join(t.TempDir(), "l.db"), aKey(t)
	first := file(t, name, "first")
	watch := watching(t, name, key)
	watch.next(t, "filed", first.ID)
	second := file(t, name, "second")
	watch.next(t, "filed", second.ID)
	var stdout, stderr bytes.Buffer
	if code := run([]string{"approvals", "reject", first.ID, "--ledger", name, "--key", key}, strings.NewReader(""), &stdout, &stderr); code != 0 {
		t.Fatal(stderr.String())
	}
	watch.next(t, "decided", first.ID)
	if code := run([]string{"approvals", "withdraw", second.ID, "--ledger", name, "--key", key}, strings.NewReader(""), &stdout, &stderr); code != 0 {
		t.Fatal(stderr.String())
	}
	watch.next(t, "withdrawn", second.ID)
	if said := watch.interrupt(t); said != "" {
		t.Errorf("it said %q", said)
	}
}

// A database that goes away is told of once, and what comes after is not missed.
func TestWatchEscalationsGoesOn(t *testing.T) {
	server := testpostgres.New(t)
	server.Start(t)
	name, key := server.Database(t), aKey(t)
	first := file(t, name, "first")
	watch := watching(t, name, key)
	watch.next(t, "filed", first.ID)
	server.Stop()
	time.Sleep(4 * watchEvery) // it asks meanwhile; if not, it has less to go on from
	server.Start(t)
	second := file(t, name, "second")
	watch.next(t, "filed", second.ID)
	said := watch.interrupt(t)
	if lines := strings.Count(said, "\n"); lines > 2 || lines == 1 || lines == 2 &&
		!(strings.HasPrefix(said, "opa-gate: the ledger is not available: ") && strings.HasSuffix(said, "\nopa-gate: the ledger answers again; nothing was left out\n")) {
		t.Errorf("it said %q", said)
	}
}

func aKey(t *testing.T) string {
	t.Helper()
	key := filepath.Join(t.TempDir(), "key")
	if _, err := ledger.LoadOrMakeKey(key); err != nil { // who only reads makes none
		t.Fatal(err)
	}
	return key
}

type ledgerWatch struct {
	cmd    *exec.Cmd
	lines  *bufio.Scanner
	stderr bytes.Buffer
}

// watching starts opa-gate approvals watch.
func watching(t *testing.T, place, key string) *ledgerWatch {
	t.Helper()
	w := &ledgerWatch{cmd: exec.Command(program(t), "approvals", "watch", "--format", "json", "--ledger", place, "--key", key)}
	w.cmd.Stderr = &w.stderr
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.cmd.Process.Kill() }) // it has ended by then
	w.lines = bufio.NewScanner(out)
	return w
}

func (w *ledgerWatch) next(t *testing.T, event, id string) {
	t.Helper()
	if !w.lines.Scan() {
		t.Fatalf("no line: %v", w.lines.Err())
	}
	var c ledger.Change
	if err := json.Unmarshal(w.lines.Bytes(), &c); err != nil || c.Event != event || c.Pending.ID != id {
		t.Fatalf("%s: error %v; want %s %s", w.lines.Text(), err, event, id)
	}
}

// interrupt ends it as Ctrl-C does, and returns what it said on stderr.
func (w *ledgerWatch) interrupt(t *testing.T) string {
	t.Helper()
	if err := w.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	var failed *exec.ExitError
	if err := w.cmd.Wait(); !errors.As(err, &failed) || failed.ExitCode() != exitInterrupted {
		t.Fatalf("ended with %v", err)
	}
	return w.stderr.String()
}

// The lines for people say who did what.
func TestChanged(t *testing.T) {
	at := time.Now()
	verdict := &ledger.Verdict{Approved: true, Reviewer: "local:ann", Comment: "fine\x1b"}
	for _, tt := range []struct {
		change ledger.Change
		want   string
	}{
		{ledger.Change{Event: "filed", Pending: &ledger.Pending{Reason: "Check it."}}, "waits      id  t\\n  Check it.\n"},
		{ledger.Change{Event: "decided", Pending: &ledger.Pending{Decision: verdict}}, "approved   id  t\\n  by local:ann: fine\\x1b\n"},
		{ledger.Change{Event: "decided", Pending: &ledger.Pending{Decision: &ledger.Verdict{Reviewer: "local:bob"}}}, "rejected   id  t\\n  by local:bob\n"},
		{ledger.Change{Event: "used", Pending: &ledger.Pending{Uses: 1}}, "used       id  t\\n  1 call passed\n"},
		{ledger.Change{Event: "withdrawn", Pending: &ledger.Pending{}}, "withdrawn  id  t\\n\n"},
	} {
		var b bytes.Buffer
		p := &printer{Writer: bufio.NewWriter(&b)}
		tt.change.At = at
		tt.change.Pending.ID, tt.change.Pending.Tool = "id", "t\n"
		changed(p, tt.change)
		_ = p.Flush()
		if got := b.String()[10:]; got != tt.want {
			t.Errorf("%s: %q, want %q", tt.change.Event, got, tt.want)
		}
	}
}
