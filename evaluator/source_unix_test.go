//go:build unix

package evaluator

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// What never ends, or is far too large, is refused before it is read.
func TestPoliciesThatAreNoFiles(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe.rego"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(context.Background(), &Options{Dir: dir}); !errors.Is(err, ErrPolicy) || !strings.Contains(err.Error(), "pipe.rego") {
		t.Errorf("a pipe gives %v", err)
	}
	dir = t.TempDir()
	large, err := os.Create(filepath.Join(dir, "large.rego"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(large.Truncate(maxPolicyFile+1), large.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := New(context.Background(), &Options{Dir: dir}); !errors.Is(err, ErrPolicy) || !strings.Contains(err.Error(), "large.rego") {
		t.Errorf("a large file gives %v", err)
	}
}
