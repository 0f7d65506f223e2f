package ledger

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/internal/testpostgres"
)

// childTask is the environment variable that has this program do a task of
// [childTasks] as another process, and not run tests.
const childTask = "OPA_GATE_LEDGER_TASK"

func TestMain(m *testing.M) {
	if task := os.Getenv(childTask); task != "" {
		if err := childTasks[task](os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	testpostgres.Close()
	os.Exit(code)
}

// A kind of ledger that the suite runs on.
type kind struct {
	name string
	// place returns the name of a new, empty ledger.
	place  func(t testing.TB) string
	shared bool // whether another process can open the same one
}

var kinds = []kind{
	{"memory", func(testing.TB) string { return "memory:" }, false},
	{"sqlite", func(t testing.TB) string { return filepath.Join(t.TempDir(), "ledger.db") }, true},
	{"postgres", func(t testing.TB) string { return testpostgres.Database(t) }, true},
}

// everywhere runs a test on every kind of ledger.
func everywhere(t *testing.T, f func(t *testing.T, k kind)) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) { f(t, k) })
	}
}

// shared runs a test on every kind of ledger that several processes can open.
func shared(t *testing.T, f func(t *testing.T, k kind)) {
	for _, k := range kinds {
		if k.shared {
			t.Run(k.name, func(t *testing.T) { f(t, k) })
		}
	}
}

// open opens a ledger until the test ends.
func open(t testing.TB, name string, opts *Options) *Ledger {
	t.Helper()
	l, err := Open(context.Background(), name, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// A clock is set by a test.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func newClock() *clock { return &clock{at: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// seed makes the key with a number.
func seed(n byte) ed25519.PrivateKey {
	var s [ed25519.SeedSize]byte
	s[0] = n
	return ed25519.NewKeyFromSeed(s[:])
}

func ring(n byte) *Keyring {
	k := &Keyring{}
	k.Sign(seed(n))
	return k
}

// egress is what most tests ask about.
const egress = capability.Set(capability.ArbitraryEgress)

// escalation makes one of a tool with arguments.
func escalation(tool, arguments string, missing capability.Set) *Escalation {
	return &Escalation{
		Call: Call{Tool: tool, Arguments: json.RawMessage(arguments), Session: "s1", Revision: "r1"},
		Outcome: capability.Outcome{Kind: capability.Escalate, Missing: missing, Required: missing | capability.Set(capability.LocalRead),
			Granted: capability.All &^ missing, Reason: "Check it.", Warnings: []string{"w"}},
	}
}

// sound fails the test unless the whole chain is, and returns how long it is.
func sound(t testing.TB, l *Ledger, seen ...Mark) int64 {
	t.Helper()
	a, err := l.Audit(context.Background(), seen, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !a.Sound() || len(a.Unverified) > 0 {
		t.Fatalf("the chain is not sound: %+v, broken %+v", a, a.Broken)
	}
	return a.Entries
}
