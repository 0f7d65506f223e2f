package gateway

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opa-gate/opa-gate/agent"
	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/ledger"
)

// A bench is a gateway with everything behind it, and a client that speaks plain
// lines.
type bench struct {
	t        testing.TB
	config   Config
	ledger   *ledger.Ledger
	policy   *Policy
	gate     Gate // policy, unless a test puts something before it
	gateway  *Gateway
	executed string        // what the servers executed stands in this file
	allTime  time.Duration // if it is not the gateway's own
	log      bytes.Buffer
	logMu    sync.Mutex
}

// Write makes b the place of logs.
func (b *bench) Write(p []byte) (int, error) {
	b.logMu.Lock()
	defer b.logMu.Unlock()
	return b.log.Write(p)
}

func (b *bench) logged() string {
	b.logMu.Lock()
	defer b.logMu.Unlock()
	return b.log.String()
}

var discard = slog.New(slog.DiscardHandler)

const sessionID = "test-session"

// fake is a server that is this very test binary.
func fake(name, behaviour string, origin capability.Origin) ServerConfig {
	program, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return ServerConfig{Name: name, Command: program, Origin: origin, Env: map[string]string{asServer: behaviour}}
}

func newBench(t testing.TB, catalogue string, servers ...ServerConfig) *bench {
	t.Helper()
	return newBenchOn(t, "memory:", catalogue, servers...)
}

// newBenchOn has its ledger where the name says.
func newBenchOn(t testing.TB, name, catalogue string, servers ...ServerConfig) *bench {
	t.Helper()
	b := &bench{t: t, executed: filepath.Join(t.TempDir(), "executed")}
	keys := &ledger.Keyring{}
	keys.Sign(ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)))
	l, err := ledger.Open(t.Context(), name, &ledger.Options{Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	b.ledger = l
	for i := range servers {
		if servers[i].URL == "" {
			servers[i].Env["EXECUTED"] = b.executed
		}
	}
	b.config = Config{Servers: servers, Timeout: 20 * time.Second}
	cat, err := agent.ParseCatalogue("test.toml", []byte(catalogue))
	if err != nil {
		t.Fatal(err)
	}
	kept := agent.OnLedger(l)
	gate := agent.Gate{Engine: evaluator.Native{}, Catalogue: cat, Sessions: &agent.Sessions{Log: kept}, Approvals: kept, Revision: "r1"}
	b.policy = NewPolicy(gate, &b.config, l, func(id string) string { return "opa-gate approvals show " + id })
	b.gate = b.policy
	return b
}

// start serves one client on pipes.
func (b *bench) start() *rawClient {
	b.t.Helper()
	g, err := New(b.config, b.gate, &Options{Log: slog.New(slog.NewTextHandler(b, nil)), ServerLog: b})
	if err != nil {
		b.t.Fatal(err)
	}
	g.keepAliveEvery = 20 * time.Millisecond
	if b.allTime > 0 {
		g.allTime = b.allTime
	}
	b.gateway = g
	clientIn, gatewayOut := io.Pipe()
	gatewayIn, clientOut := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- g.ServeStdio(context.Background(), sessionID, "tester", gatewayIn, gatewayOut)
		_ = gatewayOut.Close()
	}()
	c := newRawClient(b.t, clientIn, clientOut)
	b.t.Cleanup(func() {
		_ = clientOut.Close()
		select {
		case err := <-done:
			if err != nil {
				b.t.Errorf("ServeStdio: %v", err)
			}
		case <-time.After(20 * time.Second):
			b.t.Error("the gateway does not end")
		}
	})
	return c
}

func (b *bench) calls() []string {
	text, err := os.ReadFile(b.executed)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

func (b *bench) taint() capability.Taint {
	b.t.Helper()
	st, err := b.policy.Gate.Sessions.State(b.t.Context(), sessionID)
	if err != nil {
		b.t.Fatal(err)
	}
	return st.Taint
}

// A wireMessage is a message as it stands, and its parts.
type wireMessage struct {
	line   string
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int64           `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	} `json:"error"`
}

// A rawClient writes and reads lines.
type rawClient struct {
	t   testing.TB
	out io.Writer

	mu      sync.Mutex
	last    int
	answers map[string]chan wireMessage
	other   chan wireMessage // requests and notifications of the other side
	on      func(wireMessage) bool
}

func newRawClient(t testing.TB, in io.Reader, out io.Writer) *rawClient {
	c := &rawClient{t: t, out: out, answers: make(map[string]chan wireMessage), other: make(chan wireMessage, 10_000)}
	go func() {
		r := bufio.NewReaderSize(in, 1<<20)
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			m := wireMessage{line: strings.TrimSuffix(line, "\n")}
			if err := json.Unmarshal([]byte(line), &m); err != nil {
				t.Errorf("the gateway wrote a line that is no JSON: %.200s", line)
				continue
			}
			c.mu.Lock()
			waits, on := c.answers[string(m.ID)], c.on
			c.mu.Unlock()
			switch {
			case m.Method != "" && on != nil && on(m):
			case m.Method != "":
				select {
				case c.other <- m:
				default:
				}
			case waits != nil:
				waits <- m
			default:
				c.other <- m
			}
		}
	}()
	return c
}

func (c *rawClient) write(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// Answers to what a server asks may come when the test is over.
	if _, err := io.WriteString(c.out, line+"\n"); err != nil && !errors.Is(err, io.ErrClosedPipe) {
		c.t.Errorf("write: %v", err)
	}
}

// send sends a request and returns where its answer comes.
func (c *rawClient) send(method, params string) (id string, answer chan wireMessage) {
	c.mu.Lock()
	c.last++
	id = fmt.Sprint(c.last)
	answer = make(chan wireMessage, 4)
	c.answers[id] = answer
	c.mu.Unlock()
	c.write(`{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":` + params + `}`)
	return id, answer
}

func (c *rawClient) request(method, params string) wireMessage {
	c.t.Helper()
	_, answer := c.send(method, params)
	return c.await(answer)
}

func (c *rawClient) await(answer chan wireMessage) wireMessage {
	c.t.Helper()
	select {
	case m := <-answer:
		return m
	case <-time.After(30 * time.Second):
		c.t.Fatal("no answer")
		panic("unreachable")
	}
}

// hello greets the gateway.
func (c *rawClient) hello(capabilities string) {
	c.t.Helper()
	m := c.request("initialize", `{"protocolVersion":"2025-11-25","capabilities":`+capabilities+`,"clientInfo":{"name":"t","version":"1"}}`)
	if m.Error != nil {
		c.t.Fatalf("initialize: %s", m.line)
	}
	c.write(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

func (c *rawClient) call(tool string) wireMessage {
	c.t.Helper()
	return c.request("tools/call", `{"name":"`+tool+`","arguments":{}}`)
}
