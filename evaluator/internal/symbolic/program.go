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
	paths   map[string]*function // by path, for calls that compute it
}

// A function is a planned rule.
type function struct {
	*ir.Func
	memoize bool // it depends on nothing but input and data
}

// Result is the variable to which the planned query binds the answer.
const Result = "answer"

// New takes a plan of one query, which binds [Result], and the base documents
// under data. The marks in documents that it evaluates are those of texts.
func New(policy *ir.Policy, data ast.Value, texts *Texts) (*Program, error) {
	if policy.Plans == nil || len(policy.Plans.Plans) != 1 {
		return nil, errors.New("the plan is not of one query")
	}
	if texts.In(data) {
		return nil, errors.New("the data holds a mark")
	}
	p := &Program{policy: policy, data: ast.NewTerm(data), texts: texts,
		funcs: map[string]*function{}, paths: map[string]*function{}}
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
	for _, f := range policy.Funcs.Funcs {
		fn := &function{Func: f, memoize: len(f.Params) == 2}
		if _, twice := p.funcs[f.Name]; twice {
			return nil, fmt.Errorf("the plan has the function %s twice", f.Name)
		}
		p.funcs[f.Name] = fn
		p.paths[strings.Join(f.Path, "\x00")] = fn
	}
	return p, nil
}

// Uses reports whether the answer can depend on a rule, such as
// data.gate.call.answer.
func (p *Program) Uses(rule string) bool {
	for name := range p.funcs {
		_, planned, _ := strings.Cut(name, ".") // the first part counts shadowed copies
		if planned == rule || strings.HasPrefix(rule, planned+".") {
			return true
		}
	}
	return false
}
