package bundle

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opa-gate/opa-gate/policies"
)

// longWait is longer than any test takes: what comes sooner did not time out.
const longWait = "modes=snapshot,delta;wait=600"

// policyDir is a small set of policies with a test and data.
func policyDir(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "policies")
	if err := os.CopyFS(dir, policies.FS()); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "gate/limits/data.json", limits(1))
	write(t, dir, "gate/limits/limits_test.rego", "package gate.limits_test\n\ntest_limit if data.gate.limits.n < 1000\n")
	return dir
}

func limits(n int) string { return fmt.Sprintf(`{"n": %d}`, n) }

// write writes a file as editors do: beside it, and then in its place.
func write(t testing.TB, dir, name, text string) {
	t.Helper()
	file := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file+"~", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+"~", file); err != nil {
		t.Fatal(err)
	}
}

// A syncBuffer is written and read at the same time.
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

// A rig is a server with all that is around it.
type rig struct {
	*Server
	url         string
	log, access *syncBuffer
}

// serve starts a server that follows its files.
func serve(t testing.TB, opts ServerOptions) *rig {
	t.Helper()
	r := &rig{log: &syncBuffer{}, access: &syncBuffer{}}
	opts.Log = slog.New(slog.NewTextHandler(r.log, nil))
	opts.Access = slog.New(slog.NewJSONHandler(r.access, nil))
	if opts.MaxWait == 0 {
		opts.MaxWait = 10 * time.Minute
	}
	s, err := NewServer(t.Context(), &opts)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.Server, r.url = s, "http://"+listener.Addr().String()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, listener) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
		if t.Failed() {
			t.Logf("the server's log:\n%s", r.log)
		}
	})
	return r
}

type reply struct {
	code   int
	header http.Header
	body   []byte
}

// ask makes a request with headers: name, value, name, value.
func (r *rig) ask(t testing.TB, method, path string, headers ...string) reply {
	t.Helper()
	got, err := r.try(t.Context(), method, path, headers...)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func (r *rig) try(ctx context.Context, method, path string, headers ...string) (reply, error) {
	q, err := http.NewRequestWithContext(ctx, method, r.url+path, nil)
	if err != nil {
		return reply{}, err
	}
	for i := 0; i < len(headers); i += 2 {
		q.Header.Add(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(q)
	if err != nil {
		return reply{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, body}, err
}

// eventually waits until something is so.
func eventually(t testing.TB, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after two minutes still not: %s", what)
		}
	}
}

func (r *rig) one() BundleHealth { return r.Health().Bundles[0] }

func gateOf(path string) []Source { return []Source{{Name: "gate", Path: path}} }

// builtFile writes a bundle with some data to a file.
func builtFile(t testing.TB, n int) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "bundle.tar.gz")
	fill(t, file, n)
	return file
}

func fill(t testing.TB, file string, n int) {
	t.Helper()
	e := editionOf(t, fmt.Sprintf(`{"gate": {"n": %d, "more": %q}}`, n, incompressible()), "package gate\n\nallow := data.gate.n > 1\n", "gate")
	write(t, filepath.Dir(file), filepath.Base(file), string(e.body))
}

