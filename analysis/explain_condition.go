package analysis

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// explainDepth is how many rules deep an undefined value is followed.
const explainDepth = 3

// explainWidth is the longest text of a branch or an expression, in characters.
const explainWidth = 100

func (x *explainer) place(f *explainFrame) Place {
	return Place{Rule: explainRuleName(f.rule), File: f.rule.Location.File, Line: f.rule.Location.Row}
}

// branch describes a frame of a rule, with the conditions that held or the one
// that failed.
func (x *explainer) branch(f *explainFrame, depth int) Branch {
	b := Branch{Place: x.place(f), Default: f.rule.Default, Source: explainHead(f.rule)}
	if len(f.exits) == 0 {
		b.Failed = x.failed(f, f.rule.Body, depth)
		return b
	}
	if f.rule.Default {
		return b
	}
	for _, e := range f.rule.Body {
		if !e.Generated {
			s := x.applied(f)
			b.Held = append(b.Held, x.condition(&s, f.rule.Body, e, depth))
		}
	}
	return b
}

// failed describes why a body never held: of the expressions that failed, the
// one that was got furthest to.
func (x *explainer) failed(f *explainFrame, body ast.Body, depth int) *Expression {
	var (
		first explainFail
		tried int
	)
	for _, fail := range f.fails {
		switch {
		case first.expr == nil || fail.expr.Index > first.expr.Index:
			first, tried = fail, 1
		case fail.expr.Index == first.expr.Index:
			tried++
		}
	}
	if first.expr == nil {
		return nil
	}
	if every, ok := first.expr.Terms.(*ast.Every); ok { // what failed is in it, for one of its values
		for _, inner := range x.trace.all {
			if inner.within(f, first.expr) && slices.ContainsFunc(inner.fails, func(fail explainFail) bool { return every.Body.Contains(fail.expr) }) {
				return x.failed(inner, every.Body, depth)
			}
		}
	}
	s := explainSource{x: x, body: body, locals: first.locals}
	c := x.condition(&s, body, first.expr, depth)
	if tried > 1 {
		c.Tried = tried
	}
	return &c
}

// condition describes an expression, and what it saw. One that the compiler took
// out of a larger one is described as that.
func (x *explainer) condition(s *explainSource, body ast.Body, e *ast.Expr, depth int) Expression {
	whole := explainOwner(body, e)
	c := Expression{Head: whole == nil}
	if whole == nil {
		whole = e
	}
	c.File, c.Line = whole.Location.File, whole.Location.Row
	c.Source = explainText(whole.Location)
	if whole.With != nil {
		return c // what it saw is not what the document has
	}
	seen := map[string]bool{}
	add := func(v *Operand) {
		if v != nil && !seen[v.Source] {
			seen[v.Source] = true
			c.Values = append(c.Values, *v)
		}
	}
	if e != whole || e.Generated {
		add(x.undefined(s, e, depth))
	}
	if whole.IsCall() {
		for _, o := range whole.Operands() {
			add(x.operand(s, o, depth))
			x.parts(s, body, o, add, depth)
		}
		if len(x.trace.rules[whole.Operator().String()]) > 0 {
			add(x.called(s, whole, depth))
		}
	} else if t, ok := whole.Terms.(*ast.Term); ok {
		add(x.operand(s, t, depth))
	}
	return c
}

// explainOwner returns the expression of the source that e is or was taken out
// of; none if it is from the rule's head.
func explainOwner(body ast.Body, e *ast.Expr) *ast.Expr {
	if !e.Generated {
		return e
	}
	for _, whole := range body {
		if !whole.Generated && explainWithin(e.Location, whole.Location) {
			return whole
		}
	}
	return nil
}

func explainWithin(part, whole *ast.Location) bool {
	return part != nil && whole != nil && part.File == whole.File && part.Offset >= whole.Offset &&
		part.Offset+len(part.Text) <= whole.Offset+len(whole.Text)
}

// undefined describes an expression that the compiler took out, and that had no
// value.
func (x *explainer) undefined(s *explainSource, e *ast.Expr, depth int) *Operand {
	if !e.IsCall() {
		return nil
	}
	if !e.IsEquality() {
		if len(x.trace.rules[e.Operator().String()]) > 0 {
			return x.called(s, e, depth)
		}
		return &Operand{Source: explainText(e.Location), Undefined: true}
	}
	for _, o := range e.Operands() {
		if ref, ok := o.Value.(ast.Ref); ok {
			return x.reference(s, ref, o.Location, depth)
		}
	}
	return nil
}

// operand describes what an operand was. A constant needs no description, and
// one that depends on what was not known yet has none.
func (x *explainer) operand(s *explainSource, o *ast.Term, depth int) *Operand {
	switch v := o.Value.(type) {
	case ast.Ref:
		return x.reference(s, v, o.Location, depth)
	case ast.Var:
		value, ok := s.value(o)
		if !ok || o.Location == nil {
			return nil
		}
		out := &Operand{Source: explainText(o.Location), Value: explainJSON(value)}
		if from, _ := s.of(o, nil); from != nil {
			place := x.place(from)
			out.From = &place
		}
		return out
	}
	return nil
}

