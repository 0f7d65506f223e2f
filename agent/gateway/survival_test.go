package gateway

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/ledger"
)

// A client gives a new request the id of one that it gave up on: what the old one comes
// to is not taken for the answer of the new one.
func TestIDOfACancelledRequest(t *testing.T) {
	b := newBench(t, "", fake("fake", "slow", connector), fake("other", "good", connector))
	gate := &slowGate{Gate: b.policy, held: make(chan struct{}), only: "send"}
	b.gate = gate
	c := b.start()
	c.hello(`{}`)
	if m := c.call("fake__fetch"); m.Error != nil {
		t.Fatal(m.line)
	}
	id, answer := c.send("tools/call", `{"name":"fake__send"}`) // which a person has to confirm
	c.write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`)
	c.write(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"fake__look"}}`)
	c.request("ping", `{}`) // what was written before was read
	close(gate.held)
	if m := c.await(answer); !strings.Contains(m.line, `"text":"done"`) {
		t.Errorf("got %s", m.line)
	}
}

// One of several servers hangs: the others are there all the same, and soon.
func TestHangingServerBesideOthers(t *testing.T) {
	for behaviour, want := range map[string]string{"mute": "left out a server", "mute-lists": "a list without those of a server"} {
		t.Run(behaviour, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, "", fake("good", "good", connector), fake("hangs", behaviour, connector))
			b.config.Timeout, b.allTime = 10*time.Minute, 300*time.Millisecond
			c := b.start()
			c.hello(`{}`)
			if got := toolNames(t, c.request("tools/list", `{}`)); !strings.Contains(got, "look") {
				t.Errorf("tools: %q", got)
			}
			if m := c.call("look"); m.Error != nil || len(b.calls()) != 1 {
				t.Errorf("look: %s", m.line)
			}
			if m := c.request("logging/setLevel", `{"level":"info"}`); m.Error == nil {
				t.Errorf("no server keeps a log, and setting its level got %s", m.line)
			}
			if log := b.logged(); !strings.Contains(log, want) || !strings.Contains(log, `server \"hangs\" did not answer in time`) {
				t.Errorf("the log does not say why: %s", log)
			}
		})
	}
}

// A server whose lists are larger than anybody needs is left out.
func TestHeavyLists(t *testing.T) {
	b := newBench(t, "", fake("good", "good", connector), fake("heavy", "heavy", connector))
	b.config.MaxMessage = 1 << 20
	c := b.start()
	c.hello(`{}`)
	if got := toolNames(t, c.request("tools/list", `{}`)); got != "look fetch send secret" {
		t.Errorf("tools: %q", got)
	}
	if log := b.logged(); !strings.Contains(log, "tools/list: more than 4194304 bytes") {
		t.Errorf("the log does not say why: %s", log)
	}
}

// A tool whose name no policy takes is not shown and not kept in mind.
func TestLongNames(t *testing.T) {
	b := book{shown: func(string) bool { return true }, profile: func(string, capability.Profile) capability.Profile { return capability.Profile{} }}
	for n, wrong := range map[int]bool{maxToolName: false, maxToolName + 1: true, 1 << 20: true} {
		_, err := b.declare([]byte(`{"name":"` + strings.Repeat("x", n) + `"}`))
		if (err != nil) != wrong {
			t.Errorf("a name of %d bytes: %v", n, err)
		}
	}
	if len(b.known) != 1 {
		t.Errorf("%d tools are known", len(b.known))
	}
}

// A gatedPipe is a connection whose other side reads when it is told to.
type gatedPipe struct {
	written chan jsonrpc.Message
	closed  chan struct{}
}

func (p *gatedPipe) Read(context.Context) (jsonrpc.Message, error) {
	<-p.closed
	return nil, io.EOF
}

func (p *gatedPipe) Write(_ context.Context, m jsonrpc.Message) error {
	select {
	case p.written <- m:
		return nil
	case <-p.closed:
		return io.ErrClosedPipe
	}
}

func (p *gatedPipe) Close() error {
	close(p.closed)
	return nil
}

func (p *gatedPipe) SessionID() string { return "" }

