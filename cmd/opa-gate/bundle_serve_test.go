package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/opa-gate/opa-gate/internal/stockopa"
	"github.com/opa-gate/opa-gate/policies"
)

// A runningServe is a process that serves bundles.
type runningServe struct {
	process  *exec.Cmd
	url      string // of the server
	config   string // for an OPA, as it was printed
	announce string
	mu       sync.Mutex
	log      bytes.Buffer
}

func (r *runningServe) Write(text []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.Write(text)
}

func (r *runningServe) logged() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.String()
}

// startServe runs opa-gate bundle serve until the test ends.
func startServe(t *testing.T, env []string, args ...string) *runningServe {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r := &runningServe{process: &exec.Cmd{Path: program,
		Args: append([]string{"opa-gate", "bundle", "serve", "--addr", "127.0.0.1:0"}, args...), Env: append(os.Environ(), env...)}}
	r.process.Stderr = r
	out, err := r.process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = r.process.Process.Kill()
		_ = r.process.Wait()
		if t.Failed() {
			t.Logf("%s\n%s", r.announce, r.logged())
		}
	})
	lines := bufio.NewReader(out)
	for !strings.Contains(r.announce, "\n\n") || !strings.HasSuffix(r.announce, "30}\n\n") {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("%v after %q, %s", err, r.announce, r.logged())
		}
		r.announce += line
	}
	_, r.config, _ = strings.Cut(r.announce, "the configuration for an OPA:\n")
	r.url = regexp.MustCompile(`http://[0-9.:]+`).FindString(r.announce)
	return r
}

func (r *runningServe) get(t *testing.T, path string, headers ...string) (int, http.Header, string) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		q.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(body)
}

func copyPolicies(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "my-policies")
	if err := os.CopyFS(dir, policies.FS()); err != nil {
		t.Fatal(err)
	}
	return dir
}

func appendTo(t *testing.T, file, text string) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(text)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func waitFor(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !so(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after a minute still not: %s", what)
		}
	}
}

// TestBundleServe has an unchanged OPA use what the command prints, follow an edit,
// and keep what it has when an edit is refused; and ends the command.
func TestBundleServe(t *testing.T) {
	const token = "a-token-of-some-length"
	dir := copyPolicies(t)
	r := startServe(t, []string{"GATE_TOKEN=" + token}, dir, "--token-env", "GATE_TOKEN")
	if want := "serving " + dir + " as " + r.url + "/bundles/gate, revision "; !strings.HasPrefix(r.announce, want) {
		t.Errorf("it says %q, want it to begin with %q", r.announce, want)
	}
	if code, _, _ := r.get(t, "/bundles/gate"); code != 401 {
		t.Errorf("without a token: status %d, want 401", code)
	}
	authorization := []string{"Authorization", "Bearer " + token}
	code, header, _ := r.get(t, "/bundles/gate", authorization...)
	if code != 200 || header.Get("ETag") == "" {
		t.Fatalf("status %d, headers %v", code, header)
	}

	t.Setenv("GATE_TOKEN", token)
	opa := stockopa.Start(t, r.config)
	call := map[string]any{"tool": map[string]any{"name": "pay_invoice", "origin": "local-sandbox"}, "taint": "clean"}
	decides := func(want string) {
		t.Helper()
		var got any
		waitFor(t, fmt.Sprintf("OPA says %s", want), func() bool {
			var err error
			if got, err = opa.Data(t.Context(), "gate/call/decision/outcome", call); err != nil {
				t.Fatal(err)
			}
			return got == want
		})
	}
	decides("allow")
	rules := filepath.Join(dir, "gate", "call", "call.rego")
	appendTo(t, rules, "\nasks_for_person if startswith(input.tool.name, \"pay_\")\n")
	decides("escalate")
	appendTo(t, rules, "\nasks_for_person if input.tool.nmae == \"x\"\n")
	waitFor(t, "the edit is refused", func() bool { return strings.Contains(r.logged(), "gate/call/call.rego:") })
	decides("escalate")
	if _, _, body := r.get(t, "/health", authorization...); !strings.Contains(body, `"ready":true`) || !strings.Contains(body, "nmae") {
		t.Errorf("health says %s", body)
	}

	// A request that is held is answered when it ends.
	_, header, _ = r.get(t, "/bundles/gate", authorization...)
	ended := make(chan int, 1)
	go func() {
		code, _, _ := r.get(t, "/bundles/gate", append(authorization, "If-None-Match", header.Get("ETag"), "Prefer", "wait=50")...)
		ended <- code
	}()
	waitFor(t, "OPA and we are held", func() bool {
		_, _, body := r.get(t, "/metrics", authorization...)
		return strings.Contains(body, "opa_gate_bundle_held_polls 2")
	})
	if err := r.process.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := <-ended; code != 304 {
		t.Errorf("the request that was held: status %d, want 304", code)
	}
	if err := r.process.Wait(); err != nil {
		t.Errorf("it ended with %v, want code 0", err)
	}
	if strings.Contains(r.announce+r.logged(), token) {
		t.Errorf("the token was written:\n%s\n%s", r.announce, r.logged())
	}
}

func TestBundleServeNames(t *testing.T) {
	dir := copyPolicies(t)
	broken := copyPolicies(t)
	appendTo(t, filepath.Join(broken, "gate", "call", "call.rego"), "\nx := ]\n")
	r := startServe(t, nil, "one="+dir, "two="+broken, "--log-format", "json")
	if code, _, _ := r.get(t, "/bundles/one"); code != 200 {
		t.Errorf("one: status %d, want 200", code)
	}
	if code, _, _ := r.get(t, "/bundles/two"); code != 503 {
		t.Errorf("two: status %d, want 503", code)
	}
	if code, _, body := r.get(t, "/health"); code != 503 || !strings.Contains(body, "call.rego:") {
		t.Errorf("health: %d, %s", code, body)
	}
	if !strings.Contains(r.announce, "/bundles/two, as soon as it is good") {
		t.Errorf("it says %s", r.announce)
	}
	for line := range strings.Lines(r.logged()) {
		if !strings.HasPrefix(line, `{"time":`) {
			t.Errorf("a line of the log is %q", line)
		}
	}
}

func TestBundleSources(t *testing.T) {
	for args, want := range map[string]string{
		"dir":              "gate dir",
		"a=dir":            "a dir",
		"a=dir b=f.tar.gz": "a dir b f.tar.gz",
		"./a=dir":          "gate ./a=dir",
		"a=x=y":            "a x=y",
		"":                 "",
		"dir other":        "",
		"a=":               "",
	} {
		sources, err := bundleSources(strings.Fields(args))
		var got []string
		for _, s := range sources {
			got = append(got, s.Name, s.Path)
		}
		if strings.Join(got, " ") != want || (err != nil) != (want == "") {
			t.Errorf("%q: %q, %v, want %q", args, got, err, want)
		}
	}
}

func TestQuoteYAML(t *testing.T) {
	for text, want := range map[string]string{
		"gate": "gate", "/a/b.c": "/a/b.c", "": `""`, "1": `"1"`, "1e3": `"1e3"`, "No": `"No"`, "null": `"null"`,
		"-a": `"-a"`, "a b": `"a b"`, "a: b": `"a: b"`, `"`: `"\""`, "_": `"_"`,
	} {
		if got := quoteYAML(text); got != want {
			t.Errorf("%q is written %s, want %s", text, got, want)
		}
	}
}
