package analysis

import (
	"cmp"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/opa-gate/opa-gate/evaluator"
)

// The author's own invariants are Rego that no plan follows: OPA evaluates them,
// on calls with some texts. Here it is read off their rules what they do with a
// text. Where they compare it as a whole with constants, the constants are all
// there is to try. Where they do more, the verdict says so, and texts made of the
// constants are tried besides.

// A textKind is a sort of text in a document, or of number that has no end.
type textKind int

const (
	toolText textKind = iota
	vetoText
	noteText
	skillText
	argumentsText // of a rewritten call: never looked into
	countText     // of a skill's record
	textKinds
)

// origins are what a value can depend on, besides constants and data: a bit for
// each text that it is or has in it, one for each that it is made of, and one for
// all else.
type origins uint32

const (
	madeShift         = 8
	otherwise origins = 1 << 16
	told      origins = 1 << 17 // it was said already that this is not covered
	texts     origins = 1<<textKinds - 1
	anyText           = texts | texts<<madeShift
)

func (k textKind) whole() origins { return 1 << k }
func (k textKind) made() origins  { return 1 << (k + madeShift) }

// of reports whether a text of kind k is in a value.
func (o origins) of(k textKind) bool { return o&(k.whole()|k.made()) != 0 }

// asMade is what is made of a value.
func (o origins) asMade() origins {
	return (o&texts)<<madeShift | o&(texts<<madeShift|told) | otherwise
}

// textMembers are the members of what the invariants see that have a text in
// them, or a sentence made of one.
var textMembers = []struct {
	ref     ast.Ref
	origins origins
}{
	{ast.MustParseRef("input.call.tool.name"), toolText.whole()},
	{ast.MustParseRef("input.call.policy.veto"), vetoText.whole()},
	{ast.MustParseRef("input.call.policy.transform.note"), noteText.whole()},
	{ast.MustParseRef("input.call.policy.transform.arguments"), argumentsText.made()},
	{ast.MustParseRef("input.decision.arguments"), argumentsText.made()},
	{ast.MustParseRef("input.decision.note"), noteText.made()},
	{ast.MustParseRef("input.decision.warnings"), toolText.made() | vetoText.made()},
	{ast.MustParseRef("input.decision.reason"), toolText.made() | vetoText.made() | noteText.made()},
	{ast.MustParseRef("input.skill.skill"), skillText.whole()},
	{ast.MustParseRef("input.skill.provenance.success_count"), countText.whole()},
	{ast.MustParseRef("input.skill.provenance.fail_count"), countText.whole()},
	{ast.MustParseRef("input.skill.provenance.vulnerabilities"), countText.whole()},
}

// A textReader follows texts through the rules that the invariants reach.
type textReader struct {
	compiler *ast.Compiler
	rules    []*ast.Rule            // with their elses
	byName   map[string][]*ast.Rule // the same
	values   map[string]origins     // of rules, by name
	args     map[string][]origins   // of functions
	env      map[*ast.Rule]map[ast.Var]origins
	grew     bool // something was found in this round

	// Of the last round:
	last     bool
	found    map[evaluator.Blocker]bool
	touches  map[*ast.Rule]origins // the texts in a rule
	blocked  map[*ast.Rule]origins // the texts that a rule does more with than to compare them
	beside   map[*ast.Expr]bool    // in which strings are no texts: comparisons of what is none, and sentences
	baseData []ast.Ref             // that rules with a text in them refer to
}

// readTexts follows texts through the rules that the author's invariants reach.
func readTexts(compiler *ast.Compiler) *textReader {
	t := &textReader{compiler: compiler, byName: map[string][]*ast.Rule{}, values: map[string]origins{}, args: map[string][]origins{},
		env: map[*ast.Rule]map[ast.Var]origins{}, found: map[evaluator.Blocker]bool{}, touches: map[*ast.Rule]origins{},
		blocked: map[*ast.Rule]origins{}, beside: map[*ast.Expr]bool{}}
	seen := map[*ast.Rule]bool{}
	uses := &ruleUses{compiler: compiler}
	uses.reach(compiler.GetRulesExact(ast.MustParseRef(invariantsRule)), func(r *ast.Rule) bool {
		if seen[r] {
			return false
		}
		seen[r] = true
		t.rules = append(t.rules, r)
		return true
	})
	slices.SortFunc(t.rules, func(a, b *ast.Rule) int {
		return cmp.Or(cmp.Compare(a.Location.File, b.Location.File), cmp.Compare(a.Location.Row, b.Location.Row), cmp.Compare(a.Location.Col, b.Location.Col))
	})
	for _, r := range t.rules {
		name := explainRuleName(r)
		t.byName[name] = append(t.byName[name], r)
		t.env[r] = map[ast.Var]origins{}
	}
	for t.grew = true; t.grew; {
		t.grew = false
		t.round()
	}
	t.last = true
	t.round()
	return t
}

