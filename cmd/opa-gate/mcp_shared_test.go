//go:build linux

package main

import (
	"database/sql"
	"strings"
	"syscall"
	"testing"

	_ "modernc.org/sqlite"
)

// Gateways go on with one conversation, one after another and two at once: each call
// that can bring content in is on record as one of its own.
func TestMCPEachCallOnRecord(t *testing.T) {
	b := newBehindGate(t)
	for range 3 {
		for _, g := range []*gatewayProcess{b.start("s"), b.start("s")} {
			says(t, "fetch", g.call("fetch", `{}`), allowed("fetch"))
			defer g.stop(syscall.SIGKILL)
		}
	}
	st := b.state("s")
	calls := map[string]bool{}
	for _, src := range st.Sources {
		calls[src.Call] = true
	}
	if n := b.times("fetch"); n != 6 || len(calls) != n {
		t.Errorf("%d calls were made, and on record are %v", n, st.Sources)
	}
}

// Two gateways on one ledger and one conversation: what one brings in taints for the
// other, and an approval of one call lets one call of both go.
func TestMCPTwoOnOneLedger(t *testing.T) {
	b := newBehindGate(t)
	one, two := b.start("s"), b.start("s")
	says(t, "fetch", one.call("fetch", `{}`), allowed("fetch"))
	b.approve(waitsAs(t, two.call("send", `{"to":"ann"}`)))
	var answers []chan string
	for range 10 {
		for _, g := range []*gatewayProcess{one, two} {
			answers = append(answers, g.send("tools/call", `{"name":"send","arguments":{"to":"ann"}}`))
		}
	}
	let := 0
	for i, answer := range answers {
		line := []*gatewayProcess{one, two}[i%2].await(answer)
		if strings.Contains(line, allowed("send")) {
			let++
			continue
		}
		says(t, "the others", line, escalated)
	}
	if n := b.times("send"); let != 1 || n != 1 {
		t.Errorf("approved once, let go %d times, and made %d times", let, n)
	}
}

// Somebody else has the ledger's database to themselves: what has to be recorded is not
// called, and after that the gateway goes on.
func TestMCPLockedLedger(t *testing.T) {
	if testing.Short() {
		t.Skip("waits until the gate gives up")
	}
	t.Parallel()
	b := newBehindGate(t)
	g := b.start("s")
	db, err := sql.Open("sqlite", "file:"+b.ledger)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	if _, err := db.Exec("BEGIN EXCLUSIVE"); err != nil {
		t.Fatal(err)
	}
	says(t, "the ledger is locked", g.call("fetch", `{}`), undecided)
	if got := b.executed(); len(got) != 0 {
		t.Errorf("made were %q", got)
	}
	if _, err := db.Exec("ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	says(t, "the ledger is free again", g.call("fetch", `{}`), allowed("fetch"))
	says(t, "the ledger is free again", g.call("send", `{}`), escalated)
}
