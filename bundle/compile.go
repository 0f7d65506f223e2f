package bundle

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/bundle"
	"github.com/open-policy-agent/opa/v1/compile"
	"github.com/open-policy-agent/opa/v1/format"
	"github.com/open-policy-agent/opa/v1/storage"

	"github.com/opa-gate/opa-gate/evaluator"
)

// entrypointsOf returns the entrypoints of policies: the gate's own, and those
// that a METADATA block marks.
func entrypointsOf(b *bundle.Bundle) ([]string, error) {
	all := Entrypoints()
	for name := range annotated(b) {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	for _, name := range all {
		if strings.Count(name, "/") == 0 {
			return nil, fmt.Errorf("the package %s is marked as an entrypoint: mark rules, or packages below it", name)
		}
	}
	return all, nil
}

// annotated returns what METADATA blocks mark as entrypoints, with their titles.
func annotated(b *bundle.Bundle) map[string]string {
	titles := map[string]string{}
	for _, m := range b.Modules {
		for _, a := range m.Parsed.Annotations {
			if !a.Entrypoint {
				continue
			}
			if p, err := storage.NewPathForRef(a.GetTargetPath()); err == nil {
				titles[strings.TrimPrefix(p.String(), "/")] = a.Title
			}
		}
	}
	return titles
}

// compiled has OPA compile a bundle for the target.
func compiled(ctx context.Context, b *bundle.Bundle, entrypoints []string, opts *BuildOptions) (*bundle.Bundle, error) {
	roots, titles := *b.Manifest.Roots, annotated(b)
	if opts.Optimize > 0 {
		for i, name := range entrypoints {
			var err error
			if b, err = optimized(ctx, b, i, name, opts.Optimize); err != nil {
				return nil, fmt.Errorf("optimize %s: %w", name, err)
			}
		}
		b.Manifest.Roots = &roots
		if err := tidy(b); err != nil {
			return nil, err
		}
		if err := annotate(b, titles); err != nil {
			return nil, err
		}
	}
	c := compile.New().WithBundle(b).WithTarget(opts.Target.String()).WithEntrypoints(entrypoints...).WithRegoVersion(ast.RegoV1)
	if err := build(ctx, c); err != nil {
		return nil, fmt.Errorf("build for the target %v: %w", opts.Target, err)
	}
	b = c.Bundle()
	if opts.Target == TargetWasm { // OPA takes the entrypoints out of the Rego
		if err := tidy(b); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func build(ctx context.Context, c *compile.Compiler) (err error) {
	evaluator.WhileCompiling(func() { err = c.Build(ctx) })
	return err
}

// optimized has OPA work out beforehand what can be known of an entrypoint. Its
// optimizer gives the rules that it makes up names that are unique within one
// entrypoint only, and a root of their own, which every optimized bundle would
// claim. So each entrypoint is optimized by itself, and its rules are moved below
// the package gate.
func optimized(ctx context.Context, b *bundle.Bundle, n int, entrypoint string, level int) (*bundle.Bundle, error) {
	known := knownAt(b)
	b.Manifest.Roots = &known
	own := "optimized_" + strconv.Itoa(n) + "__"
	c := compile.New().WithBundle(b).WithEntrypoints(entrypoint).WithOptimizationLevel(level).
		WithPartialNamespace(own).WithRegoVersion(ast.RegoV1)
	if err := build(ctx, c); err != nil {
		return nil, err
	}
	b = c.Bundle()
	from := ast.DefaultRootRef.Append(ast.StringTerm(own))
	to := ast.DefaultRootRef.Append(ast.StringTerm("gate")).Append(ast.StringTerm("optimized_" + strconv.Itoa(n)))
	for i := range b.Modules {
		m := &b.Modules[i]
		moved, err := ast.TransformRefs(m.Parsed, func(r ast.Ref) (ast.Value, error) {
			if r.HasPrefix(from) {
				return to.Concat(r[len(from):]), nil
			}
			return r, nil
		})
		if err != nil {
			return nil, err
		}
		m.Parsed = moved.(*ast.Module)
		m.URL = strings.Replace(m.URL, "optimized/", "optimized_"+strconv.Itoa(n)+"/", 1)
		m.Path, m.Raw = m.URL, nil
	}
	return b, formatted(b)
}

// keptOpen are the data that the optimizer must not work into the rules. Each
// name of a mask stands in a table of all masks, and going through it for every
// mask that an answer has never ends. Settings can be given anew to whoever loads
// the bundle.
var keptOpen = []string{"gate/facts/names", "gate/settings"}

// knownAt returns the paths of packages and data that the optimizer may take
// for known: everything but what is kept open.
func knownAt(b *bundle.Bundle) []string {
	known := map[string]bool{}
	for _, m := range b.Modules {
		if p, err := storage.NewPathForRef(m.Parsed.Package.Path); err == nil {
			known[strings.TrimPrefix(p.String(), "/")] = true
		}
	}
	var walk func(at string, value any)
	walk = func(at string, value any) {
		inside := slices.ContainsFunc(keptOpen, func(open string) bool { return strings.HasPrefix(open, at+"/") })
		object, ok := value.(map[string]any)
		switch {
		case slices.Contains(keptOpen, at):
		case inside && ok:
			for name, member := range object {
				walk(at+"/"+name, member)
			}
		default:
			known[at] = true
		}
	}
	for name, value := range b.Data {
		walk(name, value)
	}
	return slices.Sorted(maps.Keys(known))
}

// formatted writes the text of every module anew, and reads it again, so that
// every place in it is right.
func formatted(b *bundle.Bundle) error {
	for i := range b.Modules {
		m := &b.Modules[i]
		text := m.Raw
		if text == nil {
			var err error
			if text, err = format.AstWithOpts(m.Parsed, format.Opts{RegoVersion: ast.RegoV1}); err != nil {
				return fmt.Errorf("%s: %w", m.URL, err)
			}
		}
		parsed, err := ast.ParseModuleWithOpts(m.URL, string(text), ast.ParserOptions{ProcessAnnotation: true, RegoVersion: ast.RegoV1})
		if err != nil {
			return err
		}
		m.Raw, m.Parsed = text, parsed
	}
	return nil
}

// tidy takes the imports away that no rule needs any more: a strict compiler, and
// [evaluator.New] has one, refuses them.
func tidy(b *bundle.Bundle) error {
	if err := formatted(b); err != nil {
		return err
	}
	for i := range b.Modules {
		m := &b.Modules[i]
		used := map[ast.Var]bool{}
		for _, rule := range m.Parsed.Rules {
			ast.WalkVars(rule, func(v ast.Var) bool {
				used[v] = true
				return false
			})
		}
		kept := slices.DeleteFunc(slices.Clone(m.Parsed.Imports), func(i *ast.Import) bool {
			return !used[i.Name()] && i.Path.Value.(ast.Ref).HasPrefix(ast.DefaultRootRef)
		})
		if len(kept) < len(m.Parsed.Imports) {
			m.Parsed.Imports, m.Raw = kept, nil
		}
	}
	return formatted(b)
}

// annotate marks the entrypoints again whose METADATA the optimizer has dropped.
func annotate(b *bundle.Bundle, titles map[string]string) error {
	there := annotated(b)
	for i := range b.Modules {
		m := &b.Modules[i]
		lines := strings.SplitAfter(string(m.Raw), "\n")
		for _, rule := range slices.Backward(m.Parsed.Rules) { // a line that is added moves those below
			p, err := storage.NewPathForRef(rule.Ref().GroundPrefix())
			if err != nil {
				continue
			}
			name := strings.TrimPrefix(p.String(), "/")
			title, marked := titles[name]
			if _, still := there[name]; !marked || still || first(m.Parsed, rule.Ref()) != rule {
				continue
			}
			block := "# METADATA\n"
			if title != "" {
				block += "# title: " + strconv.Quote(title) + "\n"
			}
			lines = slices.Insert(lines, rule.Location.Row-1, block+"# entrypoint: true\n# scope: document\n")
			there[name] = title
		}
		m.Raw = []byte(strings.Join(lines, ""))
	}
	return formatted(b)
}

// first returns the first rule of a module with that path.
func first(m *ast.Module, path ast.Ref) *ast.Rule {
	for _, rule := range m.Rules {
		if rule.Ref().Equal(path) {
			return rule
		}
	}
	return nil
}
