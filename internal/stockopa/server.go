package stockopa

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// A Server is an OPA that runs as a server of its own, until the test ends.
type Server struct {
	client *http.Client
	log    *log
}

// startTime bounds how long an OPA takes to answer at all, on a machine that does
// much else.
const startTime = time.Minute

// Start runs opa run --server with a configuration file of that text, and more
// arguments, and waits until it answers. It logs as JSON, in every detail. It
// listens on a socket in a directory of its own, so that there is no port for
// others to take.
func Start(t testing.TB, config string, args ...string) *Server {
	t.Helper()
	path := Path(t)
	dir, err := os.MkdirTemp("", "opa") // t.TempDir can be too long for the name of a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	file, socket := filepath.Join(dir, "config.yaml"), filepath.Join(dir, "socket")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &Server{log: &log{}, client: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}}
	opa := exec.Command(path, append([]string{"run", "--server", "--addr", "unix://" + socket, "--config-file", file,
		"--log-level", "debug", "--log-format", "json", "--disable-telemetry"}, args...)...)
	opa.Dir = dir
	opa.Stdout, opa.Stderr = s.log, s.log
	if err := opa.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- opa.Wait() }()
	t.Cleanup(func() {
		_ = opa.Process.Kill()
		<-ended
		s.client.CloseIdleConnections()
		if t.Failed() {
			t.Logf("the end of OPA's log:\n%s", s.log.end(20_000))
		}
	})
	for until := time.Now().Add(startTime); ; time.Sleep(10 * time.Millisecond) {
		if code, _, err := s.Do(t.Context(), http.MethodGet, "/health", nil); err == nil && code == http.StatusOK {
			return s
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("OPA ended: %v", err)
		default:
		}
		if time.Now().After(until) {
			t.Fatalf("OPA does not answer after %v", startTime)
		}
	}
}

// Do makes a request, with a body if there is one, and returns the status code and
// the body of the answer.
func (s *Server) Do(ctx context.Context, method, path string, body []byte) (int, []byte, error) {
	q, err := http.NewRequestWithContext(ctx, method, "http://opa"+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	resp, err := s.client.Do(q)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, text, err
}

// Data returns the document at a path below data, such as "gate/limits/n", for an
// input, nil for none. It is nil if the document is undefined.
func (s *Server) Data(ctx context.Context, path string, input any) (any, error) {
	body := []byte("{}")
	if input != nil {
		text, err := json.Marshal(map[string]any{"input": input})
		if err != nil {
			return nil, err
		}
		body = text
	}
	code, text, err := s.Do(ctx, http.MethodPost, "/v1/data/"+path, body)
	if err != nil {
		return nil, err
	}
	if code != http.StatusOK {
		return nil, fmt.Errorf("status %d: %s", code, text)
	}
	var answer struct{ Result any }
	err = json.Unmarshal(text, &answer)
	return answer.Result, err
}

// Log returns what OPA has logged so far.
func (s *Server) Log() string { return s.log.end(-1) }

// A log is written and read at the same time.
type log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *log) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(text)
}

// end returns the last n bytes, all if n is negative.
func (l *log) end(n int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := l.buf.Bytes()
	if n >= 0 && len(text) > n {
		text = text[len(text)-n:]
	}
	return string(text)
}