func TestServerAnswers(t *testing.T) {
	file := builtFile(t, 1)
	r := serve(t, ServerOptions{Bundles: []Source{{"gate", file}, {"other", builtFile(t, 2)}}})
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	first := r.ask(t, "GET", "/bundles/gate")
	tag := first.header.Get("ETag")
	if first.code != 200 || !bytes.Equal(first.body, whole) || len(tag) < 18 || tag[0] != '"' {
		t.Fatalf("first answer: %d, %d bytes, ETag %s", first.code, len(first.body), tag)
	}
	if got := first.header.Get("Content-Type"); got != "application/vnd.openpolicyagent.bundles" {
		t.Errorf("Content-Type %q: OPA would poll at intervals", got)
	}
	length := fmt.Sprint(len(whole))
	other := r.ask(t, "GET", "/bundles/other").header.Get("ETag")
	if other == tag {
		t.Error("two bundles have one ETag")
	}
	for _, c := range []struct {
		name, method, path string
		headers            []string
		code               int
		length             string
	}{
		{"HEAD", "HEAD", "/bundles/gate", nil, 200, length},
		{"HEAD of what is known", "HEAD", "/bundles/gate", []string{"If-None-Match", tag}, 304, ""},
		{"HEAD is not held", "HEAD", "/bundles/gate", []string{"If-None-Match", tag, "Prefer", longWait}, 304, ""},
		{"known", "GET", "/bundles/gate", []string{"If-None-Match", tag}, 304, ""},
		{"known, weakly", "GET", "/bundles/gate", []string{"If-None-Match", "W/" + tag}, 304, ""},
		{"known, in a list", "GET", "/bundles/gate", []string{"If-None-Match", `"x", ` + tag}, 304, ""},
		{"any", "GET", "/bundles/gate", []string{"If-None-Match", "*"}, 304, ""},
		{"not known", "GET", "/bundles/gate", []string{"If-None-Match", other}, 200, length},
		{"not known, and it would wait", "GET", "/bundles/gate", []string{"If-None-Match", other, "Prefer", longWait}, 200, length},
		{"without quotes", "GET", "/bundles/gate", []string{"If-None-Match", strings.Trim(tag, `"`)}, 200, length},
		{"wait of nothing", "GET", "/bundles/gate", []string{"If-None-Match", tag, "Prefer", "wait=0"}, 304, ""},
		{"no such bundle", "GET", "/bundles/none", nil, 404, ""},
		{"below a bundle", "GET", "/bundles/gate/x", nil, 404, ""},
		{"nothing", "GET", "/", nil, 404, ""},
		{"PUT", "PUT", "/bundles/gate", nil, 405, ""},
		{"health", "GET", "/health", nil, 200, ""},
		{"metrics", "GET", "/metrics", nil, 200, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := r.ask(t, c.method, c.path, c.headers...)
			if got.code != c.code {
				t.Fatalf("status %d, want %d: %s", got.code, c.code, got.body)
			}
			if c.length != "" && got.header.Get("Content-Length") != c.length {
				t.Errorf("Content-Length %q, want %s", got.header.Get("Content-Length"), c.length)
			}
			if strings.HasPrefix(c.path, "/bundles/gate") && c.code < 400 && got.header.Get("ETag") != tag {
				t.Errorf("ETag %s, want %s", got.header.Get("ETag"), tag)
			}
			if (c.method == "HEAD" || c.code == 304) && len(got.body) > 0 {
				t.Errorf("there is a body of %d bytes", len(got.body))
			}
		})
	}
}

func TestServerHolds(t *testing.T) {
	file := builtFile(t, 1)
	r := serve(t, ServerOptions{Bundles: gateOf(file), MaxHeld: 2})
	tag := r.ask(t, "GET", "/bundles/gate").header.Get("ETag")

	// For as long as it asks to, and no shorter.
	began := time.Now()
	got := r.ask(t, "GET", "/bundles/gate", "If-None-Match", tag, "Prefer", "modes=snapshot,delta;wait=1")
	if took := time.Since(began); got.code != 304 || took < time.Second {
		t.Errorf("status %d after %v, want 304 after a second", got.code, took)
	}

	// Until there is something new, and no more of them than there is room for.
	replies := make(chan reply, 2)
	for range 2 {
		go func() {
			got, err := r.try(t.Context(), "GET", "/bundles/gate", "If-None-Match", tag, "Prefer", longWait)
			if err != nil {
				t.Error(err)
			}
			replies <- got
		}()
	}
	eventually(t, "two requests are held", func() bool { return len(r.slots) == 2 })
	if got := r.ask(t, "GET", "/bundles/gate", "If-None-Match", tag, "Prefer", longWait); got.code != 503 || got.header.Get("Retry-After") == "" {
		t.Errorf("a third one: status %d, want 503", got.code)
	}
	if got := r.ask(t, "GET", "/bundles/gate", "If-None-Match", tag); got.code != 304 {
		t.Errorf("one that does not wait: status %d, want 304", got.code)
	}
	fill(t, file, 2)
	for range 2 {
		if got := <-replies; got.code != 200 || got.header.Get("ETag") == tag {
			t.Errorf("after a change: status %d, ETag %s", got.code, got.header.Get("ETag"))
		}
	}
	if strings.Count(r.access.String(), `"held_ms"`) != 3 {
		t.Errorf("the log does not tell which requests were held:\n%s", r.access)
	}

	// A client that goes away leaves its room.
	tag = r.one().ETag
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		_, _ = r.try(ctx, "GET", "/bundles/gate", "If-None-Match", tag, "Prefer", longWait)
	}()
	eventually(t, "a request is held", func() bool { return len(r.slots) == 1 })
	leave()
	eventually(t, "no request is held", func() bool { return len(r.slots) == 0 })
}

