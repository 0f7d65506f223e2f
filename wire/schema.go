package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v5"
)

// A Schema is a compiled draft-07 schema together with its own text, from
// which errors say what was expected. It is safe for use by several goroutines.
type Schema struct {
	compiled *jsonschema.Schema
	text     any
}

// CompileSchema compiles the text of a draft-07 schema; name stands for it in
// errors. The schema must not refer to others.
func CompileSchema(name string, text []byte) (*Schema, error) {
	name = "schema:///" + name // absolute, or the library would ask for the working directory
	c := jsonschema.NewCompiler()
	c.Draft = jsonschema.Draft7
	if err := c.AddResource(name, bytes.NewReader(text)); err != nil {
		return nil, err
	}
	compiled, err := c.Compile(name)
	if err != nil {
		return nil, err
	}
	s := &Schema{compiled: compiled}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	return s, dec.Decode(&s.text)
}

// Decode reads data as one JSON value that keeps the schema, as strictly as the
// gate's own documents are read. Objects are map[string]any, numbers
// json.Number. Its errors are *[Error]; of several violations it reports the one
// whose pointer sorts first.
func (s *Schema) Decode(data []byte) (any, error) {
	v, err := s.decode(data, "")
	return v.root, err
}

func (s *Schema) decode(data []byte, keep jsontext.Pointer) (value, error) {
	v, err := decode(data, keep)
	if err != nil {
		return value{}, err
	}
	if e := s.check(v.root); e != nil {
		e.Line = lineOf(data, e.Pointer)
		return value{}, e
	}
	return v, nil
}

// check validates v. Of several violations it reports the one whose pointer
// sorts first, as the policies do.
func (s *Schema) check(v any) *Error {
	err := s.compiled.Validate(v)
	if err == nil {
		return nil
	}
	invalid, ok := err.(*jsonschema.ValidationError)
	if !ok { // an instance that no JSON text can be; the decoder makes none
		return &Error{Kind: Invalid, Line: 1, Expected: "a JSON value", Got: err.Error()}
	}
	var found []*Error
	s.collect(invalid, v, &found)
	return slices.MinFunc(found, func(a, b *Error) int { return strings.Compare(a.Pointer, b.Pointer) })
}

// collect walks to the violations that have no cause of their own.
func (s *Schema) collect(e *jsonschema.ValidationError, root any, found *[]*Error) {
	for _, cause := range e.Causes {
		s.collect(cause, root, found)
	}
	if len(e.Causes) > 0 {
		return
	}
	if pointer, err := url.PathUnescape(e.InstanceLocation); err == nil { // the library writes it as part of a URL
		e.InstanceLocation = pointer
	}
	_, location, _ := strings.Cut(e.AbsoluteKeywordLocation, "#")
	at, keyword := splitPointer(location)
	instance, _ := resolve(root, e.InstanceLocation)
	node, _ := resolve(s.text, at)
	rule, _ := node.(map[string]any)
	out := &Error{Kind: Invalid, Line: 1, Pointer: e.InstanceLocation}
	switch keyword {
	case "required":
		object, _ := instance.(map[string]any)
		for _, name := range stringsOf(rule["required"]) {
			if _, ok := object[name]; !ok {
				missing := &Error{Kind: Invalid, Line: 1, Pointer: e.InstanceLocation + "/" + escapePointer(name),
					Expected: "this member; it is missing"}
				known, _ := rule["properties"].(map[string]any)
				if like := misspelt(name, object, known); like != "" {
					missing.Got = "a member " + excerpt([]byte(like))
				}
				*found = append(*found, missing)
			}
		}
		return
	case "additionalProperties":
		object, _ := instance.(map[string]any)
		known, _ := rule["properties"].(map[string]any)
		names := slices.Sorted(maps.Keys(known))
		for name := range object {
			if _, ok := known[name]; !ok {
				*found = append(*found, &Error{Kind: Invalid, Line: 1, Pointer: e.InstanceLocation + "/" + escapePointer(name),
					Expected: "only " + wordList(names), Got: "a member " + excerpt([]byte(name)), Nearest: Nearest(name, names)})
			}
		}
		return
	case "enum":
		names := stringsOf(rule["enum"])
		out.Expected = quotedList(names)
		out.Got = describe(instance)
		if text, ok := instance.(string); ok {
			out.Nearest = Nearest(text, names)
		}
	case "type":
		out.Expected = typeList(rule["type"])
		out.Got = describe(instance)
	case "minLength":
		out.Expected, out.Got = "a text that is not empty", describe(instance)
	case "minItems":
		out.Expected, out.Got = fmt.Sprintf("at least %v in the list", rule["minItems"]), "fewer"
	case "minimum", "maximum":
		out.Expected = fmt.Sprintf("an integer from %v to %v", rule["minimum"], rule["maximum"])
		out.Got = describe(instance)
	default: // the schema can word what nothing here does
		out.Expected, _ = rule["$comment"].(string)
		if out.Expected == "" {
			out.Expected = e.Message
		} else {
			out.Got = describe(instance)
		}
	}
	*found = append(*found, out)
}

