package symbolic

import (
	"slices"
	"strings"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// builtin calls a built-in function, if it is one that gives the same result
// whenever it is asked. Without marks in its arguments it is OPA's own function
// that runs, but for the frequent ones. With marks, it must be one of copying.
func (m *machine) builtin(name string, args []value) (value, error) {
	switch {
	case name == ast.WalkBuiltin.Name:
		return value{}, because(false, "goes through a document")
	case !pure()[name]:
		return value{}, because(false, "can give another result each time")
	}
	var in holes
	for _, a := range args {
		if a.Term == nil {
			return value{}, because(false, "takes what is not defined")
		}
		in |= a.holes
	}
	if in == 0 && !frequent[name] {
		return m.native(name, args)
	}
	copying, ok := copying[name]
	if !ok {
		return value{}, because(in.only(Tool), "computes with a text")
	}
	return copying(m, name, args)
}

// native runs OPA's implementation.
func (m *machine) native(name string, args []value) (value, error) {
	function := topdown.GetBuiltin(name)
	if function == nil {
		return value{}, because(false, "is not a built-in function of this program")
	}
	terms := make([]*ast.Term, len(args))
	var in holes
	stable := m.session != nil
	for i, a := range args {
		terms[i] = a.Term
		in |= a.holes
		stable = stable && a.stable
	}
	if v, ok := m.session.result(name, terms); stable && ok {
		return m.part(value{holes: in, stable: true}, v), nil
	}
	m.result, m.results = nil, 0
	err := function(m.bctx, terms, m.collect)
	switch {
	case m.ctx.Err() != nil:
		return value{}, m.ctx.Err()
	case err != nil:
		return value{}, because(false, "fails: "+err.Error())
	case m.results > 1:
		return value{}, because(false, "has several results")
	}
	if stable {
		m.session.remember(name, terms, m.result)
	}
	return m.part(value{holes: in, stable: stable}, m.result), nil
}

// impure lists the built-in functions outside whole families that read a
// clock, the world, or the machine, and are not marked as such by OPA.
var impure = []string{
	"crypto.x509.parse_and_verify_certificates", "crypto.x509.parse_and_verify_certificates_with_options",
	"trace", "print", "internal.print", "internal.test_case",
}

// families lists the prefixes of those that read a clock or a time zone, sign,
// or ask about the policy itself.
var families = []string{"time.", "http.", "io.jwt.", "opa.", "rand.", "rego.", "net.lookup", "providers.", "uuid.rfc4122"}

// pure holds the built-in functions that always give the same result for the
// same arguments. One that a program has added to OPA may do anything.
var pure = sync.OnceValue(func() map[string]bool {
	set := map[string]bool{}
	for _, b := range ast.DefaultBuiltins {
		family := func(prefix string) bool { return strings.HasPrefix(b.Name, prefix) }
		set[b.Name] = !b.Nondeterministic && !b.Relation &&
			!slices.Contains(impure, b.Name) && !slices.ContainsFunc(families, family)
	}
	return set
})

// copying are the built-in functions that do not ask what a text says, with what
// has to hold for that.
var copying = map[string]func(m *machine, name string, args []value) (value, error){
	"eq":                       equality(true),
	"equal":                    equality(true),
	"neq":                      equality(false),
	"internal.member_2":        (*machine).member,
	"internal.member_3":        (*machine).memberAt,
	"is_array":                 ofType[*ast.Array],
	"is_boolean":               ofType[ast.Boolean],
	"is_null":                  ofType[ast.Null],
	"is_number":                ofType[ast.Number],
	"is_object":                ofType[ast.Object],
	"is_set":                   ofType[ast.Set],
	"is_string":                ofType[ast.String],
	"type_name":                (*machine).native,
	"array.concat":             (*machine).native,
	"array.reverse":            (*machine).native,
	"array.slice":              (*machine).plain,
	"count":                    (*machine).count,
	"concat":                   (*machine).native, // joins what its list holds, and fails on what is no text
	"sprintf":                  (*machine).sprintf,
	"internal.template_string": (*machine).template,
	"object.get":               (*machine).objectGet,
	"object.keys":              (*machine).plain,
	"object.remove":            (*machine).plain,
	"object.union":             (*machine).union,
	"object.union_n":           (*machine).unionAll,
}

// frequent are those of them that run without marks too: they are simple, and
// policies ask them so often that the way to OPA's would cost more than they do.
var frequent = map[string]bool{
	"internal.member_2": true, "object.get": true,
	"is_array": true, "is_boolean": true, "is_null": true, "is_number": true, "is_object": true, "is_string": true,
}

func truth(b bool) value { return value{Term: ast.InternedTerm(b), stable: true} }

func equality(want bool) func(*machine, string, []value) (value, error) {
	return func(m *machine, _ string, args []value) (value, error) {
		same, err := m.equal(args[0], args[1])
		return truth(same == want), err
	}
}

func ofType[T ast.Value](_ *machine, _ string, args []value) (value, error) {
	_, ok := args[0].Value.(T)
	return truth(ok), nil
}

// plain runs a function that looks at its first argument's outside only, and at
// the others: marks may be inside the first.
func (m *machine) plain(name string, args []value) (value, error) {
	for _, a := range args[1:] {
		if a.holes != 0 {
			return value{}, because(a.holes.only(Tool), "computes with a text")
		}
	}
	if m.texts.Opaque(args[0].Value) {
		return value{}, because(false, "looks into the arguments")
	}
	return m.native(name, args)
}

func (m *machine) count(name string, args []value) (value, error) {
	if _, ok := args[0].Value.(ast.String); ok {
		return value{}, because(args[0].holes.only(Tool), "counts a text's characters")
	}
	return m.plain(name, args)
}

// sprintf copies a text where a plain verb stands for it. Other verbs, and
// lists that hold a text, are written in a form that depends on it.
func (m *machine) sprintf(name string, args []value) (value, error) {
	format, ok := args[0].Value.(ast.String)
	list, isArray := args[1].Value.(*ast.Array)
	if !ok || !isArray || m.texts.In(format) {
		return value{}, because(args[0].holes.only(Tool), "takes a text as its format")
	}
	verbs, ok := plainVerbs(string(format))
	if !ok || len(verbs) != list.Len() {
		return value{}, because(args[1].holes.only(Tool), "formats a text in another way than with %s or %v alone")
	}
	for i := range list.Len() {
		v := list.Elem(i).Value
		if _, isText := v.(ast.String); m.texts.In(v) && (!isText || verbs[i] == 'd') {
			return value{}, because(m.texts.holes(v).only(Tool), "formats what a text is part of")
		}
	}
	return m.native(name, args)
}

// plainVerbs returns the verbs of a format; ok is false if one has flags or is
// other than s, v and d.
func plainVerbs(format string) (verbs []byte, ok bool) {
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			continue
		}
		if i++; i == len(format) {
			return nil, false
		}
		switch format[i] {
		case '%':
		case 's', 'v', 'd':
			verbs = append(verbs, format[i])
		default:
			return nil, false
		}
	}
	return verbs, true
}