// parts describes the references within an operand that is computed, so far as
// their values are single ones.
func (x *explainer) parts(s *explainSource, body ast.Body, o *ast.Term, add func(*Operand), depth int) {
	if _, ok := o.Value.(ast.Var); !ok || o.Location == nil {
		return
	}
	for _, e := range body {
		if !e.Generated || !e.IsEquality() || len(e.Location.Text) >= len(o.Location.Text) || !explainWithin(e.Location, o.Location) {
			continue
		}
		for _, part := range e.Operands() {
			if _, ok := part.Value.(ast.Var); !ok {
				continue
			}
			if value, ok := s.value(part); ok && ast.IsScalar(value) {
				add(x.operand(s, part, depth))
			}
		}
	}
}

// called describes the result of a call of a rule.
func (x *explainer) called(s *explainSource, e *ast.Expr, depth int) *Operand {
	text := strings.TrimSpace(strings.TrimPrefix(explainText(e.Location), "not "))
	return x.given(&Operand{Source: text}, s.callees(e), nil, depth)
}

// given completes a value with the branches that could give it.
func (x *explainer) given(v *Operand, branches []*explainFrame, rest ast.Ref, depth int) *Operand {
	if f := explainApplied(branches); f != nil {
		place := x.place(f)
		v.From = &place
		if value, err := f.exits[0].value.Find(rest); err == nil {
			v.Value = explainJSON(value)
			return v
		}
		v.Undefined = true
		return v
	}
	v.Undefined = true
	if depth < explainDepth {
		for _, f := range branches {
			v.Because = append(v.Because, x.branch(f, depth+1))
		}
	}
	return v
}

// reference describes what a reference was, and if it is undefined, why.
func (x *explainer) reference(s *explainSource, ref ast.Ref, at *ast.Location, depth int) *Operand {
	ref, ok := s.ground(ref)
	if !ok || at == nil {
		return nil
	}
	v := &Operand{Source: explainText(at)}
	switch head := ref[0]; {
	case head.Equal(ast.InputRootDocument):
		return x.inDocument(v, ref)
	case head.Equal(ast.DefaultRootDocument):
		if branches, rest := x.trace.group(ref, nil); len(branches) > 0 && explainSingle(branches[0].rule) && len(branches[0].rule.Head.Args) == 0 {
			return x.given(v, branches, rest, depth)
		}
		value, err := x.traced.Value(x.ctx, ref)
		if err != nil {
			return nil
		}
		v.Value, v.Undefined = explainJSON(value), value == nil
		return v
	}
	base, ok := s.value(ref[0])
	if !ok {
		return nil
	}
	value, err := base.Find(ref[1:])
	v.Undefined = err != nil
	if err == nil {
		v.Value = explainJSON(value)
	}
	return v
}

// inDocument describes a part of the document; of one that is not there it
// names the outermost part that is not.
func (x *explainer) inDocument(v *Operand, ref ast.Ref) *Operand {
	at := x.traced.Input
	for i := 1; i < len(ref); i++ {
		next, err := at.Find(ref[i : i+1])
		if err != nil {
			v.Undefined = true
			if i < len(ref)-1 {
				v.Absent = ref[:i+1].String()
			}
			return v
		}
		at = next
	}
	v.Value = explainJSON(at)
	return v
}

// explainText is the text of an expression, on one line.
func explainText(at *ast.Location) string {
	if at == nil {
		return ""
	}
	return explainShort(strings.Join(strings.Fields(string(at.Text)), " "))
}

// explainHead is the head of a branch on one line: what it gives tells branches
// apart better than their first lines do, which are often the same.
func explainHead(rule *ast.Rule) string {
	at := rule.Head.Location
	if at == nil || len(at.Text) == 0 {
		at = rule.Location
	}
	text := strings.Join(strings.Fields(string(at.Text)), " ")
	if rule.Default {
		text = "default " + text
	}
	return explainShort(text)
}

func explainShort(text string) string {
	if r := []rune(text); len(r) > explainWidth {
		return string(r[:explainWidth-1]) + "…"
	}
	return text
}

// conflict completes OPA's error about a conflict with the rules that contradicted
// one another.
func (x *explainer) conflict(err error) error {
	var failed *topdown.Error
	if !errors.As(err, &failed) || failed.Code != topdown.ConflictErr {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(x.trace.rules)) {
		for _, f := range x.trace.rules[name] {
			if len(f.exits) == 0 || !explainSingle(f.rule) {
				continue
			}
			for _, other := range x.siblings(f) {
				if len(other.exits) > 0 && other.exits[0].value.Compare(f.exits[0].value) != 0 {
					return &ConflictError{Rules: []Branch{x.branch(f, 0), x.branch(other, 0)}, Err: err}
				}
			}
		}
	}
	return err
}

// explainSingle tells whether a rule has one value, and not one for each of
// several keys.
func explainSingle(rule *ast.Rule) bool {
	return rule.Head.Value != nil && rule.Head.RuleKind() == ast.SingleValue && !rule.Head.HasDynamicRef()
}