// misspelt returns the member of object that the schema does not know and that
// looks like name, or "".
func misspelt(name string, object, known map[string]any) string {
	var strange []string
	for _, member := range slices.Sorted(maps.Keys(object)) {
		if _, ok := known[member]; !ok {
			strange = append(strange, member)
		}
	}
	return Nearest(name, strange)
}

func stringsOf(list any) []string {
	var out []string
	items, _ := list.([]any)
	for _, item := range items {
		if s, ok := item.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

// typeList words a schema's type; null goes without saying.
func typeList(t any) string {
	if name, ok := t.(string); ok {
		if name == "null" { // the schema of what another kind of transform has
			return "no such member beside this kind"
		}
		return typeName(name)
	}
	var names []string
	for _, name := range stringsOf(t) {
		if name != "null" {
			names = append(names, typeName(name))
		}
	}
	return strings.Join(names, " or ")
}

func typeName(name string) string {
	switch name {
	case "object", "array", "integer":
		return "an " + name
	case "boolean":
		return "true or false"
	default:
		return "a " + name
	}
}

// describe words a value for a message: what it is, and its text if short.
func describe(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(v)
	case json.Number:
		return "the number " + v.String()
	case string:
		return excerpt([]byte(v))
	case []any:
		return "an array"
	default:
		return "an object"
	}
}

func quotedList(names []string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = strconv.Quote(n)
	}
	return orList(quoted)
}

func wordList(names []string) string {
	return strings.Replace(orList(names), " or ", " and ", 1)
}

func orList(words []string) string {
	if n := len(words); n > 1 {
		return strings.Join(words[:n-1], ", ") + " or " + words[n-1]
	}
	return strings.Join(words, "")
}

// splitPointer parts a pointer from its last token.
func splitPointer(pointer string) (head, last string) {
	i := strings.LastIndexByte(pointer, '/')
	if i < 0 {
		return "", pointer
	}
	return pointer[:i], pointer[i+1:]
}

var (
	pointerEscaper   = strings.NewReplacer("~", "~0", "/", "~1")
	pointerUnescaper = strings.NewReplacer("~1", "/", "~0", "~")
)

func escapePointer(token string) string { return pointerEscaper.Replace(token) }

// resolve follows a JSON pointer.
func resolve(v any, pointer string) (any, bool) {
	if pointer == "" {
		return v, true
	}
	for token := range strings.SplitSeq(pointer[1:], "/") {
		token = pointerUnescaper.Replace(token)
		switch node := v.(type) {
		case map[string]any:
			child, ok := node[token]
			if !ok {
				return nil, false
			}
			v = child
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(node) {
				return nil, false
			}
			v = node[i]
		default:
			return nil, false
		}
	}
	return v, true
}
