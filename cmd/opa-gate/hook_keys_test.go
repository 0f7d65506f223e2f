//go:build linux

package main

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/opa-gate/opa-gate/ledger"
)

// An approval counts no longer once its key is trusted no longer, in whatever way
// the file of keys was changed under a resident gate that runs.
func TestHookKeysTakenAway(t *testing.T) {
	if testing.Short() {
		t.Skip("starts many processes")
	}
	keys := t.TempDir()
	signs, err := ledger.LoadOrMakeKey(filepath.Join(keys, "signs"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ledger.LoadOrMakeKey(filepath.Join(keys, "other")); err != nil {
		t.Fatal(err)
	}
	text := func(name string) []byte {
		text, err := os.ReadFile(filepath.Join(keys, name))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	trusted, other := text("signs.pub"), text("other.pub")
	private, otherPrivate := text("signs"), text("other")

	for _, tt := range []struct {
		flag          string
		before, after []byte
	}{
		{"--trust", append(append([]byte{}, trusted...), other...), other}, // one of several
		{"--trust", trusted, other},
		{"--key", private, otherPrivate},
	} {
		file := filepath.Join(keys, "in-use")
		if err := errors.Join(os.RemoveAll(file), os.WriteFile(file, tt.before, 0o600)); err != nil {
			t.Fatal(err)
		}
		more := []string{tt.flag, file, "--idle", "1m"}
		if tt.flag == "--trust" {
			more = append(more, "--key", filepath.Join(keys, "own"))
		}
		a := newAgent(t, true, more...)
		a.begin()
		a.call("", "TaskList") // the ledger and the keys are there by now
		running := a.residents()

		// Twice the same call, another one each time: an approval that was not used
		// waits until its key is back.
		for n, way := range map[string]func() error{
			"is in force":      func() error { return nil },
			"was written over": func() error { return os.WriteFile(file, tt.after, 0o600) },
			"was replaced": func() error {
				return errors.Join(os.WriteFile(file+".new", tt.after, 0o600), os.Rename(file+".new", file))
			},
			"is gone":  func() error { return os.Rename(file, file+".away") },
			"is empty": func() error { return os.Truncate(file, 0) },
		} {
			what := fmt.Sprintf("%s %s", tt.flag, n)
			if err := os.WriteFile(file, tt.before, 0o600); err != nil {
				t.Fatal(err)
			}
			call := func() (bool, string) {
				return a.hook("", map[string]any{"hook_event_name": "PreToolUse", "tool_name": "mcp__x__y", "tool_use_id": fmt.Sprint(rand.Uint64()),
					"tool_input": map[string]any{"way": what}})
			}
			if runs, out := call(); runs {
				t.Fatalf("%s: nobody has approved the call: %s", what, out)
			}
			approveAll(t, a, signs)
			if err := way(); err != nil {
				t.Fatal(err)
			}
			if runs, out := call(); runs != (n == "is in force") {
				t.Errorf("the file of %s: runs is %v: %s", what, runs, out)
			}
			if n == "is gone" {
				_ = os.Remove(file) // a key is made anew where there is none
			}
		}
		if now := a.residents(); len(running) != 1 || len(now) != 1 || now[0] != running[0] {
			t.Errorf("resident gates were %v, are %v", running, now)
		}
	}
}

// approveAll approves what waits, with a key.
func approveAll(t *testing.T, a *fakeAgent, key ed25519.PrivateKey) {
	t.Helper()
	keyring := &ledger.Keyring{}
	keyring.Sign(key)
	l, err := ledger.Open(t.Context(), a.ledger, &ledger.Options{Keys: keyring})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	waiting, _, err := l.Waiting(t.Context(), 100)
	if err != nil || len(waiting) == 0 {
		t.Fatalf("%d wait, %v", len(waiting), err)
	}
	for _, p := range waiting {
		if _, err := l.Decide(t.Context(), "ann", p.ID, ledger.Decision{Approve: true}); err != nil {
			t.Fatal(err)
		}
	}
}
