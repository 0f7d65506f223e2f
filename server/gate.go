package server

import (
	"context"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/open-policy-agent/opa/v1/bundle"
	opaserver "github.com/open-policy-agent/opa/v1/server"
	"github.com/open-policy-agent/opa/v1/storage"

	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/ledger"
)

// policies are one state of OPA's store that decides.
type policies struct {
	documents evaluator.Documents
	bundles   map[string]opaserver.BundleInfo // by name, as decision logs want them
	revision  string                          // of all bundles, as a header has it
	since     time.Time
	digest    func() (string, error) // of what decides calls: the revision that approvals are bound to
	masked    bool                   // decision logs get the default mask
}

func newPolicies(ctx context.Context, store storage.Store, txn storage.Transaction, e *evaluator.Evaluator) (*policies, error) {
	names, err := bundle.ReadBundleNamesFromStore(ctx, store, txn)
	if err != nil && !storage.IsNotFound(err) {
		return nil, err
	}
	p := &policies{documents: evaluator.Documents{Engine: e}, bundles: map[string]opaserver.BundleInfo{}, since: time.Now(),
		digest: e.Digest}
	var revisions []string
	slices.Sort(names)
	for _, name := range names {
		revision, err := bundle.ReadBundleRevisionFromStore(ctx, store, txn, name)
		if err != nil && !storage.IsNotFound(err) {
			return nil, err
		}
		p.bundles[name] = opaserver.BundleInfo{Revision: revision}
		revisions = append(revisions, headerName(name)+"="+headerText(revision))
	}
	p.revision = strings.Join(revisions, ", ")
	return p, nil
}

// A gate holds the policies in force, and knows how fresh they are.
type gate struct {
	system       string
	hosts        []string      // that a server on loopback may be called, beside localhost
	maxStaleness time.Duration // 0: policies never grow stale
	now          func() time.Time
	log          func(format string, args ...any) // of what happens to policies
	complain     func(format string, args ...any) // of what goes wrong with them
	ledger       *ledger.Ledger                   // nil: there is none

	active atomic.Pointer[policies]
	first  chan struct{} // closed once there are policies
	once   sync.Once     // of first
	counts *counts

	mu        sync.Mutex
	local     bool              // the policies are not from a bundle that OPA fetches
	started   time.Time         // what is not refreshed since then
	refreshes map[string]report // of bundles that OPA fetches, by name
	patience  map[string]time.Duration
	refusal   *refusal // of the last change, if it was refused
	tidy      *time.Timer
}

// A report is how the fetching of one bundle goes.
type report struct {
	Revision  string    `json:"revision,omitempty"`
	Refreshed time.Time `json:"refreshed,omitzero"` // OPA was last told what is in force
	Error     string    `json:"error,omitempty"`
	Failing   time.Time `json:"failing_since,omitzero"`

	heard time.Time // OPA last said how a request went, or began to ask
}

// A refusal is a change of the store that was not let in.
type refusal struct {
	Error string    `json:"error"`
	At    time.Time `json:"at"`
}

// activate puts policies in force; nil takes away those that were.
func (g *gate) activate(p *policies) {
	before := g.active.Swap(p)
	g.mu.Lock()
	g.refusal = nil
	g.mu.Unlock()
	switch {
	case p != nil:
		g.once.Do(func() { close(g.first) })
		g.log("Policies are active: %s", orUnnamed(p.revision))
		g.tidySoon()
	case before != nil:
		g.complain("No policies are active any more: OPA took them away. Everything is refused until others come.")
	}
}

// tidySoon gives memory back some time after policies became active: what it took
// to read and compile them is several times what they need.
func (g *gate) tidySoon() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.tidy == nil {
		g.tidy = time.AfterFunc(tidyAfter, debug.FreeOSMemory)
	} else {
		g.tidy.Reset(tidyAfter)
	}
}

// tidyAfter is long enough for bundles that come at the same time.
const tidyAfter = time.Second

func orUnnamed(revision string) string {
	if revision == "" {
		return "no bundle, written through OPA's API"
	}
	return revision
}

// refused keeps why a change was not let in.
func (g *gate) refused(err error) {
	g.mu.Lock()
	g.refusal = &refusal{Error: err.Error(), At: g.now()}
	g.mu.Unlock()
	if g.counts != nil { // nil while the server is set up
		g.counts.refusals.Inc()
	}
	g.complain("A change of the policies is %v", err)
}

// expect says which bundles OPA fetches. What is known of others is forgotten.
// Persisted has the times at which bundles on disk were last known to be in
// force.
func (g *gate) expect(names []string, persisted map[string]time.Time, patience map[string]time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.local, g.patience = false, patience
	maps.DeleteFunc(g.refreshes, func(name string, _ report) bool { return !slices.Contains(names, name) })
	for _, name := range names {
		if _, ok := g.refreshes[name]; !ok {
			g.refreshes[name] = report{Refreshed: persisted[name], heard: g.now()}
		}
	}
}

// overdue tells, of a bundle whose last request neither came back nor failed for
// longer than a request takes, that this is so.
func (r report) overdue(now time.Time, patience time.Duration) report {
	if r.Error == "" && patience > 0 && now.Sub(r.heard) > patience {
		r.Error = "OPA has not heard from the host since " + r.heard.UTC().Format(time.RFC3339) + ": a download may hang"
		r.Failing = r.heard
	}
	return r
}

// refreshed notes how a request went that OPA made at a time: the problem, or the
// revision that is in force since.
func (g *gate) refreshed(name, revision, problem string, asked time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.refreshes[name]
	if g.refusal != nil && problem != "" && !strings.Contains(problem, ErrRefused.Error()) {
		g.refusal = nil // something else went wrong since
	}
	if p := g.active.Load(); p != nil && p.since.After(asked) { // put in force by this request, whatever came then
		revision, r.Refreshed = p.bundles[name].Revision, g.now()
	}
	r.Revision, r.heard = revision, g.now()
	switch {
	case problem == "":
		r = report{Revision: revision, Refreshed: g.now(), heard: g.now()}
	case r.Error == "":
		r.Failing = g.now()
		fallthrough
	default:
		r.Error = problem
	}
	g.refreshes[name] = r
}

// stale returns the bundle that was not refreshed for the longest time, if that
// is more than the operator allows. One that never was counts from the start.
func (g *gate) stale() (name string, age time.Duration, stale bool) {
	if g.maxStaleness <= 0 {
		return "", 0, false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.local {
		return "", 0, false
	}
	now := g.now()
	for n, r := range g.refreshes {
		last := r.Refreshed
		if last.IsZero() {
			last = g.started
		}
		if a := now.Sub(last); a > age {
			name, age = n, a
		}
	}
	return name, age, age > g.maxStaleness
}

// headerName and headerText write a key and a value of a structured field
// (RFC 8941); what has no place there is left out.
func headerName(name string) string {
	out := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		default:
			return '_'
		}
	}, name)
	if out == "" || out[0] < 'a' || out[0] > 'z' {
		out = "b" + out
	}
	return out
}

func headerText(text string) string {
	var out strings.Builder
	out.WriteByte('"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			out.WriteByte('\\')
			out.WriteRune(r)
		case r < ' ' || r > '~':
			out.WriteByte('?')
		default:
			out.WriteRune(r)
		}
	}
	out.WriteByte('"')
	return out.String()
}
