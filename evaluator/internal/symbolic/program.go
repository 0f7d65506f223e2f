package symbolic

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/ir"
)

// A Program is a planned policy with its data, ready to be evaluated. It is
// immutable and safe for use by several goroutines.
type Program struct {
	policy  *ir.Policy
	data    *ast.Term
	texts   *Texts
	strings []*ast.Term
	numbers []*ast.Term // the strings again, as numbers, where they are
	files   []string
	funcs   map[string]*function
	sets    map[*ir.MakeSetStmt]literalSet

	unsorted bool // OPA goes through some sets in another order
}

// A literalSet is a set of strings that is written down in the policy: the
// value of a statement that makes it, and how many behind that fill it.
type literalSet struct {
	value value
	adds  int
}

// A function is a planned rule.
type function struct {
	*ir.Func
	memoize bool // it depends on nothing but input and data
}

// Result is the variable to which the planned query binds the answer.
const Result = "answer"

// New takes a plan of one query, which binds [Result], the modules that it was
// made from, and the base documents under data. The marks in documents that it
// evaluates are those of texts. It refuses modules whose plan is known to do
// another thing than OPA does.
func New(policy *ir.Policy, modules map[string]*ast.Module, data ast.Value, texts *Texts) (*Program, error) {
	if err := faithful(modules); err != nil {
		return nil, err
	}
	if policy.Plans == nil || len(policy.Plans.Plans) != 1 {
		return nil, errors.New("the plan is not of one query")
	}
	if texts.In(data) {
		return nil, errors.New("the data holds a mark")
	}
	p := &Program{policy: policy, unsorted: computedSets(modules), data: ast.NewTerm(data), texts: texts,
		funcs: map[string]*function{}, sets: map[*ir.MakeSetStmt]literalSet{}}
	for _, s := range policy.Static.Strings {
		p.strings = append(p.strings, ast.StringTerm(s.Value))
		var number *ast.Term
		if json.Valid([]byte(s.Value)) && strings.ContainsAny(s.Value[:1], "-0123456789") {
			number = ast.NumberTerm(json.Number(s.Value))
		}
		p.numbers = append(p.numbers, number)
	}
	for _, f := range policy.Static.Files {
		p.files = append(p.files, f.Value)
	}
	// The visitor has no error.
	_ = ir.Walk(setFinder{p}, policy)
	for _, f := range policy.Funcs.Funcs {
		fn := &function{Func: f, memoize: len(f.Params) == 2}
		if _, twice := p.funcs[f.Name]; twice {
			return nil, fmt.Errorf("the plan has the function %s twice", f.Name)
		}
		p.funcs[f.Name] = fn
	}
	return p, nil
}

// Uses reports whether the answer can depend on a rule, such as
// data.gate.call.answer.
func (p *Program) Uses(rule string) bool {
	for name := range p.funcs {
		_, planned, _ := strings.Cut(name, ".") // the first part counts shadowed copies
		if planned == rule || strings.HasPrefix(rule, planned+".") || strings.HasPrefix(rule, planned+"[") {
			return true
		}
	}
	return false
}

// A setFinder visits blocks to find literal sets: policies ask about members
// of such sets at every turn, and to build one takes longer than to look into it.
type setFinder struct{ program *Program }

// Before implements ir.Visitor.
func (setFinder) Before(any) {}

// After implements ir.Visitor.
func (setFinder) After(any) {}

// Visit implements ir.Visitor.
func (v setFinder) Visit(x any) (ir.Visitor, error) {
	if block, ok := x.(*ir.Block); ok {
		for i, stmt := range block.Stmts {
			if m, ok := stmt.(*ir.MakeSetStmt); ok {
				if set := v.program.literal(m.Target, block.Stmts[i+1:]); set.adds > 0 {
					v.program.sets[m] = set
				}
			}
		}
	}
	return v, nil
}

// literal returns the set that the first of stmts fill.
func (p *Program) literal(target ir.Local, stmts []ir.Stmt) (set literalSet) {
	members := ast.NewSet()
	for _, stmt := range stmts {
		add, ok := stmt.(*ir.SetAddStmt)
		if !ok || add.Set != target {
			break
		}
		text, ok := add.Value.Value.(ir.StringIndex)
		if !ok {
			break
		}
		members.Add(p.strings[text])
		set.adds++
	}
	set.value = value{Term: ast.NewTerm(members), stable: true}
	return set
}
