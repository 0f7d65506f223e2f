package gateway

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/opa-gate/opa-gate/capability"
)

// A server over HTTP that answers one call with something else than its answer: that
// call is an error, the log says why, and the next one is answered.
func TestHTTPServerAnswersBadly(t *testing.T) {
	const answer = `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"done"}]}}`
	for _, tt := range []struct {
		name   string
		status int
		kind   string
		body   string // %s is the id
		log    string
	}{
		{"a refusal", 401, "application/json", `{"error":"invalid_token"}`, "the server answered 401"},
		{"a plain refusal", 403, "text/plain", "no", "the server answered 403"},
		{"a bad request", 400, "text/plain", "what?", "the server answered 400"},
		{"a fault", 500, "text/html", "<h1>stack</h1>", "the server answered 500"},
		{"moved", 307, "", "", "redirections are not followed"},
		{"moved, with an answer", 302, "application/json", answer, "redirections are not followed"},
		{"garbage", 200, "application/json", "{{{", "not a JSON-RPC 2.0 message"},
		{"nothing", 200, "application/json", "", "not a JSON-RPC 2.0 message"},
		{"a batch", 200, "application/json", "[" + answer + "]", "not a JSON-RPC 2.0 message"},
		{"a request", 200, "application/json", `{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"send"}}`, "it is no answer"},
		{"two results", 200, "application/json", `{"jsonrpc":"2.0","id":%s,"result":{},"result":{}}`, "stands twice"},
		{"too long", 200, "application/json", `{"jsonrpc":"2.0","id":%s,"result":{"x":"` + strings.Repeat("x", 1<<16) + `"}}`, "longer than the bound"},
		{"accepted", 202, "", "", "not a JSON-RPC 2.0 message"},
		{"a page", 200, "text/html", "<h1>welcome</h1>", "with content of the type"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var bad atomic.Bool
			bad.Store(true)
			far := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var m struct {
					ID     json.RawMessage `json:"id"`
					Method string          `json:"method"`
				}
				body, err := io.ReadAll(r.Body)
				if err != nil || r.Method != http.MethodPost || json.Unmarshal(body, &m) != nil {
					http.Error(w, "what?", http.StatusMethodNotAllowed)
					return
				}
				kind, status, text := "application/json", 200, answer
				switch {
				case m.ID == nil:
					w.WriteHeader(http.StatusAccepted)
					return
				case m.Method == "initialize":
					text = `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"far","version":"1"}}}`
				case m.Method == "tools/list":
					text = `{"jsonrpc":"2.0","id":%s,"result":{"tools":[` + tool("look", closedRead) + `]}}`
				case bad.Swap(false):
					kind, status, text = tt.kind, tt.status, tt.body
					w.Header().Set("Location", "http://127.0.0.1:1/")
				}
				if strings.Contains(text, "%s") {
					text = fmt.Sprintf(text, m.ID)
				}
				w.Header().Set("Content-Type", kind)
				w.WriteHeader(status)
				_, _ = io.WriteString(w, text)
			}))
			defer far.Close()
			b := newBench(t, "", ServerConfig{Name: "far", URL: far.URL, Origin: capability.LocalSandbox})
			b.config.MaxMessage, b.config.Timeout = 1<<15, 20*time.Second
			c := b.start()
			c.hello(`{}`)
			if m := c.call("look"); m.Error == nil || !strings.Contains(m.Error.Message, "may have done what it asks for") || strings.Contains(m.line, "stack") {
				t.Errorf("got %s", m.line)
			}
			if log := b.logged(); !strings.Contains(log, tt.log) {
				t.Errorf("the log does not say %q: %s", tt.log, log)
			}
			if m := c.call("look"); !strings.Contains(m.line, `"text":"done"`) {
				t.Errorf("the next call got %s", m.line)
			}
		})
	}
}

// A server over HTTP that does not answer, or stops in the middle of its answer: once
// nobody waits any more its connection is given back, and others go on.
func TestHTTPServerHangs(t *testing.T) {
	for name, begin := range map[string]func(http.ResponseWriter){
		"says nothing":  func(http.ResponseWriter) {},
		"half an event": func(w http.ResponseWriter) { w.Header().Set("Content-Type", "text/event-stream"); w.WriteHeader(200) },
		"half a message": func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0",`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			left := make(chan struct{}, 10)
			far := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				message, err := decodeMessage(body)
				m, ok := message.(*jsonrpc.Request)
				if err != nil || !ok {
					http.Error(w, "what?", http.StatusMethodNotAllowed)
					return
				}
				result := `{}`
				switch {
				case !m.IsCall():
					w.WriteHeader(http.StatusAccepted)
					return
				case m.Method == "initialize":
					result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"far","version":"1"}}`
				case m.Method == "tools/list":
					result = `{"tools":[` + tool("look", closedRead) + `]}`
				case m.Method == "tools/call":
					begin(w)
					if w.Header().Get("Content-Type") != "" {
						_ = http.NewResponseController(w).Flush()
					}
					select {
					case <-r.Context().Done():
						left <- struct{}{}
					case <-time.After(30 * time.Second):
					}
					return
				}
				w.Header().Set("Content-Type", "application/json")
				_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, idText(m.ID), result)
			}))
			defer far.Close()
			defer far.CloseClientConnections()
			b := newBench(t, "", ServerConfig{Name: "far", URL: far.URL, Origin: capability.LocalSandbox})
			b.config.Timeout = 2 * time.Second
			c := b.start()
			c.hello(`{}`)
			id, _ := c.send("tools/call", `{"name":"look"}`)
			if m := c.call("look"); m.Error == nil || !strings.Contains(m.Error.Message, "did not answer in time") {
				t.Errorf("got %s", m.line)
			}
			c.write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`)
			for range 2 {
				select {
				case <-left:
				case <-time.After(20 * time.Second):
					t.Fatal("the connection is still held")
				}
			}
			if m := c.request("ping", `{}`); m.Error != nil {
				t.Errorf("another request got %s", m.line)
			}
		})
	}
}
