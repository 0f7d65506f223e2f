package server

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestOverdue(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		name     string
		r        report
		patience time.Duration
		told     bool
	}{
		{"heard just now", report{heard: now}, time.Minute, false},
		{"silent for too long", report{heard: now.Add(-2 * time.Minute)}, time.Minute, true},
		{"nothing is expected", report{heard: now.Add(-time.Hour)}, 0, false},
		{"failing already", report{heard: now.Add(-time.Hour), Error: "refused", Failing: now}, time.Minute, false},
	} {
		got := tt.r.overdue(now, tt.patience)
		if told := strings.Contains(got.Error, "may hang") && got.Failing.Equal(tt.r.heard); told != tt.told {
			t.Errorf("%s: %+v", tt.name, got)
		}
	}
}

// A misspelt member leaves out what it was to say, so nothing starts.
func TestMisspeltConfiguration(t *testing.T) {
	for name, text := range map[string]string{
		"bundles":  "services: {a: {url: http://127.0.0.1:1}}\nbundels: {gate: {service: a, resource: x}}\n",
		"signing":  "services: {a: {url: http://127.0.0.1:1}}\nbundles: {gate: {service: a, resource: x, signng: {keyid: k}}}\n",
		"services": "servces: {a: {url: http://127.0.0.1:1}}\n",
	} {
		file := filepath.Join(t.TempDir(), "opa.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		o := local()
		o.Addrs, o.ConfigFile = []string{"127.0.0.1:0"}, file
		if _, err := New(t.Context(), o); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// A time to come says nothing about how fresh a bundle on disk is.
func TestPersistedTimes(t *testing.T) {
	dir := t.TempDir()
	h := newHost(t)
	h.put(raw(t, "kept", unchanged))
	set := []string{"bundles.gate.persist=true", "persistence_directory=" + dir}
	s := start(t, from(h, set...))
	if err := s.fetch(); err != nil {
		t.Fatal(err)
	}
	if times := s.persisted([]string{"gate"}); time.Since(times["gate"]) > time.Minute {
		t.Errorf("%v", times)
	}
	later := time.Now().AddDate(10, 0, 0)
	if err := os.Chtimes(s.persistedFile("gate"), later, later); err != nil {
		t.Fatal(err)
	}
	if times := s.persisted([]string{"gate"}); !times["gate"].IsZero() {
		t.Errorf("%v", times)
	}
}

// A bundle that is in force and cannot be kept on disk is fresh, and the problem
// is told.
func TestBundleThatCannotBeKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h := newHost(t)
	h.put(raw(t, "r1", unchanged))
	s := start(t, from(h, "bundles.gate.persist=true", "persistence_directory="+dir))
	if err := s.fetch(); err == nil {
		t.Fatal("it was kept")
	}
	s.gate.mu.Lock()
	r := s.gate.refreshes["gate"]
	s.gate.mu.Unlock()
	if r.Revision != "r1" || time.Since(r.Refreshed) > time.Minute || r.Error == "" {
		t.Errorf("%+v", r)
	}
}
