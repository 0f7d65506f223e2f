package analysis

import (
	"context"
	"crypto/sha256"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// A watchedFile is what a look at a file has found.
type watchedFile struct {
	size     int64
	modified time.Time
	sum      [sha256.Size]byte
	settled  bool   // another write would have another time: the content need not be read again
	problem  string // why it could not be read
}

// same reports whether two looks have found the same content, whatever the times
// say: editors and version control write what was there before.
func (f watchedFile) same(g watchedFile) bool { return f.sum == g.sum && f.problem == g.problem }

// watchedFiles is one look at a directory, by name within it, with slashes.
type watchedFiles map[string]watchedFile

// clockGrain is more than the step in which file systems count time: a file that
// was written to less than that ago can be written to again without a new time.
const clockGrain = 2 * time.Second

// lookAt looks at the files of dir that policies and tests are read from.
//
// It looks rather than to be notified: a few dozen files are looked at in less
// than a millisecond, on any file system, and neither a new directory nor one
// that was moved, removed or put in the place of another needs care of its own.
// Before is the last look, whose contents are not read again where nothing was
// written. The error is why dir itself cannot be read.
func lookAt(dir string, before watchedFiles) (watchedFiles, error) {
	if err := checkDirectory(dir); err != nil {
		return nil, err
	}
	now := time.Now()
	found := watchedFiles{}
	root := os.DirFS(dir)
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		base := path.Base(name)
		switch {
		case errors.Is(err, fs.ErrNotExist) && name != ".":
			return nil // it went away after it was listed
		case err != nil && name == ".":
			return err
		case err != nil:
			found[name] = watchedFile{problem: err.Error()}
			return nil
		case entry.IsDir():
			if name != "." && strings.HasPrefix(base, ".") {
				return fs.SkipDir
			}
			return nil
		case !strings.HasSuffix(base, ".rego") && base != "data.json" && base != "data.yaml":
			return nil
		}
		f, err := lookAtFile(root, name, before[name], now)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			f.problem = err.Error()
		}
		found[name] = f
		return nil
	})
	return found, err
}

func lookAtFile(root fs.FS, name string, before watchedFile, now time.Time) (watchedFile, error) {
	info, err := fs.Stat(root, name)
	if err != nil {
		return watchedFile{}, err
	}
	f := watchedFile{size: info.Size(), modified: info.ModTime()}
	if !info.Mode().IsRegular() || f.size > maxCheckedFile {
		return f, errors.New("it is not a file that can be read as policies")
	}
	if before.settled && before.size == f.size && before.modified.Equal(f.modified) {
		return before, nil
	}
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return f, err
	}
	f.sum = sha256.Sum256(text)
	age := now.Sub(f.modified)
	f.settled = age > clockGrain || age < -clockGrain // a time to come is none that the clock gives now
	return f, nil
}

// changedFiles names the files that are in one look and not, or with another
// content, in the other.
func changedFiles(before, now watchedFiles) []string {
	changed := map[string]bool{}
	for name, f := range now {
		if old, there := before[name]; !there || !old.same(f) {
			changed[name] = true
		}
	}
	for name := range before {
		if _, there := now[name]; !there {
			changed[name] = true
		}
	}
	return slices.Sorted(maps.Keys(changed))
}

const (
	lookEvery    = 100 * time.Millisecond
	settleEvery  = 40 * time.Millisecond
	settleAtMost = 2 * time.Second
)

// settle looks until two looks find the same, or for some time: editors write a
// file in several steps, and version control writes many files.
func settle(ctx context.Context, dir string, last watchedFiles) watchedFiles {
	for end := time.Now().Add(settleAtMost); time.Now().Before(end); {
		select {
		case <-ctx.Done():
			return last
		case <-time.After(settleEvery):
		}
		now, err := lookAt(dir, last)
		if err != nil { // the directory is being put in place
			continue
		}
		if len(changedFiles(last, now)) == 0 {
			return now
		}
		last = now
	}
	return last
}

// isData reports whether a file holds data rather than rules.
func isData(name string) bool { return !strings.HasSuffix(name, ".rego") }
