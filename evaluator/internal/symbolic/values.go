package symbolic

import (
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/ir"
)

// exclude notes that the answer does not hold for a tool of that name.
func (m *machine) exclude(name string) error {
	if len(m.except) >= maxExcept {
		return because(true, "compares the tool's name with many others")
	}
	m.except = append(m.except, name)
	return nil
}

// A verdict says whether two values are equal.
type verdict uint8

const (
	never  verdict = iota // whatever the marks stand for
	always                // whatever the marks stand for
	varies
)

// equal reports whether a and b are equal, for every text alike; otherwise the
// error is a dependence.
func (m *machine) equal(a, b *ast.Term) (bool, error) {
	if a == nil || b == nil {
		return false, because(false, "compares what is not defined")
	}
	v, err := m.compare(a.Value, b.Value)
	if err != nil || v != varies {
		return v == always, err
	}
	holes := m.texts.holes(a.Value) | m.texts.holes(b.Value)
	return false, because(holes == 1<<Tool, "compares a text")
}

func (m *machine) compare(a, b ast.Value) (verdict, error) {
	if a.Compare(b) == 0 {
		return always, nil
	}
	switch a := a.(type) {
	case ast.String:
		if b, ok := b.(ast.String); ok {
			return m.compareStrings(a, b)
		}
	case *ast.Array:
		if b, ok := b.(*ast.Array); ok && a.Len() == b.Len() {
			all := always
			for i := range a.Len() {
				v, err := m.compare(a.Elem(i).Value, b.Elem(i).Value)
				if v == never || err != nil {
					return v, err
				}
				all = max(all, v)
			}
			return all, nil
		}
	case ast.Object:
		if b, ok := b.(ast.Object); ok {
			return m.compareObjects(a, b)
		}
	case ast.Set:
		if _, ok := b.(ast.Set); ok && (m.texts.In(a) || m.texts.In(b)) {
			return varies, nil
		}
	}
	return never, nil
}

func (m *machine) compareStrings(a, b ast.String) (verdict, error) {
	if !m.texts.In(a) {
		a, b = b, a
	}
	switch {
	case !m.texts.In(a):
		return never, nil
	case string(a) != m.texts.mark(Tool) || m.texts.In(b):
		return varies, nil
	case b == "": // a tool has a name
		return never, nil
	default:
		return never, m.exclude(string(b))
	}
}

func (m *machine) compareObjects(a, b ast.Object) (verdict, error) {
	if m.texts.Opaque(a) || m.texts.Opaque(b) {
		return varies, nil
	}
	if a.Len() != b.Len() {
		return never, nil
	}
	all := always
	var err error
	a.Until(func(key, value *ast.Term) bool {
		v := never
		if other := b.Get(key); other != nil {
			v, err = m.compare(value.Value, other.Value)
		}
		if v == never || err != nil {
			all = never
			return true
		}
		all = max(all, v)
		return false
	})
	return all, err
}

// once reports, as an error, that a local or member has one value and would
// get another one: OPA fails then, or would for some texts.
func (m *machine) once(old, v *ast.Term) error {
	if old == nil {
		return nil
	}
	same, err := m.equal(old, v)
	if err == nil && !same {
		err = because(false, "gives two values to one thing")
	}
	return err
}

// dot returns source[key], or nil.
func (m *machine) dot(source, key *ast.Term) (*ast.Term, error) {
	if source == nil || key == nil {
		return nil, nil
	}
	if m.texts.Opaque(source.Value) {
		return nil, because(false, "looks into the arguments")
	}
	if m.texts.In(key.Value) {
		return nil, m.lookup(source, key)
	}
	switch s := source.Value.(type) {
	case ast.Object:
		return s.Get(key), nil
	case *ast.Array:
		return s.Get(key), nil
	case ast.Set:
		if holes := m.texts.holes(s); holes != 0 {
			return nil, because(holes == 1<<Tool, "looks for a text in a set")
		}
		if s.Contains(key) {
			return key, nil
		}
	}
	return nil, nil
}

// lookup looks a key with a mark up in source. It finds nothing: the answer is
// for tools of other names than source has.
func (m *machine) lookup(source, key *ast.Term) error {
	switch s := source.Value.(type) {
	case ast.Object:
		return m.lookupAmong(s.Keys(), key)
	case ast.Set:
		return m.lookupAmong(s.Slice(), key)
	}
	return nil // nothing has a text as its index
}

