package gateway

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opa-gate/opa-gate/capability"
)

// A server that fails in some way: the client gets a clear error or the true
// result, the gateway goes on, and nothing is executed that the policy would
// not have allowed.
func TestFaultyServers(t *testing.T) {
	for _, tt := range []struct {
		behaviour string
		wantError string // in the error of the call; "" if it has a result
		then      string // the same for the next call
		executed  int    // by both
	}{
		{"dies", `server "fake" has ended`, `server "fake" has ended`, 1},
		{"hangs", `server "fake" did not answer in time`, `server "fake" did not answer in time`, 2},
		{"garbles", `server "fake" sent something that is no message`, `sent something that is no message`, 2},
		{"both", `server "fake" sent something that is no message`, `sent something that is no message`, 2},
		{"too-long", `server "fake" sent something that is no message`, `sent something that is no message`, 2},
		{"long", "", "", 2},
		{"floods", "", "", 2},
		{"noise", "", "", 2},
		{"answers-twice", "", "", 2},
		{"answers-others", "", "", 2},
		{"fickle", "", "", 2},
		{"pages", "", "", 2},
		{"nolist", "the list of tools cannot be read", "the list of tools cannot be read", 0},
		{"endless", "the list of tools cannot be read", "the list of tools cannot be read", 0},
	} {
		t.Run(tt.behaviour, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, "", fake("fake", tt.behaviour, connector))
			if tt.behaviour == "hangs" {
				b.config.Timeout = 500 * time.Millisecond
			}
			c := b.start()
			c.on = func(m wireMessage) bool { // answers what the server asks
				if m.Method == "ping" {
					go c.write(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":{}}`)
				}
				return false
			}
			c.hello(`{}`)
			for _, want := range []string{tt.wantError, tt.then} {
				m := c.call("look")
				switch {
				case want == "" && (m.Error != nil || strings.Contains(m.line, "forged") || strings.Contains(m.line, "isError")):
					t.Errorf("got %.300s", m.line)
				case want != "" && (m.Error == nil || !strings.Contains(m.Error.Message, want)):
					t.Errorf("got %.300s, want the error %q", m.line, want)
				}
			}
			if got := len(b.calls()); got != tt.executed {
				t.Errorf("%d calls were executed, want %d", got, tt.executed)
			}
		})
	}
}

// A server says in every other list that a tool is harmless. The gate goes on
// believing what it said first.
func TestRedeclaringLoosensNothing(t *testing.T) {
	b := newBench(t, "", fake("fake", "fickle", connector))
	c := b.start()
	c.hello(`{}`)
	if m := c.call("fetch"); m.Error != nil { // taints
		t.Fatal(m.line)
	}
	for range 6 {
		c.request("tools/list", `{}`)
		if m := c.call("send"); !strings.Contains(m.line, `"opa-gate/outcome":"escalate"`) {
			t.Fatalf("a tool that was declared anew as harmless got %s", m.line)
		}
	}
	if got := len(b.calls()); got != 1 {
		t.Errorf("%d calls were executed, want the first alone", got)
	}
}

// failingGate fails in one of its methods, or panics, or answers what is no
// decision.
type failingGate struct {
	Gate
	decide, returned error
	panics           bool
	kind             capability.Kind
}

var errLedger = errors.New("the disk with /secret/path is full")

func (g *failingGate) Decide(ctx context.Context, c *Call) (Verdict, error) {
	switch {
	case g.panics:
		panic("a fault")
	case g.decide != nil:
		return Verdict{Outcome: capability.Outcome{Kind: capability.Allow}}, g.decide
	}
	v, err := g.Gate.Decide(ctx, c)
	if g.kind != 0 {
		v.Outcome = capability.Outcome{Kind: g.kind}
	}
	return v, err
}

func (g *failingGate) Returned(ctx context.Context, c *Call, failed bool) error {
	if g.returned != nil {
		return g.returned
	}
	return g.Gate.Returned(ctx, c, failed)
}

func TestFailingGate(t *testing.T) {
	for _, tt := range []struct {
		name     string
		gate     failingGate
		method   string
		want     string
		executed int
	}{
		{"no decision", failingGate{decide: errLedger}, "tools/call", "it could not be decided", 0},
		{"a panic", failingGate{panics: true}, "tools/call", "a fault in the gateway", 0},
		{"an answer that is none", failingGate{kind: 99}, "tools/call", "it could not be decided", 0},
		{"no record of a result", failingGate{returned: errLedger}, "tools/call", "its result was withheld", 1},
		{"no record of a resource", failingGate{returned: errLedger}, "resources/read", "its result was withheld", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, "", fake("fake", "good", connector))
			tt.gate.Gate = b.policy
			b.gate = &tt.gate
			c := b.start()
			c.hello(`{}`)
			m := c.request(tt.method, `{"name":"fetch","uri":"fake://x"}`)
			if m.Error == nil || !strings.Contains(m.Error.Message, tt.want) {
				t.Errorf("got %s, want the error %q", m.line, tt.want)
			}
			if strings.Contains(m.line, "secret") || strings.Contains(m.line, "outside content") {
				t.Errorf("the error tells too much: %s", m.line)
			}
			if got := len(b.calls()); got != tt.executed {
				t.Errorf("%d calls were executed, want %d", got, tt.executed)
			}
		})
	}
}

