package analysis

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/opa-gate/opa-gate/evaluator"
)

// A compilation is what could be compiled of the policies.
type compilation struct {
	*ast.Compiler
	whole   bool            // nothing was left out
	removed map[string]bool // the rules of which a part was left out
}

// checkCompile compiles rules and tests as the evaluator does, and returns what
// could be compiled; nil is nothing.
//
// OPA's compiler works in stages and stops behind the first that finds
// something. So that one run tells everything, the rules and imports that are
// wrong are taken out, and the rest is compiled again.
func (c *checker) checkCompile() (*compilation, error) {
	whole := !slices.ContainsFunc(c.files, func(f *checkFile) bool { return f.rego() && f.module == nil })
	modules := c.modules()
	names := c.declared(modules)
	done := &compilation{whole: whole, removed: map[string]bool{}}
	for round := 0; ; round++ {
		compiler, err := evaluator.NewCompiler()
		if err != nil {
			return nil, err
		}
		compiler.SetErrorLimit(0)
		evaluator.WhileCompiling(func() { compiler.Compile(modules) })
		if !compiler.Failed() {
			done.Compiler = compiler
			return done, nil
		}
		for _, e := range compiler.Errors {
			if !done.isConsequence(e) {
				c.addCompileError(e, names)
			}
		}
		next, removed := without(modules, compiler.Errors)
		if len(removed) == 0 {
			return nil, nil
		}
		for _, name := range removed {
			done.removed[name] = true
		}
		modules, done.whole = next, false
	}
}

// isConsequence reports whether an error can come of what was left out. Some that
// do not are taken for such, and are told once the others are mended.
func (d *compilation) isConsequence(e *ast.Error) bool {
	switch {
	case d.whole:
		return false
	case strings.Contains(e.Message, "undefined function data."), strings.Contains(e.Message, "undefined ref: data."):
		return true
	case len(d.removed) == 0:
		return false
	}
	name, _ := between(e.Message, "var ", " is unsafe")
	for removed := range d.removed {
		if strings.HasSuffix(removed, "."+name) {
			return true
		}
	}
	return strings.Contains(e.Message, "unused") || strings.Contains(e.Message, "match error")
}

// without returns the modules without the rules and imports in which the
// errors are, and the names of these.
func without(modules map[string]*ast.Module, errs ast.Errors) (next map[string]*ast.Module, removed []string) {
	next = maps.Clone(modules)
	for _, e := range errs {
		if e.Location == nil {
			continue
		}
		old := next[e.Location.File]
		if old == nil {
			continue
		}
		m := *old
		row := e.Location.Row
		m.Imports = slices.DeleteFunc(slices.Clone(m.Imports), func(i *ast.Import) bool {
			if i.Location.Row == row {
				removed = append(removed, i.String())
			}
			return i.Location.Row == row
		})
		last := -1 // the rule that the line belongs to is the last that begins before it
		for i, rule := range m.Rules {
			if rule.Location.Row <= row {
				last = i
			}
		}
		if last >= 0 && len(m.Imports) == len(old.Imports) {
			begin := m.Rules[last].Location.Row
			m.Rules = slices.DeleteFunc(slices.Clone(m.Rules), func(r *ast.Rule) bool {
				if r.Location.Row == begin {
					removed = append(removed, m.Package.Path.Extend(r.Head.Ref().GroundPrefix()).String())
				}
				return r.Location.Row == begin
			})
		}
		next[e.Location.File] = &m
	}
	return next, removed
}

// declared lists what a file may call: its imports, its package's rules, and
// the functions of all packages by their whole names.
type declared struct {
	byFile    map[string][]string
	functions []string
}

func (c *checker) declared(modules map[string]*ast.Module) *declared {
	d := &declared{byFile: map[string][]string{}}
	byPackage := map[string][]string{}
	for _, m := range modules {
		pkg := m.Package.Path.String()
		for _, rule := range m.Rules {
			byPackage[pkg] = append(byPackage[pkg], rule.Head.Name.String())
			if len(rule.Head.Args) > 0 {
				d.functions = append(d.functions, pkg+"."+rule.Head.Name.String())
			}
		}
	}
	for name, m := range modules {
		for _, i := range m.Imports {
			d.byFile[name] = append(d.byFile[name], i.Name().String())
		}
		d.byFile[name] = append(d.byFile[name], byPackage[m.Package.Path.String()]...)
	}
	for _, b := range ast.Builtins {
		if b.Infix == "" && !strings.HasPrefix(b.Name, "internal.") {
			d.functions = append(d.functions, b.Name)
		}
	}
	slices.Sort(d.functions)
	return d
}

