package server

import (
	"context"
	"errors"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/plugins"
	"github.com/open-policy-agent/opa/v1/storage"

	"github.com/opa-gate/opa-gate/evaluator"
)

// maskPolicy keeps the arguments of calls out of decision logs. It is in force as
// long as the operator defines no data.system.log.mask. OPA's own APIs log what
// is no call at all, and answers of other rules than the entrypoints, so
// arguments are looked for everywhere. A pointer of a mask cannot name every
// member, and none in the result of a query; where it cannot, everything goes.
const (
	maskID     = "opa-gate/default_mask.rego"
	maskPolicy = `# METADATA
# title: What decision logs do not get
# description: |
#   The arguments of calls, which may hold anything that a person or a model wrote.
package system.log

mask contains pointer if {
	some part in ["input", "result"]
	walk(input[part], [path, _])
	lower(path[count(path) - 1]) == "arguments"
	pointer := _pointer(part, path)
}

# What is asked for within the arguments has no name in the result that says so.
mask contains "/result" if {
	some name in split(lower(object.get(input, "path", "")), "/")
	name == "arguments"
}

# A query can put anything anywhere.
mask contains sprintf("/%s", [part]) if {
	input.query
	some part in ["input", "result"]
	input[part]
}

# What is no document has no members to look at.
mask contains "/input" if {
	not is_object(input.input)
	input.input != null
}

_pointer(part, path) := concat("/", array.concat(["", part], [sprintf("%v", [name]) | some name in path])) if {
	not input.query
	every name in path {
		regex.match("^[A-Za-z0-9_-]+$", sprintf("%v", [name]))
	}
} else := concat("", ["/", part])
`
)

var (
	maskRef    = ast.MustParseRef("data.system.log.mask")
	maskPath   = storage.MustParsePath("/system/log/mask")
	maskModule = ast.MustParseModuleWithOpts(maskPolicy, ast.ParserOptions{ProcessAnnotation: true})
)

// maskByDefault puts the default mask into the store, or takes it out, so that
// there is one mask once txn is committed, and tells whether it is the default
// one. Modules are those of the store.
func maskByDefault(ctx context.Context, store storage.Store, txn storage.Transaction, params *storage.Context, modules map[string]*ast.Module) (bool, error) {
	present := modules[maskID] != nil
	if present && !modules[maskID].Equal(maskModule) {
		return false, errors.New(maskID + " is the name of a policy of the gate's; choose another one")
	}
	_, err := store.Read(ctx, txn, maskPath)
	others := err == nil // as a document
	if err != nil && !storage.IsNotFound(err) {
		return false, err
	}
	for id, m := range modules {
		others = others || id != maskID && definesMask(m)
	}
	switch {
	case present && others:
		err = store.DeletePolicy(ctx, txn, maskID)
		delete(modules, maskID)
	case !present && !others:
		err = store.UpsertPolicy(ctx, txn, maskID, []byte(maskPolicy))
		modules[maskID] = maskModule.Copy()
	default:
		return !others, nil
	}
	if err != nil || params == nil || plugins.GetCompilerOnContext(params) == nil { // OPA compiles what is in the store
		return !others, err
	}
	compiler := ast.NewCompiler().WithPathConflictsCheck(storage.NonEmpty(ctx, store, txn))
	evaluator.WhileCompiling(func() { compiler.Compile(modules) })
	if compiler.Failed() {
		return false, compiler.Errors
	}
	plugins.SetCompilerOnContext(params, compiler)
	return !others, nil
}

// definesMask tells whether a module has a rule that is the mask, a part of it,
// or something that the mask is a part of.
func definesMask(m *ast.Module) bool {
	for _, r := range m.Rules {
		path := m.Package.Path.Extend(r.Head.Ref().GroundPrefix())
		if path.HasPrefix(maskRef) || maskRef.HasPrefix(path) {
			return true
		}
	}
	return false
}
