package plain

import (
	"encoding"
	standard "encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// JSON is the error of decoding JSON, by either package, without the names of Go
// types. Err stays what it is if it is another error than of a value that does not
// fit.
func JSON(err error) error {
	var wrong *standard.UnmarshalTypeError
	if errors.As(err, &wrong) {
		at := wrong.Field
		if at != "" {
			at = "/" + strings.ReplaceAll(at, ".", "/") + ": "
		}
		got, digits, _ := strings.Cut(wrong.Value, " ")
		if wanted := jsonWanted(wrong.Type); wanted != standardKinds[got] {
			return fmt.Errorf("%sexpected %s, got %s", at, wanted, standardKinds[got])
		}
		return fmt.Errorf("%sexpected a whole number of %d bits, got %s", at, wrong.Type.Bits(), digits)
	}
	if member, unknown := strings.CutPrefix(fmt.Sprint(err), "json: unknown field "); unknown {
		return fmt.Errorf("there is no member %s", member)
	}
	var noTime *time.ParseError
	if errors.As(err, &noTime) {
		return fmt.Errorf("expected a time such as 2026-01-31T12:30:00Z, got %q", noTime.Value)
	}
	var e *json.SemanticError
	kind := ""
	if errors.As(err, &e) && e.Err == nil && e.GoType != nil {
		kind = jsonKind(e.JSONKind)
	}
	if errors.Is(err, json.ErrUnknownName) && e != nil {
		return fmt.Errorf("%s: there is no such member", e.JSONPointer)
	}
	at := ""
	if e != nil && e.JSONPointer != "" {
		at = string(e.JSONPointer) + ": "
	}
	if e != nil && (errors.Is(e.Err, strconv.ErrRange) || errors.Is(e.Err, strconv.ErrSyntax)) && len(e.JSONValue) > 0 && e.GoType != nil && whole(e.GoType) {
		return fmt.Errorf("%sexpected a whole number of %d bits, got %s", at, e.GoType.Bits(), e.JSONValue)
	}
	if kind == "" {
		return err
	}
	return fmt.Errorf("%sexpected %s, got %s", at, jsonWanted(e.GoType), kind)
}

// whole reports whether a type has whole numbers.
func whole(t reflect.Type) bool { return t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64 }

// standardKinds are the kinds of values by what encoding/json calls them.
var standardKinds = map[string]string{"bool": "true or false", "string": "a string", "number": "a number", "object": "an object", "array": "an array"}

func jsonKind(k jsontext.Kind) string {
	switch k {
	case jsontext.KindNull:
		return "null"
	case jsontext.KindTrue, jsontext.KindFalse:
		return "true or false"
	case jsontext.KindString:
		return "a string"
	case jsontext.KindNumber:
		return "a number"
	case jsontext.KindBeginObject:
		return "an object"
	case jsontext.KindBeginArray:
		return "an array"
	}
	return ""
}

func jsonWanted(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return "a string"
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	}
	return "a number"
}
