package server

import (
	"context"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/plugins"
	"github.com/open-policy-agent/opa/v1/storage"

	"github.com/opa-gate/opa-gate/evaluator"
)

// maskPolicy keeps the arguments of calls out of decision logs. It is in force as
// long as no policy of the operator's defines data.system.log.mask.
const (
	maskID     = "opa-gate/default_mask.rego"
	maskPolicy = `# METADATA
# title: What decision logs do not get
# description: |
#   The arguments of calls, which may hold anything that a person or a model wrote.
package system.log

mask contains "/input/policy/transform/arguments"

mask contains "/result/arguments"
`
)

var maskRef = ast.MustParseRef("data.system.log.mask")

// maskByDefault puts the default mask into the store, or takes it out, so that
// there is one mask once txn is committed. Modules are those of the store.
func maskByDefault(ctx context.Context, store storage.Store, txn storage.Transaction, params *storage.Context, modules map[string]*ast.Module) error {
	own := modules[maskID] != nil
	others := false
	for id, m := range modules {
		others = others || id != maskID && definesMask(m)
	}
	var err error
	switch {
	case own && others:
		err = store.DeletePolicy(ctx, txn, maskID)
		delete(modules, maskID)
	case !own && !others:
		err = store.UpsertPolicy(ctx, txn, maskID, []byte(maskPolicy))
		modules[maskID] = ast.MustParseModuleWithOpts(maskPolicy, ast.ParserOptions{ProcessAnnotation: true})
	default:
		return nil
	}
	if err != nil || plugins.GetCompilerOnContext(params) == nil { // OPA compiles what is in the store
		return err
	}
	compiler := ast.NewCompiler().WithPathConflictsCheck(storage.NonEmpty(ctx, store, txn))
	evaluator.WhileCompiling(func() { compiler.Compile(modules) })
	if compiler.Failed() {
		return compiler.Errors
	}
	plugins.SetCompilerOnContext(params, compiler)
	return nil
}

func definesMask(m *ast.Module) bool {
	for _, r := range m.Rules {
		path := m.Package.Path.Extend(r.Head.Ref().GroundPrefix())
		if path.HasPrefix(maskRef) {
			return true
		}
	}
	return false
}
