package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/opa-gate/opa-gate/capability"
)

// A row is one way to decide a call.
type row struct {
	name string

	// open makes the row ready, as a program does once when it starts: parse,
	// compile, prepare.
	open func(context.Context) (decider, error)
}

// A decider takes a document in and hands back how to decide it. What bind
// does is not timed: every row gets the call in the form that it likes best.
type decider interface {
	bind(ctx context.Context, doc *document) (*bound, error)
}

// A bound decides one document.
type bound struct {
	run    func() error            // timed: one decision, up to where the row's own API returns
	answer func() (*answer, error) // not timed: what the last run answered
}

// An answer is what is held against the native reference. A row that answers
// less than the gate does leaves out what it does not have.
type answer struct {
	kind     capability.Kind
	missing  *capability.Set
	document []byte // the whole decision as JSON
}

// rows returns every row, in the order of the table.
func rows() []row {
	return []row{
		{nativeName, openNative},
		{autoName, openAuto},
		{opaEachName, openInterpreter},
		{"OPA, prepared, parsed input", openOPA(parsedInput)},
		{goMapName, openOPA(goInput)},
		{"OPA, wasm", openWasm},
		{celName, openCEL},
		{cedarName, openCedar},
	}
}

// check compares a with the native outcome.
func (a *answer) check(want *capability.Outcome) error {
	if a.kind != want.Kind {
		return fmt.Errorf("it answers %v, native %v", a.kind, want.Kind)
	}
	if a.missing != nil && *a.missing != want.Missing {
		return fmt.Errorf("it lacks %v, native %v", *a.missing, want.Missing)
	}
	if a.document == nil {
		return nil
	}
	text, err := want.MarshalJSON()
	if err != nil {
		return err
	}
	mine, err := decodeJSON(a.document)
	if err != nil {
		return err
	}
	natives, err := decodeJSON(text)
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(mine, natives) {
		return fmt.Errorf("it answers %s, native %s", a.document, text)
	}
	return nil
}

// decodeJSON keeps numbers as they are written.
func decodeJSON(text []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	err := dec.Decode(&v)
	return v, err
}
