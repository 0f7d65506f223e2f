package main

import (
	"bytes"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	opabundle "github.com/open-policy-agent/opa/v1/bundle"

	"github.com/opa-gate/opa-gate/policies"
)

// copyTree puts the embedded policies into a tree.
func copyTree(to fstest.MapFS) error {
	from := policies.FS()
	return fs.WalkDir(from, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(from, name)
		to[name] = &fstest.MapFile{Data: text}
		return err
	})
}

// keeping are the flags of a server that keeps the bundle of a host on disk.
func keeping(h *bundleHost, dir string) []string {
	args := []string{"--addr", "127.0.0.1:0", "--log-level", "error"}
	for _, set := range []string{
		"services.host.url=" + h.URL, "bundles.gate.service=host", "bundles.gate.resource=gate.tar.gz",
		"bundles.gate.persist=true", "persistence_directory=" + dir, "bundles.gate.polling.long_polling_timeout_seconds=1",
	} {
		args = append(args, "--set", set)
	}
	return args
}

// decidesBy waits until a server decides, and returns the revision. The answer
// must be of that revision.
func decidesBy(t *testing.T, s *serving) string {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		status, header, answer := s.ask(t, invite)
		switch {
		case status == http.StatusOK:
			revision := strings.TrimSuffix(strings.TrimPrefix(header, `gate="`), `"`)
			if !strings.Contains(answer, "into system "+revision+",") {
				t.Errorf("revision %s answers %s", revision, answer)
			}
			return revision
		case status != http.StatusServiceUnavailable || !strings.Contains(answer, "no policies are active") || strings.Contains(answer, "outcome"):
			t.Fatalf("status %d: %s", status, answer)
		case time.Now().After(deadline):
			t.Fatalf("nothing decides\n%s", s.logged())
		}
	}
}

// whole fails unless the bundle on disk is whole.
func whole(t *testing.T, dir string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "bundles", "gate", "bundle.tar.gz"))
	if err != nil {
		t.Error(err)
		return
	}
	if _, err := opabundle.NewReader(bytes.NewReader(text)).Read(); err != nil {
		t.Errorf("the bundle on disk: %v", err)
	}
}

// A server that is killed while policies come decides by one of the two when it
// is started again, though the host is away.
func TestServeKilled(t *testing.T) {
	rounds := 20
	if testing.Short() {
		rounds = 4
	}
	dir := t.TempDir()
	h := newBundleHost(t, "one", "two")
	seen := map[string]int{}
	for range rounds {
		h.fail(false)
		before := h.count()
		s := serveProcess(t, keeping(h, dir)...)
		decidesBy(t, s) // at once by what is on disk, if there is something
		for deadline := time.Now().Add(time.Minute); h.count() == before && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Duration(rand.IntN(500)) * time.Millisecond) // anywhere within an activation
		s.stop(syscall.SIGKILL)
		h.fail(true)
		whole(t, dir)
		again := serveProcess(t, keeping(h, dir)...)
		status, header, answer := again.ask(t, invite)
		if status != http.StatusOK {
			t.Fatalf("status %d: %s\n%s", status, answer, again.logged())
		}
		revision := decidesBy(t, again)
		if seen[revision]++; revision != "one" && revision != "two" || !strings.Contains(again.line, header) {
			t.Errorf("it decides by %q, and says %q", revision, again.line)
		}
		again.stop(syscall.SIGTERM)
		if code := again.ProcessState.ExitCode(); code != 0 {
			t.Errorf("exit code %d\n%s", code, again.logged())
		}
	}
	t.Logf("%d bundles were served; after a kill the servers decided by %v", h.count(), seen)
	if h.count() < rounds {
		t.Errorf("only %d bundles were served", h.count())
	}
}

// What cannot be what was written decides nothing, and says so.
func TestServeDamagedOnDisk(t *testing.T) {
	for name, damage := range map[string]func([]byte) []byte{
		"cut off": func(text []byte) []byte { return text[:len(text)/2] },
		"empty":   func([]byte) []byte { return nil },
		"garbage": func([]byte) []byte { return []byte("garbage") },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			h := newBundleHost(t, "one")
			file := filepath.Join(dir, "bundles", "gate", "bundle.tar.gz")
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, damage(h.bodies[0]), 0o600); err != nil {
				t.Fatal(err)
			}
			h.fail(true)
			s := serveProcess(t, keeping(h, dir)...)
			if status, _, answer := s.ask(t, invite); status != http.StatusServiceUnavailable || !strings.Contains(answer, "no policies are active") {
				t.Errorf("status %d: %s", status, answer)
			}
			if !strings.HasSuffix(s.line, "nothing is decided yet: OPA waits for gate") {
				t.Errorf("it says %q", s.line)
			}
			if !strings.Contains(s.logged(), "Failed to load bundle from disk") {
				t.Errorf("the log does not say why:\n%s", s.logged())
			}
		})
	}
}

func TestServeTwoOnOneDirectory(t *testing.T) {
	dir := t.TempDir()
	h := newBundleHost(t, "one", "two")
	a, b := serveProcess(t, keeping(h, dir)...), serveProcess(t, keeping(h, dir)...)
	for range 20 {
		for _, s := range []*serving{a, b} {
			if revision := decidesBy(t, s); revision != "one" && revision != "two" {
				t.Errorf("it decides by %q", revision)
			}
		}
		whole(t, dir)
	}
	a.stop(syscall.SIGKILL)
	decidesBy(t, b)
	b.stop(syscall.SIGTERM)
	whole(t, dir)
	h.fail(true)
	decidesBy(t, serveProcess(t, keeping(h, dir)...))
}
