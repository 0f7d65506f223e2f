package symbolic

import (
	"context"
	"fmt"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/ir"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// Bounds of one evaluation.
const (
	maxSteps  = 1 << 20 // statements
	maxExcept = 64      // constants that one text is compared with
)

// An Answer is what a policy answers to every document that differs from the
// one given in what its marks stand for.
type Answer struct {
	Value  ast.Value         // with marks where texts go
	Except map[Hole][]string // texts for which it does not hold, sorted; nil if there are none
}

// Eval evaluates the plan for input. Texts of the holes in split may be
// compared as a whole with constants: the answer is for all others. Its errors
// are a *[Dependence], [ErrUndefined], [ErrAmbiguous], or that of ctx.
func (p *Program) Eval(ctx context.Context, input ast.Value, split ...Hole) (*Answer, error) {
	return p.eval(ctx, input, nil, split)
}

func (p *Program) eval(ctx context.Context, input ast.Value, s *Session, split []Hole) (answer *Answer, err error) {
	defer func() {
		if cause := recover(); cause != nil { // from a built-in function that got what nobody expected
			answer, err = nil, because(false, fmt.Sprintf("the evaluation broke off: %v", cause))
		}
	}()
	m := &machine{Program: p, ctx: ctx, session: s, memo: []map[*function]known{{}}, cancel: topdown.NewCancel()}
	for _, h := range split {
		m.split |= 1 << h
	}
	m.bctx = topdown.BuiltinContext{Context: ctx, Cancel: m.cancel}
	m.collect = func(t *ast.Term) error {
		m.result = t
		m.results++
		return nil
	}
	root := value{Term: ast.NewTerm(input), stable: s != nil}
	root.holes = m.prepare(input)
	stop := context.AfterFunc(ctx, m.cancel.Cancel)
	defer stop()
	f := m.frame()
	f.set(ir.Input, root)
	f.set(ir.Data, value{Term: p.data, stable: true})
	for _, b := range p.policy.Plans.Plans[0].Blocks {
		if _, err := m.block(f, b); err != nil {
			return nil, err
		}
	}
	switch {
	case m.answers == 0:
		return nil, ErrUndefined
	case m.answers > 1:
		return nil, ErrAmbiguous
	}
	for h, texts := range m.except {
		slices.Sort(texts)
		m.except[h] = slices.Compact(texts)
	}
	return &Answer{Value: m.answer.Value, Except: m.except}, nil
}

// A machine is one evaluation.
type machine struct {
	*Program
	ctx     context.Context
	cancel  topdown.Cancel
	steps   int
	session *Session              // nil: nothing is kept for other inputs
	members [maxMembers]*ast.Term // of the input, by the session's numbers
	memo    []map[*function]known // what rules gave, a map for each `with` that is in force
	frames  []*frame              // for calls to come
	args    []value               // of the calls under way
	parts   map[*ast.Term]holes   // of the input, with what they hold
	bctx    topdown.BuiltinContext
	collect func(*ast.Term) error // takes the results of a built-in function
	result  *ast.Term             // the last of them
	results int
	split   holes
	except  map[Hole][]string
	excepts int // how often one was added
	answer  *ast.Term
	answers int
}

// prepare notes the holes in each part of the input, and its members.
func (m *machine) prepare(input ast.Value) holes {
	m.parts = map[*ast.Term]holes{}
	if m.session != nil {
		m.parts = m.session.parts
	}
	object, ok := input.(ast.Object)
	if !ok {
		return m.texts.holes(input)
	}
	var found holes
	object.Foreach(func(key, v *ast.Term) {
		known, ok := m.parts[v]
		if !ok {
			known = m.survey(v)
		}
		found |= m.texts.holes(key.Value) | known
		if n, ok := m.session.number(key.Value); ok {
			m.members[n] = v
		}
	})
	return found
}

// survey notes the holes in each part of t.
func (m *machine) survey(t *ast.Term) holes {
	var found holes
	switch v := t.Value.(type) {
	case *ast.Array:
		for i := range v.Len() {
			found |= m.survey(v.Elem(i))
		}
	case ast.Object:
		for _, key := range v.Keys() {
			found |= m.texts.holes(key.Value) | m.survey(v.Get(key))
		}
	default:
		found = m.texts.holes(v)
	}
	m.parts[t] = found
	return found
}

// A value is what a local holds: a term, or nil if it is undefined, and the
// holes in it.
type value struct {
	*ast.Term
	holes  holes
	stable bool // the very term stands for it in other evaluations of a session
}

// A frame holds the locals of one call.
type frame struct {
	locals  []local
	touched touched // the parts of the input that what happened in it may depend on
}

type local struct {
	value
	fresh bool // the value is nowhere else, so that it can be changed in place
}

func (f *frame) get(l ir.Local) value {
	if int(l) >= len(f.locals) {
		return value{}
	}
	if l == ir.Input {
		f.touched |= whole
	}
	at := &f.locals[l]
	at.fresh = false
	return at.value
}

func (f *frame) set(l ir.Local, v value) {
	for int(l) >= len(f.locals) {
		f.locals = append(f.locals, local{})
	}
	f.locals[l] = local{value: v}
}

// frame returns a frame without locals.
func (m *machine) frame() *frame {
	if n := len(m.frames); n > 0 {
		f := m.frames[n-1]
		m.frames = m.frames[:n-1]
		return f
	}
	return &frame{locals: make([]local, 0, 64)}
}

// release takes back a frame that nobody reads any more.
func (m *machine) release(f *frame) {
	clear(f.locals)
	*f = frame{locals: f.locals[:0]}
	m.frames = append(m.frames, f)
}

// create sets a local to a value that is nowhere else.
func (f *frame) create(l ir.Local, v ast.Value, h holes) {
	f.set(l, value{Term: ast.NewTerm(v), holes: h})
	f.locals[l].fresh = true
}

// A control says how a block or statement ended: next, leave the function, or
// leave as many blocks as it says, the one it is in not counted.
type control int

const (
	next  control = -1
	leave control = -2
	fail  control = 0 // an undefined or false statement leaves its block
)

func (m *machine) block(f *frame, b *ir.Block) (control, error) {
	for i := 0; i < len(b.Stmts); i++ {
		stmt := b.Stmts[i]
		if m.steps++; m.steps > maxSteps {
			return fail, m.locate(because(false, "takes too many steps to follow"), stmt)
		}
		if m.steps%1024 == 0 {
			if err := m.ctx.Err(); err != nil {
				return fail, err
			}
		}
		if makes, ok := stmt.(*ir.MakeSetStmt); ok {
			if set, ok := m.sets[makes]; ok {
				f.set(makes.Target, set.value)
				i += set.adds
				continue
			}
		}
		c, err := m.run(f, stmt)
		if err != nil {
			return fail, m.locate(err, stmt)
		}
		if c != next {
			return c, nil
		}
	}
	return next, nil
}

// nested runs a block within another and returns how the outer one goes on.
func (m *machine) nested(f *frame, b *ir.Block) (control, error) {
	c, err := m.block(f, b)
	if c > 0 {
		return c - 1, err
	}
	if c == leave {
		return leave, err
	}
	return next, err
}

func (m *machine) read(f *frame, o ir.Operand) value {
	switch v := o.Value.(type) {
	case ir.Local:
		return f.get(v)
	case ir.StringIndex:
		return value{Term: m.strings[v], stable: true}
	case ir.Bool:
		return value{Term: ast.InternedTerm(bool(v)), stable: true}
	}
	return value{}
}

func defined(ok bool) control {
	if ok {
		return next
	}
	return fail
}

func is[T ast.Value](v value) control {
	if v.Term == nil {
		return fail
	}
	_, ok := v.Value.(T)
	return defined(ok)
}

func number(n int64) value { return value{Term: ast.InternedTerm(int(n)), stable: true} }

var null = value{Term: ast.NullTerm(), stable: true}

// run executes one statement. The cases are those of OPA's intermediate
// representation, and mean what its documentation and its WebAssembly compiler
// say they do.
func (m *machine) run(f *frame, stmt ir.Stmt) (control, error) {
	switch s := stmt.(type) {
	case *ir.NopStmt:
	case *ir.BlockStmt:
		for _, b := range s.Blocks {
			if c, err := m.nested(f, b); c != next || err != nil {
				return c, err
			}
		}
	case *ir.BreakStmt:
		return control(s.Index), nil
	case *ir.ReturnLocalStmt:
		f.set(returned, f.get(s.Source))
		return leave, nil
	case *ir.NotStmt:
		return m.not(f, s)
	case *ir.ScanStmt:
		return m.scan(f, s)
	case *ir.WithStmt:
		return m.with(f, s)
	case *ir.CallStmt:
		return m.call(f, s)
	case *ir.CallDynamicStmt: // its plan misses rules that OPA would find
		return fail, because(false, "chooses a rule by a value")

	case *ir.AssignVarStmt:
		f.set(s.Target, m.read(f, s.Source))
	case *ir.AssignVarOnceStmt:
		v := m.read(f, s.Source)
		if err := m.once(f.get(s.Target), v); err != nil {
			return fail, err
		}
		f.set(s.Target, v)
	case *ir.AssignIntStmt:
		f.set(s.Target, number(s.Value))
	case *ir.ResetLocalStmt:
		f.set(s.Target, value{})
	case *ir.IsDefinedStmt:
		if s.Source == ir.Input { // it always is, whatever it is
			return next, nil
		}
		return defined(f.get(s.Source).Term != nil), nil
	case *ir.IsUndefinedStmt:
		return defined(f.get(s.Source).Term == nil), nil

	case *ir.DotStmt:
		key := m.read(f, s.Key)
		touched := f.touched
		source := m.read(f, s.Source)
		if s.Source.Value == ir.Input {
			if n, ok := m.session.number(key.Value); ok { // of the input it is this member alone
				f.touched = touched | 1<<n
			}
		}
		v, err := m.dot(source, key)
		f.set(s.Target, v)
		return defined(v.Term != nil), err
	case *ir.LenStmt:
		n, err := m.length(m.read(f, s.Source))
		f.set(s.Target, number(int64(n)))
		return next, err
	case *ir.EqualStmt:
		ok, err := m.equal(m.read(f, s.A), m.read(f, s.B))
		return defined(ok), err
	case *ir.NotEqualStmt:
		ok, err := m.equal(m.read(f, s.A), m.read(f, s.B))
		return defined(!ok), err
	case *ir.IsArrayStmt:
		return is[*ast.Array](m.read(f, s.Source)), nil
	case *ir.IsObjectStmt:
		return is[ast.Object](m.read(f, s.Source)), nil
	case *ir.IsSetStmt:
		return is[ast.Set](m.read(f, s.Source)), nil

	case *ir.MakeNullStmt:
		f.set(s.Target, null)
	case *ir.MakeNumberIntStmt:
		f.set(s.Target, number(s.Value))
	case *ir.MakeNumberRefStmt:
		if f.set(s.Target, value{Term: m.numbers[s.Index], stable: true}); m.numbers[s.Index] == nil {
			return fail, because(false, "is a number that cannot be read")
		}
	case *ir.MakeArrayStmt:
		f.create(s.Target, ast.NewArray(), 0)
	case *ir.MakeObjectStmt:
		f.create(s.Target, ast.NewObject(), 0)
	case *ir.MakeSetStmt:
		f.create(s.Target, ast.NewSet(), 0)
	case *ir.ArrayAppendStmt:
		return next, m.arrayAppend(f, s)
	case *ir.SetAddStmt:
		return next, m.setAdd(f, s)
	case *ir.ObjectInsertStmt:
		return next, m.insert(f, s.Object, m.read(f, s.Key), m.read(f, s.Value))
	case *ir.ObjectInsertOnceStmt:
		return next, m.insertOnce(f, s)
	case *ir.ObjectMergeStmt:
		v, err := m.merge(f.get(s.A), f.get(s.B))
		f.set(s.Target, v)
		return next, err
	case *ir.ResultSetAddStmt:
		m.answers++
		if v := f.get(s.Value); is[ast.Object](v) == next {
			object := v.Value.(ast.Object)
			m.answer = object.Get(ast.StringTerm(Result))
		}
		if m.answer == nil {
			return fail, because(false, "the plan does not bind its answer")
		}
	default:
		return fail, because(false, fmt.Sprintf("is planned as %T, which cannot be followed", stmt))
	}
	return next, nil
}

// returned is the local of a frame in which a function leaves its value. A
// plan never uses it: it is that of the input, which no function returns to.
const returned = ir.Input

func (m *machine) not(f *frame, s *ir.NotStmt) (control, error) {
	switch c, err := m.block(f, s.Block); {
	case err != nil:
		return fail, err
	case c == next: // it held
		return fail, nil
	case c == fail:
		return next, nil
	default:
		return fail, because(false, "leaves a negation in a way that cannot be followed")
	}
}

func (m *machine) scan(f *frame, s *ir.ScanStmt) (control, error) {
	source := f.get(s.Source)
	if source.Term == nil {
		return next, nil
	}
	if m.texts.Opaque(source.Value) {
		return fail, because(false, "goes through the arguments")
	}
	var keys, values []*ast.Term
	switch v := source.Value.(type) {
	case *ast.Array:
		for i := range v.Len() {
			keys, values = append(keys, ast.InternedTerm(i)), append(values, v.Elem(i))
		}
	case ast.Object:
		v.Foreach(func(key, value *ast.Term) { keys, values = append(keys, key), append(values, value) })
	case ast.Set:
		if m.unsorted && v.Len() > 1 {
			return fail, because(false, "goes through a set, in a policy that writes sets down with something computed in them")
		}
		keys = v.Slice()
		values = keys
	}
	for i := range keys {
		f.set(s.Key, m.part(source, keys[i]))
		f.set(s.Value, m.part(source, values[i]))
		if c, err := m.block(f, s.Block); err != nil {
			return fail, err
		} else if c > fail || c == leave {
			return fail, because(false, "leaves an iteration in a way that cannot be followed")
		}
	}
	return next, nil
}

func (m *machine) with(f *frame, s *ir.WithStmt) (control, error) {
	saved := f.get(s.Local)
	path := make([]*ast.Term, len(s.Path))
	for i, index := range s.Path {
		path[i] = m.strings[index]
	}
	replaced, err := m.upsert(saved, path, m.read(f, s.Value))
	if err != nil {
		return fail, err
	}
	f.set(s.Local, replaced)
	m.memo = append(m.memo, map[*function]known{})
	c, err := m.block(f, s.Block)
	m.memo = m.memo[:len(m.memo)-1]
	f.set(s.Local, saved)
	if err == nil && c != next && c != fail {
		err = because(false, "leaves a `with` in a way that cannot be followed")
	}
	return c, err
}

// upsert returns document with v at path.
func (m *machine) upsert(document value, path []*ast.Term, v value) (value, error) {
	if len(path) == 0 {
		return v, nil
	}
	out := ast.NewObject()
	var child value
	if document.Term != nil {
		if m.texts.Opaque(document.Value) {
			return value{}, because(false, "replaces a part of the arguments")
		}
		object, ok := document.Value.(ast.Object)
		if !ok {
			return value{}, because(false, "replaces a part of what is not an object")
		}
		child = value{Term: object.Get(path[0]), holes: document.holes}
		object.Foreach(func(k, v *ast.Term) {
			if !k.Equal(path[0]) {
				out.Insert(k, v)
			}
		})
	}
	inner, err := m.upsert(child, path[1:], v)
	if err != nil {
		return value{}, err
	}
	out.Insert(path[0], inner.Term)
	return value{Term: ast.NewTerm(out), holes: document.holes | v.holes}, nil // more than there may be
}