// template is what a template string is compiled to: a list of texts and of
// sets with the one value of an expression.
func (m *machine) template(name string, args []value) (value, error) {
	list, ok := args[0].Value.(*ast.Array)
	if !ok {
		return value{}, because(false, "is no template that can be followed")
	}
	for i := range list.Len() {
		v := list.Elem(i).Value
		if set, isSet := v.(ast.Set); isSet && set.Len() == 1 {
			v = set.Slice()[0].Value
		}
		if _, isText := v.(ast.String); m.texts.In(v) && !isText {
			return value{}, because(m.texts.holes(v).only(Tool), "formats what a text is part of")
		}
	}
	return m.native(name, args)
}

func (m *machine) member(_ string, args []value) (value, error) {
	if m.texts.Opaque(args[1].Value) {
		return value{}, because(false, "looks into the arguments")
	}
	var among []*ast.Term
	switch c := args[1].Value.(type) {
	case ast.Set:
		if args[0].holes|args[1].holes == 0 {
			return truth(c.Contains(args[0].Term)), nil
		}
		among = c.Slice()
	case *ast.Array:
		c.Foreach(func(v *ast.Term) { among = append(among, v) })
	case ast.Object:
		c.Foreach(func(_, v *ast.Term) { among = append(among, v) })
	}
	var unknown error
	for _, v := range among {
		same, err := m.equal(args[0], m.part(args[1], v))
		if err == nil && same {
			return truth(true), nil
		}
		if unknown == nil {
			unknown = err
		}
	}
	return truth(false), unknown
}

func (m *machine) memberAt(_ string, args []value) (value, error) {
	if _, isSet := args[2].Value.(ast.Set); isSet {
		return value{}, because(args[2].holes.only(Tool), "looks a text up in a set")
	}
	found, err := m.dot(args[2], args[0])
	if err != nil || found.Term == nil {
		return truth(false), err
	}
	same, err := m.equal(args[1], found)
	return truth(same), err
}

func (m *machine) objectGet(_ string, args []value) (value, error) {
	if _, ok := args[0].Value.(ast.Object); !ok {
		return value{}, because(false, "fails: its first operand must be an object")
	}
	steps := []value{args[1]}
	if path, ok := args[1].Value.(*ast.Array); ok {
		steps = nil
		path.Foreach(func(step *ast.Term) { steps = append(steps, m.part(args[1], step)) })
	}
	at := args[0]
	for _, step := range steps {
		v, err := m.dot(at, step)
		if err != nil {
			return value{}, err
		}
		if v.Term == nil {
			return args[2], nil
		}
		at = v
	}
	return at, nil
}

func (m *machine) union(name string, args []value) (value, error) {
	if m.meets(args[0].Value, args[1].Value) {
		return value{}, because(false, "merges the arguments with another object")
	}
	return m.native(name, args)
}

func (m *machine) unionAll(name string, args []value) (value, error) {
	list, ok := args[0].Value.(*ast.Array)
	if !ok {
		return value{}, because(false, "fails: its operand must be an array")
	}
	for i := range list.Len() {
		for j := range i {
			if m.meets(list.Elem(i).Value, list.Elem(j).Value) {
				return value{}, because(false, "merges the arguments with another object")
			}
		}
	}
	return m.native(name, args)
}

// meets reports whether a union of a and b merges the arguments with another
// object, member by member.
func (m *machine) meets(a, b ast.Value) bool {
	x, okX := a.(ast.Object)
	y, okY := b.(ast.Object)
	if !okX || !okY {
		return false
	}
	if m.texts.Opaque(x) || m.texts.Opaque(y) {
		return x.Compare(y) != 0
	}
	return x.Until(func(k, v *ast.Term) bool {
		other := y.Get(k)
		return other != nil && m.meets(v.Value, other.Value)
	})
}