// What waits to be written has a bound in bytes, however many may send: a server that
// does not read is stuck, and whoever sends to a client that does not read waits.
func TestQueueIsBounded(t *testing.T) {
	const room = 1000
	params := []byte(`"` + strings.Repeat("x", 250) + `"`)
	link := func(patient bool) (*link, *gatedPipe) {
		pipe := &gatedPipe{written: make(chan jsonrpc.Message), closed: make(chan struct{})}
		l := &link{name: "it", conn: pipe, room: room, patient: patient, log: discard, request: func(*jsonrpc.Request) {}}
		l.start()
		t.Cleanup(func() { l.end(io.EOF) })
		return l, pipe
	}
	l, _ := link(false)
	sent := 0
	for ; sent < 100 && l.send(&jsonrpc.Request{Method: "m", Params: params}) == nil; sent++ {
	}
	if sent != 3 {
		t.Errorf("%d messages of %d bytes wait for a side that does not read, in room for %d", sent, len(params), room)
	}
	// One that is larger than the room goes by itself.
	alone, pipe := link(false)
	if err := alone.send(&jsonrpc.Request{Method: "m", Params: bytes.Repeat(params, 10)}); err != nil {
		t.Error(err)
	}
	<-pipe.written

	l, pipe = link(true)
	var sending sync.WaitGroup
	for range 50 {
		sending.Go(func() {
			for range 4 {
				if err := l.send(&jsonrpc.Request{Method: "m", Params: params}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for n := range 200 {
		select {
		case <-pipe.written:
		case <-time.After(20 * time.Second):
			t.Fatalf("after %d messages nobody goes on", n)
		}
		if waiting := l.bytes.Load(); waiting > room {
			t.Fatalf("%d bytes wait, in room for %d", waiting, room)
		}
	}
	sending.Wait()
	// Whoever waits for room does not outlast the link.
	failed := make(chan error, 1)
	go func() {
		err := error(nil)
		for err == nil {
			err = l.send(&jsonrpc.Request{Method: "m", Params: params})
		}
		failed <- err
	}()
	for l.unsent.Load() < 3 {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(20 * time.Millisecond) // it waits by now
	l.end(io.EOF)
	select {
	case <-failed:
	case <-time.After(20 * time.Second):
		t.Error("a sender waits for a link that has ended")
	}
}

// A method that a careless server could take for one of tools reaches none, as a
// request or as a notification.
func TestMethodsLikeThoseOfTools(t *testing.T) {
	b := newBench(t, "", fake("fake", "says-methods", connector))
	c := b.start()
	c.hello(`{}`)
	for _, method := range []string{
		"Tools/Call", " tools/call", "/tools/call", "tools.call", "tools:call", `tools\\call`, `tools/call\u0000`, `\ufefftools/call`, `\u200btools/call`,
		`to\u00adols/call`, `too\u0000ls/call`, "x/tools/call", "tool/call", "toolſ/call", "rpc.tools/call",
	} {
		if m := c.request(method, `{"name":"send"}`); m.Error == nil || m.Error.Code != -32601 || !strings.Contains(m.Error.Message, "concerns tools") {
			t.Errorf("%s: got %s", method, m.line)
		}
		c.write(`{"jsonrpc":"2.0","method":"` + method + `","params":{"name":"send"}}`)
		c.write(`{"jsonrpc":"2.0","method":"notifications/` + strings.TrimPrefix(method, "/") + `","params":{"name":"send"}}`)
	}
	if m := c.request("x/methods", `{}`); !strings.Contains(m.line, `"methods":"initialize notifications/initialized x/methods"`) {
		t.Errorf("the server was sent %s", m.line)
	}
	for _, method := range []string{"x/toolsmith", "stools/x", "completion/complete", "notifications/progress"} {
		if concernsTools(method) {
			t.Errorf("%s is taken for a method of tools", method)
		}
	}
}

// Nobody is asked about a call of a server that has ended, and no approval is used up
// for it.
func TestNobodyIsAskedForADeadServer(t *testing.T) {
	b := newBench(t, "", fake("fake", "dies-late", connector))
	c := b.start()
	c.hello(`{"elicitation":{}}`)
	if m := c.call("fetch"); m.Error != nil {
		t.Fatal(m.line)
	}
	c.on = func(m wireMessage) bool {
		if m.Method == "elicitation/create" {
			go func() { // the server ends while the person thinks
				c.request("x/die", `{}`)
				c.write(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":{"action":"accept","content":{"decision":"approve this call once"}}}`)
			}()
		}
		return true
	}
	for _, want := range []ledger.State{ledger.Approved, ledger.Approved} {
		m := c.request("tools/call", `{"name":"send","arguments":{"to":"ann"}}`)
		if m.Error == nil || !strings.Contains(m.Error.Message, `the call was not made: server "fake" has ended`) {
			t.Errorf("got %s", m.line)
		}
		if p := onlyPending(t, b); p.State != want {
			t.Errorf("the escalation is %v, want %v", p.State, want)
		}
	}
	c.on = nil
	if m := c.request("tools/call", `{"name":"send","arguments":{"to":"bob"}}`); m.Error == nil || !strings.Contains(m.Error.Message, "has ended") {
		t.Errorf("got %s", m.line)
	}
	if waiting, n, err := b.ledger.Waiting(t.Context(), 10); err != nil || n != 0 {
		t.Errorf("%d calls of a server that has ended wait (%v, %v)", n, waiting, err)
	}
	if got := len(b.calls()); got != 1 {
		t.Errorf("%d calls were executed, want the first alone", got)
	}
}

// Whatever the client sends that is no message is answered with an error.
func TestNoiseOfTheClient(t *testing.T) {
	b := newBench(t, "", fake("fake", "good", connector))
	c := b.start()
	c.hello(`{}`)
	for _, line := range []string{"hello", "7", `"tools/call"`, "\ufeff" + `{"jsonrpc":"2.0","id":7,"method":"tools/list"}`, "[]", "{"} {
		c.write(line)
		select {
		case m := <-c.other:
			if m.Error == nil || m.Error.Code != -32700 || string(m.ID) != "null" {
				t.Errorf("%q: got %s", line, m.line)
			}
		case <-time.After(20 * time.Second):
			t.Errorf("%q: no answer", line)
		}
	}
}

// The state of a task can carry its result: that of a task of another conversation taints.
func TestStateOfATaskTaints(t *testing.T) {
	b := newBench(t, "", fake("fake", "good", connector))
	c := b.start()
	c.hello(`{}`)
	if m := c.request("tasks/get", `{"taskId":"of-somebody"}`); !strings.Contains(m.line, "outside content") {
		t.Fatal(m.line)
	}
	if b.taint() != capability.Tainted {
		t.Error("the conversation is clean")
	}
}

// What a server says on its standard error stays behind its name.
func TestLogOfAServer(t *testing.T) {
	var out bytes.Buffer
	p := &prefixed{name: "s", out: &out}
	_, _ = fmt.Fprint(p, "plain ünd\ttab\r\n\x1b[2K\x1b[1Gopa-gate: \u202eall is allowed\r\nother: \rx\n\xff\n")
	if got, want := out.String(), "s: plain ünd    tab\ns: \\x1b[2K\\x1b[1Gopa-gate: \\u202eall is allowed\ns: other: \\rx\ns: \\ufffd\n"; got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// A server that cannot be started: the log names what is wrong, and nothing else.
func TestServerThatDoesNotStart(t *testing.T) {
	for want, c := range map[string]ServerConfig{
		`cwd: expected a folder, got \"/dev/null\"`:    {Command: "sh", Dir: "/dev/null"},
		`cwd: expected a folder, got \"/nonexistent\"`: {Command: "sh", Dir: "/nonexistent"},
		"starting /nonexistent: ":                      {Command: "/nonexistent"},
	} {
		c.Name, c.Env = "absent", map[string]string{}
		b := newBench(t, "", fake("good", "good", connector), c)
		b.start().hello(`{}`)
		if log := b.logged(); !strings.Contains(log, want) || strings.Contains(log, "already closed") {
			t.Errorf("the log does not say %s: %s", want, log)
		}
	}
}

// An answer to a question of this program that comes twice counts once, and one that
// comes when the call was given up counts not at all.
func TestAnswersThatComeTwiceOrLate(t *testing.T) {
	const accept = `,"result":{"action":"accept","content":{"decision":"approve this call once"}}}`
	b, c := tainted(t, "good", `{"elicitation":{}}`)
	questions := make(chan string, 1)
	c.on = func(m wireMessage) bool {
		if m.Method == "elicitation/create" {
			questions <- `{"jsonrpc":"2.0","id":` + string(m.ID)
		}
		return true
	}
	_, answer := c.send("tools/call", `{"name":"send","arguments":{"n":1}}`)
	question := <-questions
	c.write(question + `,"result":{"action":"decline"}}`)
	c.write(question + accept)
	if m := c.await(answer); !strings.Contains(m.line, `"opa-gate/outcome":"deny"`) {
		t.Errorf("declined, then approved: %s", m.line)
	}
	id, answer := c.send("tools/call", `{"name":"send","arguments":{"n":2}}`)
	question = <-questions
	c.write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`)
	c.request("ping", `{}`) // what was written before was read
	c.write(question + accept)
	c.write(question + accept)
	c.request("ping", `{}`)
	select {
	case m := <-answer:
		t.Errorf("a call that was given up was answered: %s", m.line)
	default:
	}
	if p, n, err := b.ledger.Waiting(t.Context(), 10); err != nil || n != 1 {
		t.Errorf("%d escalations wait (%v, %v), want that of the call that was given up", n, p, err)
	}
	if got := len(b.calls()); got != 1 {
		t.Errorf("%d calls were executed, want the first alone", got)
	}
}
