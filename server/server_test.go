package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/logging"
	bundleplugin "github.com/open-policy-agent/opa/v1/plugins/bundle"

	"github.com/opa-gate/opa-gate/bundle"
)

const (
	tainted = `{"tool":{"name":"web_fetch","origin":"fetcher"},"taint":"tainted"}`
	clean   = `{"tool":{"name":"web_fetch","origin":"fetcher"},"taint":"clean"}`
)

// builtIn is the bundle of the embedded policies.
var builtIn = sync.OnceValue(func() []byte {
	b, err := bundle.Build(context.Background(), nil)
	if err != nil {
		panic(err)
	}
	return b.Bytes
})

// A running server, and what it logged.
type running struct {
	*Server
	url string
	log *syncBuffer
}

type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// start runs a server until the test ends.
func start(t *testing.T, opts *Options) *running {
	t.Helper()
	log := &syncBuffer{}
	logger := logging.New()
	logger.SetOutput(log)
	logger.SetLevel(logging.Info)
	if opts.LogLevel == "error" {
		logger.SetLevel(logging.Error)
	}
	o := *opts
	if o.Grace == 0 { // connections that were opened and not used yet are waited for
		o.Grace = time.Minute
	}
	o.Addrs, o.Logger = []string{"127.0.0.1:0"}, logger
	ctx, stop := context.WithCancel(context.Background())
	s, err := New(ctx, &o)
	if err != nil {
		stop()
		t.Fatal(err)
	}
	listening, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- s.Serve(ctx, func() { close(listening) }) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	select {
	case <-listening:
	case err := <-done:
		done <- nil
		t.Fatalf("the server does not listen: %v", err)
	}
	return &running{s, "http://" + s.Addrs()[0], log}
}

func (r *running) ask(t *testing.T, method, path, body string) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequest(method, r.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(text)
}

func given(text []byte) func(context.Context) ([]byte, error) {
	return func(context.Context) ([]byte, error) { return text, nil }
}

func local() *Options { return &Options{Local: given(builtIn()), LocalName: "built-in"} }

