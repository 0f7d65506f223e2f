package analysis

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage"

	"github.com/opa-gate/opa-gate/evaluator"
)

// There is no end of arguments, and no table looks into them. What rules hold
// against a member of them is read off the rules here, so that calls can be tried
// which have it there.

// argumentRoots are where the arguments of a rewritten call are seen: by rules that decide, and
// by the author's invariants.
var argumentRoots = []ast.Ref{
	ast.MustParseRef("input.policy.transform.arguments"),
	ast.MustParseRef("input.call.policy.transform.arguments"),
	ast.MustParseRef("input.decision.arguments"),
}

// anyElement stands in a path for whatever element a rule goes through.
const anyElement = -1

// An argumentPath leads into arguments: a string is a member, an int an element.
type argumentPath []any

// An argumentUse is what rules hold against what stands at a path.
type argumentUse struct {
	path    argumentPath
	values  []any // as rules name them
	besides []any // made of these: what an order, a pattern or a part of a text tells from them
}

// argumentUses are those of one rule.
type argumentUses map[string]*argumentUse

// add notes that something stands at a path, and is held against values.
func (u argumentUses) add(path argumentPath, values, besides []any) {
	key := string(encode(path))
	use := u[key]
	if use == nil {
		use = &argumentUse{path: path}
		u[key] = use
	}
	use.values = appendNew(use.values, values)
	use.besides = appendNew(use.besides, besides)
}

func appendNew(list, more []any) []any {
	for _, v := range more {
		text := string(encode(v))
		if !slices.ContainsFunc(list, func(known any) bool { return string(encode(known)) == text }) {
			list = append(list, v)
		}
	}
	return list
}

// A held is what a term of a rule can be: something that the input leads to, or
// made of it, and constants.
type held struct {
	from      []heldFrom
	constants []ast.Value
}

type heldFrom struct {
	ref   ast.Ref
	count bool // its length
	key   bool // the name of one of its members
}

func (h held) with(other held) held {
	return held{append(slices.Clip(h.from), other.from...), append(slices.Clip(h.constants), other.constants...)}
}

// An argumentReader follows arguments through rules.
type argumentReader struct {
	compiler *ast.Compiler
	data     any
	uses     argumentUses // of the rule that is being read, and the functions that it calls
	depth    int
}

// readArguments returns what the rules that decide calls, and the author's invariants,
// hold against members of arguments, a list for each rule.
func readArguments(ctx context.Context, e *evaluator.Evaluator) ([]argumentUses, error) {
	compiler, store := e.Policies()
	data, err := storage.ReadOne(ctx, store, storage.RootPath)
	if err != nil {
		return nil, err
	}
	if value, ok := data.(ast.Value); ok {
		if data, err = ast.JSON(value); err != nil {
			return nil, err
		}
	}
	uses := &ruleUses{compiler: compiler}
	seen := map[*ast.Rule]bool{}
	var rules []*ast.Rule
	for _, name := range []string{decisionRules[0], invariantsRule} {
		uses.reach(compiler.GetRulesExact(ast.MustParseRef(name)), func(r *ast.Rule) bool {
			if seen[r] {
				return false
			}
			seen[r] = true
			rules = append(rules, r)
			return true
		})
	}
	slices.SortFunc(rules, func(a, b *ast.Rule) int {
		return cmp.Or(cmp.Compare(a.Location.File, b.Location.File), cmp.Compare(a.Location.Row, b.Location.Row), cmp.Compare(a.Location.Col, b.Location.Col))
	})
	var all []argumentUses
	for _, rule := range rules {
		r := &argumentReader{compiler: compiler, data: data, uses: argumentUses{}}
		r.rule(rule, nil)
		if len(r.uses) > 0 {
			all = append(all, r.uses)
		}
	}
	return all, nil
}

// maxHeldDepth bounds how far a value is followed through rules.
const maxHeldDepth = 16

// rule reads one rule, given the arguments of a function, and returns its value.
func (r *argumentReader) rule(rule *ast.Rule, args []held) held {
	if r.depth >= maxHeldDepth {
		return held{}
	}
	r.depth++
	defer func() { r.depth-- }()
	env := map[ast.Var]held{}
	for i, arg := range rule.Head.Args {
		if i < len(args) {
			r.bind(env, arg, args[i])
		}
	}
	r.body(env, rule.Body)
	value := held{}
	for _, part := range []*ast.Term{rule.Head.Key, rule.Head.Value} {
		if part != nil {
			value = value.with(r.term(env, part))
		}
	}
	return value
}

func (r *argumentReader) body(env map[ast.Var]held, body ast.Body) {
	for _, x := range body {
		r.expr(env, x)
	}
}

// bind gives the variables of a pattern a value; what is none is held against it.
func (r *argumentReader) bind(env map[ast.Var]held, pattern *ast.Term, value held) {
	switch p := pattern.Value.(type) {
	case ast.Var:
		env[p] = env[p].with(value)
	case *ast.Array:
		p.Foreach(func(t *ast.Term) { r.bind(env, t, value) })
	case ast.Object:
		p.Foreach(func(_, t *ast.Term) { r.bind(env, t, value) })
	default:
		r.compare(value, r.term(env, pattern), false)
	}
}

