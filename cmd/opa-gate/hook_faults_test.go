//go:build linux

package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/opa-gate/opa-gate/agent"
	"github.com/opa-gate/opa-gate/agent/hook/settings"
	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/ledger"
)

// A fakeAgent does with hooks what agents do: it runs the command as it stands
// in its settings, and lets a call run unless the hook denies it or asks, or
// exits with 2. A hook that crashes or exits with anything else lets it run.
type fakeAgent struct {
	t        *testing.T
	dir      string
	command  string
	policies string
	ledger   string
}

// newAgent installs the hook, with a copy of the policies and a catalogue that
// can be broken, and more flags.
func newAgent(t *testing.T, light bool, more ...string) *fakeAgent {
	t.Helper()
	a := &fakeAgent{t: t, dir: t.TempDir()}
	a.policies, a.ledger = filepath.Join(a.dir, "policies"), filepath.Join(a.dir, "state", "ledger.db")
	bin := filepath.Join(a.dir, "bin")
	if err := os.MkdirAll(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	gate := filepath.Join(bin, "opa-gate")
	asProgram(t, gate)
	if light {
		build := exec.Command("go", "build", "-o", filepath.Join(bin, "opa-gate-hook"), "../opa-gate-hook")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	a.write("agent.toml", "[tools.Never]\norigin = \"local-sandbox\"\nveto = \"no\"\n")
	for _, args := range [][]string{
		{"policy", "init", a.policies},
		append([]string{"hook", "install", "--yes", "--settings", a.path("settings.json"), "--policies", a.policies, "--ledger", a.ledger,
			"--catalogue", a.path("agent.toml"), "--idle", "5s", "--deadline", "15s", "--auto-allow"}, more...),
	} {
		cmd := exec.Command(gate, args...)
		cmd.Env, cmd.Dir = a.env(), a.dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	text, err := os.ReadFile(a.path("settings.json"))
	if err != nil {
		t.Fatal(err)
	}
	found, err := settings.Find(text)
	if err != nil || len(found) == 0 {
		t.Fatalf("%v: %s", err, text)
	}
	a.command = found[0].Command
	t.Cleanup(a.killResidents)
	return a
}

func (a *fakeAgent) path(name string) string { return filepath.Join(a.dir, name) }

func (a *fakeAgent) write(name, text string) {
	a.t.Helper()
	if err := os.WriteFile(a.path(name), []byte(text), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

func (a *fakeAgent) env() []string {
	return []string{"HOME=" + a.dir, "XDG_RUNTIME_DIR=" + a.dir, "PATH=" + os.Getenv("PATH")}
}

// hook runs the command for one event, with something before it in the shell. It
// says whether the agent goes on.
func (a *fakeAgent) hook(before string, event map[string]any) (runs bool, out string) {
	a.t.Helper()
	event["session_id"], event["cwd"] = "s", a.dir
	text, err := json.Marshal(event)
	if err != nil {
		a.t.Fatal(err)
	}
	return a.raw(before, text)
}

func (a *fakeAgent) raw(before string, text []byte) (runs bool, out string) {
	cmd := exec.Command("sh", "-c", before+a.command)
	cmd.Env, cmd.Stdin = a.env(), bytes.NewReader(text)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = 5 * time.Second
	err := cmd.Run()
	out = stdout.String() + stderr.String()
	if cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == 2 {
		return false, out
	}
	if err != nil {
		return true, out + err.Error()
	}
	var answer struct {
		Specific struct {
			Decision string `json:"permissionDecision"`
		} `json:"hookSpecificOutput"`
	}
	_ = json.Unmarshal(stdout.Bytes(), &answer) // an answer that the agent cannot read lets the call run
	return answer.Specific.Decision != "deny" && answer.Specific.Decision != "ask", out
}

func (a *fakeAgent) call(before, tool string) (runs bool, out string) {
	a.t.Helper()
	return a.hook(before, map[string]any{"hook_event_name": "PreToolUse", "tool_name": tool, "tool_use_id": fmt.Sprint(rand.Uint64()), "tool_input": map[string]any{}})
}

// begin has the session begin, and outside content come into it.
func (a *fakeAgent) begin() {
	a.t.Helper()
	a.hook("", map[string]any{"hook_event_name": "SessionStart", "source": "startup"})
	if runs, out := a.call("", "WebFetch"); !runs {
		a.t.Fatalf("the first fetch does not run: %s", out)
	}
}

// neverRuns makes the calls that the policy does not allow.
func (a *fakeAgent) neverRuns(what, before string) {
	a.t.Helper()
	for _, tool := range []string{"WebFetch", "Never", "mcp__x__y"} {
		if runs, out := a.call(before, tool); runs {
			a.t.Errorf("%s: %s was made, which the policy does not allow: %s", what, tool, out)
		}
	}
}

// killResidents kills the resident gates of this agent's programs.
func (a *fakeAgent) killResidents() {
	for _, pid := range a.residents() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

func (a *fakeAgent) residents() (pids []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		var pid int
		if _, err := fmt.Sscan(e.Name(), &pid); err != nil {
			continue
		}
		line, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if bytes.HasPrefix(line, []byte(a.path("bin/opa-gate")+"\x00hook\x00serve")) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Every failure point, with the light hook and with the whole gate: no call runs
// that the policy would not have allowed.
func TestHookFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("starts hundreds of processes")
	}
	for name, light := range map[string]bool{"opa-gate-hook": true, "opa-gate hook": false} {
		t.Run(name, func(t *testing.T) {
			a := newAgent(t, light)
			if (strings.Contains(a.command, "opa-gate-hook")) != light || !strings.HasSuffix(a.command, " || exit 2") {
				t.Fatalf("installed is %q", a.command)
			}
			a.begin()
			a.neverRuns("nothing is wrong", "")
			if runs, out := a.call("", "TaskList"); !runs {
				t.Fatalf("a call that is allowed does not run: %s", out)
			}
			faultyFiles(t, a)
			faultyLedger(t, a)
			faultyLimits(t, a)
			faultyInput(t, a)
			faultyReader(t, a)
			if light {
				faultyResident(t, a)
			}
			faultyDisk(t, a, light)
			faultyKills(t, a)
			a.neverRuns("all is well again", "")
			if runs, out := a.call("", "TaskList"); !runs {
				t.Errorf("nothing is wrong any more, and a call that is allowed does not run: %s", out)
			}
		})
	}
}

// moved runs f while a file is away, or has other content.
func (a *fakeAgent) moved(name, content string, f func()) {
	a.t.Helper()
	path := a.path(name)
	if err := os.Rename(path, path+".away"); err != nil {
		a.t.Fatal(err)
	}
	if content != "" {
		a.write(name, content)
	}
	f()
	if err := errors.Join(os.RemoveAll(path), os.Rename(path+".away", path)); err != nil {
		a.t.Fatal(err)
	}
}

func faultyFiles(t *testing.T, a *fakeAgent) {
	const remedy = "; nothing was decided; opa-gate hook status tells what is wrong\n"
	for _, tt := range []struct{ what, name, content, says string }{
		{"no policies", "policies", "", remedy},
		{"policies are a file", "policies", "package gate", remedy},
		{"a broken rule", "policies/gate/taint/taint.rego", "package gate.taint\n\nrevoked := ", remedy},
		{"a rule is gone", "policies/gate/call/call.rego", "", remedy},
		{"no catalogue", "agent.toml", "", remedy},
		{"a broken catalogue", "agent.toml", "[tools", remedy},
		{"a catalogue with an unknown key", "agent.toml", "[tools.Bash]\norigan = \"fetcher\"\n", remedy},
		{"no program", "bin/opa-gate", "", ""}, // the shell or opa-gate-hook says so
		{"another program", "bin/opa-gate", "#!/bin/sh\nexit 1\n", ""},
	} {
		if _, err := os.Stat(a.path(tt.name)); err != nil {
			t.Fatal(err)
		}
		a.moved(tt.name, tt.content, func() {
			a.neverRuns(tt.what, "")
			runs, out := a.call("", "TaskList")
			if runs {
				t.Errorf("%s: a call was decided: %s", tt.what, out)
			}
			if tt.says != "" && (!strings.HasSuffix(out, tt.says) || strings.Count(out, "\n") != 1) {
				t.Errorf("%s: one line that ends with %q is to be told, and %q is", tt.what, tt.says, out)
			}
		})
	}
}

func faultyLedger(t *testing.T, a *fakeAgent) {
	a.moved("state/ledger.db", "this is no database, and long enough to be seen as none", func() {
		a.neverRuns("the ledger is garbage", "")
	})
	a.moved("state", "a file", func() { a.neverRuns("the ledger's folder is a file", "") })
	a.moved("state", "", func() { // a new ledger, which has not seen the session begin
		a.neverRuns("the ledger is gone", "")
	})

	db, err := sql.Open("sqlite", "file:"+a.ledger)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	if _, err := db.Exec("BEGIN EXCLUSIVE"); err != nil {
		t.Fatal(err)
	}
	if runs, out := a.call("", "WebFetch"); runs { // one, since it takes its time
		t.Errorf("the ledger is locked: a call was made: %s", out)
	}
	if _, err := db.Exec("ROLLBACK"); err != nil {
		t.Fatal(err)
	}

	// A clock that was set back: what is in the ledger lies in the future.
	a.moved("state", "", func() {
		future := func() time.Time { return time.Now().Add(30 * 24 * time.Hour) }
		l, err := ledger.Open(context.Background(), a.ledger, &ledger.Options{Now: future})
		if err != nil {
			t.Fatal(err)
		}
		s := &agent.Sessions{Log: agent.OnLedger(l)}
		_, err = s.Begin(context.Background(), "s")
		if err == nil {
			_, err = s.Taint(context.Background(), "s", agent.Source{Why: agent.Started, Tool: "WebFetch", Call: "1"})
		}
		if err := errors.Join(err, l.Close()); err != nil {
			t.Fatal(err)
		}
		a.neverRuns("the clock was set back", "")
	})
}

// faultyLimits has no room on the disk, no memory and no descriptors.
func faultyLimits(t *testing.T, a *fakeAgent) {
	for what, before := range map[string]string{
		"no room on the disk": "ulimit -f 0; ", "no memory": "ulimit -v 60000; ", "no descriptors": "ulimit -n 4; ",
		"no PATH": "PATH=; ", "no HOME": "unset HOME; ", "no standard output": "exec >&-; ",
	} {
		a.killResidents() // they were started without the limits
		a.neverRuns(what, before)
	}
	a.killResidents()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = full.Close()
	a.neverRuns("standard output is full", "exec >/dev/full; ")
}

func faultyInput(t *testing.T, a *fakeAgent) {
	good, _ := json.Marshal(map[string]any{"hook_event_name": "PreToolUse", "session_id": "s", "cwd": a.dir, "tool_name": "WebFetch", "tool_use_id": "x", "tool_input": map[string]any{}})
	for n := range 25 {
		text := bytes.Clone(good)
		switch n % 5 {
		case 0: // cut
			text = text[:rand.IntN(len(text))]
		case 1: // a byte is another one
			text[rand.IntN(len(text))] = byte(rand.Uint32())
		case 2: // something behind it
			text = append(text, good...)
		case 3:
			text = []byte(strings.Repeat("{\"a\":", 1+rand.IntN(5000)))
		case 4:
			text = make([]byte, rand.IntN(5000))
		}
		runs, out := a.raw("", text)
		var e struct {
			Tool string `json:"tool_name"`
		}
		if runs && (json.Unmarshal(text, &e) != nil || e.Tool == "WebFetch") {
			t.Errorf("%q let a call run: %s", text[:min(len(text), 300)], out)
		}
	}
}

// faultyResident has something else at the socket than a resident gate.
func faultyResident(t *testing.T, a *fakeAgent) {
	a.call("", "TaskList") // there is one now
	sockets, err := filepath.Glob(a.path("opa-gate/*.sock"))
	if err != nil || len(sockets) == 0 {
		t.Fatalf("no socket, %v", err)
	}
	for what, answer := range map[string]func(net.Conn){
		"closes":  func(net.Conn) {},
		"garbage": func(c net.Conn) { _, _ = io.WriteString(c, "{\"hookSpecificOutput\":{}}\n") },
		"half":    func(c net.Conn) { _, _ = io.WriteString(c, `{"version":1,"exit":0,"stdout":3,"stderr":0}`+"\n{") },
		"floods":  func(c net.Conn) { _, _ = c.Write(make([]byte, 1<<20)) },
	} {
		a.killResidents()
		time.Sleep(50 * time.Millisecond)
		sockets, _ := filepath.Glob(a.path("opa-gate/*.sock"))
		var listeners []net.Listener
		for _, path := range sockets {
			_ = os.Remove(path)
			l, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			listeners = append(listeners, l)
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					answer(c)
					_ = c.Close()
				}
			}()
		}
		a.neverRuns("the resident gate "+what, "")
		if runs, out := a.call("", "TaskList"); !runs {
			t.Errorf("the resident gate %s, and the whole gate did not answer: %s", what, out)
		}
		for _, l := range listeners {
			_ = l.Close()
		}
	}
	// A socket that nobody listens at any more.
	for _, path := range sockets {
		_ = os.Remove(path)
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		_ = l.Close()
	}
	a.neverRuns("the socket is stale", "")
	if err := os.Chmod(a.path("opa-gate"), 0o755); err != nil {
		t.Fatal(err)
	}
	a.neverRuns("the folder is open to others", "")
	if err := os.Chmod(a.path("opa-gate"), 0o700); err != nil {
		t.Fatal(err)
	}
}

// faultyKills kills programs of the gate at random moments, while calls are
// decided.
func faultyKills(t *testing.T, a *fakeAgent) {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(rand.IntN(150)) * time.Millisecond):
			}
			entries, _ := os.ReadDir("/proc")
			for _, e := range entries {
				var pid int
				if _, err := fmt.Sscan(e.Name(), &pid); err != nil {
					continue
				}
				line, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
				if bytes.HasPrefix(line, []byte(a.path("bin")+"/")) && rand.IntN(2) == 0 {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			}
		}
	})
	for range 25 {
		a.neverRuns("killed at some moment", "")
	}
	close(stop)
	wg.Wait()
}

// 64 fetches at once in one session, by as many processes: once one of them was
// let go, no call that begins afterwards is decided on a clean conversation.
func TestHookTaintAtOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("starts many processes")
	}
	a := newAgent(t, true)
	a.hook("", map[string]any{"hook_event_name": "SessionStart", "source": "startup"})
	var wg sync.WaitGroup
	let := make([]bool, 64)
	for i := range let {
		wg.Go(func() { let[i], _ = a.call("", "WebFetch") })
	}
	wg.Wait()
	n := 0
	for _, runs := range let {
		if runs {
			n++
		}
	}
	if n == 0 {
		t.Error("none of them was let go, so nothing was tried")
	}
	a.neverRuns("after 64 fetches", "")
	l, err := ledger.Open(t.Context(), a.ledger, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if st, err := (&agent.Sessions{Log: agent.OnLedger(l)}).State(t.Context(), "s"); err != nil || st.Taint != capability.Tainted {
		t.Errorf("%v, %v", st.Taint, err)
	}
}
