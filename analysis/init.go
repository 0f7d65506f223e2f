package analysis

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opa-gate/opa-gate/optional"
	"github.com/opa-gate/opa-gate/policies"
)

// What a working copy has beside the policies: invariants, the settings of
// editors, and a page on what each file is.
//
//go:embed all:template
var initTemplate embed.FS

// A NotEmptyError is why Init leaves a directory alone.
type NotEmptyError struct {
	Dir     string
	Entries []string // what is in it, in order
}

// Error implements error. It names the first few entries.
func (e *NotEmptyError) Error() string {
	const shown = 5
	list := strings.Join(e.Entries[:min(shown, len(e.Entries))], ", ")
	if more := len(e.Entries) - shown; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("%s is not empty, it holds %s; nothing was written: name a directory that is empty or does not exist yet", e.Dir, list)
}

// Init writes a working copy of the embedded policies to dir: rules, tests,
// schemas, invariants to add to, settings of editors and a README; and beside them
// the optional policies that with names (package optional). It returns the names of
// the files, with slashes and in order. An unknown name's error matches
// [optional.ErrUnknown].
//
// A directory that has anything in it is refused with a [*NotEmptyError]. The files
// are written beside their place and moved there when all of them are complete.
// When it fails, nothing is left but a directory that was there before.
func Init(dir string, with ...string) ([]string, error) {
	trees := []fs.FS{policies.FS()}
	for _, name := range with {
		tree, err := optional.FS(name)
		if err != nil {
			return nil, err
		}
		trees = append(trees, tree)
	}
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if to, err := os.Readlink(dir); err == nil {
			return nil, fmt.Errorf("%s is a link to %s, which does not exist; nothing was written", dir, to)
		}
		return initNew(dir, trees)
	case err != nil:
		return nil, err
	case len(entries) > 0:
		blocked := &NotEmptyError{Dir: dir}
		for _, entry := range entries {
			blocked.Entries = append(blocked.Entries, entry.Name())
		}
		return nil, blocked
	}
	return initEmpty(dir, trees)
}

// initNew makes dir, and the directories above it that are missing.
func initNew(dir string, trees []fs.FS) (files []string, err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	var made []string // the lowest last
	for parent := filepath.Dir(dir); ; parent = filepath.Dir(parent) {
		if _, err := os.Stat(parent); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		made = slices.Insert(made, 0, parent)
	}
	defer func() {
		if err == nil {
			return
		}
		for _, parent := range slices.Backward(made) {
			_ = os.Remove(parent) // fails if somebody has put something there, and then it should
		}
	}()
	for _, parent := range made {
		if err := os.Mkdir(parent, 0o777); err != nil {
			return nil, err
		}
	}
	stage := fmt.Sprintf("%s.init-%d", dir, os.Getpid())
	files, err = initStage(stage, trees)
	if err != nil {
		return nil, err
	}
	if err := os.Rename(stage, dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(stage))
	}
	return files, nil
}

// initEmpty fills a directory that is there and empty. It stays the same
// directory: somebody may be in it, and it may be a mount point.
func initEmpty(dir string, trees []fs.FS) (files []string, err error) {
	stage := filepath.Join(dir, fmt.Sprintf(".init-%d", os.Getpid()))
	files, err = initStage(stage, trees)
	if err != nil {
		return nil, err
	}
	var moved []string
	defer func() {
		if err != nil {
			for _, name := range moved {
				err = errors.Join(err, os.RemoveAll(name))
			}
		}
		err = errors.Join(err, os.RemoveAll(stage))
	}()
	top, err := os.ReadDir(stage)
	if err != nil {
		return nil, err
	}
	for _, entry := range top {
		to := filepath.Join(dir, entry.Name())
		if _, err := os.Lstat(to); !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s has appeared meanwhile, and is left as it is", to)
		}
		if err := os.Rename(filepath.Join(stage, entry.Name()), to); err != nil {
			return nil, err
		}
		moved = append(moved, to)
	}
	return files, nil
}

// initStage writes everything to a new directory, or removes it again.
func initStage(stage string, trees []fs.FS) (files []string, err error) {
	if err := os.Mkdir(stage, 0o777); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(stage))
		}
	}()
	extras, err := fs.Sub(initTemplate, "template")
	if err != nil {
		return nil, err
	}
	for _, tree := range append(trees, extras) {
		err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			to := filepath.Join(stage, filepath.FromSlash(name))
			if entry.IsDir() {
				return os.MkdirAll(to, 0o777)
			}
			text, err := fs.ReadFile(tree, name)
			if err != nil {
				return err
			}
			files = append(files, name)
			return os.WriteFile(to, text, 0o666)
		})
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(files)
	return files, nil
}