func (r *argumentReader) expr(env map[ast.Var]held, x *ast.Expr) {
	switch terms := x.Terms.(type) {
	case *ast.Term:
		r.compare(r.term(env, terms), held{}, false)
	case *ast.Every:
		domain := r.element(r.term(env, terms.Domain))
		r.bind(env, terms.Value, domain)
		r.body(env, terms.Body)
	case []*ast.Term:
		r.call(env, terms)
	}
}

// element is what goes through the elements of a value.
func (r *argumentReader) element(h held) held {
	out := held{constants: h.constants}
	for _, f := range h.from {
		out.from = append(out.from, heldFrom{ref: f.ref.Append(ast.VarTerm("_"))})
	}
	return out
}

// call reads one operation.
func (r *argumentReader) call(env map[ast.Var]held, terms []*ast.Term) {
	name, operands := terms[0].Value.String(), terms[1:]
	values := make([]held, len(operands))
	for i, o := range operands {
		values[i] = r.term(env, o)
	}
	switch name {
	case ast.Equality.Name, ast.Assign.Name:
		r.compare(values[0], values[1], false)
		r.compare(values[1], values[0], false)
		for i, o := range operands[:2] {
			if len(values[i].from)+len(values[i].constants) == 0 {
				r.bind(env, o, values[1-i])
			}
		}
		return
	case ast.Member.Name, ast.MemberWithKey.Name:
		collection := values[len(values)-1]
		if name == ast.Member.Name && len(operands) > 2 { // with the result behind
			collection = values[1]
		}
		r.compare(values[0], collection, false)
		r.compare(collection, values[0], true)
		return
	}
	arity, rules := len(operands), r.compiler.GetRulesExact(refOf(terms[0]))
	switch b := ast.BuiltinMap[name]; {
	case len(rules) > 0:
		arity = len(rules[0].Head.Args)
	case b != nil && b.Decl != nil:
		arity = len(b.Decl.FuncArgs().Args)
	}
	arity = min(arity, len(operands))
	result := held{}
	switch {
	case len(rules) > 0:
		for _, rule := range rules {
			for f := rule; f != nil; f = f.Else {
				result = result.with(r.rule(f, values[:arity]))
			}
		}
	case name == ast.ObjectGet.Name && arity == 3:
		result.from = r.member(values[0], operands[1])
		result.constants = values[2].constants
	default:
		for i := range arity {
			for j := range arity {
				if i != j {
					r.compare(values[i], values[j], false)
				}
			}
			for _, f := range values[i].from {
				f.count = f.count || name == ast.Count.Name
				result.from = append(result.from, f)
			}
		}
	}
	if len(operands) > arity {
		r.bind(env, operands[arity], result)
		r.compare(result, values[arity], false)
	}
}

func refOf(t *ast.Term) ast.Ref {
	ref, _ := t.Value.(ast.Ref)
	return ref
}

// member is a member, or a path of them, of a value.
func (r *argumentReader) member(h held, key *ast.Term) []heldFrom {
	keys := []*ast.Term{key}
	if path, ok := key.Value.(*ast.Array); ok {
		keys = nil
		path.Foreach(func(t *ast.Term) { keys = append(keys, t) })
	}
	var out []heldFrom
	for _, f := range h.from {
		ref := slices.Clone(f.ref)
		out = append(out, heldFrom{ref: append(ref, keys...)})
	}
	return out
}

// term is what a term can be.
func (r *argumentReader) term(env map[ast.Var]held, t *ast.Term) held {
	switch v := t.Value.(type) {
	case ast.Var:
		return env[v]
	case ast.Ref:
		return r.ref(env, v)
	case *ast.ArrayComprehension:
		r.body(env, v.Body)
		return r.term(env, v.Term)
	case *ast.SetComprehension:
		r.body(env, v.Body)
		return r.term(env, v.Term)
	case *ast.ObjectComprehension:
		r.body(env, v.Body)
		return r.term(env, v.Key).with(r.term(env, v.Value))
	}
	if t.IsGround() {
		return held{constants: []ast.Value{t.Value}}
	}
	inner := held{} // a collection with something of the rule's in it
	switch v := t.Value.(type) {
	case *ast.Array:
		v.Foreach(func(e *ast.Term) { inner = inner.with(r.term(env, e)) })
	case ast.Set:
		v.Foreach(func(e *ast.Term) { inner = inner.with(r.term(env, e)) })
	case ast.Object:
		v.Foreach(func(_, e *ast.Term) { inner = inner.with(r.term(env, e)) })
	}
	return inner
}