func (t *textReader) round() {
	for _, r := range t.rules {
		t.rule(r)
	}
}

func (t *textReader) rule(r *ast.Rule) {
	name := explainRuleName(r)
	s := &textScope{t, r, map[ast.Var]bool{}, map[ast.Var]ast.Ref{}}
	for i, arg := range r.Head.Args {
		from := t.argument(name, i)
		if s.binds(arg, from) {
			continue
		}
		s.compare(nil, from, s.term(arg), arg)
	}
	s.body(r.Body)
	if name == invariantsRule {
		return // its values are sentences for a person, and nothing else
	}
	value := origins(0)
	for _, part := range append(slices.Clone(r.Head.Reference), r.Head.Key, r.Head.Value) {
		if part != nil {
			value |= s.term(part)
		}
	}
	if value&^t.values[name] != 0 {
		t.values[name] |= value
		t.grew = true
	}
}

func (t *textReader) argument(name string, i int) origins {
	if list := t.args[name]; i < len(list) {
		return list[i]
	}
	return 0
}

func (t *textReader) give(name string, i int, o origins) {
	list := t.args[name]
	for len(list) <= i {
		list = append(list, 0)
	}
	t.args[name] = list
	if o&^list[i] != 0 {
		list[i] |= o
		t.grew = true
	}
}

// A textScope is a body of a rule. In a compiled body a variable gets its value
// before it is used.
type textScope struct {
	*textReader
	in    *ast.Rule
	bound map[ast.Var]bool
	alias map[ast.Var]ast.Ref // variables that are a member of the input
}

func (s *textScope) set(v ast.Var, o origins) {
	env := s.env[s.in]
	if o&^env[v] != 0 {
		env[v] |= o
		s.grew = true
	}
	if s.last {
		s.touches[s.in] |= o & anyText
	}
}

// binds gives the variables of a pattern a value, if there is one that has none
// yet.
func (s *textScope) binds(pattern *ast.Term, o origins) bool {
	fresh := false
	part := func(t *ast.Term) {
		if s.binds(t, o) {
			fresh = true
		}
	}
	switch v := pattern.Value.(type) {
	case ast.Var:
		if s.bound[v] {
			return false
		}
		s.bound[v] = true
		s.set(v, o)
		return true
	case *ast.Array:
		v.Foreach(part)
	case ast.Object:
		v.Foreach(func(_, t *ast.Term) { part(t) })
	}
	return fresh
}

// bind is binds for the two sides of an equation, the second of which is known.
func (s *textScope) bind(x *ast.Expr, pattern, value *ast.Term) bool {
	v, isVar := pattern.Value.(ast.Var)
	if ref, ok := value.Value.(ast.Ref); ok && isVar && !s.bound[v] && ref.IsGround() && ref.HasPrefix(ast.InputRootRef) {
		s.alias[v] = ref // looked at where it is used
		s.bound[v] = true
		return true
	}
	from := s.peek(value)
	if !s.binds(pattern, from) {
		return false
	}
	s.term(value)
	switch {
	case !isVar: // what else is in the pattern is compared
		s.compare(x, from, 0, pattern)
	case s.last && from == 0 && s.in.Head.Key != nil && s.in.Head.Key.Value.Compare(v) == 0 && explainRuleName(s.in) == invariantsRule:
		s.beside[x] = true // a sentence for a person
	}
	return true
}

func (s *textScope) body(body ast.Body) {
	for _, x := range body {
		s.expr(x)
	}
}

// inner is the scope of a body within an expression.
func (s *textScope) inner() *textScope {
	bound := make(map[ast.Var]bool, len(s.bound))
	for v := range s.bound {
		bound[v] = true
	}
	return &textScope{s.textReader, s.in, bound, s.alias}
}

func (s *textScope) expr(x *ast.Expr) {
	if len(x.With) > 0 {
		s.block(x, texts, "is evaluated with another document")
	}
	switch terms := x.Terms.(type) {
	case *ast.Term:
		s.term(terms)
	case *ast.Every:
		domain := s.term(terms.Domain)
		in := s.inner()
		for _, v := range []*ast.Term{terms.Key, terms.Value} {
			if v != nil {
				in.binds(v, domain)
			}
		}
		in.body(terms.Body)
	case []*ast.Term:
		s.call(x, terms)
	}
}