// The ledger goes away while calls are made.
func TestLedgerCloses(t *testing.T) {
	b := newBenchOn(t, filepath.Join(t.TempDir(), "ledger.db"), "", fake("fake", "good", connector))
	c := b.start()
	c.hello(`{}`)
	if m := c.call("look"); m.Error != nil {
		t.Fatal(m.line)
	}
	if err := b.ledger.Close(); err != nil {
		t.Fatal(err)
	}
	for _, tool := range []string{"look", "fetch", "send"} {
		if m := c.call(tool); m.Error == nil || !strings.Contains(m.Error.Message, "could not be decided") {
			t.Errorf("%s without a ledger: %s", tool, m.line)
		}
	}
	if got := len(b.calls()); got != 1 {
		t.Errorf("%d calls were executed, want 1", got)
	}
}

// Many calls at once, some of which taint: from the first tainted answer on
// nothing is sent.
func TestManyAtOnce(t *testing.T) {
	b := newBench(t, "", fake("fake", "slow", connector))
	c := b.start()
	c.hello(`{}`)
	var failed atomic.Int64
	var calling sync.WaitGroup
	for range 20 {
		calling.Go(func() {
			if m := c.call("look"); m.Error != nil {
				failed.Add(1)
			}
		})
	}
	calling.Wait()
	if failed.Load() > 0 {
		t.Errorf("%d calls failed", failed.Load())
	}
	c.call("fetch")
	for range 10 {
		calling.Go(func() {
			if m := c.call("send"); !strings.Contains(m.line, "escalate") {
				t.Errorf("sent: %s", m.line)
			}
		})
	}
	calling.Wait()
	if waiting, n, err := b.ledger.Waiting(t.Context(), 100); err != nil || n != 1 {
		t.Errorf("%d escalations wait (%v, %v), want one for the same call", n, waiting, err)
	}
}

func TestBounds(t *testing.T) {
	b := newBench(t, "", fake("fake", "hangs", connector))
	b.config.InFlight = 5
	b.config.Timeout = time.Second
	c := b.start()
	c.hello(`{}`)
	c.request("tools/list", `{}`)
	var answers []chan wireMessage
	for range 8 {
		_, answer := c.send("tools/call", `{"name":"look"}`)
		answers = append(answers, answer)
	}
	refused := 0
	for _, answer := range answers {
		if m := c.await(answer); m.Error == nil {
			t.Errorf("got %s", m.line)
		} else if strings.Contains(m.Error.Message, "in flight") {
			refused++
		}
	}
	if refused != 3 {
		t.Errorf("%d calls were refused, want 3 of 8 with a bound of 5", refused)
	}
}

// The client gives up on calls: before they are decided nothing is sent, after
// that the server is told.
func TestCancel(t *testing.T) {
	b := newBench(t, "", fake("fake", "hangs", connector))
	gate := &slowGate{Gate: b.policy, held: make(chan struct{})}
	b.gate = gate
	c := b.start()
	c.hello(`{}`)
	c.request("tools/list", `{}`)
	id, answer := c.send("tools/call", `{"name":"look","arguments":{}}`)
	c.write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `,"reason":"enough"}}`)
	c.request("ping", `{}`) // what was written before was read
	close(gate.held)
	select {
	case m := <-answer:
		t.Errorf("a cancelled call was answered: %s", m.line)
	case <-time.After(200 * time.Millisecond):
	}
	if got := b.calls(); got != nil {
		t.Errorf("a call was executed after it was cancelled: %q", got)
	}
	// An id that is in flight is not taken twice.
	id, answer = c.send("tools/call", `{"name":"look","arguments":{}}`)
	c.write(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"look"}}`)
	if m := c.await(answer); m.Error == nil || m.Error.Code != -32600 {
		t.Errorf("got %s", m.line)
	}
}

type slowGate struct {
	Gate
	held chan struct{}
	only string // the tool whose calls are held; "" is all
}

func (g *slowGate) Decide(ctx context.Context, c *Call) (Verdict, error) {
	if g.only == "" || g.only == c.Tool {
		<-g.held
		ctx = context.WithoutCancel(ctx) // it was decided when nobody had given up
	}
	return g.Gate.Decide(ctx, c)
}

// A server that is told nothing but what is meant for it.
func TestEnvironment(t *testing.T) {
	t.Setenv("GITHUB_TOKEN", "hidden-token")
	t.Setenv("OTHER_SECRET", "hidden-other")
	one, two := fake("one", "env", connector), fake("two", "env", connector)
	one.Env["ONE_KEY"], two.Env["TWO_KEY"] = "key-of-one", "key-of-two"
	b := newBench(t, "", one, two)
	c := b.start()
	c.hello(`{}`)
	m := c.call("one__look")
	for text, want := range map[string]bool{"key-of-one": true, "key-of-two": false, "hidden-": false, "PATH=": true} {
		if strings.Contains(m.line, text) != want {
			t.Errorf("server one has %q: %v, want %v", text, !want, want)
		}
	}
	if log := b.logged(); strings.Contains(log, "key-of") {
		t.Error("a key is in the log")
	}
}
