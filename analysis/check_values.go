package analysis

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/policies"
	"github.com/opa-gate/opa-gate/wire"
)

// A valueSet is the texts that something can be.
type valueSet struct {
	of         string // the path that they are the values of
	texts      []string
	textsAlone bool // there is no value that is no text
}

// schemaValues returns, for each path into the input whose schema lists its
// values, the texts among them.
func schemaValues() map[string]valueSet {
	values := map[string]valueSet{}
	var walk func(at string, schema map[string]any)
	walk = func(at string, schema map[string]any) {
		if list, ok := schema["enum"].([]any); ok {
			set := valueSet{of: at, textsAlone: true}
			for _, v := range list {
				text, ok := v.(string)
				if ok {
					set.texts = append(set.texts, text)
				}
				set.textsAlone = set.textsAlone && ok
			}
			values[at] = set
		}
		members, _ := schema["properties"].(map[string]any)
		for name, member := range members {
			if member, ok := member.(map[string]any); ok {
				walk(at+"."+name, member)
			}
		}
	}
	for _, name := range []string{"call.json", "skill.json", "invariant.json"} {
		text, err := policies.Schema(name)
		var schema map[string]any
		if err == nil {
			err = json.Unmarshal(text, &schema)
		}
		if err != nil {
			panic(err) // it is a part of the program, and was compiled before
		}
		walk("input", schema)
	}
	return values
}

// A valueChecker follows the values of compiled rules.
type valueChecker struct {
	*checker
	compiler *ast.Compiler
	inputs   map[string]valueSet
	rules    map[string]*valueSet // by rule; nil: unknown, or being looked at
}

// checkValues finds texts that are compared with what can never be them, and
// texts that are nearly a name of the taxonomy.
func (c *checker) checkValues(compiler *compilation) {
	v := &valueChecker{c, compiler.Compiler, schemaValues(), map[string]*valueSet{}}
	for name := range compiler.removed {
		v.rules[name] = nil // it can be more than what is left of it says
	}
	for file, module := range compiler.Modules {
		if isTestFile(file) {
			continue
		}
		for _, rule := range module.Rules {
			for r := rule; r != nil; r = r.Else {
				v.body(r.Body)
				v.names(r)
			}
		}
	}
}

// body looks at the expressions of one body, and of those within it.
func (v *valueChecker) body(body ast.Body) {
	locals := localsOf(body)
	for _, x := range body {
		if x.IsCall() || x.IsEquality() {
			v.expression(x, locals)
		}
		ast.WalkRefs(x, func(ref ast.Ref) bool {
			v.lookup(ref, locals, x.Location)
			return false
		})
		ast.WalkClosures(x, func(closure any) bool {
			switch closure := closure.(type) {
			case *ast.ArrayComprehension:
				v.inner(closure.Body, locals)
			case *ast.SetComprehension:
				v.inner(closure.Body, locals)
			case *ast.ObjectComprehension:
				v.inner(closure.Body, locals)
			case *ast.Every:
				v.inner(closure.Body, locals)
			}
			return true
		})
	}
}

// inner looks at a body within another one, whose variables it shares.
func (v *valueChecker) inner(body ast.Body, outer map[ast.Var]*ast.Term) {
	known := body.Copy()
	for name, term := range outer {
		known = append(known, ast.Equality.Expr(ast.NewTerm(name), term))
	}
	locals := localsOf(known)
	for _, x := range body {
		if x.IsCall() || x.IsEquality() {
			v.expression(x, locals)
		}
	}
}

// localsOf returns what the variables of a body stand for, where one expression
// says so.
func localsOf(body ast.Body) map[ast.Var]*ast.Term {
	locals := map[ast.Var]*ast.Term{}
	for _, x := range body {
		if !x.IsEquality() || x.Negated {
			continue
		}
		a, b := x.Operand(0), x.Operand(1)
		if name, ok := a.Value.(ast.Var); ok {
			locals[name] = b
		} else if name, ok := b.Value.(ast.Var); ok {
			locals[name] = a
		}
	}
	return locals
}

