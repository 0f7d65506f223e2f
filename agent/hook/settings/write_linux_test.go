package settings_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/opa-gate/opa-gate/agent/hook/settings"
)

// Of many who read the same and write at once one does; the others are told, and
// none of them leaves anything.
func TestWriteAtOnce(t *testing.T) {
	for name, there := range map[string]bool{"a file": true, "none yet": false} {
		t.Run(name, func(t *testing.T) {
			for range 20 {
				dir := t.TempDir()
				path := filepath.Join(dir, "settings.json")
				if there {
					if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				const writers = 8
				var (
					wg      sync.WaitGroup
					written [writers]bool
					firsts  atomic.Int32
				)
				begin := make(chan struct{})
				for i := range writers {
					f, err := settings.Read(path)
					if err != nil {
						t.Fatal(err)
					}
					wg.Go(func() {
						<-begin
						err := f.Write(fmt.Appendf(nil, `{"n":%d}`, i), func() error { firsts.Add(1); return nil })
						if written[i] = err == nil; err != nil && !errors.Is(err, settings.ErrChanged) {
							t.Error(err)
						}
					})
				}
				close(begin)
				wg.Wait()
				text, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				n := 0
				for i, ok := range written {
					if ok {
						n++
						if want := fmt.Sprintf(`{"n":%d}`, i); string(text) != want {
							t.Errorf("%s is there, and whoever wrote %s was told that it is", text, want)
						}
					}
				}
				if n != 1 || firsts.Load() != 1 {
					t.Fatalf("%d of %d wrote, %d came first", n, writers, firsts.Load())
				}
				if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
					t.Errorf("%v is left, %v", left, err)
				}
			}
		})
	}
}

// What has to be done first fails: nothing is written.
func TestWriteNothingFirst(t *testing.T) {
	path := filepath.Join(t.TempDir(), "settings.json")
	failed := errors.New("no")
	for _, text := range [][]byte{[]byte("{}"), nil} {
		if err := os.WriteFile(path, []byte("[1]"), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := settings.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Write(text, func() error { return failed }); !errors.Is(err, failed) {
			t.Errorf("%v", err)
		}
		if now, err := os.ReadFile(path); err != nil || string(now) != "[1]" {
			t.Errorf("%s, %v", now, err)
		}
	}
}

// An administrator who edits a person's settings does not take them away.
func TestWriteKeepsOwner(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("SKIP: only root can have a file of somebody else's here")
	}
	for _, mode := range []os.FileMode{0o600, 0o640, 0o444} {
		path := filepath.Join(t.TempDir(), "settings.json")
		if err := errors.Join(os.WriteFile(path, []byte("{}"), 0o600), os.Chmod(path, mode), os.Chown(path, 12345, 23456)); err != nil {
			t.Fatal(err)
		}
		f, err := settings.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Write([]byte(`{"a":1}`), nil); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if st := info.Sys().(*syscall.Stat_t); st.Uid != 12345 || st.Gid != 23456 || info.Mode().Perm() != mode {
			t.Errorf("owner %d:%d, mode %v", st.Uid, st.Gid, info.Mode())
		}
	}
}