// TestServerManyPollers has 50 clients follow edits. Each sees the last one, none
// is told that nothing is new before its time, and none is sent twice what it has.
func TestServerManyPollers(t *testing.T) {
	file := builtFile(t, 0)
	r := serve(t, ServerOptions{Bundles: gateOf(file)})
	const pollers, edits = 50, 8
	var all sync.WaitGroup
	for i := range pollers {
		all.Go(func() {
			prefer := longWait
			if i%2 == 0 {
				prefer = "modes=snapshot;wait=600"
			}
			tag := ""
			for range edits + 1 {
				got, err := r.try(t.Context(), "GET", "/bundles/gate", "If-None-Match", tag, "Prefer", prefer)
				if err != nil {
					t.Error(err)
					return
				}
				if got.code != 200 || got.header.Get("ETag") == tag {
					t.Errorf("status %d, ETag %s after %s", got.code, got.header.Get("ETag"), tag)
					return
				}
				if tag = got.header.Get("ETag"); tag == lastTag(t, edits) {
					return
				}
			}
			t.Error("there were more answers than editions")
		})
	}
	for n := 1; n <= edits; n++ {
		before := r.one().ETag
		fill(t, file, n)
		eventually(t, "the edit is served", func() bool { return r.one().ETag != before })
	}
	all.Wait()
}

// lastTag is the ETag of what fill writes.
func lastTag(t testing.TB, n int) string {
	return editionOf(t, fmt.Sprintf(`{"gate": {"n": %d, "more": %q}}`, n, incompressible()), "package gate\n\nallow := data.gate.n > 1\n", "gate").etag
}

func TestServerTokens(t *testing.T) {
	const good, other = "good-0123456789abcdef", "other-0123456789abcdef"
	r := serve(t, ServerOptions{Bundles: gateOf(builtFile(t, 1)), Tokens: []string{other, good}})
	for _, c := range []struct {
		path, header string
		code         int
	}{
		{"/bundles/gate", "Bearer " + good, 200},
		{"/bundles/gate", "bearer " + other, 200},
		{"/bundles/gate", "", 401},
		{"/bundles/gate", "Bearer", 401},
		{"/bundles/gate", "Bearer " + good + "x", 401},
		{"/bundles/gate", "Basic " + good, 401},
		{"/bundles/none", "", 401},
		{"/metrics", "", 401},
		{"/metrics", "Bearer " + good, 200},
		{"/health", "", 200},
	} {
		got := r.ask(t, "GET", c.path+"?token="+good, "Authorization", c.header)
		if got.code != c.code {
			t.Errorf("%s with %q: status %d, want %d", c.path, c.header, got.code, c.code)
		}
		if c.path == "/health" && strings.Contains(string(got.body), "revision") {
			t.Errorf("without a token, health says %s", got.body)
		}
	}
	if got := r.ask(t, "GET", "/health", "Authorization", "Bearer "+good); !strings.Contains(string(got.body), "revision") {
		t.Errorf("with a token, health says %s", got.body)
	}
	for _, secret := range []string{good, other} {
		if strings.Contains(r.log.String()+r.access.String(), secret) {
			t.Errorf("a token is in the log:\n%s%s", r.log, r.access)
		}
	}
	if _, err := NewServer(t.Context(), &ServerOptions{Bundles: gateOf("."), Tokens: []string{"short"}}); err == nil || strings.Contains(err.Error(), `"short"`) {
		t.Errorf("a short token: %v", err)
	}
}

