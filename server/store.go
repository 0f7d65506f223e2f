package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/bundle"
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
	writing map[uint64]*storage.Context // of open write transactions
}

func guard(store storage.Store, g *gate) *guardedStore {
	return &guardedStore{Store: store, gate: g, writing: map[uint64]*storage.Context{}}
}

func (s *guardedStore) NewTransaction(ctx context.Context, params ...storage.TransactionParams) (storage.Transaction, error) {
	txn, err := s.Store.NewTransaction(ctx, params...)
	if err == nil && len(params) > 0 && params[0].Write {
		s.mu.Lock()
		s.writing[txn.ID()] = params[0].Context
		s.mu.Unlock()
	}
	return txn, err
}

// Commit commits what the gate accepts. Anything else is aborted.
func (s *guardedStore) Commit(ctx context.Context, txn storage.Transaction) error {
	params, writes := s.take(txn)
	if !writes {
		return s.Store.Commit(ctx, txn)
	}
	next, err := s.gate.look(ctx, s.Store, txn, params)
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

// take forgets a write transaction, and returns the context that it was begun
// with.
func (s *guardedStore) take(txn storage.Transaction) (params *storage.Context, writes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	params, writes = s.writing[txn.ID()]
	delete(s.writing, txn.ID())
	return params, writes
}

// look makes the policies that are in force once txn is committed. There are none
// as long as nothing of the gate has come, and when OPA takes back a bundle that
// they need: that cannot be refused, so what is left decides, or nothing does.
func (g *gate) look(ctx context.Context, store storage.Store, txn storage.Transaction, params *storage.Context) (*policies, error) {
	taken, err := g.takenBack(ctx, store, txn, params)
	if err != nil {
		return nil, err
	}
	next, err := g.made(ctx, store, txn, params)
	if err != nil && taken {
		g.complain("OPA took a bundle back, and what is left does not decide: %v", err)
		return nil, nil
	}
	return next, err
}

// takenBack tells whether OPA takes back a bundle that was in force, as it does
// when discovery no longer names it. It brings no compiler then, which it does
// for each bundle that it activates.
func (g *gate) takenBack(ctx context.Context, store storage.Store, txn storage.Transaction, params *storage.Context) (bool, error) {
	before := g.active.Load()
	if before == nil || params == nil || plugins.GetCompilerOnContext(params) != nil {
		return false, nil
	}
	names, err := bundle.ReadBundleNamesFromStore(ctx, store, txn)
	if err != nil && !storage.IsNotFound(err) {
		return false, err
	}
	for name := range before.bundles {
		if !slices.Contains(names, name) {
			return true, nil
		}
	}
	return false, nil
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
	if err := probe(ctx, e); err != nil {
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

// probes is how many kinds of call new policies are asked about before they are
// in force: whether they answer at all, and in the right shape.
const probes = 24

func probe(ctx context.Context, e *evaluator.Evaluator) error {
	ask := e.Interpreter()
	for i := range probes {
		c := evaluator.CellCall(i * (evaluator.Cells / probes))
		if _, err := ask.Decide(ctx, c); err != nil {
			return fmt.Errorf("a call of tool %q gets no answer: %w", c.Tool, err)
		}
	}
	for _, r := range probeSkills() {
		if _, err := ask.Skill(ctx, &r); err != nil {
			return fmt.Errorf("a request of skill %q gets no answer: %w", r.Skill, err)
		}
	}
	return nil
}
