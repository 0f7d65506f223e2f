//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/opa-gate/opa-gate/agent"
	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/internal/testpostgres"
	"github.com/opa-gate/opa-gate/ledger"
)

// A behindGate is an MCP server that is behind the gateway as a user installs it:
// each is a process of its own.
type behindGate struct {
	t           *testing.T
	dir, ledger string
}

func newBehindGate(t *testing.T) *behindGate {
	t.Helper()
	b := &behindGate{t: t, dir: t.TempDir()}
	b.ledger = b.path("ledger.db")
	for _, name := range []string{"opa-gate", mcpServer} {
		asProgram(t, b.path(name))
	}
	config, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"fake": map[string]any{
		"command": b.path(mcpServer), "origin": "registered-connector",
		"env": map[string]string{"EXECUTED": b.path("executed"), "PIDFILE": b.path("pid")},
	}}})
	if err == nil {
		err = os.WriteFile(b.path("servers.json"), config, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *behindGate) path(name string) string { return filepath.Join(b.dir, name) }

func (b *behindGate) command(args ...string) *exec.Cmd {
	cmd := exec.Command(b.path("opa-gate"), append(args, "--ledger", b.ledger)...)
	cmd.Env = []string{"HOME=" + b.dir, "PATH=" + os.Getenv("PATH")}
	return cmd
}

// executed are the tools that the server was called for, in their order.
func (b *behindGate) executed() []string {
	text, err := os.ReadFile(b.path("executed"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		b.t.Fatal(err)
	}
	return strings.Fields(string(text))
}

func (b *behindGate) times(tool string) int {
	n := 0
	for _, name := range b.executed() {
		if name == tool {
			n++
		}
	}
	return n
}

func (b *behindGate) approve(id string) {
	b.t.Helper()
	if out, err := b.command("approvals", "approve", "--yes", id).CombinedOutput(); err != nil {
		b.t.Fatalf("%v: %s", err, out)
	}
}

// state is what the ledger says of a session.
func (b *behindGate) state(session string) agent.State {
	b.t.Helper()
	l, err := ledger.Open(b.t.Context(), b.ledger, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	st, err := (&agent.Sessions{Log: agent.OnLedger(l)}).State(b.t.Context(), session)
	if err != nil {
		b.t.Fatal(err)
	}
	return st
}

// A gatewayProcess is one gateway, with its client's side.
type gatewayProcess struct {
	*exec.Cmd
	t     *testing.T
	stdin io.WriteCloser
	log   strings.Builder

	mu      sync.Mutex
	last    int
	answers map[int]chan string
	ended   chan struct{} // its output has ended
}

// start starts a gateway and greets it.
func (b *behindGate) start(session string) *gatewayProcess {
	b.t.Helper()
	g := &gatewayProcess{t: b.t, Cmd: b.command("mcp", "--config", b.path("servers.json"), "--session", session),
		answers: map[int]chan string{}, ended: make(chan struct{})}
	g.Stderr = &g.log
	var out io.ReadCloser
	var err error
	if g.stdin, err = g.StdinPipe(); err == nil {
		out, err = g.StdoutPipe()
	}
	if err == nil {
		err = g.Start()
	}
	if err != nil {
		b.t.Fatal(err)
	}
	go g.read(out)
	b.t.Cleanup(func() { g.stop(syscall.SIGKILL) })
	if line := g.ask("initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}`); !strings.Contains(line, "serverInfo") {
		b.t.Fatalf("initialize: %s", line)
	}
	return g
}

func (g *gatewayProcess) read(out io.Reader) {
	defer close(g.ended)
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		var m struct{ ID int }
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			g.t.Errorf("the gateway wrote %q", line)
			continue
		}
		g.mu.Lock()
		answer := g.answers[m.ID]
		g.mu.Unlock()
		if answer != nil {
			answer <- line
		}
	}
}

// send sends a request and does not wait for its answer.
func (g *gatewayProcess) send(method, params string) chan string {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last++
	answer := make(chan string, 2)
	g.answers[g.last] = answer
	_, _ = fmt.Fprintf(g.stdin, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", g.last, method, params)
	return answer
}

func (g *gatewayProcess) await(answer chan string) string {
	g.t.Helper()
	select {
	case line := <-answer:
		return line
	case <-time.After(2 * time.Minute):
		g.t.Fatal("no answer")
	case <-g.ended:
		select {
		case line := <-answer:
			return line
		default:
		}
		g.stop(syscall.SIGKILL)
		g.t.Fatalf("the gateway ended: %s", g.log.String())
	}
	panic("unreachable")
}

func (g *gatewayProcess) ask(method, params string) string {
	g.t.Helper()
	return g.await(g.send(method, params))
}

func (g *gatewayProcess) call(tool, arguments string) string {
	g.t.Helper()
	return g.ask("tools/call", `{"name":"`+tool+`","arguments":`+arguments+`}`)
}

// stop sends a signal and waits for the end. It may be called twice.
func (g *gatewayProcess) stop(signal syscall.Signal) {
	if g.ProcessState == nil {
		_ = g.Process.Signal(signal)
		<-g.ended
		_ = g.Wait()
	}
}

const (
	undecided = "it could not be decided"
	withheld  = "its result was withheld"
	escalated = `"opa-gate/outcome":"escalate"`
)

func allowed(tool string) string { return "content of " + tool }

// says fails unless a line has one of the texts.
func says(t *testing.T, what, line string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if strings.Contains(line, text) {
			return
		}
	}
	t.Errorf("%s: got %.500s, want one of %q", what, line, texts)
}

// A gateway that is killed with calls in flight: nothing has reached the server
// that was not on record, the server ends as well, and one that is started again
// goes on with what is known of the conversation.
func TestMCPKilled(t *testing.T) {
	rounds := 8
	if testing.Short() {
		rounds = 3
	}
	made := 0
	for round := range rounds {
		b := newBehindGate(t)
		g := b.start("s")
		var answers []chan string
		for n := range 20 { // none is answered before the gateway is killed
			tool := []string{"fetch", "send"}[n%2]
			answers = append(answers, g.send("tools/call", fmt.Sprintf(`{"name":%q,"arguments":{"n":%d,"hold":%q}}`, tool, n, b.path("never"))))
		}
		if round == 0 {
			waitFor(t, "a call to be made", func() bool { return b.times("fetch") > 0 })
		} else {
			time.Sleep(time.Duration(rand.IntN(60)) * time.Millisecond) // anywhere within the decisions
		}
		g.stop(syscall.SIGKILL)
		serverEnds(t, b)
		for _, answer := range answers {
			select {
			case line := <-answer:
				if !strings.Contains(line, escalated) {
					t.Errorf("answered before the server did: %s", line)
				}
			default:
			}
		}
		fetched, sent := b.times("fetch"), b.times("send")
		made += fetched
		recorded := 0
		for _, src := range b.state("s").Sources {
			if src.Tool == "mcp__fake__fetch" {
				recorded++
			}
		}
		if fetched > recorded {
			t.Errorf("%d calls that taint were made, and %d are on record", fetched, recorded)
		}
		again := b.start("s")
		if fetched > 0 {
			says(t, "after the kill", again.call("send", `{}`), escalated)
		}
		says(t, "after the kill", again.call("look", `{}`), allowed("look"))
		again.stop(syscall.SIGKILL)
		if fetched > 0 && b.times("send") != sent || b.times("fetch") != fetched {
			t.Errorf("calls were made after the gateway was killed: %q", b.executed())
		}
	}
	if made == 0 {
		t.Error("no call was made before a kill, so nothing was tried")
	}
}

// serverEnds fails unless the server's process ends.
func serverEnds(t *testing.T, b *behindGate) {
	t.Helper()
	var pid int
	text, err := os.ReadFile(b.path("pid"))
	if err == nil {
		_, err = fmt.Sscan(string(text), &pid)
	}
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z ") { // it may have nobody who takes note of its end
			return
		}
		if time.Now().After(deadline) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			t.Error("the server outlives the gateway")
			return
		}
	}
}

