package analysis

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/evaluator"
)

// An explainer answers questions about one traced evaluation.
type explainer struct {
	ctx    context.Context
	trace  *explainRecorder
	traced *evaluator.Traced
}

// decided finds the branch that the answer's outcome came from.
func (x *explainer) decided(out *Explanation) error {
	flow, _, err := x.flow("outcome")
	if err != nil {
		return err
	}
	// Where the value of a constant is all that a rule gives, whoever took the
	// constant is who decided.
	at := len(flow) - 1
	for i := at; i >= 0; i-- {
		if x.chooses(flow[i]) {
			at = i
			break
		}
	}
	f := flow[at]
	out.Decided = x.branch(f, 0)
	for _, before := range flow[:at] {
		out.Through = append(out.Through, x.branch(before, 0))
	}
	for _, other := range x.siblings(f) {
		switch {
		case other == f:
		case len(other.exits) == 0:
			out.Passed = append(out.Passed, x.branch(other, 0))
		default:
			out.Also = append(out.Also, x.branch(other, 0))
		}
	}
	return nil
}

// siblings returns the branches of a frame's rule that were tried with its
// arguments, itself among them.
func (x *explainer) siblings(f *explainFrame) []*explainFrame {
	group, _ := x.trace.group(f.rule.Ref().GroundPrefix(), f.args)
	return group
}

// chooses tells whether the rule of a frame could have given something else.
func (x *explainer) chooses(f *explainFrame) bool {
	return len(x.siblings(f)) > 1 || slices.ContainsFunc(f.rule.Body, func(e *ast.Expr) bool { return !e.Generated })
}

// flow returns the branches through which a member of the answer went, that of
// the entrypoint first, and the path of the member in the value of the last.
func (x *explainer) flow(member string) ([]*explainFrame, []string, error) {
	group, _ := x.trace.group(ast.MustParseRef(x.traced.Entrypoint), nil)
	f := explainApplied(group)
	if f == nil {
		return nil, nil, errNoFlow
	}
	flow := []*explainFrame{f}
	path := []string{member}
	for f.rule.Head.Value != nil {
		s := x.applied(f)
		next, rest := s.of(f.rule.Head.Value, path)
		if next == nil || slices.Contains(flow, next) {
			break
		}
		flow, f, path = append(flow, next), next, rest
	}
	return flow, path, nil
}

// An explainSource looks in one branch for where a part of its value came from.
type explainSource struct {
	x      *explainer
	body   ast.Body
	locals *ast.ValueMap
	result ast.Value // that the rule gave, if it did
}

// applied looks in a branch of a rule that gave a value.
func (x *explainer) applied(f *explainFrame) explainSource {
	return explainSource{x: x, body: f.rule.Body, locals: f.exits[0].locals, result: f.exits[0].value}
}

// of returns the branch that gave the part of a term at path, and the path of
// the part in that branch's own value. No branch means that the part is made
// here.
func (s *explainSource) of(term *ast.Term, path []string) (*explainFrame, []string) {
	switch v := term.Value.(type) {
	case ast.Var:
		value, call := explainDefinition(s.body, v, s.x.outputs)
		switch {
		case value != nil:
			return s.of(value, path)
		case call != nil:
			return s.ofCall(call, path)
		}
	case ast.Object:
		if len(path) > 0 {
			if member := v.Get(ast.StringTerm(path[0])); member != nil {
				return s.of(member, path[1:])
			}
		}
	case ast.Ref:
		return s.ofRef(v, path)
	}
	return nil, nil
}

func (s *explainSource) ofRef(ref ast.Ref, path []string) (*explainFrame, []string) {
	ref, ok := s.ground(ref)
	if !ok {
		return nil, nil
	}
	var group []*explainFrame
	if head, isVar := ref[0].Value.(ast.Var); isVar && !ref[0].Equal(ast.DefaultRootDocument) {
		value, call := explainDefinition(s.body, head, s.x.outputs)
		switch path = append(explainPath(ref[1:]), path...); {
		case value != nil:
			return s.of(value, path)
		case call != nil:
			return s.ofCall(call, path)
		}
		return nil, nil
	}
	group, rest := s.x.trace.group(ref, nil)
	return explainApplied(group), append(explainPath(rest), path...)
}

