package gateway

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/opa-gate/opa-gate/capability"
)

func newHTTPGateway(t *testing.T, b *bench, o HTTPOptions) *httptest.Server {
	t.Helper()
	g, err := New(b.config, b.gate, &Options{ServerLog: b})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := httptest.NewServer(g.Handler(ctx, o))
	t.Cleanup(func() {
		cancel()
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

const greeting = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

func TestHTTPAdmits(t *testing.T) {
	b := newBench(t, "", fake("fake", "good", connector))
	s := newHTTPGateway(t, b, HTTPOptions{Local: true, Token: "0123456789abcdef"})
	for _, tt := range []struct {
		name   string
		change func(*http.Request)
		want   int
	}{
		{"a client", func(*http.Request) {}, 200},
		{"no token", func(r *http.Request) { r.Header.Del("Authorization") }, 401},
		{"another token", func(r *http.Request) { r.Header.Set("Authorization", "Bearer 0123456789abcdeF") }, 401},
		{"another scheme", func(r *http.Request) { r.Header.Set("Authorization", "Basic 0123456789abcdef") }, 401},
		{"a name made to point here", func(r *http.Request) { r.Host = "evil.example" }, 403},
		{"a page of elsewhere", func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }, 403},
		{"a page without an origin", func(r *http.Request) { r.Header.Set("Origin", "null") }, 403},
		{"a page of this machine", func(r *http.Request) { r.Header.Set("Origin", "http://localhost:5173") }, 200},
		{"localhost", func(r *http.Request) { r.Host = "localhost:80" }, 200},
		{"another method", func(r *http.Request) { r.Method = http.MethodPut }, 405},
		{"no such session", func(r *http.Request) { r.Header.Set(sessionHeader, "x") }, 404},
		{"nothing posted", func(r *http.Request) { r.Body, r.ContentLength = http.NoBody, 0 }, 400},
		{"a batch", func(r *http.Request) { body(r, `[`+greeting+`]`) }, 400},
		{"no greeting", func(r *http.Request) { body(r, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`) }, 400},
		{"an id twice", func(r *http.Request) { body(r, `{"jsonrpc":"2.0","id":1,"id":2,"method":"initialize"}`) }, 400},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+Endpoint, strings.NewReader(greeting))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer 0123456789abcdef")
			tt.change(r)
			response, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = response.Body.Close() }()
			if response.StatusCode != tt.want {
				text, _ := io.ReadAll(response.Body)
				t.Errorf("got %d %s, want %d", response.StatusCode, text, tt.want)
			}
		})
	}
}

func body(r *http.Request, text string) {
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(text)), int64(len(text))
}

func TestCheckAddress(t *testing.T) {
	for _, tt := range []struct {
		addr              string
		tls, token, local bool
		wrong             bool
	}{
		{"localhost:1", false, false, true, false}, {"127.0.0.1:1", false, false, true, false}, {"[::1]:1", false, false, true, false}, {"127.9.9.9:1", false, false, true, false},
		{"0.0.0.0:1", false, false, false, true}, {":1", false, false, false, true}, {"0.0.0.0:1", true, false, false, true}, {"0.0.0.0:1", false, true, false, true},
		{"0.0.0.0:1", true, true, false, false}, {"gate.example:1", true, true, false, false}, {"localhost.example:1", false, false, false, true}, {"localhost", false, false, false, true},
	} {
		local, err := CheckAddress(tt.addr, tt.tls, tt.token)
		if (err != nil) != tt.wrong || local != tt.local {
			t.Errorf("%s (TLS %v, token %v): got %v, %v", tt.addr, tt.tls, tt.token, local, err)
		}
	}
}

// The SDK's own client and server, with the gateway between them on both sides
// over HTTP: headers of the server reach it, its own stream is heard, and clients
// know nothing of each other.
func TestHTTPBothSides(t *testing.T) {
	server := mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil)
	server.AddTool(&mcp.Tool{Name: "look", InputSchema: map[string]any{"type": "object"}}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, nil
	})
	sdk := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	var elsewhere bytes.Buffer
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { elsewhere.WriteString(r.Header.Get("Authorization")) }))
	defer other.Close()
	moved := false
	far := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer of-the-server" {
			http.Error(w, "who is that", http.StatusUnauthorized)
			return
		}
		if moved {
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
			return
		}
		sdk.ServeHTTP(w, r)
	}))
	defer far.Close()
	defer far.CloseClientConnections()
	b := newBench(t, "", ServerConfig{Name: "far", URL: far.URL, Origin: capability.LocalSandbox, Headers: map[string]string{"Authorization": "Bearer of-the-server"}})
	s := newHTTPGateway(t, b, HTTPOptions{Local: true})

	changed := make(chan struct{}, 10)
	connect := func() *mcp.ClientSession {
		t.Helper()
		client := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, &mcp.ClientOptions{
			ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { changed <- struct{}{} },
		})
		cs, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: s.URL + Endpoint}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return cs
	}
	one, two := connect(), connect()
	for _, cs := range []*mcp.ClientSession{one, two} {
		if result, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "look"}); err != nil || result.IsError {
			t.Fatalf("%+v, %v", result, err)
		}
	}
	time.Sleep(200 * time.Millisecond) // the streams on which servers speak first
	server.AddTool(&mcp.Tool{Name: "new", InputSchema: map[string]any{"type": "object"}}, nil)
	for range 2 {
		select {
		case <-changed:
		case <-time.After(10 * time.Second):
			t.Fatal("a change of the list was not heard")
		}
	}
	if err := one.Close(); err != nil {
		t.Error(err)
	}
	if _, err := two.CallTool(t.Context(), &mcp.CallToolParams{Name: "look"}); err != nil {
		t.Errorf("after another client left: %v", err)
	}
	moved = true
	if result, err := two.CallTool(t.Context(), &mcp.CallToolParams{Name: "look"}); err == nil {
		t.Errorf("a redirection was followed: %+v", result)
	}
	if elsewhere.Len() > 0 {
		t.Errorf("the header went elsewhere: %s", elsewhere.String())
	}
	_ = two.Close()
}