func (m *machine) lookupAmong(keys []*ast.Term, key *ast.Term) error {
	for _, k := range keys {
		if _, err := m.equal(key, k); err != nil {
			return err
		}
	}
	return nil
}

func (m *machine) length(v *ast.Term) (int, error) {
	if v != nil && !m.texts.Opaque(v.Value) {
		switch v := v.Value.(type) {
		case *ast.Array:
			return v.Len(), nil
		case ast.Object:
			return v.Len(), nil
		case ast.Set:
			return v.Len(), nil
		}
	}
	return 0, because(false, "takes the length of a text or of the arguments")
}

// own returns the value of a local for a change in place.
func own[T ast.Value](f *frame, l ir.Local, clone func(T) T) (T, error) {
	var none T
	if int(l) >= len(f.locals) || f.locals[l] == nil {
		return none, because(false, "adds to what is not defined")
	}
	v, ok := f.locals[l].Value.(T)
	if !ok {
		return none, because(false, "adds to what is of another type")
	}
	if !f.fresh[l] {
		v = clone(v)
		f.create(l, v)
	}
	return v, nil
}

func (m *machine) arrayAppend(f *frame, s *ir.ArrayAppendStmt) error {
	v := m.read(f, s.Value)
	array, err := own(f, s.Array, func(a *ast.Array) *ast.Array { return a })
	if err == nil && v != nil {
		f.create(s.Array, array.Append(v))
	}
	return err
}

func (m *machine) setAdd(f *frame, s *ir.SetAddStmt) error {
	v := m.read(f, s.Value)
	set, err := own(f, s.Set, func(s ast.Set) ast.Set { return ast.NewSet(s.Slice()...) })
	if err != nil {
		return err
	}
	if set.Len() > 0 { // one member alone is neither the same as another nor before it
		if holes := m.texts.holes(v.Value) | m.texts.holes(set); holes != 0 {
			return because(holes == 1<<Tool, "puts a text into a set with others")
		}
	}
	set.Add(v)
	return nil
}

func (m *machine) insert(f *frame, into ir.Local, key, v *ast.Term) error {
	if m.texts.In(key.Value) {
		return because(m.texts.only(key.Value, Tool), "makes a text the key of an object")
	}
	object, err := own(f, into, cloneObject)
	switch {
	case err != nil:
		return err
	case object.Get(key) == nil:
		object.Insert(key, v)
	default: // an object would not notice that what its hash rests on is replaced
		clone := ast.NewObject()
		object.Foreach(func(k, old *ast.Term) {
			if k.Equal(key) {
				old = v
			}
			clone.Insert(k, old)
		})
		f.create(into, clone)
	}
	return nil
}

func (m *machine) insertOnce(f *frame, s *ir.ObjectInsertOnceStmt) error {
	key, v := m.read(f, s.Key), m.read(f, s.Value)
	if m.texts.In(key.Value) {
		return because(m.texts.only(key.Value, Tool), "makes a text the key of an object")
	}
	object, err := own(f, s.Object, cloneObject)
	if err != nil {
		return err
	}
	if old := object.Get(key); old != nil {
		return m.once(old, v)
	}
	object.Insert(key, v)
	return nil
}

func cloneObject(o ast.Object) ast.Object {
	clone := ast.NewObject()
	o.Foreach(func(k, v *ast.Term) { clone.Insert(k, v) })
	return clone
}

// merge returns the union of two documents, a over b, as the planner needs it
// where rules and data meet.
func (m *machine) merge(a, b *ast.Term) (*ast.Term, error) {
	switch {
	case a == nil:
		return b, nil
	case b == nil:
		return a, nil
	}
	x, okX := a.Value.(ast.Object)
	y, okY := b.Value.(ast.Object)
	if !okX || !okY {
		return a, nil
	}
	if m.texts.Opaque(x) || m.texts.Opaque(y) {
		return nil, because(false, "looks into the arguments")
	}
	out := cloneObject(x)
	var err error
	y.Until(func(k, v *ast.Term) bool {
		old := x.Get(k)
		if old == nil {
			out.Insert(k, v)
			return false
		}
		var merged *ast.Term
		if merged, err = m.merge(old, v); err == nil {
			next := ast.NewObject()
			out.Foreach(func(k2, v2 *ast.Term) {
				if k2.Equal(k) {
					v2 = merged
				}
				next.Insert(k2, v2)
			})
			out = next
		}
		return err != nil
	})
	return ast.NewTerm(out), err
}
