package server

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/plugins"
	"github.com/open-policy-agent/opa/v1/storage"

	"github.com/opa-gate/opa-gate/evaluator"
)

// ErrRefused is matched by the errors of changes of the store that would leave
// the gate without policies that decide.
var ErrRefused = errors.New("refused, and what was in force stays so")

// A guardedStore has the gate look at each change before it is committed. All
// ways into OPA's store lead through here: bundles, persisted bundles, deltas and
// the REST APIs.
type guardedStore struct {
	storage.Store
	gate *gate

	mu      sync.Mutex
	writing map[uint64]*writing // open write transactions
}

// writing is what is known of a write transaction.
type writing struct {
	params *storage.Context // that it was begun with
	wrote  bool             // OPA opens some only to register what is to be called
	owners bool             // it writes what OPA keeps on bundles: which they are, and what they own
}

func guard(store storage.Store, g *gate) *guardedStore {
	return &guardedStore{Store: store, gate: g, writing: map[uint64]*writing{}}
}

func (s *guardedStore) NewTransaction(ctx context.Context, params ...storage.TransactionParams) (storage.Transaction, error) {
	txn, err := s.Store.NewTransaction(ctx, params...)
	if err == nil && len(params) > 0 && params[0].Write {
		s.mu.Lock()
		s.writing[txn.ID()] = &writing{params: params[0].Context}
		s.mu.Unlock()
	}
	return txn, err
}

// Commit commits what the gate accepts. Anything else is aborted.
func (s *guardedStore) Commit(ctx context.Context, txn storage.Transaction) error {
	w := s.take(txn)
	if w == nil || !w.wrote {
		return s.Store.Commit(ctx, txn)
	}
	var next *policies
	err := errOwners
	if !w.owners || !byAPI(w.params) {
		next, err = s.gate.look(ctx, s.Store, txn, w.params)
	}
	if err != nil {
		s.Store.Abort(ctx, txn)
		err = fmt.Errorf("%w: %w", ErrRefused, err)
		s.gate.refused(err)
		return err
	}
	if err := s.Store.Commit(ctx, txn); err != nil {
		return err
	}
	s.gate.activate(next)
	return nil
}

func (s *guardedStore) Abort(ctx context.Context, txn storage.Transaction) {
	s.take(txn)
	s.Store.Abort(ctx, txn)
}

// take forgets a write transaction, and returns what is known of it.
func (s *guardedStore) take(txn storage.Transaction) *writing {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.writing[txn.ID()]
	delete(s.writing, txn.ID())
	return w
}

// note notes that a transaction writes.
func (s *guardedStore) note(txn storage.Transaction) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.writing[txn.ID()]; w != nil {
		w.wrote = true
	}
}

// Write implements storage.Store, as do the next three.
func (s *guardedStore) Write(ctx context.Context, txn storage.Transaction, op storage.PatchOp, path storage.Path, value any) error {
	s.note(txn)
	if bundlesPath.HasPrefix(path) || path.HasPrefix(bundlesPath) {
		s.mu.Lock()
		if w := s.writing[txn.ID()]; w != nil {
			w.owners = true
		}
		s.mu.Unlock()
	}
	return s.Store.Write(ctx, txn, op, path, value)
}

func (s *guardedStore) UpsertPolicy(ctx context.Context, txn storage.Transaction, id string, text []byte) error {
	s.note(txn)
	return s.Store.UpsertPolicy(ctx, txn, id, text)
}

func (s *guardedStore) DeletePolicy(ctx context.Context, txn storage.Transaction, id string) error {
	s.note(txn)
	return s.Store.DeletePolicy(ctx, txn, id)
}

func (s *guardedStore) Truncate(ctx context.Context, txn storage.Transaction, params storage.TransactionParams, it storage.Iterator) error {
	s.note(txn)
	return s.Store.Truncate(ctx, txn, params, it)
}

// look makes the policies that are in force once txn is committed. There are none
// as long as nothing of the gate has come, and when OPA takes back a bundle that
// they need: that cannot be refused, so what is left decides, or nothing does.
func (g *gate) look(ctx context.Context, store storage.Store, txn storage.Transaction, params *storage.Context) (*policies, error) {
	next, err := g.made(ctx, store, txn, params)
	if err != nil && takesBack(params) {
		g.complain("OPA changed which bundles there are, and what is left does not decide: %v", err)
		return nil, nil
	}
	return next, err
}

// bundlesPath is where OPA keeps which bundles there are, and what each of them
// owns. Whoever could write there could have any policy overwritten.
var bundlesPath = storage.MustParsePath("/system/bundles")

var errOwners = errors.New("data.system.bundles is OPA's own, and is not written through its API")

// byAPI tells whether a change came through OPA's REST API: OPA brings metrics
// along for it, and no compiler.
func byAPI(params *storage.Context) bool {
	return params != nil && params.Metrics() != nil && plugins.GetCompilerOnContext(params) == nil
}

// takesBack tells whether a change is that of OPA's bundles when discovery names
// others, which ends the process if it is refused. OPA brings a compiler along
// for each bundle that it activates, and metrics for each change by its API.
func takesBack(params *storage.Context) bool {
	return params == nil || plugins.GetCompilerOnContext(params) == nil && params.Metrics() == nil
}

// made makes policies of what is in the store.
func (g *gate) made(ctx context.Context, store storage.Store, txn storage.Transaction, params *storage.Context) (*policies, error) {
	modules, err := storedModules(ctx, store, txn)
	if err != nil {
		return nil, err
	}
	masked, err := maskByDefault(ctx, store, txn, params, modules)
	if err != nil {
		return nil, err
	}
	if !ofGate(modules) {
		if g.active.Load() == nil {
			return nil, nil
		}
		return nil, errors.New("it would leave no policy in package gate or below it")
	}
	e, err := evaluator.New(ctx, &evaluator.Options{Store: &evaluator.Stored{Store: store, Txn: txn}, System: g.system})
	if err != nil {
		return nil, err
	}
	if err := e.Probe(ctx); err != nil {
		return nil, err
	}
	p, err := newPolicies(ctx, store, txn, e)
	if err == nil {
		p.masked = masked
	}
	return p, err
}

// ofGate tells whether a module is in package gate or below it.
func ofGate(modules map[string]*ast.Module) bool {
	for _, m := range modules {
		if m.Package.Path.HasPrefix(gateRef) {
			return true
		}
	}
	return false
}

var gateRef = ast.MustParseRef("data.gate")

// storedModules parses the modules of a store.
func storedModules(ctx context.Context, store storage.Store, txn storage.Transaction) (map[string]*ast.Module, error) {
	ids, err := store.ListPolicies(ctx, txn)
	if err != nil {
		return nil, err
	}
	modules := map[string]*ast.Module{}
	for _, id := range ids {
		text, err := store.GetPolicy(ctx, txn, id)
		if err != nil {
			return nil, err
		}
		m, err := ast.ParseModuleWithOpts(id, string(text), ast.ParserOptions{ProcessAnnotation: true})
		if err != nil {
			return nil, err
		}
		if m != nil { // nil for a file of comments alone
			modules[id] = m
		}
	}
	return modules, nil
}
