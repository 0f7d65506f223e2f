package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v5"
)

// A schema is a compiled draft-07 schema together with its own text, from
// which errors say what was expected.
type schema struct {
	compiled *jsonschema.Schema
	text     any
}

func compileSchema(name string, text []byte) (*schema, error) {
	c := jsonschema.NewCompiler()
	c.Draft = jsonschema.Draft7
	if err := c.AddResource(name, bytes.NewReader(text)); err != nil {
		return nil, err
	}
	compiled, err := c.Compile(name)
	if err != nil {
		return nil, err
	}
	s := &schema{compiled: compiled}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	return s, dec.Decode(&s.text)
}

// check validates v. Of several violations it reports the one whose pointer
// sorts first, as the policies do.
func (s *schema) check(v any) *Error {
	err := s.compiled.Validate(v)
	if err == nil {
		return nil
	}
	invalid, ok := err.(*jsonschema.ValidationError)
	if !ok { // an instance that no JSON text can be; the decoder makes none
		return &Error{Kind: Schema, Line: 1, Expected: "a JSON value", Got: err.Error()}
	}
	var found []*Error
	s.collect(invalid, v, &found)
	return slices.MinFunc(found, func(a, b *Error) int { return strings.Compare(a.Pointer, b.Pointer) })
}

// collect walks to the violations that have no cause of their own.
func (s *schema) collect(e *jsonschema.ValidationError, root any, found *[]*Error) {
	for _, cause := range e.Causes {
		s.collect(cause, root, found)
	}
	if len(e.Causes) > 0 {
		return
	}
	at, keyword := splitPointer(e.KeywordLocation)
	instance, _ := resolve(root, e.InstanceLocation)
	node, _ := resolve(s.text, at)
	rule, _ := node.(map[string]any)
	out := &Error{Kind: Schema, Line: 1, Pointer: e.InstanceLocation}
	switch keyword {
	case "required":
		object, _ := instance.(map[string]any)
		for _, name := range stringsOf(rule["required"]) {
			if _, ok := object[name]; !ok {
				*found = append(*found, &Error{Kind: Schema, Line: 1, Pointer: e.InstanceLocation + "/" + escapePointer(name),
					Expected: "this member; it is missing"})
			}
		}
		return
	case "additionalProperties":
		object, _ := instance.(map[string]any)
		known, _ := rule["properties"].(map[string]any)
		names := slices.Sorted(maps.Keys(known))
		for name := range object {
			if _, ok := known[name]; !ok {
				*found = append(*found, &Error{Kind: Schema, Line: 1, Pointer: e.InstanceLocation + "/" + escapePointer(name),
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
	case "minimum", "maximum":
		out.Expected = fmt.Sprintf("an integer from %v to %v", rule["minimum"], rule["maximum"])
		out.Got = describe(instance)
	default:
		out.Expected = e.Message
	}
	*found = append(*found, out)
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
