package symbolic

import (
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/ir"
)

// exclude notes that the answer does not hold where that text stands in a hole.
func (m *machine) exclude(h Hole, text string) (verdict, error) {
	if len(m.except[h]) >= maxExcept {
		return varies, because(h == Tool, "compares a text with many others")
	}
	if m.except == nil {
		m.except = map[Hole][]string{}
	}
	m.except[h] = append(m.except[h], text)
	m.excepts++
	return never, nil
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
func (m *machine) equal(a, b value) (bool, error) {
	if a.Term == nil || b.Term == nil {
		return false, because(false, "compares what is not defined")
	}
	if a.holes|b.holes == 0 {
		return a.Value.Compare(b.Value) == 0, nil
	}
	v, err := m.compare(a.Value, b.Value)
	if err != nil || v != varies {
		return v == always, err
	}
	return false, because((a.holes | b.holes).only(Tool), "compares a text")
}

// part returns a term that stands in whole.
func (m *machine) part(whole value, t *ast.Term) value {
	v := value{Term: t, stable: whole.stable}
	if t != nil && whole.holes != 0 {
		known, ok := m.parts[t]
		if !ok {
			known = m.texts.holes(t.Value)
		}
		v.holes = known
	}
	return v
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
	if !m.texts.In(a) {
		return never, nil
	}
	pieces := m.texts.Pieces(string(a))
	h := pieces[0].Hole
	switch {
	case len(pieces) > 1 || m.texts.In(b):
		return varies, nil
	case h == Tool && b == "": // a tool has a name
		return never, nil
	case m.split&(1<<h) == 0:
		return varies, nil
	default:
		return m.exclude(h, string(b))
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
func (m *machine) once(old, v value) error {
	if old.Term == nil {
		return nil
	}
	same, err := m.equal(old, v)
	if err == nil && !same {
		err = because(false, "gives two values to one thing")
	}
	return err
}

// dot returns source[key]; it may be undefined.
func (m *machine) dot(source, key value) (value, error) {
	if source.Term == nil || key.Term == nil {
		return value{}, nil
	}
	if source.holes != 0 && m.texts.Opaque(source.Value) {
		return value{}, because(false, "looks into the arguments")
	}
	if key.holes != 0 {
		return m.lookup(source, key)
	}
	switch s := source.Value.(type) {
	case ast.Object:
		v := s.Get(key.Term)
		if n, ok := key.Value.(ast.Number); ok && v == nil && s.Get(ast.StringTerm(string(n))) != nil {
			return value{}, because(false, "looks for a number where a text of it is a key")
		}
		return m.part(source, v), nil
	case *ast.Array:
		if _, ok := key.Value.(ast.Number); !ok { // in data, OPA takes some texts for an index
			return value{}, because(false, "indexes a list by what is no number")
		}
		return m.part(source, s.Get(key.Term)), nil
	case ast.Set:
		if source.holes != 0 {
			return value{}, because(source.holes.only(Tool), "looks for a text in a set")
		}
		if s.Contains(key.Term) {
			return key, nil
		}
	}
	return value{}, nil
}

// lookup looks a key with a mark up in source. If it finds nothing, the answer
// is for tools of other names than source has.
func (m *machine) lookup(source, key value) (value, error) {
	var keys []*ast.Term
	switch s := source.Value.(type) {
	case ast.Object:
		keys = s.Keys()
	case ast.Set:
		keys = s.Slice()
	case *ast.Array: // in data, OPA takes some texts for an index
		return value{}, because(key.holes.only(Tool), "indexes a list by a text")
	}
	for _, k := range keys {
		same, err := m.equal(key, m.part(source, k))
		if err != nil {
			return value{}, err
		}
		if same {
			if object, ok := source.Value.(ast.Object); ok {
				return m.part(source, object.Get(k)), nil
			}
			return key, nil
		}
	}
	return value{}, nil
}

func (m *machine) length(v value) (int, error) {
	if v.Term != nil && !m.texts.Opaque(v.Value) {
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

// own returns the value of a local for a change in place, by which it gets
// more holes.
func own[T ast.Value](m *machine, f *frame, l ir.Local, more holes, clone func(T) T) (T, error) {
	var none T
	if int(l) >= len(f.locals) || f.locals[l].Term == nil {
		return none, because(false, "adds to what is not defined")
	}
	at := &f.locals[l]
	v, ok := at.Value.(T)
	if !ok {
		return none, because(false, "adds to what is of another type")
	}
	if !at.fresh {
		m.steps += size(v)
		v = clone(v)
		f.create(l, v, at.holes)
	}
	at.holes |= more
	return v, nil
}

// size is what a copy of v costs, in steps.
func size(v ast.Value) int {
	switch v := v.(type) {
	case ast.Object:
		return v.Len()
	case ast.Set:
		return v.Len()
	}
	return 0
}

func (m *machine) arrayAppend(f *frame, s *ir.ArrayAppendStmt) error {
	v := m.read(f, s.Value)
	array, err := own(m, f, s.Array, v.holes, func(a *ast.Array) *ast.Array { return a })
	if err == nil && v.Term != nil {
		m.steps += array.Len() / 64 // it is copied, quickly
		f.create(s.Array, array.Append(v.Term), f.locals[s.Array].holes)
	}
	return err
}

func (m *machine) setAdd(f *frame, s *ir.SetAddStmt) error {
	v := m.read(f, s.Value)
	if v.Term == nil {
		return because(false, "adds what is not defined")
	}
	set, err := own(m, f, s.Set, v.holes, func(s ast.Set) ast.Set { return ast.NewSet(s.Slice()...) })
	if err != nil {
		return err
	}
	// One member alone is neither the same as another nor before it.
	if h := f.locals[s.Set].holes; h != 0 && set.Len() > 0 {
		return because(h.only(Tool), "puts a text into a set with others")
	}
	set.Add(v.Term)
	return nil
}

func (m *machine) insert(f *frame, into ir.Local, key, v value) error {
	object, err := m.owned(f, into, key, v)
	switch {
	case err != nil:
		return err
	case object.Get(key.Term) == nil:
		object.Insert(key.Term, v.Term)
	default: // an object would not notice that what its hash rests on is replaced
		m.steps += object.Len()
		f.create(into, replace(object, key.Term, v.Term), f.locals[into].holes)
	}
	return nil
}

func (m *machine) insertOnce(f *frame, s *ir.ObjectInsertOnceStmt) error {
	key, v := m.read(f, s.Key), m.read(f, s.Value)
	object, err := m.owned(f, s.Object, key, v)
	if err != nil {
		return err
	}
	if old := object.Get(key.Term); old != nil {
		return m.once(m.part(f.locals[s.Object].value, old), v)
	}
	object.Insert(key.Term, v.Term)
	return nil
}

// owned returns the object of a local, to insert a member into.
func (m *machine) owned(f *frame, l ir.Local, key, v value) (ast.Object, error) {
	if key.Term == nil || v.Term == nil {
		return nil, because(false, "adds what is not defined")
	}
	if key.holes != 0 {
		return nil, because(key.holes.only(Tool), "makes a text the key of an object")
	}
	return own(m, f, l, v.holes, func(o ast.Object) ast.Object { return replace(o, nil, nil) })
}

// replace returns a copy of an object with another value at key.
func replace(o ast.Object, key, v *ast.Term) ast.Object {
	out := ast.NewObject()
	o.Foreach(func(k, old *ast.Term) {
		if key != nil && k.Equal(key) {
			old = v
		}
		out.Insert(k, old)
	})
	return out
}

// merge returns the union of two documents, a over b, as the planner needs it
// where rules and data meet.
func (m *machine) merge(a, b value) (value, error) {
	switch {
	case a.Term == nil:
		return b, nil
	case b.Term == nil:
		return a, nil
	}
	x, okX := a.Value.(ast.Object)
	y, okY := b.Value.(ast.Object)
	if !okX || !okY {
		return a, nil
	}
	if m.texts.Opaque(x) || m.texts.Opaque(y) {
		return value{}, because(false, "looks into the arguments")
	}
	out := replace(x, nil, nil)
	var err error
	y.Until(func(k, v *ast.Term) bool {
		old := x.Get(k)
		if old == nil {
			out.Insert(k, v)
			return false
		}
		var merged value
		if merged, err = m.merge(m.part(a, old), m.part(b, v)); err == nil {
			out = replace(out, k, merged.Term)
		}
		return err != nil
	})
	return value{Term: ast.NewTerm(out), holes: a.holes | b.holes}, err
}
