package plain

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// JSON is the error of decoding JSON, without the names of Go types. Err stays
// what it is if it is another error than of a value that does not fit.
func JSON(err error) error {
	var e *json.SemanticError
	kind := ""
	if errors.As(err, &e) && e.Err == nil && e.GoType != nil {
		kind = jsonKind(e.JSONKind)
	}
	if errors.Is(err, json.ErrUnknownName) && e != nil {
		return fmt.Errorf("%s: there is no such member", e.JSONPointer)
	}
	if kind == "" {
		return err
	}
	at := ""
	if e.JSONPointer != "" {
		at = string(e.JSONPointer) + ": "
	}
	return fmt.Errorf("%sexpected %s, got %s", at, jsonWanted(e.GoType), kind)
}

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
