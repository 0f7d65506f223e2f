package bundle

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	quiet       = 30 * time.Millisecond  // without a change, before files are looked at
	quietAtMost = 300 * time.Millisecond // if the changes do not end
	looksAtMost = 5                      // before what is being written all the time is served
)

// keep keeps a shelf up to date until ctx ends: after each change of its files,
// and now and then, because not every file system tells.
func (s *Server) keep(ctx context.Context, b *shelf) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		s.log.Warn("changes of files are noticed late", "bundle", b.name, "every", s.opts.Rescan.String(), "error", err.Error())
	} else {
		defer func() { _ = w.Close() }()
		watchTree(w, b.path)
	}
	var (
		events <-chan fsnotify.Event
		errs   <-chan error
	)
	if w != nil {
		events, errs = w.Events, w.Errors
	}
	rescan := time.NewTicker(s.opts.Rescan)
	defer rescan.Stop()
	settled := time.NewTimer(time.Hour)
	settled.Stop()
	s.refresh(ctx, b)   // what was changed before anybody watched
	var first time.Time // of the changes that were not looked at yet
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-events:
			if !ok {
				events = nil
				continue
			}
			if !concerns(b.path, e) {
				continue
			}
			now := time.Now()
			if first.IsZero() {
				first = now
			}
			settled.Reset(max(0, min(quiet, first.Add(quietAtMost).Sub(now))))
			continue
		case err, ok := <-errs: // some events were lost
			if !ok {
				errs = nil
				continue
			}
			s.log.Warn("changes of files may have been missed", "bundle", b.name, "error", err.Error())
		case <-rescan.C:
		case <-settled.C:
		}
		first = time.Time{}
		if w != nil {
			watchTree(w, b.path)
		}
		s.refresh(ctx, b)
	}
}

// watchTree watches a directory and those in it, or the directory of a file, and
// nothing else any more. What stands in its place later is seen from the directory
// above. What cannot be watched is left to the look that is taken now and then.
func watchTree(w *fsnotify.Watcher, name string) {
	above := filepath.Dir(filepath.Clean(name))
	want := map[string]bool{above: true}
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		top, err := filepath.EvalSymlinks(name) // a walk does not follow a link
		if err != nil {
			top = name
		}
		_ = filepath.WalkDir(top, func(dir string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil || !entry.IsDir():
				return nil
			case dir != top && strings.HasPrefix(entry.Name(), "."):
				return fs.SkipDir
			}
			want[dir] = true
			return nil
		})
	}
	for _, dir := range w.WatchList() {
		if !want[dir] {
			_ = w.Remove(dir)
		}
	}
	for dir := range want {
		_ = w.Add(dir)
	}
}

// concerns reports whether a change can be one of the bundle at a path. Above it
// stand files of others; a volume that is swapped as a whole has names that
// begin with two dots.
func concerns(name string, e fsnotify.Event) bool {
	if e.Op == fsnotify.Chmod {
		return false
	}
	name = filepath.Clean(name)
	if filepath.Dir(e.Name) != filepath.Dir(name) {
		return true
	}
	base := filepath.Base(e.Name)
	return base == filepath.Base(name) || strings.HasPrefix(base, "..")
}

// refresh looks at the files of a shelf, and serves what they hold if that is new
// and good.
func (s *Server) refresh(ctx context.Context, b *shelf) {
	b.refreshing.Lock()
	defer b.refreshing.Unlock()
	l, err := lookAtFiles(b.path, s.opts.MaxSize)
	for try := 0; err != nil && try < looksAtMost && ctx.Err() == nil; try++ { // they are being put in place
		time.Sleep(quiet)
		l, err = lookAtFiles(b.path, s.opts.MaxSize)
	}
	if err != nil {
		b.looked = false
		s.refuse(b, &failure{at: time.Now(), text: err.Error()})
		return
	}
	for range looksAtMost {
		if b.looked && b.sum == l.sum {
			return
		}
		e, err := l.edition(ctx, b.path, &s.opts)
		if ctx.Err() != nil {
			return
		}
		// What changed while it was read may be half of an edit.
		again, lookErr := lookAtFiles(b.path, s.opts.MaxSize)
		if lookErr == nil && again.sum != l.sum {
			l = again
			continue
		}
		b.looked, b.sum = true, l.sum
		if err != nil {
			s.refuse(b, &failure{at: time.Now(), text: l.located(b.path, err.Error()), files: l.sum})
			return
		}
		s.publish(b, e)
		return
	}
	s.log.Warn("the files of the bundle change all the time; what is served stays until they rest", "bundle", b.name, "path", b.path)
}

func (s *Server) publish(b *shelf, e *edition) {
	s.metrics.rebuilds.WithLabelValues(b.name, "ok").Inc()
	before, failed := b.status()
	if !b.put(e) {
		if failed != nil {
			s.log.Info("the files hold again what is served", "bundle", b.name, "revision", e.revision)
		}
		return
	}
	s.metrics.serves(b.name, before, e)
	s.log.Info("a bundle is served", "bundle", b.name, "path", b.path, "revision", e.revision, "etag", e.etag, "bytes", len(e.body))
}

// refuse keeps what is served, and says why, once.
func (s *Server) refuse(b *shelf, f *failure) {
	if !b.refuse(f) {
		return
	}
	s.metrics.rebuilds.WithLabelValues(b.name, "failed").Inc()
	attrs := []any{"bundle", b.name, "path", b.path, "error", oneLine(f.text)}
	if e, _ := b.status(); e != nil {
		s.log.Error("an edit is refused, and what was served before is still served",
			append(attrs, "revision", e.revision, "since", e.since.Format(time.RFC3339))...)
		return
	}
	s.log.Error("a bundle is not served: there is no good one yet", attrs...)
}

// maxProblem is the longest account of what is wrong, in bytes.
const maxProblem = 4000

// oneLine writes a message, say of a compiler, on one line.
func oneLine(text string) string {
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	text = strings.Join(lines, "; ")
	if len(text) > maxProblem {
		text = strings.ToValidUTF8(text[:maxProblem], "") + "…"
	}
	return text
}

// checkSource tells what is wrong with a name and a path that are to be served.
func checkSource(src Source) error {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	switch {
	case src.Name == "" || len(src.Name) > maxName || strings.Trim(src.Name, letters) != "" || strings.HasPrefix(src.Name, "."):
		return fmt.Errorf("%w: a bundle cannot be called %q: up to %d letters, digits, -, _ and dots, and no dot in front",
			ErrOptions, src.Name, maxName)
	case src.Path == "":
		return fmt.Errorf("%w: the bundle %s has no path", ErrOptions, src.Name)
	}
	if _, err := os.Stat(src.Path); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s: there is no such directory or bundle file", src.Path)
		}
		return err
	}
	return nil
}

const maxName = 64

var discard = slog.New(slog.DiscardHandler)
