package server

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// A collector is the service that OPA sends status and decision logs to.
type collector struct {
	*httptest.Server
	mu       sync.Mutex
	statuses []string // bodies of POST /status
	logs     []string // bodies of POST /logs, unpacked
	wrong    []string // requests that are not as OPA's documentation has them
}

func newCollector(t *testing.T) *collector {
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		body, err := io.ReadAll(r.Body)
		switch {
		case err != nil: // the server was stopped while it sent this
		case r.Method == http.MethodPost && r.URL.Path == "/status":
			c.statuses = append(c.statuses, string(body))
		case r.Method == http.MethodPost && r.URL.Path == "/logs" && r.Header.Get("Content-Encoding") == "gzip":
			z, err := gzip.NewReader(bytes.NewReader(body))
			if err == nil {
				body, err = io.ReadAll(z)
			}
			if err != nil {
				c.wrong = append(c.wrong, err.Error())
			}
			c.logs = append(c.logs, string(body))
		default:
			c.wrong = append(c.wrong, r.Method+" "+r.URL.Path)
		}
	}))
	t.Cleanup(func() {
		c.Close()
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.wrong) > 0 {
			t.Errorf("the collector was sent %q", c.wrong)
		}
	})
	return c
}

// set is the configuration that has OPA send there, logs as soon as it can.
func (c *collector) set() []string {
	return []string{
		"services.collector.url=" + c.URL, "status.service=collector", "decision_logs.service=collector",
		"decision_logs.reporting.min_delay_seconds=1", "decision_logs.reporting.max_delay_seconds=1",
	}
}

// An event is what a test reads of a decision log event.
type event struct {
	Decision string `json:"decision_id"`
	Batch    string `json:"batch_decision_id"`
	Path     string `json:"path"`
	Input    any    `json:"input"`
	Result   any    `json:"result"`
	Erased   []string
	Bundles  map[string]struct {
		Revision string `json:"revision"`
	} `json:"bundles"`
	Error  any `json:"error"` // of OPA
	Custom struct {
		Error *struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	} `json:"custom"`
}

// events waits until there are n of them, and returns them with the bytes that
// they came in.
func (c *collector) events(t *testing.T, n int) (events []event, raw string) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("%d events, want %d", len(events), n)
		}
	}()
	eventually(t, "decision log events", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		events, raw = nil, strings.Join(c.logs, "\n")
		for _, body := range c.logs {
			var some []event
			if err := json.Unmarshal([]byte(body), &some); err != nil {
				t.Fatalf("not an array of events: %v\n%s", err, body)
			}
			events = append(events, some...)
		}
		return len(events) >= n
	})
	if len(events) != n {
		t.Errorf("%d events, want %d\n%s", len(events), n, raw)
	}
	return events, raw
}

// A bundleStatus is what a status says of one bundle.
type bundleStatus struct {
	ActiveRevision string `json:"active_revision"`
	Code           string `json:"code"`
	Message        string `json:"message"`
	Errors         []any  `json:"errors"`
}

// status waits until the last status says of bundle gate what ok wants.
func (c *collector) status(t *testing.T, ok func(bundleStatus) bool) bundleStatus {
	t.Helper()
	var last bundleStatus
	eventually(t, "a status", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.statuses) == 0 {
			return false
		}
		var status struct {
			Bundles map[string]bundleStatus `json:"bundles"`
		}
		if err := json.Unmarshal([]byte(c.statuses[len(c.statuses)-1]), &status); err != nil {
			t.Fatal(err)
		}
		last = status.Bundles["gate"]
		return ok(last)
	})
	return last
}

// eventually waits until something holds, as long as a slow machine may need.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited a minute for %s", what)
		}
	}
}

func save(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// unpacked are the files of a bundle by name.
func unpacked(t *testing.T, text []byte) map[string]string {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(z); ; {
		header, err := r.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimPrefix(header.Name, "/")] = string(body)
	}
}

// named finds the file with a name, which a builder may have put elsewhere.
func named(t *testing.T, files map[string]string, end string) string {
	t.Helper()
	for name := range files {
		if strings.HasSuffix(name, end) {
			return name
		}
	}
	t.Fatalf("no file %s", end)
	return ""
}
