package analysis

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// networkBuiltins are the built-ins that talk to others.
var networkBuiltins = []string{"http.send", "net.lookup_ip_addr"}

// checkAllowed refuses to allow what is no built-in, or one that needs no
// permission: in both cases somebody believes something that is not so.
func checkAllowed(names []string) error {
	for _, name := range names {
		if isNetwork(name) || isNondeterministic(name) {
			continue
		}
		if ast.BuiltinMap[name] != nil {
			return fmt.Errorf("%s need not be allowed: its result depends on its arguments alone", name)
		}
		var all []string
		for _, b := range ast.Builtins {
			if isNetwork(b.Name) || isNondeterministic(b.Name) {
				all = append(all, b.Name)
			}
		}
		return fmt.Errorf("there is no built-in %q to allow%s", name, didYouMean(name, all))
	}
	return nil
}

func isNetwork(name string) bool { return slices.Contains(networkBuiltins, name) }

func isNondeterministic(name string) bool {
	b := ast.BuiltinMap[name]
	return b != nil && b.IsNondeterministic()
}

// ruleUses tells what depends on what among compiled rules.
type ruleUses struct {
	compiler   *ast.Compiler
	byDecision map[*ast.Rule]string // the rules that a decision depends on, and which decision
	byTests    map[*ast.Rule]bool
	byOthers   map[*ast.Rule]bool // by an invariant, a rule on taint, or another entrypoint
	network    bool               // a decision depends on a built-in of the network
}

func newRuleUses(compiler *ast.Compiler) *ruleUses {
	u := &ruleUses{compiler: compiler, byDecision: map[*ast.Rule]string{}, byTests: map[*ast.Rule]bool{}, byOthers: map[*ast.Rule]bool{}}
	for _, name := range decisionRules {
		u.reach(compiler.GetRulesExact(ast.MustParseRef(name)), func(r *ast.Rule) bool {
			_, seen := u.byDecision[r]
			if !seen {
				u.byDecision[r] = name
			}
			return !seen
		})
	}
	once := func(set map[*ast.Rule]bool) func(*ast.Rule) bool {
		return func(r *ast.Rule) bool {
			seen := set[r]
			set[r] = true
			return !seen
		}
	}
	for file, module := range compiler.Modules {
		if isTestFile(file) {
			u.reach(module.Rules, once(u.byTests))
		}
		for _, a := range module.Annotations {
			if a.Entrypoint {
				u.reach(compiler.GetRulesExact(a.GetTargetPath()), once(u.byOthers))
			}
		}
	}
	for _, name := range []string{"data.gate.invariants.breach", resultRule, steeringRule} {
		u.reach(compiler.GetRulesExact(ast.MustParseRef(name)), once(u.byOthers))
	}
	return u
}

// reach visits rules and what they depend on, as long as visit says that a
// rule is new.
func (u *ruleUses) reach(rules []*ast.Rule, visit func(*ast.Rule) bool) {
	for _, rule := range rules {
		for r := rule; r != nil; r = r.Else {
			if !visit(r) {
				continue
			}
			for dependency := range u.compiler.Graph.Dependencies(r) {
				u.reach([]*ast.Rule{dependency.(*ast.Rule)}, visit)
			}
		}
	}
}

// ruleGroups calls f with the rules of one name, for each name outside of the
// tests, in the order of their first lines.
func ruleGroups(compiler *ast.Compiler, f func(name string, group []*ast.Rule)) {
	groups := map[string][]*ast.Rule{}
	var order []string
	for _, file := range slices.Sorted(maps.Keys(compiler.Modules)) {
		if isTestFile(file) {
			continue
		}
		for _, rule := range compiler.Modules[file].Rules {
			name := rule.Ref().GroundPrefix().String()
			if groups[name] == nil {
				order = append(order, name)
			}
			groups[name] = append(groups[name], rule)
		}
	}
	for _, name := range order {
		f(name, groups[name])
	}
}

// checkUnused finds the rules that no decision depends on.
func (c *checker) checkUnused(compiler *ast.Compiler, uses *ruleUses) {
	ruleGroups(compiler, func(name string, group []*ast.Rule) {
		used := slices.ContainsFunc(group, func(r *ast.Rule) bool { return uses.byDecision[r] != "" || uses.byOthers[r] })
		switch {
		case used, isKept(group):
		case slices.ContainsFunc(group, func(r *ast.Rule) bool { return uses.byTests[r] }):
			c.add(group[0].Location, SeverityWarning, CodeUnusedRule, "only tests use %s: no decision, invariant or entrypoint depends on it", name)
		default:
			c.add(group[0].Location, SeverityWarning, CodeUnusedRule, "nothing uses %s: no decision, invariant, entrypoint or test depends on it", name)
		}
	})
}

// isKept reports whether the METADATA of a rule says that it is there for others:
// a member "unused: true" of its custom part.
func isKept(group []*ast.Rule) bool {
	for _, rule := range group {
		for _, a := range rule.Module.Annotations {
			if kept, _ := a.Custom["unused"].(bool); kept && a.GetTargetPath().Equal(rule.Ref().GroundPrefix()) {
				return true
			}
		}
	}
	return false
}

// eachExpression calls f with every expression of a rule that was compiled,
// those within comprehensions and with every among them.
func eachExpression(rule *ast.Rule, f func(*ast.Expr)) {
	for r := rule; r != nil; r = r.Else {
		ast.WalkExprs(r.Head, func(x *ast.Expr) bool { f(x); return false })
		ast.WalkExprs(r.Body, func(x *ast.Expr) bool { f(x); return false })
	}
}