// expression looks at a comparison or a membership.
func (v *valueChecker) expression(x *ast.Expr, locals map[ast.Var]*ast.Term) {
	operands := x.Operands()
	if len(operands) < 2 {
		return
	}
	a, b := operands[0], operands[1]
	switch x.Operator().String() {
	case ast.Equality.Name, ast.Equal.Name, ast.NotEqual.Name:
		v.compare(a, b, locals, x.Location)
		v.compare(b, a, locals, x.Location)
	case ast.Member.Name:
		if base, ok := resolved(b, locals).Value.(ast.Ref); ok && base.String() == "input.grant.base" {
			v.granted(resolved(a, locals), x.Location)
			return
		}
		set := v.values(a, locals)
		if set == nil {
			return
		}
		for _, member := range v.members(b, locals) {
			v.compareWith(set, member, x.Location)
		}
	}
}

// granted warns of a name that is looked for in a grant and grants nothing. It can
// well be there: a grant may hold any text.
func (v *valueChecker) granted(text *ast.Term, at *ast.Location) {
	s, ok := text.Value.(ast.String)
	if !ok || slices.Contains(grantableNames(), string(s)) {
		return
	}
	what := "no capability"
	if slices.ContainsFunc(capability.Taxonomy(), func(d capability.Definition) bool { return d.Name == string(s) }) {
		what = "a capability that nobody can be granted beforehand"
	}
	v.add(at, SeverityWarning, CodeUnknownValue, "%q is %s: a document may have it in input.grant.base, where it grants nothing%s",
		string(s), what, didYouMean(string(s), grantableNames()))
}

func grantableNames() []string { return capability.All.CoverageNames() }

// compare reports a text that the other side can never be.
func (v *valueChecker) compare(side, text *ast.Term, locals map[ast.Var]*ast.Term, at *ast.Location) {
	if set := v.values(side, locals); set != nil {
		v.compareWith(set, text, at)
	}
}

func (v *valueChecker) compareWith(set *valueSet, text *ast.Term, at *ast.Location) {
	switch s := text.Value.(type) {
	case ast.String:
		if !slices.Contains(set.texts, string(s)) {
			v.add(at, SeverityError, CodeUnknownValue, "%s is never %q%s", set.of, string(s), didYouMean(string(s), set.texts))
		}
	case ast.Null:
		severity := SeverityWarning // a stock OPA that is given such a document sees it as it is
		if set.textsAlone {
			severity = SeverityError
		}
		if strings.HasPrefix(set.of, "input.") && !strings.HasPrefix(set.of, "input.decision.") {
			v.add(at, severity, CodeUnknownValue,
				"%s is never null where this program decides: null in a document counts as left out, which rules see as not there: not %s", set.of, set.of)
		}
	case ast.Boolean, ast.Number, *ast.Array, ast.Set, ast.Object:
		if set.textsAlone {
			v.add(at, SeverityError, CodeUnknownValue, "%s is never %v%s", set.of, s, didYouMean("", set.texts))
		}
	}
}

// lookup reports the keys of a constant object that what it is asked with can
// never be.
func (v *valueChecker) lookup(ref ast.Ref, locals map[ast.Var]*ast.Term, at *ast.Location) {
	prefix := ref.GroundPrefix()
	if len(prefix) == len(ref) || !ref.HasPrefix(ast.DefaultRootRef) {
		return
	}
	rules := v.compiler.GetRulesExact(prefix)
	if len(rules) != 1 || rules[0].Else != nil {
		return
	}
	object, ok := resolved(rules[0].Head.Value, localsOf(rules[0].Body)).Value.(ast.Object)
	set := v.values(ref[len(prefix)], locals)
	if !ok || set == nil {
		return
	}
	object.Foreach(func(key, _ *ast.Term) {
		if key.Location != nil && key.Location.File != "" {
			at = key.Location
		}
		v.compareWith(set, key, at)
	})
}

// resolved follows a variable.
func resolved(t *ast.Term, locals map[ast.Var]*ast.Term) *ast.Term {
	for range len(locals) + 1 {
		name, ok := t.Value.(ast.Var)
		if !ok || locals[name] == nil {
			break
		}
		t = locals[name]
	}
	return t
}

