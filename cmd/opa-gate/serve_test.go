package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/opa-gate/opa-gate/bundle"
	"github.com/opa-gate/opa-gate/policies"
	"github.com/opa-gate/opa-gate/server"
)

const invite = `{"tool":{"name":"invite","origin":"access-grant"},"taint":"clean"}`

// program is the name under which this test binary is opa-gate.
func program(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "opa-gate")
	if err := os.Symlink(self, name); err != nil {
		t.Fatal(err)
	}
	return name
}

// A serving is a process of opa-gate serve.
type serving struct {
	*exec.Cmd
	line string // that says it listens
	addr string
	done chan struct{}
	err  error // of the process, once done

	mu  sync.Mutex
	log bytes.Buffer
}

var listens = regexp.MustCompile(`^opa-gate: listening on ([^,;]*)(, [^;]*)?; (.*)$`)

// serveProcess starts opa-gate serve and waits until it listens. It is killed
// when the test ends.
func serveProcess(t *testing.T, args ...string) *serving {
	t.Helper()
	s := launch(t, args...)
	if s.line == "" {
		t.Fatalf("it does not listen: %v\n%s", s.err, s.logged())
	}
	return s
}

// launch starts opa-gate serve and waits until it listens or ends.
func launch(t *testing.T, args ...string) *serving {
	t.Helper()
	s := &serving{Cmd: exec.Command(program(t), append([]string{"serve"}, args...)...), done: make(chan struct{})}
	s.Dir = t.TempDir()
	stderr, err := s.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.stop(syscall.SIGKILL) })
	found := make(chan string, 1)
	go func() {
		defer close(s.done)
		lines := bufio.NewScanner(stderr)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			s.mu.Lock()
			_, _ = fmt.Fprintln(&s.log, lines.Text())
			s.mu.Unlock()
			if listens.MatchString(lines.Text()) {
				found <- lines.Text()
			}
		}
		s.err = s.Wait()
	}()
	select {
	case s.line = <-found:
		s.addr = listens.FindStringSubmatch(s.line)[1]
	case <-s.done:
	case <-time.After(time.Minute):
		t.Fatalf("it neither listens nor ends\n%s", s.logged())
	}
	return s
}

func (s *serving) logged() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

// stop sends a signal and waits for the end.
func (s *serving) stop(signal os.Signal) {
	_ = s.Process.Signal(signal) // it may have ended
	<-s.done
}

func (s *serving) ask(t *testing.T, body string) (status int, revision, answer string) {
	t.Helper()
	resp, err := http.Post("http://"+s.addr+"/v1/gate/call", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatalf("%v\n%s", err, s.logged())
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get(server.RevisionHeader), string(text)
}

func TestServeLine(t *testing.T) {
	s := serveProcess(t, "--addr", "127.0.0.1:0", "--log-level", "error")
	if !regexp.MustCompile(`^opa-gate: listening on 127\.0\.0\.1:[1-9][0-9]*; the built-in policies decide, revision [0-9a-f]+$`).MatchString(s.line) {
		t.Errorf("it says %q", s.line)
	}
	if status, revision, answer := s.ask(t, invite); status != 200 || !strings.HasPrefix(revision, `built-in="`) || !strings.Contains(answer, `"outcome"`) {
		t.Errorf("status %d, revision %s: %s", status, revision, answer)
	}
	s.stop(syscall.SIGINT)
	if code := s.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d\n%s", code, s.logged())
	}
	if got := s.logged(); strings.Contains(got, `"error"`) {
		t.Errorf("it complains: %s", got)
	}
}

