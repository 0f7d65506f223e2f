//go:build unix

package settings

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// keepOwner gives a file the owner of the one that it replaces: an agent that cannot
// read its settings any more runs without the hooks in them.
func keepOwner(f *os.File, before fs.FileInfo) error {
	now, err := f.Stat()
	if err != nil {
		return err
	}
	was, ok := before.Sys().(*syscall.Stat_t)
	is, same := now.Sys().(*syscall.Stat_t)
	if !ok || !same || was.Uid == is.Uid && was.Gid == is.Gid {
		return nil
	}
	if err := f.Chown(int(was.Uid), int(was.Gid)); err != nil {
		return fmt.Errorf("the file would get another owner or group (%w); change it as its owner, or put the hook in by hand", err)
	}
	return nil
}

// patient is how long another writer may take.
const patient = 10 * time.Second

// lock keeps other processes of this program from writing in a folder.
func lock(dir string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for until := time.Now().Add(patient); ; time.Sleep(5 * time.Millisecond) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) { // some file systems have no locks: the last look has to do there
			return func() { _ = f.Close() }, nil
		}
		if time.Now().After(until) {
			_ = f.Close()
			return nil, fmt.Errorf("%s: somebody else has locked the folder for %v; try again later", dir, patient)
		}
	}
}