// An approval for once is used up when the call is made, whatever becomes of the
// gateway then.
func TestMCPKilledWithApproval(t *testing.T) {
	b := newBehindGate(t)
	g := b.start("s")
	says(t, "fetch", g.call("fetch", `{}`), allowed("fetch"))
	arguments := fmt.Sprintf(`{"hold":%q}`, b.path("never"))
	b.approve(waitsAs(t, g.call("send", arguments)))
	g.send("tools/call", `{"name":"send","arguments":`+arguments+`}`)
	waitFor(t, "an approved call to be made", func() bool { return b.times("send") > 0 })
	g.stop(syscall.SIGKILL)
	serverEnds(t, b)
	again := b.start("s")
	says(t, "the same call once more", again.call("send", arguments), escalated)
	if n := b.times("send"); n != 1 {
		t.Errorf("approved once, and made %d times", n)
	}
}

// waitsAs is the ID under which a call waits.
func waitsAs(t *testing.T, line string) string {
	t.Helper()
	var m struct {
		Result struct {
			Meta map[string]string `json:"_meta"`
		}
	}
	if err := json.Unmarshal([]byte(line), &m); err != nil || m.Result.Meta["opa-gate/pending"] == "" {
		t.Fatalf("nothing waits: %s", line)
	}
	return m.Result.Meta["opa-gate/pending"]
}