// ofCall follows the calls that pass a part on: those of rules, and unions of
// objects, in which the last one that has the part wins.
func (s *explainSource) ofCall(call *ast.Expr, path []string) (*explainFrame, []string) {
	operands := call.Operands()
	switch name := call.Operator().String(); {
	case len(s.x.trace.rules[name]) > 0:
		return explainApplied(s.callees(call)), path
	case len(path) == 0:
	case name == ast.ObjectUnion.Name:
		return s.ofLast(operands[:2], path)
	case name == ast.ObjectUnionN.Name:
		if list, ok := operands[0].Value.(*ast.Array); ok {
			var parts []*ast.Term
			list.Foreach(func(t *ast.Term) { parts = append(parts, t) })
			return s.ofLast(parts, path)
		}
	default: // of what goes into another function, what has the very part is what it came from
		if want, ok := explainFind(s.result, path); ok {
			for _, operand := range slices.Backward(operands[:len(operands)-1]) {
				if value, ok := s.value(operand); ok {
					if have, ok := explainFind(value, path); ok && have.Compare(want) == 0 {
						return s.of(operand, path)
					}
				}
			}
		}
	}
	return nil, nil
}

func (s *explainSource) ofLast(terms []*ast.Term, path []string) (*explainFrame, []string) {
	for _, t := range slices.Backward(terms) {
		if value, ok := s.value(t); ok {
			if _, ok := explainFind(value, path[:1]); ok {
				return s.of(t, path)
			}
		}
	}
	return nil, nil
}

// callees returns the branches that a call of a rule tried.
func (s *explainSource) callees(call *ast.Expr) []*explainFrame {
	var args []*ast.Term
	for _, operand := range call.Operands() {
		value, ok := s.value(operand)
		if !ok { // what a call gives is no argument; nor is one known that is not ground
			args = append(args, operand)
			continue
		}
		args = append(args, ast.NewTerm(value))
	}
	group, _ := s.x.trace.group(call.Operator(), args)
	return group
}

// value returns what a term was, without looking beyond the frame's variables.
func (s *explainSource) value(term *ast.Term) (ast.Value, bool) {
	plugged, err := ast.TransformVars(term.Copy(), func(v ast.Var) (ast.Value, error) {
		if s.locals != nil {
			if value := s.locals.Get(v); value != nil {
				return value, nil
			}
		}
		return v, nil
	})
	if err != nil {
		return nil, false
	}
	value, ok := plugged.(ast.Value)
	if _, isRef := value.(ast.Ref); !ok || isRef || !value.IsGround() {
		return nil, false
	}
	return value, true
}

// ground replaces the variables in a reference's brackets by their values.
func (s *explainSource) ground(ref ast.Ref) (ast.Ref, bool) {
	out := slices.Clone(ref)
	for i := 1; i < len(out); i++ {
		value, ok := s.value(out[i])
		if !ok {
			return nil, false
		}
		out[i] = ast.NewTerm(value)
	}
	return out, true
}

// outputs returns how many operands a function has besides its result.
func (x *explainer) outputs(name string) (int, bool) {
	if rules := x.trace.rules[name]; len(rules) > 0 {
		return len(rules[0].rule.Head.Args), true
	}
	if b, ok := ast.BuiltinMap[name]; ok {
		return b.Decl.Arity(), true
	}
	return 0, false
}

// explainDefinition finds what a variable of a body stands for: a term, or the
// call that it is the result of.
func explainDefinition(body ast.Body, v ast.Var, arity func(string) (int, bool)) (*ast.Term, *ast.Expr) {
	for _, e := range body {
		if e.Negated || !e.IsCall() {
			continue
		}
		operands := e.Operands()
		if e.IsEquality() || e.IsAssignment() {
			for i, o := range operands[:2] {
				if o.Value.Compare(v) == 0 {
					return operands[1-i], nil
				}
			}
			continue
		}
		if n, ok := arity(e.Operator().String()); ok && len(operands) == n+1 && operands[n].Value.Compare(v) == 0 {
			return nil, e
		}
	}
	return nil, nil
}

// explainPath reads the end of a reference as names of members.
func explainPath(ref ast.Ref) []string {
	var path []string
	for _, t := range ref {
		name, _ := t.Value.(ast.String)
		path = append(path, string(name))
	}
	return path
}

// explainFind returns the part of a value at a path of members.
func explainFind(v ast.Value, path []string) (ast.Value, bool) {
	for _, name := range path {
		object, ok := v.(ast.Object)
		if !ok {
			return nil, false
		}
		member := object.Get(ast.StringTerm(name))
		if member == nil {
			return nil, false
		}
		v = member.Value
	}
	return v, v != nil
}

