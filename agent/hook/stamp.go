package hook

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// A Watched is a file or a folder that a handler is made from.
type Watched struct {
	Path string
	// Same: what counts is that the path leads to the same file, and not what is in
	// it. It may be missing at first.
	Same bool
	// Optional: it may be missing, and counts as changed once it is there.
	Optional bool
}

// maxWatched bounds the files of a folder.
const maxWatched = 20_000

// stampOf sums up the state of files: two stamps are equal only if nothing has
// changed. Files that are missing are an error, unless they may be.
func stampOf(watched []Watched) (string, error) {
	var b strings.Builder
	n := 0
	for _, w := range watched {
		if w.Same {
			info, err := os.Stat(w.Path)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return "", err
			}
			_, _ = fmt.Fprintf(&b, "%q same %s\n", w.Path, identity(info))
			continue
		}
		path, err := filepath.EvalSymlinks(w.Path)
		if w.Optional && errors.Is(err, fs.ErrNotExist) {
			_, _ = fmt.Fprintf(&b, "%q missing\n", w.Path)
			continue
		}
		if err != nil {
			return "", fmt.Errorf("%w; put it back, or install the hook again", err)
		}
		err = filepath.WalkDir(path, func(path string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if n++; n > maxWatched {
				return fmt.Errorf("%s has more than %d files", w.Path, maxWatched)
			}
			info, err := os.Stat(path) // of what a link leads to
			if err != nil {
				return err
			}
			_, _ = fmt.Fprintf(&b, "%q %s %v %d %d %d\n", path, identity(info), info.Mode(), info.Size(),
				info.ModTime().UnixNano(), changed(info))
			return nil
		})
		if err != nil {
			return "", err
		}
	}
	return b.String(), nil
}