// What cannot be as it is asked for ends with exit code 2, says why in one line,
// and never listens.
func TestServeRefuses(t *testing.T) {
	dir := t.TempDir()
	config := func(text string) string {
		f, err := os.CreateTemp(dir, "*.yaml")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		return f.Name()
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	named := config("services:\n  host:\n    url: http://127.0.0.1:1\nbundles:\n  gate:\n    service: host\n")
	broken := filepath.Join(dir, "broken")
	if err := os.CopyFS(broken, policies.FS()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(broken, "more.rego"), []byte("package gate.call\n\nx := y\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, says string
		args       []string
	}{
		{"a port that is taken", "address already in use", []string{"--addr", taken.Addr().String()}},
		{"a configuration that is missing", "no such file", []string{"-c", filepath.Join(dir, "x.yaml")}},
		{"a configuration that is no YAML", "config error", []string{"-c", config("a: [\n")}},
		{"a configuration with a wrong type", "config error", []string{"-c", config("services: 5\n")}},
		{"an unknown flag", `did you mean "--addr"`, []string{"--adr", "x"}},
		{"an argument", "takes no argument", []string{"policies"}},
		{"all of the network", "--allow-plain", []string{"--addr", "0.0.0.0:0"}},
		{"all of the network by no name", "--allow-plain", []string{"--addr", ":0"}},
		{"all of the network, version 6", "--allow-plain", []string{"--addr", "[::]:0"}},
		{"all of the network beside this machine", "--allow-plain", []string{"--addr", "localhost:0", "--addr", "0.0.0.0:0"}},
		{"no TLS in spite of a certificate", "needs TLS", []string{"--addr", "http://0.0.0.0:0", "--tls-cert-file", "x", "--tls-private-key-file", "x", "--authentication", "tls"}},
		{"policies and bundles", "exclude each other", []string{"-c", named, "--policies", broken + "/gate/.."}},
		{"policies that do not compile", "more.rego", []string{"--policies", broken}},
		{"no policies", "no such file", []string{"--policies", filepath.Join(dir, "x")}},
		{"tokens without authorization", "authorization basic", []string{"--authentication", "token"}},
		{"no time", "max-staleness", []string{"--max-staleness", "-1s"}},
		{"no grace", "shutdown-grace-period", []string{"--shutdown-grace-period", "0"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := tt.args
			if tt.name == "policies and bundles" {
				sound := t.TempDir()
				if err := os.CopyFS(sound, policies.FS()); err != nil {
					t.Fatal(err)
				}
				args[len(args)-1] = sound
			}
			s := launch(t, append([]string{"--log-level", "error"}, args...)...)
			if s.line != "" {
				t.Fatalf("it says %q", s.line)
			}
			if code := s.ProcessState.ExitCode(); code != exitInput {
				t.Errorf("exit code %d", code)
			}
			if said := s.logged(); !strings.Contains(said, tt.says) || !strings.Contains(said, "opa-gate: ") || strings.Contains(said, "goroutine") {
				t.Errorf("it says %q, want %q", said, tt.says)
			}
		})
	}
}

func TestServeUnixSocket(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "gate.sock")
	s := serveProcess(t, "--addr", "unix://"+socket, "--log-level", "error")
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	defer client.CloseIdleConnections()
	resp, err := client.Post("http://gate/v1/gate/call", "application/json", strings.NewReader(invite))
	if err != nil {
		t.Fatalf("%v; %s", err, s.line)
	}
	defer func() { _ = resp.Body.Close() }()
	if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 200 || !bytes.Contains(text, []byte(`"outcome"`)) {
		t.Errorf("%v, status %d: %s", err, resp.StatusCode, text)
	}
	if !strings.Contains(s.line, socket) {
		t.Errorf("it says %q", s.line)
	}
}

// Who was being answered when the server is told to stop gets the whole answer.
func TestServeDrains(t *testing.T) {
	s := serveProcess(t, "--addr", "127.0.0.1:0", "--shutdown-grace-period", "60")
	const documents = 5000
	body := "[" + strings.Repeat(invite+",", documents-1) + invite + "]"
	conn, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn, "POST /v1/gate/call HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", len(body), body[:len(body)/2]); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); !strings.Contains(s.logged(), `"req_path":"/v1/gate/call"`); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the request does not come in\n%s", s.logged())
		}
	}
	if err := s.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		another, err := net.Dial("tcp", s.addr)
		if errors.Is(err, syscall.ECONNREFUSED) {
			break
		}
		if err == nil {
			_ = another.Close()
		}
		if time.Now().After(deadline) {
			t.Fatalf("new connections are taken: %v", err)
		}
	}
	if _, err := io.WriteString(conn, body[len(body)/2:]); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, s.logged())
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if n := bytes.Count(text, []byte(`{"outcome":"`)); err != nil || resp.StatusCode != 200 || n != documents {
		t.Errorf("%v, status %d, %d answers of %d", err, resp.StatusCode, n, documents)
	}
	<-s.done
	if code := s.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d\n%s", code, s.logged())
	}
}

// A bundleHost serves a new revision for each request, as fast as OPA asks.
type bundleHost struct {
	*httptest.Server
	mu     sync.Mutex
	bodies [][]byte // in turn
	served int
	down   bool
}

func newBundleHost(t *testing.T, revisions ...string) *bundleHost {
	t.Helper()
	h := &bundleHost{}
	for _, revision := range revisions {
		tree := fstest.MapFS{}
		if err := copyTree(tree); err != nil {
			t.Fatal(err)
		}
		tree["gate/settings/data.json"] = &fstest.MapFile{Data: []byte(`{"system": "system ` + revision + `"}`)}
		b, err := bundle.Build(t.Context(), &bundle.BuildOptions{FS: tree, Revision: revision})
		if err != nil {
			t.Fatal(err)
		}
		h.bodies = append(h.bodies, b.Bytes)
	}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.down {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		h.served++
		w.Header().Set("Content-Type", "application/vnd.openpolicyagent.bundles") // OPA asks again at once
		w.Header().Set("Etag", fmt.Sprintf(`"%d"`, h.served))
		_, _ = w.Write(h.bodies[h.served%len(h.bodies)])
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *bundleHost) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.served
}

func (h *bundleHost) fail(down bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.down = down
}