// checkBuiltins finds calls of built-ins that no decision, or no rule at all, may
// depend on.
func (c *checker) checkBuiltins(uses *ruleUses) {
	for _, module := range uses.compiler.Modules {
		for _, rule := range module.Rules {
			decision := ""
			for r := rule; r != nil && decision == ""; r = r.Else {
				decision = uses.byDecision[r]
			}
			eachExpression(rule, func(x *ast.Expr) {
				if !x.IsCall() {
					return
				}
				name := x.Operator().String()
				if isNetwork(name) && decision != "" {
					uses.network = true
				}
				at := x.Operator()[0].Location // of the name; the expression's may be that of an assignment
				if at == nil || at.File == "" {
					at = x.Location
				}
				switch {
				case slices.Contains(c.allow, name):
				case isNetwork(name):
					c.add(at, SeverityError, CodeNetwork,
						"%s talks to others: whoever answers it takes part in the decision, and can hold it up; give what it needs as data, or allow %s", name, name)
				case isNondeterministic(name) && decision != "":
					c.add(at, SeverityError, CodeNondeterministic,
						"%s can answer differently each time, and %s depends on it: a decision depends on its input and on data alone; or allow %s",
						name, decision, name)
				}
			})
		}
	}
}

// checkDataPaths finds paths into data that neither rules nor data define.
// In tests, what a with puts in the place of data counts as defined.
func (c *checker) checkDataPaths(compiler *compilation) {
	for file, module := range compiler.Modules {
		var replaced []ast.Ref
		if isTestFile(file) {
			ast.NewGenericVisitor(func(x any) bool {
				if w, ok := x.(*ast.With); ok {
					if ref, ok := w.Target.Value.(ast.Ref); ok {
						replaced = append(replaced, ref)
					}
				}
				return false
			}).Walk(module)
		}
		for _, rule := range module.Rules {
			eachDataRef(rule, func(ref ast.Ref, at *ast.Location) {
				if slices.ContainsFunc(replaced, func(r ast.Ref) bool { return ref.HasPrefix(r) || r.HasPrefix(ref) }) {
					return
				}
				if n, candidates, ok := c.defined(compiler.Compiler, ref); !ok && !c.leftOut(compiler, ref) && !c.decides(ref[:n+1]) {
					name, _ := ref[n].Value.(ast.String)
					c.add(at, SeverityError, CodeUnknownData, "neither rules nor data define %s%s", ref[:n+1], didYouMean(string(name), candidates))
				}
			})
		}
	}
}

// decides reports whether a path leads to a rule that decides, or to its package, which
// was found not to be there.
func (c *checker) decides(ref ast.Ref) bool {
	return slices.ContainsFunc(c.missing, func(rule string) bool { return ast.MustParseRef(rule).HasPrefix(ref) })
}

// leftOut reports whether ref leads to what could not be compiled, or not be read.
func (c *checker) leftOut(compiler *compilation, ref ast.Ref) bool {
	if compiler.whole {
		return false
	}
	if slices.ContainsFunc(c.files, func(f *checkFile) bool { return f.rego() && f.module == nil }) {
		return true
	}
	for n := range ref {
		if compiler.removed[ref[:n+1].String()] {
			return true
		}
	}
	return false
}

// eachDataRef calls f with every path into data in a rule, and where it stands.
// The compiler gives paths that it has resolved the place of their package, so
// the place is that of the smallest expression around.
func eachDataRef(rule *ast.Rule, f func(ast.Ref, *ast.Location)) {
	at := rule.Location
	var visitor *ast.GenericVisitor
	visitor = ast.NewGenericVisitor(func(x any) bool {
		switch x := x.(type) {
		case *ast.Expr:
			at = x.Location
		case *ast.With: // its target is what it defines
			visitor.Walk(x.Value)
			return true
		case ast.Ref:
			if x.HasPrefix(ast.DefaultRootRef) {
				f(x.GroundPrefix(), at)
			}
		}
		return false
	})
	for r := rule; r != nil; r = r.Else {
		visitor.Walk(r.Head)
		visitor.Walk(r.Body)
	}
}

// defined tells whether ref leads somewhere. If it does not, n is the first
// element that does not, and candidates is what could stand there.
func (c *checker) defined(compiler *ast.Compiler, ref ast.Ref) (n int, candidates []string, ok bool) {
	rules := compiler.RuleTree.Child(ref[0].Value)
	var data any = c.data
	for n = 1; n < len(ref); n++ {
		if rules != nil && len(rules.Values) > 0 {
			return 0, nil, true // within the value of a rule; the compiler knows its type
		}
		object, isObject := data.(map[string]any)
		if !isObject && rules == nil {
			return 0, nil, true // within a list or a scalar
		}
		name, isName := ref[n].Value.(ast.String)
		if !isName {
			return 0, nil, true
		}
		var next any
		inData := false
		if isObject {
			next, inData = object[string(name)]
		}
		if rules != nil {
			for key, child := range rules.Children {
				if text, ok := key.(ast.String); ok && !child.Hide {
					candidates = append(candidates, string(text))
				}
			}
			rules = rules.Child(ref[n].Value)
		}
		if rules == nil && !inData {
			candidates = slices.AppendSeq(candidates, maps.Keys(object))
			candidates = slices.DeleteFunc(candidates, func(s string) bool { return strings.HasSuffix(s, "_test") })
			slices.Sort(candidates)
			return n, slices.Compact(candidates), false
		}
		data, candidates = nil, nil
		if inData {
			data = next
		}
	}
	return 0, nil, true
}