// ref is what a reference leads to.
func (r *argumentReader) ref(env map[ast.Var]held, ref ast.Ref) held {
	rest := ref[1:]
	base := held{}
	switch {
	case ref.HasPrefix(ast.InputRootRef):
		base.from = []heldFrom{{ref: ast.InputRootRef}}
	case ref.HasPrefix(ast.DefaultRootRef):
		for n := len(ref.GroundPrefix()); n > 1; n-- {
			rules := r.compiler.GetRulesExact(ref[:n])
			if len(rules) == 0 {
				continue
			}
			for _, rule := range rules {
				for f := rule; f != nil; f = f.Else {
					if len(f.Head.Args) == 0 {
						base = base.with(r.rule(f, nil))
					}
				}
			}
			rest = ref[n:]
			break
		}
		if len(base.from)+len(base.constants) == 0 {
			for _, text := range stringsOf(dataAt(r.data, ref.GroundPrefix())) {
				base.constants = append(base.constants, ast.String(text))
			}
		}
	default:
		base = r.term(env, ref[0])
	}
	for i, e := range rest {
		name, isVar := e.Value.(ast.Var)
		key := held{}
		if isVar {
			key = env[name]
		} else if !e.IsGround() {
			key = r.term(env, e)
		}
		if isVar && len(key.from)+len(key.constants) == 0 { // it goes through the members
			for _, f := range base.from {
				env[name] = env[name].with(held{from: []heldFrom{{ref: slices.Concat(f.ref, rest[:i]), key: true}}})
			}
		}
		for _, c := range base.constants { // a constant is looked up
			r.compare(key, held{constants: []ast.Value{c}}, false)
		}
	}
	out := held{constants: base.constants}
	for _, f := range base.from {
		if !f.key && !f.count {
			out.from = append(out.from, heldFrom{ref: slices.Concat(f.ref, rest)})
		}
	}
	return out
}

// compare notes that one value is held against the constants of another; within: it is
// a collection that these are looked for in.
func (r *argumentReader) compare(h, with held, within bool) {
	for _, f := range h.from {
		for _, root := range argumentRoots {
			if len(f.ref) < len(root) || !f.ref[:len(root)].Equal(root) {
				continue
			}
			path := argumentPath{}
			for _, e := range f.ref[len(root):] {
				path = append(path, pathElement(e))
			}
			r.note(path, f, with, within)
		}
	}
}

func pathElement(e *ast.Term) any {
	switch v := e.Value.(type) {
	case ast.String:
		return string(v)
	case ast.Number:
		if n, ok := v.Int(); ok && n >= 0 && n < maxHeldDepth {
			return n
		}
	}
	return anyElement
}

func (r *argumentReader) note(path argumentPath, f heldFrom, with held, within bool) {
	r.uses.add(path, nil, nil)
	for _, c := range with.constants {
		for _, v := range heldConstants(c) {
			values, besides := []any{v}, besidesOf(v)
			switch text, isText := v.(string); {
			case f.key && isText:
				r.uses.add(append(slices.Clone(path), text), nil, nil)
				continue
			case f.key:
				continue
			case f.count:
				values, besides = lengthsOf(v, len(path) == 0), nil
			case within:
				values, besides = []any{[]any{v}, v}, nil // the rule may have put it there itself
			}
			r.uses.add(path, values, besides)
		}
	}
}

// heldConstants are a constant, as JSON has it, and what is in it.
func heldConstants(c ast.Value) (list []any) {
	inner := func(t *ast.Term) { list = append(list, heldConstants(t.Value)...) }
	if _, isSet := c.(ast.Set); !isSet {
		if v, err := ast.JSON(c); err == nil {
			list = append(list, v)
		}
	}
	switch v := c.(type) {
	case *ast.Array:
		v.Foreach(inner)
	case ast.Set:
		v.Foreach(inner)
	case ast.Object:
		v.Foreach(func(k, e *ast.Term) { inner(k); inner(e) })
	}
	return list
}

// besidesOf are the values next to one.
func besidesOf(v any) (list []any) {
	switch v := v.(type) {
	case string:
		for _, form := range formsOf(v) {
			list = append(list, form)
		}
	case bool:
		list = append(list, !v)
	case json.Number:
		if n, err := v.Int64(); err == nil && n > -1<<53 && n < 1<<53 {
			return []any{n - 1, n + 1}
		}
		if x, err := v.Float64(); err == nil {
			return []any{x - 1, x + 1}
		}
	}
	return list
}

// lengthsOf are collections whose lengths are on either side of a number.
func lengthsOf(v any, object bool) (list []any) {
	const longest = 64
	number, _ := v.(json.Number)
	n, err := number.Int64()
	if err != nil || n < 0 || n > longest {
		return nil
	}
	for length := max(n-1, 0); length <= n+1; length++ {
		if !object {
			list = append(list, slices.Repeat([]any{"x"}, int(length)))
			continue
		}
		members := map[string]any{}
		for i := range length {
			members["k"+strings.Repeat("_", int(i))] = "x"
		}
		list = append(list, members)
	}
	return list
}