// basis adds a member of the answer that rests on the policies' member of that
// name.
func (x *explainer) basis(out *Explanation, member, of string) error {
	flow, path, err := x.flow(of)
	if err != nil {
		return err
	}
	value, _ := explainFind(flow[0].exits[0].value, []string{of})
	f := flow[len(flow)-1]
	b := Basis{Member: member, Value: explainJSON(value), From: x.place(f), Where: explainWhere(f.rule), LeftOut: x.leftOut(f)}
	if len(path) == 0 { // else the rule makes more than this of what it reads
		b.Of = x.reads(f)
	}
	out.Basis = append(out.Basis, b)
	return nil
}

// reads returns the rules that the value of a branch is computed with, so far
// as they could have given something else.
func (x *explainer) reads(f *explainFrame) []Basis {
	var of []Basis
	s := x.applied(f)
	seen := map[string]bool{}
	for _, e := range f.rule.Body {
		if !e.Generated || !e.IsEquality() || explainOwner(f.rule.Body, e) != nil {
			continue
		}
		operands := e.Operands()
		for i, o := range operands {
			ref, ok := o.Value.(ast.Ref)
			if !ok || !ref.HasPrefix(ast.DefaultRootRef) || seen[ref.String()] {
				continue
			}
			seen[ref.String()] = true
			from, _ := s.ofRef(ref, nil)
			if from == nil || !x.chooses(from) {
				continue
			}
			value := from.exits[0].value
			b := Basis{Member: explainText(o.Location), Value: explainJSON(value), From: x.place(from), Where: explainWhere(from.rule), LeftOut: x.leftOut(from)}
			if mask, err := strconv.ParseUint(value.String(), 10, 16); err == nil && explainBits(f.rule.Body, operands[1-i]) {
				b.Names = capability.Set(mask).DisplayNames()
			}
			of = append(of, b)
		}
	}
	return of
}

// leftOut lists what the document leaves out so that a branch applied and none
// before it, or that a rule gave what the branch's conditions found.
func (x *explainer) leftOut(f *explainFrame) []string {
	var parts []string
	seen := map[*explainFrame]bool{}
	var look func(f *explainFrame, body ast.Body)
	look = func(f *explainFrame, body ast.Body) {
		if seen[f] {
			return
		}
		seen[f] = true
		for _, other := range x.siblings(f) {
			if len(other.exits) > 0 {
				continue
			}
			failed := x.failed(other, other.rule.Body, explainDepth)
			if failed == nil {
				continue
			}
			for _, v := range failed.Values {
				part := cmp.Or(v.Absent, v.Source)
				if v.Undefined && strings.HasPrefix(part, "input.") && !slices.Contains(parts, part) {
					parts = append(parts, part)
				}
			}
		}
		s := x.applied(f)
		ast.WalkRefs(body, func(ref ast.Ref) bool {
			if from, _ := s.ofRef(ref, nil); ref.HasPrefix(ast.DefaultRootRef) && from != nil {
				look(from, from.rule.Body)
			}
			return false
		})
	}
	var conditions ast.Body // what the value is computed with speaks for itself
	for _, e := range f.rule.Body {
		if !e.Generated {
			conditions = append(conditions, e)
		}
	}
	look(f, conditions)
	return parts
}

// explainWhere lists the conditions of a branch.
func explainWhere(rule *ast.Rule) []string {
	var where []string
	for _, e := range rule.Body {
		if !e.Generated {
			where = append(where, explainText(e.Location))
		}
	}
	return where
}

// explainBits tells whether a body computes with the bits of a term, so that it
// is a mask.
func explainBits(body ast.Body, t *ast.Term) bool {
	return slices.ContainsFunc(body, func(e *ast.Expr) bool {
		return e.IsCall() && strings.HasPrefix(e.Operator().String(), "bits.") &&
			slices.ContainsFunc(e.Operands(), t.Equal)
	})
}

// explainJSON writes a value as JSON, which has sets as arrays. Nothing in an
// answer or a document lacks a JSON form.
func explainJSON(v ast.Value) json.RawMessage {
	if v == nil {
		return nil
	}
	value, err := ast.JSON(v)
	if err != nil {
		value = v.String()
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return nil
	}
	return bytes.TrimSpace(buf.Bytes())
}