// addCompileError reports one error of the compiler.
func (c *checker) addCompileError(e *ast.Error, names *declared) {
	at := e.Location
	if at == nil {
		at = c.files[0].start()
	}
	text := evaluator.Describe(e)
	code := CodeCompile
	switch e.Code {
	case ast.UnsafeVarErr:
		code = CodeUnsafeVariable
		if name, ok := between(text, "var ", " is unsafe"); ok {
			text = fmt.Sprintf("nothing gives %s a value", name)
			if near := didYouMean(name, names.byFile[at.File]); strings.HasPrefix(near, ";") {
				text += near
			}
		}
	case ast.RecursionErr:
		code = CodeRecursion
	case ast.TypeErr:
		code = CodeType
		if detail, ok := e.Details.(*ast.RefErrInvalidDetail); ok {
			code = CodeUnknownData
			if detail.Ref.HasPrefix(ast.InputRootRef) {
				code = CodeUnknownInput
			}
			if len(detail.OneOf) > 0 && detail.Pos < len(detail.Ref) {
				text = fmt.Sprintf("there is no %s%s", detail.Ref[:detail.Pos+1], meantElement(detail))
			}
		}
		if _, name, ok := strings.Cut(text, "undefined function "); ok {
			code = CodeUnknownFunction
			text = "there is no function " + name
			if near := didYouMean(name, names.functions); strings.HasPrefix(near, ";") {
				text += near
			}
		}
	}
	c.add(at, SeverityError, code, "%s", text)
}

// meantElement is what could stand where a path leads nowhere.
func meantElement(detail *ast.RefErrInvalidDetail) string {
	var names []string
	for _, v := range detail.OneOf {
		if name, ok := v.(ast.String); ok {
			names = append(names, string(name))
		}
	}
	wrong, _ := detail.Ref[detail.Pos].Value.(ast.String)
	return didYouMean(string(wrong), names)
}

// between returns what stands between two parts of a text that has nothing else.
func between(text, before, after string) (string, bool) {
	rest, ok := strings.CutPrefix(text, before)
	if !ok {
		return "", false
	}
	return strings.CutSuffix(rest, after)
}

// meantPackage is what may have been meant by a package that is not there.
func meantPackage(pkg ast.Ref, files []*checkFile) string {
	var others []string
	for _, f := range files {
		if f.module != nil && !isTestFile(f.name) {
			others = append(others, strings.TrimPrefix(f.module.Package.Path.String(), "data."))
		}
	}
	near := didYouMean(strings.TrimPrefix(pkg.String(), "data."), others)
	if !strings.HasPrefix(near, ";") {
		return ""
	}
	return near
}

// checkEntrypoints looks for the two rules that decide, as they are written.
func (c *checker) checkEntrypoints() {
	for _, name := range decisionRules {
		ref := ast.MustParseRef(name)
		pkg, rule := ref[:len(ref)-1], string(ref[len(ref)-1].Value.(ast.String))
		var place *ast.Location
		var first *ast.Rule
		var others []string
		marked, broken := false, false
		for _, f := range c.files {
			broken = broken || f.rego() && f.module == nil
			if f.module == nil || isTestFile(f.name) || !f.module.Package.Path.Equal(pkg) {
				continue
			}
			if place == nil {
				place = f.module.Package.Location
			}
			for _, r := range f.module.Rules {
				if r.Head.Name.String() == rule && first == nil {
					first = r
				}
				others = append(others, r.Head.Name.String())
			}
			for _, a := range f.module.Annotations {
				marked = marked || a.Entrypoint && a.GetTargetPath().Equal(ref)
			}
		}
		if first == nil {
			c.missing = append(c.missing, name)
		}
		switch {
		case first == nil && broken: // it may stand in the file that is not Rego
		case first == nil && place == nil:
			c.add(c.files[0].start(), SeverityError, CodeNoEntrypoint, "no file has the package %s, so nothing is decided by %s%s",
				strings.TrimPrefix(pkg.String(), "data."), name, meantPackage(pkg, c.files))
		case first == nil:
			near := didYouMean(rule, others)
			if !strings.HasPrefix(near, ";") {
				near = ""
			}
			c.add(place, SeverityError, CodeNoEntrypoint, "this package has no rule %s, which decides%s", rule, near)
		case !marked:
			c.add(first.Location, SeverityWarning, CodeEntrypointMark,
				"its METADATA does not say \"entrypoint: true\", so that opa build leaves %s out of a plan unless it is named there", name)
		}
	}
}