func TestAnswers(t *testing.T) {
	s := start(t, local())
	many := "[" + strings.Repeat(clean+",", 999) + tainted + "]"
	for _, tt := range []struct {
		name, path, body string
		status           int
		has              []string
		lacks            string
	}{
		{"a call", "/v1/gate/call", tainted, 200, []string{`{"outcome":"escalate"`, `"missing":["arbitrary-egress","mutate-external"]`}, "error"},
		{"an array", "/v1/gate/call", " [" + tainted + ",\n" + clean + "]\n", 200, []string{`[{"outcome":"escalate"`, `},{"outcome":"allow"`}, "error"},
		{"an empty array", "/v1/gate/call", "[]", 200, []string{"[]"}, "outcome"},
		{"a thousand", "/v1/gate/call", many, 200, []string{`},{"outcome":"escalate"`}, "error"},
		{"numbers come back as they are", "/v1/gate/call",
			`{"tool":{"name":"t","origin":"local-sandbox"},"taint":"clean","policy":{"transform":{"kind":"rewrite","arguments":{"n":9007199254740993}}}}`,
			200, []string{`"arguments":{"n":9007199254740993}`}, "error"},
		{"an element that breaks the schema", "/v1/gate/call", "[" + clean + ",\n{\"tool\":{}},\n5," + clean + "]", 200,
			[]string{`{"error":{"line":2,"pointer":"/taint"`, `"index":1}}`, `{"error":{"line":3,"message":"expected an object, got the number 5","index":2}},{"outcome":"allow"`}, ""},
		{"a document that breaks the schema", "/v1/gate/call", "{\n\"tool\":{\"name\":\"\"},\"taint\":\"clean\"}", 400, []string{`"pointer":"/tool/name"`, `"line":2`}, "outcome"},
		{"an unknown member", "/v1/gate/call", `{"tool":{"name":"t"},"taint":"clean","grnt":{}}`, 400, []string{`"pointer":"/grnt"`, `grant`}, "outcome"},
		{"no JSON", "/v1/gate/call", "hello", 400, []string{`"error"`}, "outcome"},
		{"an array that breaks off", "/v1/gate/call", "[" + clean + ",", 400, []string{`"index":1`}, "outcome"},
		{"something behind an array", "/v1/gate/call", "[" + clean + "] " + clean, 400, []string{"nothing behind it"}, "outcome"},
		{"something behind a document", "/v1/gate/call", clean + clean, 400, []string{`"error"`}, "outcome"},
		{"nothing", "/v1/gate/call", " \n", 400, []string{"empty body"}, "outcome"},
		{"a skill", "/v1/gate/skill", `{"skill":"s","requested":"read_only","provenance":{"source":"unknown"}}`, 200, []string{`"trust":`, `"enforcement":`}, "error"},
		{"a call is no skill", "/v1/gate/skill", clean, 400, []string{`"error"`}, "trust"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			status, header, body := s.ask(t, http.MethodPost, tt.path, tt.body)
			if status != tt.status {
				t.Errorf("status %d, want %d: %s", status, tt.status, body)
			}
			for _, has := range tt.has {
				if !strings.Contains(body, has) {
					t.Errorf("%s\nlacks %s", body, has)
				}
			}
			if tt.lacks != "" && strings.Contains(body, tt.lacks) {
				t.Errorf("%s\nhas %s", body, tt.lacks)
			}
			if !json.Valid([]byte(body)) || header.Get("Content-Type") != "application/json" {
				t.Errorf("%s, not JSON: %s", header.Get("Content-Type"), body)
			}
			if status == 200 && !strings.HasPrefix(header.Get(RevisionHeader), `built-in="`) {
				t.Errorf("revision %q", header.Get(RevisionHeader))
			}
		})
	}
	t.Run("other methods", func(t *testing.T) {
		if status, _, body := s.ask(t, http.MethodGet, "/v1/gate/call", ""); status != http.StatusMethodNotAllowed {
			t.Errorf("status %d: %s", status, body)
		}
	})
	t.Run("a body without end", func(t *testing.T) {
		status, _, body := s.ask(t, http.MethodPost, "/v1/gate/call", strings.Repeat(" ", maxBody+1)+clean)
		if status != http.StatusRequestEntityTooLarge || strings.Contains(body, "allow") {
			t.Errorf("status %d: %s", status, body)
		}
	})
	t.Run("OPA's own API answers alike", func(t *testing.T) {
		_, _, body := s.ask(t, http.MethodPost, "/v1/data/gate/call/decision", `{"input":`+tainted+`}`)
		if !strings.Contains(body, `"outcome":"escalate"`) {
			t.Error(body)
		}
	})
	t.Run("health", func(t *testing.T) {
		status, _, body := s.ask(t, http.MethodGet, "/v1/gate/health", "")
		if status != 200 || !strings.Contains(body, `"ready": true`) {
			t.Errorf("status %d: %s", status, body)
		}
	})
}

// A host serves a bundle to OPA.
type host struct {
	*httptest.Server
	mu   sync.Mutex
	body []byte
	etag int
	down bool
}

func newHost(t *testing.T) *host {
	h := &host{}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		defer h.mu.Unlock()
		etag := fmt.Sprintf(`"%d"`, h.etag)
		switch {
		case h.down || h.body == nil:
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.Header.Get("If-None-Match") == etag:
			w.WriteHeader(http.StatusNotModified)
		default:
			w.Header().Set("Content-Type", "application/gzip")
			w.Header().Set("Etag", etag)
			_, _ = w.Write(h.body)
		}
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *host) put(body []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.body = body
	h.etag++
}

func (h *host) fail(down bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.down = down
}

// from has a server fetch bundles when it is told to.
func from(h *host, set ...string) *Options {
	return &Options{ConfigSet: append([]string{
		"services.host.url=" + h.URL,
		"bundles.gate.service=host", "bundles.gate.resource=gate.tar.gz", "bundles.gate.trigger=manual",
	}, set...)}
}

// fetch has OPA fetch its bundles now; the error is that of activating them.
func (r *running) fetch() error {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	return bundleplugin.Lookup(r.runtime.Manager).Trigger(ctx)
}

// with builds the embedded policies with a module changed, or data added.
func with(t *testing.T, revision string, edit func(files map[string]string)) []byte {
	t.Helper()
	b, err := bundle.Build(context.Background(), &bundle.BuildOptions{FS: edited(t, edit), Revision: revision})
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes
}
