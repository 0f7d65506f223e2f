package symbolic

import (
	"context"

	"github.com/open-policy-agent/opa/v1/ast"
)

// A Session evaluates a program for many inputs that have members in common:
// the same terms, by identity. What rules and built-in functions gave is kept as
// long as all that it can depend on is in members, arguments and data that are
// the very terms it was computed from. It belongs to one goroutine.
type Session struct {
	program *Program
	numbers map[string]int // of the input's members
	parts   map[*ast.Term]holes
	rules   map[*function]*ruleResults
	natives map[nativeKey]*ast.Term
}

// Bounds of what is kept.
const (
	maxMembers   = 7 // of the input that are told apart
	maxArguments = 3 // of a function or built-in function
	maxResults   = 1 << 14
)

// touched are parts of the input, a bit for each member.
type touched uint8

// whole is the input as a whole, or a part that has no bit of its own.
const whole touched = 1 << maxMembers

// ruleResults are what one function gave.
type ruleResults struct {
	touched []touched // that occur in the keys
	results map[ruleKey]value
}

type ruleKey struct {
	touched   touched
	members   [maxMembers]*ast.Term
	arguments [maxArguments]*ast.Term
}

type nativeKey struct {
	name      string
	arguments [maxArguments]*ast.Term
}

// NewSession begins a session in which nothing is kept yet.
func (p *Program) NewSession() *Session {
	return &Session{program: p, numbers: map[string]int{}, parts: map[*ast.Term]holes{},
		rules: map[*function]*ruleResults{}, natives: map[nativeKey]*ast.Term{}}
}

// Eval is [Program.Eval]. Members of inputs must not change once they were given.
func (s *Session) Eval(ctx context.Context, input ast.Value, split ...Hole) (*Answer, error) {
	return s.program.eval(ctx, input, s, split)
}

// number returns the number of a member of the input, which it gives out in the
// order in which members are met.
func (s *Session) number(key ast.Value) (int, bool) {
	name, ok := key.(ast.String)
	if s == nil || !ok {
		return 0, false
	}
	n, ok := s.numbers[string(name)]
	if !ok && len(s.numbers) < maxMembers {
		n, ok = len(s.numbers), true
		s.numbers[string(name)] = n
	}
	return n, ok
}

// key is the key of a result that depends on some members and on arguments. It
// is not ok for arguments that other evaluations do not have.
func (m *machine) key(t touched, args []value) (key ruleKey, ok bool) {
	if len(args) > maxArguments || t&whole != 0 {
		return key, false
	}
	key.touched = t
	for i := range maxMembers {
		if t&(1<<i) != 0 {
			key.members[i] = m.members[i]
		}
	}
	for i, a := range args {
		if !a.stable {
			return key, false
		}
		key.arguments[i] = a.Term
	}
	return key, true
}

// find returns what a function gave before, if nothing that it depends on has
// changed.
func (s *Session) find(m *machine, fn *function, args []value) (known, bool) {
	r, ok := s.rules[fn]
	if !ok {
		return known{}, false
	}
	for _, t := range r.touched {
		if key, ok := m.key(t, args); ok {
			if v, ok := r.results[key]; ok {
				return known{v, t}, true
			}
		}
	}
	return known{}, false
}

// keep keeps what a function gave and returns it.
func (s *Session) keep(m *machine, fn *function, args []value, v known) known {
	key, ok := m.key(v.touched, args)
	if !ok {
		return v
	}
	r, ok := s.rules[fn]
	if !ok {
		r = &ruleResults{results: map[ruleKey]value{}}
		s.rules[fn] = r
	}
	if len(r.results) >= maxResults {
		return v
	}
	seen := false
	for _, t := range r.touched {
		seen = seen || t == v.touched
	}
	if !seen {
		r.touched = append(r.touched, v.touched)
	}
	v.stable = true
	r.results[key] = v.value
	return v
}

// result returns what a built-in function gave for the very same terms.
func (s *Session) result(name string, terms []*ast.Term) (*ast.Term, bool) {
	if s == nil || len(terms) > maxArguments {
		return nil, false
	}
	key := nativeKey{name: name}
	copy(key.arguments[:], terms)
	v, ok := s.natives[key]
	return v, ok
}

// remember keeps what a built-in function gave for terms.
func (s *Session) remember(name string, terms []*ast.Term, v *ast.Term) {
	if s == nil || len(terms) > maxArguments || len(s.natives) >= maxResults {
		return
	}
	key := nativeKey{name: name}
	copy(key.arguments[:], terms)
	s.natives[key] = v
}