var (
	typeTests = []string{"is_array", "is_boolean", "is_null", "is_number", "is_object", "is_set", "is_string", "type_name"}
	wordings  = []string{"concat", "sprintf", "internal.template_string", "json.marshal", "format_int"}
	gathers   = []string{"array.concat", "object.union", "or", "union"}
	orders    = []string{"lt", "lte", "gt", "gte"}
)

// call follows one operation.
func (s *textScope) call(x *ast.Expr, terms []*ast.Term) {
	name, operands := terms[0].Value.String(), terms[1:]
	if name == "eq" || name == "assign" {
		a, b := operands[0], operands[1]
		if !s.bind(x, a, b) && !s.bind(x, b, a) {
			s.compare(x, s.term(a), s.term(b), a, b)
		}
		return
	}
	values := make([]origins, len(operands))
	all := origins(0)
	arity := s.arity(name, len(operands))
	if name == "object.get" {
		all = s.objectGet(operands)
	} else {
		for i := range min(arity, len(operands)) {
			values[i] = s.term(operands[i])
			all |= values[i]
		}
	}
	result := otherwise
	rules, isRule := s.byName[name]
	b := ast.BuiltinMap[name]
	switch {
	case isRule:
		for i := range min(arity, len(operands)) {
			s.give(name, i, values[i])
		}
		result = s.values[explainRuleName(rules[0])]
	case b != nil && b.IsNondeterministic():
		s.block(x, texts, "can give another result each time")
	case name == "equal" || name == "neq" || name == "internal.member_2":
		s.compare(x, values[0], values[1], operands[:2]...)
	case name == "internal.member_3":
		s.compare(x, values[0]|values[1], values[2], operands[:3]...)
	case slices.Contains(orders, name):
		if all&anyText == countText.whole() && slices.ContainsFunc(operands[:2], isFirstCount) {
			break
		}
		s.block(x, all, "puts a text or a count in an order")
	case slices.Contains(typeTests, name):
	case slices.Contains(wordings, name):
		result = all.asMade()
		if s.last {
			s.beside[x] = true // nothing is compared with the strings in it
		}
	case slices.Contains(gathers, name), name == "object.get":
		result = all
	default:
		result = all.asMade()
		if result&anyText != 0 {
			s.block(x, all, "computes with a text")
			result |= told
		}
	}
	if len(operands) > arity && !s.binds(operands[arity], result) {
		s.compare(x, result, s.term(operands[arity]), operands[arity])
	}
}

// arity is how many of n operands are arguments; one behind them is the result.
func (s *textScope) arity(name string, n int) int {
	if rules, ok := s.byName[name]; ok {
		return len(rules[0].Head.Args)
	}
	if b := ast.BuiltinMap[name]; b != nil && b.Decl != nil {
		return len(b.Decl.FuncArgs().Args)
	}
	return n
}

// objectGet is a path with names that are known, or anything in the object.
func (s *textScope) objectGet(operands []*ast.Term) origins {
	other := s.term(operands[2])
	object := operands[0]
	if v, ok := object.Value.(ast.Var); ok && s.alias[v] != nil {
		object = ast.NewTerm(s.alias[v])
	}
	if ref, ok := object.Value.(ast.Ref); ok {
		switch key := operands[1].Value.(type) {
		case ast.String:
			return s.term(ast.NewTerm(ref.Append(operands[1]))) | other
		case *ast.Array:
			path := slices.Clone(ref)
			key.Foreach(func(t *ast.Term) { path = append(path, t) })
			return s.term(ast.NewTerm(path)) | other
		}
	}
	return s.term(operands[0]) | s.term(operands[1]) | other
}

// isFirstCount: on either side of 0 and of 1 there is a count that is looked at.
func isFirstCount(t *ast.Term) bool {
	n, ok := t.Value.(ast.Number)
	return ok && (string(n) == "0" || string(n) == "1")
}

// compare is the comparison of two values: of a text as a whole with constants,
// or of what is not covered.
func (s *textScope) compare(x *ast.Expr, a, b origins, operands ...*ast.Term) {
	text := (a | b) & (anyText | told)
	empty := slices.ContainsFunc(operands, func(t *ast.Term) bool { return t.Value.Compare(ast.String("")) == 0 })
	first := slices.ContainsFunc(operands, isFirstCount)
	switch {
	case text == 0:
		if s.last && x != nil && (a|b)&otherwise != 0 {
			s.beside[x] = true
		}
	case a != 0 && b != 0:
		s.block(x, text, "compares a text with what is no constant")
	case text&argumentsText.made() != 0:
		s.block(x, text, "looks into the arguments")
	case text&(texts<<madeShift) != 0 && !empty:
		s.block(x, text, "compares a sentence that a text can be part of")
	case text&countText.whole() != 0 && !first:
		s.block(x, text, "compares a count with another one than 0 and 1")
	}
}

