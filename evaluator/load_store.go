package evaluator

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage"
)

// gatePackage is where the rules begin that decide.
const gatePackage = "data.gate"

// load reads what the gate's packages need from the store. The store's own
// documents are never written to.
func (s *Stored) load(ctx context.Context) (*source, error) {
	ids, err := s.Store.ListPolicies(ctx, s.Txn)
	if err != nil {
		return nil, fmt.Errorf("list the policies of the store: %w", err)
	}
	slices.Sort(ids) // the error is that of the first one
	all, sums := map[string]*ast.Module{}, map[string][sha256.Size]byte{}
	for _, id := range ids {
		if strings.HasSuffix(id, "_test.rego") {
			continue
		}
		text, err := s.Store.GetPolicy(ctx, s.Txn, id)
		if err != nil {
			return nil, fmt.Errorf("read policy %s of the store: %w", id, err)
		}
		module, err := ast.ParseModuleWithOpts(id, string(text), ast.ParserOptions{ProcessAnnotation: true})
		if err != nil {
			return nil, compileError(err)
		}
		if module != nil { // nil for a file of comments alone
			all[id], sums[id] = module, sha256.Sum256(text)
		}
	}
	src := &source{modules: reachable(all, gatePackage), sums: sums}
	if len(src.modules) == 0 {
		return nil, errors.New("there is no policy in package gate or below it")
	}
	if src.data, err = s.data(ctx); err != nil {
		return nil, err
	}
	return src, nil
}

// data returns the store's documents but OPA's own, which say nothing to a
// policy on calls and change with each activation. The gate's objects, into
// which facts and settings are put, are copies.
func (s *Stored) data(ctx context.Context) (map[string]any, error) {
	value, err := s.Store.Read(ctx, s.Txn, storage.RootPath)
	switch {
	case storage.IsNotFound(err):
		return map[string]any{}, nil
	case err != nil:
		return nil, fmt.Errorf("read the data of the store: %w", err)
	}
	if term, ok := value.(ast.Value); ok {
		if value, err = ast.JSON(term); err != nil {
			return nil, fmt.Errorf("read the data of the store: %w", err)
		}
	}
	root, ok := value.(map[string]any)
	if !ok {
		return nil, errors.New("the data of the store are not an object")
	}
	data := maps.Clone(root)
	delete(data, "system")
	if gate, ok := data["gate"].(map[string]any); ok {
		gate = maps.Clone(gate)
		data["gate"] = gate
		if settings, ok := gate["settings"].(map[string]any); ok {
			gate["settings"] = maps.Clone(settings)
		}
	}
	return data, nil
}

// reachable returns the modules of packages at and below a path, and those that
// these refer to, one way or another. Whoever goes through all of data does not
// mean OPA's own packages.
func reachable(all map[string]*ast.Module, root string) map[string]*ast.Module {
	taken := map[string]*ast.Module{}
	next := []string{root}
	for len(next) > 0 {
		path := next[0]
		next = next[1:]
		for id, m := range all {
			pkg := m.Package.Path.String()
			if taken[id] != nil || !touches(pkg, path) || path == "data" && touches(pkg, "data.system") {
				continue
			}
			taken[id] = m
			ast.WalkRefs(m, func(r ast.Ref) bool {
				if r.HasPrefix(ast.DefaultRootRef) {
					next = append(next, r.ConstantPrefix().String())
				}
				return false
			})
		}
	}
	return taken
}

// touches tells whether one of two paths lies on the way to the other.
func touches(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	rest, ok := strings.CutPrefix(b, a)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}
