package symbolic

import "github.com/open-policy-agent/opa/v1/ir"

func (m *machine) call(f *frame, s *ir.CallStmt) (control, error) {
	base := len(m.args)
	_, planned := m.funcs[s.Func]
	touched := f.touched
	for _, a := range s.Args {
		m.args = append(m.args, m.read(f, a))
	}
	if planned && len(s.Args) >= 2 && s.Args[0].Value == ir.Input { // to hand the input on is not to look at it
		f.touched = touched
		for _, a := range s.Args[2:] {
			if a.Value == ir.Input {
				f.touched |= whole
			}
		}
	}
	args := m.args[base:]
	defer func() { m.args = m.args[:base] }()
	var v value
	var err error
	if fn, ok := m.funcs[s.Func]; ok {
		v, err = m.apply(f, fn, args)
	} else {
		v, err = m.builtin(s.Func, args)
	}
	f.set(s.Result, v)
	return defined(v.Term != nil), err
}

// known is what a rule gave, and on what parts of the input that may depend.
type known struct {
	value
	touched touched
}

// apply calls a planned function from within a frame.
func (m *machine) apply(from *frame, fn *function, args []value) (value, error) {
	if len(args) != len(fn.Params) {
		return value{}, because(false, "calls "+fn.Name+" with another number of arguments")
	}
	memo := m.memo[len(m.memo)-1]
	if fn.memoize {
		if v, ok := memo[fn]; ok {
			from.touched |= v.touched
			return v.value, nil
		}
	}
	shared := m.session != nil && len(m.memo) == 1
	if shared {
		if v, ok := m.session.find(m, fn, args[2:]); ok {
			from.touched |= v.touched
			return v.value, nil
		}
	}
	excepts := m.excepts
	f := m.frame()
	defer m.release(f)
	for i, l := range fn.Params {
		f.set(l, args[i])
	}
	for _, b := range fn.Blocks {
		c, err := m.block(f, b)
		if err != nil {
			return value{}, err
		}
		if c > fail {
			return value{}, because(false, "leaves "+fn.Name+" in a way that cannot be followed")
		}
		if c != leave {
			continue
		}
		v := known{f.locals[returned].value, f.touched}
		from.touched |= v.touched
		if shared && excepts == m.excepts {
			v = m.session.keep(m, fn, args[2:], v)
		}
		if fn.memoize {
			memo[fn] = v
		}
		return v.value, nil
	}
	return value{}, because(false, fn.Name+" does not return")
}