// The ledger's disk becomes full while the gateway runs, also in the middle of a
// call.
func TestMCPFullDisk(t *testing.T) {
	b := newBehindGate(t)
	disk := b.path("disk")
	if err := os.Mkdir(disk, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("none", disk, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("no small disk can be mounted, which takes root: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(disk, syscall.MNT_DETACH) })
	b.ledger = filepath.Join(disk, "ledger.db")
	filler := filepath.Join(disk, "filler")

	g := b.start("s")
	says(t, "look", g.call("look", `{}`), allowed("look"))
	fill(filler)
	refused := func(tool, otherwise string, made bool) {
		t.Helper()
		n := 0
		for i := range 20 {
			before := b.times(tool)
			line := g.call(tool, fmt.Sprintf(`{"n":%d}`, i))
			says(t, tool+" on a full disk", line, undecided, otherwise)
			if strings.Contains(line, undecided) {
				n++
			}
			if b.times(tool) != before && (!made || strings.Contains(line, undecided)) {
				t.Errorf("%s was made: %s", tool, line)
			}
		}
		if n == 0 {
			t.Errorf("%s was never refused, so the disk was not full", tool)
		}
	}
	refused("fetch", allowed("fetch"), true) // each is to be put on record before it is made
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	says(t, "fetch with room again", g.call("fetch", `{}`), allowed("fetch"))
	fill(filler)
	refused("send", escalated, false) // each is to be filed
	g.stop(syscall.SIGTERM)
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}

	// The server fills the disk while it is called: it is on record all the same.
	sent := b.times("send")
	g = b.start("other")
	says(t, "fetch, while the disk fills", g.call("fetch", fmt.Sprintf(`{"fill":%q}`, filler)), withheld, allowed("fetch"))
	says(t, "send after that", g.call("send", `{}`), undecided, escalated)
	g.stop(syscall.SIGKILL)
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if st := b.state("other"); st.Taint != capability.Tainted {
		t.Error("the conversation is clean")
	}
	g = b.start("other")
	says(t, "send with room again", g.call("send", `{}`), escalated)
	if n := b.times("send"); n != sent {
		t.Errorf("send was made %d times, want %d", n, sent)
	}
}

// The database of a fleet goes away with a call in flight, and comes back.
func TestMCPDatabaseGone(t *testing.T) {
	server := testpostgres.New(t)
	server.Start(t)
	b := newBehindGate(t)
	b.ledger = server.Database(t)
	g := b.start("s")
	says(t, "look", g.call("look", `{}`), allowed("look"))
	answer := g.send("tools/call", fmt.Sprintf(`{"name":"fetch","arguments":{"hold":%q}}`, b.path("go")))
	waitFor(t, "the call to be made", func() bool { return b.times("fetch") > 0 })
	server.Stop()
	if err := os.WriteFile(b.path("go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	says(t, "a call in flight", g.await(answer), withheld)
	var answers []chan string
	for _, tool := range []string{"look", "fetch", "send"} {
		answers = append(answers, g.send("tools/call", `{"name":"`+tool+`","arguments":{}}`))
	}
	for _, answer := range answers {
		says(t, "without a database", g.await(answer), undecided)
	}
	if got := b.executed(); len(got) != 2 {
		t.Errorf("calls were made without a database: %q", got)
	}
	server.Start(t)
	says(t, "the database is back", g.call("send", `{}`), escalated)
	says(t, "the database is back", g.call("look", `{}`), allowed("look"))
	if got := b.executed(); len(got) != 3 {
		t.Errorf("executed were %q", got)
	}
	g.stop(syscall.SIGTERM) // until then its log is written to
	if log := g.log.String(); strings.Contains(log, "panic") {
		t.Error(log)
	}
}

// A clock that was set back by a month: what is in the ledger lies in the future,
// and counts.
func TestMCPClockBack(t *testing.T) {
	b := newBehindGate(t)
	future := func() time.Time { return time.Now().Add(30 * 24 * time.Hour) }
	l, err := ledger.Open(context.Background(), b.ledger, &ledger.Options{Now: future})
	if err != nil {
		t.Fatal(err)
	}
	s := &agent.Sessions{Log: agent.OnLedger(l)}
	_, err = s.Begin(context.Background(), "s")
	if err == nil {
		_, err = s.Taint(context.Background(), "s", agent.Source{Why: agent.Started, Tool: "mcp__fake__fetch", Call: "1"})
	}
	if err := errors.Join(err, l.Close()); err != nil {
		t.Fatal(err)
	}
	g := b.start("s")
	line := g.call("send", `{}`)
	says(t, "a tainted conversation", line, escalated)
	b.approve(waitsAs(t, line))
	says(t, "approved", g.call("send", `{}`), allowed("send"))
	says(t, "approved once", g.call("send", `{}`), escalated)
	clean := b.start("new")
	says(t, "a new conversation", clean.call("fetch", `{}`), allowed("fetch"))
	says(t, "a new conversation, now tainted", clean.call("send", `{}`), escalated)
	if n := b.times("send"); n != 1 {
		t.Errorf("send was made %d times, want 1", n)
	}
}
