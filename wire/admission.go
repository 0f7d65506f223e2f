package wire

import (
	"bytes"
	_ "embed" // the schema
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/opa-gate/opa-gate/capability"
)

// An Admission is a call that is to be settled: decided, and put to a person if
// the decision asks for one. As JSON it is
//
//	{"call": CALL, "arguments": {…}, "session": "…", "approval": "…", "expires_in": 600}
//
// where only the call must be there, as specification, section 7, has it.
type Admission struct {
	Call      *capability.Call
	Arguments json.RawMessage // as they came; nil if they were left out
	Session   string          // may be empty
	Approval  string          // a signed approval; empty if none came along
	Lifetime  time.Duration   // how long the call waits for a person; 0 if that was left out
}

//go:embed admission.json
var admissionText []byte

var admissionSchema = sync.OnceValue(func() *Schema {
	s, err := CompileSchema("admission.json", admissionText)
	if err != nil {
		panic("embedded schema admission.json: " + err.Error())
	}
	return s
})

// ParseAdmission reads one admission document. Its errors are *[Error]. What it
// returns is valid as [ParseCall] says, and shares no memory with data.
func ParseAdmission(data []byte) (*Admission, error) {
	v, err := admissionSchema().decode(data, "/arguments")
	if err != nil {
		return nil, err
	}
	doc := object(v.root)
	a := &Admission{
		Session:  text(doc["session"]),
		Approval: text(doc["approval"]),
		Lifetime: time.Duration(counter(doc["expires_in"])) * time.Second,
	}
	if object(doc["arguments"]) != nil {
		a.Arguments = v.raw["/arguments"]
	}
	call, line := member(data, "call")
	if a.Call, err = ParseCall(call); err != nil {
		var e *Error
		if errors.As(err, &e) {
			e.Pointer, e.Line = "/call"+e.Pointer, e.Line+line-1
		}
		return nil, err
	}
	return a, nil
}

// member returns the text of one member of an object that was read before, and
// the line on which it begins.
func member(data []byte, name string) (text []byte, line int) {
	d := jsontext.NewDecoder(bytes.NewReader(data))
	_, _ = d.ReadToken() // what was read before has no errors
	for d.PeekKind() == jsontext.KindString {
		found, err := d.ReadToken()
		if err != nil {
			break
		}
		is := found.String() == name
		value, err := d.ReadValue()
		if err != nil {
			break
		}
		if is {
			return value, lineAt(data, d.InputOffset()-int64(len(value)))
		}
	}
	return nil, 1
}
