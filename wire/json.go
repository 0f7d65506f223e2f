package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Bounds of a document. What exceeds one is an error, never cut.
const (
	MaxBytes        = 16 << 20 // length of one document
	MaxDepth        = 256      // nesting of objects and arrays
	maxNumberLength = 1000     // characters of one number
	maxExponent     = 9999     // magnitude of a number's exponent
)

// A value is one decoded JSON document: objects as map[string]any, numbers as
// json.Number with their text as it was given.
type value struct {
	root any
	raw  map[string]json.RawMessage // the text of the values that were asked for, by pointer
}

// decode reads data as exactly one JSON value. Errors are *Error with a line
// counted from 1 within data. It keeps the raw text of the value at keep, if
// there is one.
func decode(data []byte, keep jsontext.Pointer) (value, error) {
	if len(data) > MaxBytes {
		return value{}, &Error{Kind: TooLarge, Line: 1, Expected: fmt.Sprintf("at most %d bytes", MaxBytes),
			Got: fmt.Sprintf("%d", len(data))}
	}
	d := decoder{Decoder: jsontext.NewDecoder(bytes.NewReader(data)), data: data, keep: keep}
	d.value.raw = make(map[string]json.RawMessage, 1)
	root, err := d.decode()
	if err != nil {
		return value{}, d.locate(err)
	}
	end := d.InputOffset()
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		rest := bytes.TrimLeft(data[end:], " \t\r\n")
		return value{}, &Error{Kind: Syntax, Line: lineAt(data, int64(len(data)-len(rest))),
			Expected: "the end of the document", Got: excerpt(rest)}
	}
	d.value.root = root
	return d.value, nil
}

type decoder struct {
	*jsontext.Decoder
	data  []byte
	keep  jsontext.Pointer
	value value
}

func (d *decoder) decode() (any, error) {
	if k := d.PeekKind(); d.StackDepth() >= MaxDepth && (k == jsontext.KindBeginObject || k == jsontext.KindBeginArray) {
		return nil, d.fail(TooLarge, fmt.Sprintf("at most %d levels of nesting", MaxDepth), "more")
	}
	tok, err := d.ReadToken()
	if err != nil {
		return nil, err
	}
	switch tok.Kind() {
	case jsontext.KindNull:
		return nil, nil
	case jsontext.KindTrue, jsontext.KindFalse:
		return tok.Bool(), nil
	case jsontext.KindString:
		return tok.String(), nil
	case jsontext.KindNumber:
		return d.number(tok.String())
	case jsontext.KindBeginArray:
		array := []any{}
		for d.PeekKind() != jsontext.KindEndArray {
			v, err := d.decode()
			if err != nil {
				return nil, err
			}
			array = append(array, v)
		}
		_, err := d.ReadToken()
		return array, err
	default: // an object: the decoder lets no other token stand here
		object := map[string]any{}
		for d.PeekKind() != jsontext.KindEndObject {
			name, err := d.ReadToken()
			if err != nil {
				return nil, err
			}
			key := name.String()
			start := d.InputOffset()
			v, err := d.decode()
			if err != nil {
				return nil, err
			}
			if d.keep != "" && d.StackPointer() == d.keep {
				text := bytes.TrimLeft(d.data[start:d.InputOffset()], " \t\r\n:")
				d.value.raw[string(d.keep)] = bytes.Clone(text)
			}
			object[key] = v
		}
		_, err := d.ReadToken()
		return object, err
	}
}

// number bounds a number's text. Numbers are kept as text, but whoever computes
// with one, a schema check or a policy, pays for its digits and its exponent.
func (d *decoder) number(text string) (any, error) {
	if len(text) > maxNumberLength {
		return nil, d.fail(TooLarge, fmt.Sprintf("a number of at most %d characters", maxNumberLength),
			fmt.Sprintf("one of %d", len(text)))
	}
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		if exp, err := strconv.Atoi(text[i+1:]); err != nil || exp > maxExponent || exp < -maxExponent {
			return nil, d.fail(TooLarge, fmt.Sprintf("an exponent between -%d and %d", maxExponent, maxExponent), text)
		}
	}
	return json.Number(text), nil
}

func (d *decoder) fail(kind ErrorKind, expected, got string) *Error {
	return &Error{Kind: kind, Pointer: string(d.StackPointer()), Line: lineAt(d.data, d.InputOffset()),
		Expected: expected, Got: got}
}

// locate turns an error of the JSON reader into one of ours.
func (d *decoder) locate(err error) error {
	var own *Error
	if errors.As(err, &own) {
		return own
	}
	e := &Error{Kind: Syntax, Pointer: string(d.StackPointer()), Line: lineAt(d.data, d.InputOffset())}
	var syntactic *jsontext.SyntacticError
	switch {
	case errors.As(err, &syntactic):
		e.Pointer = string(syntactic.JSONPointer)
		e.Line = lineAt(d.data, syntactic.ByteOffset)
		switch {
		case errors.Is(err, jsontext.ErrDuplicateName):
			e.Expected, e.Got = "each member once", "the same name again"
		case errors.Is(err, io.ErrUnexpectedEOF):
			e.Expected, e.Got = "the rest of the JSON value", "the end of the input"
		default:
			e.Expected, e.Got = "valid JSON", syntactic.Err.Error()
		}
	case errors.Is(err, io.EOF):
		e.Expected, e.Got = "a JSON object", "nothing"
	case errors.Is(err, io.ErrUnexpectedEOF):
		e.Expected, e.Got = "the rest of the JSON value", "the end of the input"
	default:
		e.Expected, e.Got = "valid JSON", err.Error()
	}
	return e
}

// lineAt returns the line of data, counted from 1, that holds the offset.
func lineAt(data []byte, offset int64) int {
	return 1 + bytes.Count(data[:min(max(offset, 0), int64(len(data)))], []byte("\n"))
}

// lineOf returns the line of the value at pointer, or, if there is none, of
// the value that should hold it.
func lineOf(data []byte, pointer string) int {
	parent, _ := splitPointer(pointer)
	dec := jsontext.NewDecoder(bytes.NewReader(data))
	line := 0 // not found yet
	for {
		if _, err := dec.ReadToken(); err != nil {
			return max(line, 1)
		}
		switch at := string(dec.StackPointer()); {
		case at == pointer:
			return lineAt(data, dec.InputOffset())
		case at == parent && line == 0:
			line = lineAt(data, dec.InputOffset())
		}
	}
}