// peek is what a term depends on, but for the variables that get a value by it.
func (s *textScope) peek(t *ast.Term) origins { return s.inner().term(t) }

// term is what a value depends on.
func (s *textScope) term(t *ast.Term) origins {
	o := origins(0)
	switch v := t.Value.(type) {
	case ast.Var:
		s.bound[v] = true
		if member, ok := s.alias[v]; ok {
			o = s.ref(member)
		} else {
			o = s.env[s.in][v]
		}
	case ast.Ref:
		o = s.ref(v)
	case *ast.Array:
		v.Foreach(func(e *ast.Term) { o |= s.term(e) })
	case ast.Set:
		v.Foreach(func(e *ast.Term) { o |= s.term(e) })
	case ast.Object:
		v.Foreach(func(k, e *ast.Term) { o |= s.term(k) | s.term(e) })
	case *ast.ArrayComprehension:
		o = s.comprehension(v.Body, v.Term)
	case *ast.SetComprehension:
		o = s.comprehension(v.Body, v.Term)
	case *ast.ObjectComprehension:
		o = s.comprehension(v.Body, v.Key, v.Value)
	case ast.Call:
		for _, operand := range v[1:] {
			o |= s.term(operand)
		}
		o = o.asMade()
	}
	if s.last {
		s.touches[s.in] |= o & anyText
	}
	return o
}

func (s *textScope) comprehension(body ast.Body, heads ...*ast.Term) origins {
	in := s.inner()
	in.body(body)
	o := origins(0)
	for _, head := range heads {
		o |= in.term(head)
	}
	return o
}

func (s *textScope) ref(r ast.Ref) origins {
	if v, ok := r[0].Value.(ast.Var); ok {
		if member, ok := s.alias[v]; ok {
			r = append(slices.Clone(member), r[1:]...)
		}
	}
	o, index := s.head(r)
	for _, e := range r[1:] {
		v, isVar := e.Value.(ast.Var)
		switch {
		case isVar && !s.bound[v]: // it goes through the keys
			s.bound[v] = true
			s.set(v, o)
		case !e.IsGround():
			index |= s.term(e)
		}
	}
	if index&anyText != 0 && (o != 0 || index&(texts<<madeShift) != 0) {
		s.blockAt(s.in.Location, r.String(), index, "looks a text up")
	}
	return o
}

// head is what the value depends on that a reference leads to.
func (s *textScope) head(r ast.Ref) (o, index origins) {
	switch {
	case r.HasPrefix(ast.InputRootRef):
		o = otherwise
		for _, m := range textMembers {
			if mayReach(r, m.ref) {
				o |= m.origins
				if len(r) >= len(m.ref) && r.IsGround() {
					o &^= otherwise
				}
			}
		}
		return o, 0
	case r.HasPrefix(ast.DefaultRootRef):
		return s.data(r), 0
	}
	return s.term(r[0]), 0
}

// data is what a rule's value depends on. All that is no rule is data that can
// change, but for what the program itself puts there.
func (s *textScope) data(r ast.Ref) origins {
	o, known := origins(0), false
	for name, rules := range s.byName {
		if mayReach(r, rules[0].Ref().GroundPrefix()) {
			o, known = o|s.values[name], true
		}
	}
	if known {
		return o
	}
	for _, own := range []string{"data.gate.facts", "data.gate.settings"} {
		if r.HasPrefix(ast.MustParseRef(own)) {
			return otherwise
		}
	}
	s.blockAt(s.in.Location, r.String(), texts, "is data, which can change by itself")
	if s.last {
		s.baseData = append(s.baseData, r.GroundPrefix())
	}
	return 0
}

// block says that an expression does more with a text than to compare it.
func (s *textScope) block(x *ast.Expr, with origins, why string) {
	if x == nil || x.Location == nil {
		s.blockAt(s.in.Location, string(s.in.Location.Text), with, why)
		return
	}
	s.blockAt(x.Location, string(x.Location.Text), with, why)
}

func (s *textScope) blockAt(at *ast.Location, expression string, with origins, why string) {
	if !s.last || with&anyText == 0 || with&told != 0 {
		return
	}
	s.blocked[s.in] |= with & anyText
	cells := evaluator.Cells
	if with&^(skillText.whole()|skillText.made()|countText.whole()|countText.made()|otherwise) == 0 {
		cells = 0 // of skills alone
	}
	s.found[evaluator.Blocker{File: at.File, Line: at.Row, Column: at.Col, Expression: strings.Join(strings.Fields(expression), " "), Why: why, Cells: cells}] = true
}
