package bundle

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/open-policy-agent/opa/v1/bundle"
)

// An edition is one good content of a bundle. Nothing changes it.
type edition struct {
	etag     string // with its quotes
	body     []byte
	revision string
	since    time.Time

	// What a delta is made of.
	patchable bool // there is no signature, and nothing but policies and data
	policies  [sha256.Size]byte
	roots     []string
	manifest  bundle.Manifest
	data      map[string]any
	size      int // of the data, about
}

// newEdition describes a bundle that was read from body.
func newEdition(body []byte, b *bundle.Bundle, now time.Time) *edition {
	sum := sha256.Sum256(body)
	s := &edition{
		etag:     `"` + hex.EncodeToString(sum[:16]) + `"`,
		body:     body,
		revision: b.Manifest.Revision,
		since:    now,
		manifest: b.Manifest.Copy(),
		data:     b.Data,
	}
	s.roots = slices.Sorted(slices.Values(*s.manifest.Roots))
	s.manifest.WasmResolvers = nil
	s.patchable = len(b.WasmModules) == 0 && len(b.PlanModules) == 0 && len(b.Manifest.WasmResolvers) == 0 &&
		!slices.ContainsFunc(s.roots, func(root string) bool { return strings.ContainsAny(root, "~%") })
	s.policies = policySum(b)
	s.size = dataSize(b.Data)
	return s
}

// policySum is the same for two bundles whose policies are: files, contents and
// the version of Rego that each is read as.
func policySum(b *bundle.Bundle) (sum [sha256.Size]byte) {
	h := sha256.New()
	modules := slices.Clone(b.Modules)
	slices.SortFunc(modules, func(x, y bundle.ModuleFile) int { return strings.Compare(x.Path, y.Path) })
	for _, m := range modules {
		_, _ = fmt.Fprintf(h, "%q %v %d\n", m.Path, m.Parsed.RegoVersionSpan(), len(m.Raw))
		_, _ = h.Write(m.Raw)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// A failure is why the files of a bundle are not served.
type failure struct {
	at    time.Time
	text  string
	files [sha256.Size]byte // what was refused
}

// maxHistorySize bounds the data that is kept to make deltas from, in bytes of
// JSON. In memory it is a few times as much.
const maxHistorySize = 64 << 20

// A shelf holds what is served under one name.
type shelf struct {
	name, path string
	keep       int // how many former editions deltas are made from

	mu      sync.Mutex
	current *edition      // nil: there was no good one yet
	changed chan struct{} // closed when current is replaced
	former  []*edition    // newest first
	deltas  map[string]*madeDelta
	failed  *failure // nil: what the files hold is served

	// Of the last look at the files.
	refreshing sync.Mutex
	looked     bool
	sum        [sha256.Size]byte
}

// A madeDelta is made once, by the first client that asks for it.
type madeDelta struct {
	once sync.Once
	body []byte
}

func newShelf(name, path string, keep int) *shelf {
	return &shelf{name: name, path: path, keep: keep, changed: make(chan struct{}), deltas: map[string]*madeDelta{}}
}

// now returns what is served, nil if nothing is, and what is closed when that
// changes.
func (b *shelf) now() (*edition, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.current, b.changed
}

// put serves s from now on, and reports whether that is anything new.
func (b *shelf) put(s *edition) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failed = nil
	if b.current != nil && b.current.etag == s.etag {
		return false
	}
	former := b.former
	if b.current != nil {
		former = append([]*edition{b.current}, former...)
	}
	total := 0
	kept := make([]*edition, 0, b.keep)
	for _, f := range former {
		total += f.size
		if len(kept) == b.keep || total > maxHistorySize {
			break
		}
		if f.etag != s.etag {
			without := *f
			without.body = nil
			kept = append(kept, &without)
		}
	}
	b.former, b.current = kept, s
	b.deltas = map[string]*madeDelta{}
	close(b.changed)
	b.changed = make(chan struct{})
	return true
}

// refuse keeps what is served, and why what the files hold now is not. It reports
// whether that was not known yet.
func (b *shelf) refuse(f *failure) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	known := b.failed != nil && b.failed.text == f.text && b.failed.files == f.files
	if !known {
		b.failed = f
	}
	return !known
}

// status returns what is served and why something else is not.
func (b *shelf) status() (*edition, *failure) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.current, b.failed
}

// delta returns the delta from the edition of that tag to to. It is nil if there is
// none, or if it is no shorter than the whole.
func (b *shelf) delta(from string, to *edition) []byte {
	b.mu.Lock()
	i := slices.IndexFunc(b.former, func(s *edition) bool { return s.etag == from })
	if i < 0 || b.current != to {
		b.mu.Unlock()
		return nil
	}
	base := b.former[i]
	made := b.deltas[from]
	if made == nil {
		made = &madeDelta{}
		b.deltas[from] = made
	}
	b.mu.Unlock()
	made.once.Do(func() {
		if body := deltaBetween(base, to); len(body) < len(to.body) {
			made.body = body
		}
	})
	return made.body
}
