package ledger

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/opa-gate/opa-gate/capability"
)

// A file system without room, mounted if that is allowed, and one that is read
// only.
func TestMounts(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("nothing can be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	l, err := Open(context.Background(), filepath.Join(dir, "ledger.db"), &Options{Keys: ring(1)})
	if err != nil {
		t.Fatal(err)
	}
	goesOn(t, l)
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, bytes.Repeat([]byte{1}, 2<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk takes everything: %v", err)
	}
	for i := 0; i < 100 && err == nil; i++ { // the log has some room of its own
		_, err = l.Record(context.Background(), "me", ruling1("fill", strings.Repeat("x", 10_000)))
	}
	if !errors.Is(err, ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	a, err := l.Admit(context.Background(), &Escalation{Call: Call{Tool: "t", Arguments: []byte(`{"a":"` + strings.Repeat("x", 100_000) + `"}`)},
		Outcome: capability.Outcome{Kind: capability.Escalate}})
	if !errors.Is(err, ErrUnavailable) || a.Outcome.Kind != capability.Escalate || a.Pending != nil {
		t.Errorf("got %+v, %v", a, err)
	}
	if _, err := Open(context.Background(), filepath.Join(dir, "other.db"), nil); !errors.Is(err, ErrUnavailable) {
		t.Errorf("a new ledger on a full disk: %v", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	goesOn(t, l)
	if other, err := Open(context.Background(), filepath.Join(dir, "other.db"), &Options{Keys: ring(1)}); err != nil {
		t.Errorf("a new ledger afterwards: %v", err)
	} else {
		goesOn(t, other)
		_ = other.Close()
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if l, err := Open(context.Background(), filepath.Join(dir, "ledger.db"), &Options{Keys: ring(1)}); err == nil {
		closed(t, l, ErrUnavailable, true)
		_ = l.Close()
	} else if !errors.Is(err, ErrUnavailable) {
		t.Errorf("read only: %v", err)
	}
}
