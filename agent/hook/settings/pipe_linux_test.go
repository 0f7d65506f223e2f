package settings_test

import (
	"errors"
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/opa-gate/opa-gate/agent/hook/settings"
)

// What is no file at the settings' place is refused, and not waited for.
func TestReadNoFile(t *testing.T) {
	dir := t.TempDir()
	pipe, socket := filepath.Join(dir, "pipe"), filepath.Join(dir, "socket")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	for _, path := range []string{dir, pipe, socket, "/dev/zero"} {
		read := make(chan error, 1)
		go func() {
			_, err := settings.Read(path)
			read <- err
		}()
		select {
		case err := <-read:
			if !errors.Is(err, settings.ErrSettings) {
				t.Errorf("%s: %v", path, err)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("%s is waited for", path)
		}
	}
}