// values returns the texts that a term can be, or nil if that is not known.
func (v *valueChecker) values(t *ast.Term, locals map[ast.Var]*ast.Term) *valueSet {
	ref, ok := resolved(t, locals).Value.(ast.Ref)
	if !ok || !ref.IsGround() {
		return nil
	}
	if set, ok := v.inputs[ref.String()]; ok {
		return &set
	}
	if !ref.HasPrefix(ast.DefaultRootRef) {
		return nil
	}
	return v.ruleValues(ref)
}

// ruleValues returns the texts that a rule can be: those it is given, and those of
// the paths it passes on.
func (v *valueChecker) ruleValues(ref ast.Ref) *valueSet {
	name := ref.String()
	if set, there := v.rules[name]; there {
		return set
	}
	v.rules[name] = nil
	set := &valueSet{of: name}
	for _, rule := range v.compiler.GetRulesExact(ref) {
		for r := rule; r != nil; r = r.Else {
			if len(r.Head.Args) > 0 || r.Head.RuleKind() != ast.SingleValue || len(r.Head.Ref()) > 1 {
				return nil
			}
			locals := localsOf(r.Body)
			value := resolved(r.Head.Value, locals)
			switch text := value.Value.(type) {
			case ast.String:
				set.texts = append(set.texts, string(text))
			case ast.Null, ast.Boolean, ast.Number:
			default:
				passed := v.values(value, locals)
				if passed == nil {
					return nil
				}
				set.texts = append(set.texts, passed.texts...)
			}
		}
	}
	if len(set.texts) == 0 {
		return nil
	}
	slices.Sort(set.texts)
	set.texts = slices.Compact(set.texts)
	v.rules[name] = set
	return set
}

// members returns what is in a collection that is written down, here or as the
// value of a rule.
func (v *valueChecker) members(t *ast.Term, locals map[ast.Var]*ast.Term) (members []*ast.Term) {
	t = resolved(t, locals)
	if ref, ok := t.Value.(ast.Ref); ok && ref.IsGround() {
		if rules := v.compiler.GetRulesExact(ref); len(rules) == 1 && rules[0].Else == nil && len(rules[0].Head.Args) == 0 {
			t = resolved(rules[0].Head.Value, localsOf(rules[0].Body))
		}
	}
	switch list := t.Value.(type) {
	case ast.Set:
		list.Foreach(func(m *ast.Term) { members = append(members, m) })
	case *ast.Array:
		list.Foreach(func(m *ast.Term) { members = append(members, m) })
	}
	return members
}

// names warns of texts that are nearly the name of a capability or an origin:
// passed to a function, such a text is in no comparison that could be checked.
func (v *valueChecker) names(rule *ast.Rule) {
	const shortest = 8 // shorter names are too near to ordinary words
	known := map[string]bool{}
	for _, d := range capability.Taxonomy() {
		known[d.Name] = true
	}
	for _, set := range v.inputs {
		for _, text := range set.texts {
			known[text] = true
		}
	}
	var long []string
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if len(name) >= shortest && strings.Contains(name, "-") {
			long = append(long, name)
		}
	}
	at := rule.Location
	ast.NewGenericVisitor(func(x any) bool {
		switch x := x.(type) {
		case *ast.Rule:
			return x != rule
		case *ast.Expr:
			at = x.Location
		case ast.Ref:
			return x.HasPrefix(ast.DefaultRootRef) // a path that leads nowhere is an error of its own
		case *ast.Term:
			text, ok := x.Value.(ast.String)
			if !ok || len(text) < shortest || known[string(text)] || strings.ContainsAny(string(text), " /") {
				return false
			}
			near := wire.Nearest(string(text), long)
			if near == "" || !closeNames(string(text), near) {
				return false
			}
			place := at
			if x.Location != nil && x.Location.File != "" {
				place = x.Location
			}
			v.add(place, SeverityWarning, CodeUnlikelyName, "%q is no capability and no origin; did you mean %q?", string(text), near)
		}
		return false
	}).Walk(rule)
}

// closeNames reports whether two texts differ in one place: behind what they
// begin with alike and before what they end with alike, at most two characters
// of each are left.
func closeNames(a, b string) bool {
	for a != "" && b != "" && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for a != "" && b != "" && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return len(a) <= 2 && len(b) <= 2
}