func TestServerLogsHostilePaths(t *testing.T) {
	r := serve(t, ServerOptions{Bundles: gateOf(builtFile(t, 1))})
	r.ask(t, "GET", "/bundles/a%0a%1b%5b31m%e2%80%ae%22"+strings.Repeat("x", 2000), "User-Agent", "an \"agent\" \u202e")
	var line struct {
		Path, Agent string
		Code        int
	}
	eventually(t, "a line is written", func() bool { return strings.HasSuffix(r.access.String(), "\n") })
	text := r.access.String()
	if err := json.Unmarshal([]byte(text), &line); err != nil || strings.Count(text, "\n") != 1 {
		t.Fatalf("it is not one JSON line: %v\n%s", err, text)
	}
	if strings.ContainsAny(strings.TrimSuffix(text, "\n"), "\n\x1b\u202e") || line.Code != 404 || len(line.Path) > 400 {
		t.Errorf("the line is %q", text)
	}
}

func TestServerEndsHeldRequests(t *testing.T) {
	s, err := NewServer(t.Context(), &ServerOptions{Bundles: gateOf(builtFile(t, 1)), MaxWait: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{Server: s, url: "http://" + listener.Addr().String()}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, listener) }()
	replies := make(chan reply, 10)
	for range cap(replies) {
		go func() {
			got, err := r.try(t.Context(), "GET", "/bundles/gate", "If-None-Match", r.one().ETag, "Prefer", longWait)
			if err != nil {
				t.Error(err)
			}
			replies <- got
		}()
	}
	eventually(t, "all are held", func() bool { return len(r.slots) == cap(replies) })
	stop()
	for range cap(replies) {
		if got := <-replies; got.code != 304 {
			t.Errorf("status %d, want 304", got.code)
		}
	}
	if err := <-ended; err != nil {
		t.Errorf("Serve: %v", err)
	}
	if _, err := r.try(t.Context(), "GET", "/health"); err == nil {
		t.Error("it still answers")
	}
}

func TestServerBounds(t *testing.T) {
	file := builtFile(t, 1)
	r := serve(t, ServerOptions{Bundles: gateOf(file)})
	if got := r.ask(t, "GET", "/bundles/gate", "X", strings.Repeat("x", 64<<10)); got.code != 431 {
		t.Errorf("large headers: status %d, want 431", got.code)
	}
	q := httptest.NewRequest("GET", "/bundles/gate", strings.NewReader("body"))
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, q)
	if w.Code != 413 {
		t.Errorf("a body: status %d, want 413", w.Code)
	}
	small, err := NewServer(t.Context(), &ServerOptions{Bundles: gateOf(file), MaxSize: 100})
	if err != nil {
		t.Fatal(err)
	}
	if h := small.Health(); h.Ready || !strings.Contains(h.Bundles[0].Error, "may have 100 bytes") {
		t.Errorf("a file that is too large: %+v", h)
	}
}

func TestServerOptions(t *testing.T) {
	dir := t.TempDir()
	for name, opts := range map[string]*ServerOptions{
		"nothing":         nil,
		"no bundle":       {},
		"no path":         {Bundles: []Source{{Name: "a"}}},
		"no such path":    {Bundles: []Source{{"a", filepath.Join(dir, "none")}}},
		"no name":         {Bundles: []Source{{"", dir}}},
		"a slash":         {Bundles: []Source{{"a/b", dir}}},
		"a dot":           {Bundles: []Source{{".a", dir}}},
		"a long name":     {Bundles: []Source{{strings.Repeat("a", 65), dir}}},
		"twice":           {Bundles: []Source{{"a", dir}, {"a", dir}}},
		"a short wait":    {Bundles: []Source{{"a", dir}}, MaxWait: time.Millisecond},
		"an optimization": {Bundles: []Source{{"a", dir}}, Build: BuildOptions{Optimize: 3}},
		"a wrong bound":   {Bundles: []Source{{"a", dir}}, MaxHeld: -1},
	} {
		if _, err := NewServer(t.Context(), opts); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
