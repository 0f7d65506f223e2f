package wire

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
)

const plainCall = `{"tool": {"name": "t", "origin": "fetcher"}, "taint": "clean"}`

func TestParseAdmission(t *testing.T) {
	call, err := ParseCall([]byte(plainCall))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		doc  string
		want Admission
	}{
		{`{"call": ` + plainCall + `}`, Admission{Call: call}},
		{`{"call": ` + plainCall + `, "arguments": null, "session": null, "approval": null, "expires_in": null}`, Admission{Call: call}},
		{`{"arguments":  { "n": 9007199254740993 , "a": "\u00fc"} , "session": "s:1", "approval": "a.b.c", "expires_in": 6e2, "call": ` + plainCall + `}`,
			Admission{Call: call, Arguments: []byte(`{ "n": 9007199254740993 , "a": "\u00fc"}`), Session: "s:1", Approval: "a.b.c", Lifetime: 10 * time.Minute}},
		{`{"call": ` + plainCall + `, "arguments": {"call": {"tool": 1}}}`, Admission{Call: call, Arguments: []byte(`{"call": {"tool": 1}}`)}},
		{`{"call": ` + plainCall + `, "expires_in": 2592000}`, Admission{Call: call, Lifetime: 30 * 24 * time.Hour}},
	} {
		got, err := ParseAdmission([]byte(tt.doc))
		if err != nil || !reflect.DeepEqual(*got, tt.want) {
			t.Errorf("%s: %+v, error %v; want %+v", tt.doc, got, err, tt.want)
		}
	}
}

func TestParseAdmissionErrors(t *testing.T) {
	for _, tt := range []struct {
		doc, want string
		is        error
	}{
		{``, `line 1: expected a JSON object, got nothing`, ErrSyntax},
		{`{}`, `line 1: /call: expected this member; it is missing`, ErrSchema},
		{`{"call": null}`, `line 1: /call: expected an object, got null`, ErrSchema},
		{"{\"session\": \"s\",\n \"call\":\n {\"tool\": {\"name\": \"t\"},\n  \"taint\": \"dirty\"}}",
			`line 4: /call/taint: expected "clean" or "tainted", got "dirty"`, ErrSchema},
		{`{"call": {"tool": {"name": ""}, "taint": "clean"}}`, `/call/tool/name: `, ErrSchema},
		{`{"call": ` + plainCall + `, "argument": {}}`, `/argument: `, ErrSchema},
		{`{"call": ` + plainCall + `, "reviewer": "me"}`, `/reviewer: `, ErrSchema},
		{`{"call": ` + plainCall + `, "arguments": []}`, `/arguments: expected an object, got an array`, ErrSchema},
		{`{"call": ` + plainCall + `, "arguments": {"a": 1, "a": 2}}`, `/arguments/a: expected each member once`, ErrSyntax},
		{`{"call": ` + plainCall + `, "call": ` + plainCall + `}`, `/call: expected each member once`, ErrSyntax},
		{`{"call": ` + plainCall + `, "expires_in": 0}`, `/expires_in: `, ErrSchema},
		{`{"call": ` + plainCall + `, "expires_in": 2592001}`, `/expires_in: `, ErrSchema},
		{`{"call": ` + plainCall + `, "expires_in": 1.5}`, `/expires_in: `, ErrSchema},
		{`{"call": ` + plainCall + `, "session": "\ud800"}`, `line 1: /session: `, ErrSyntax},
		{`{"call": ` + plainCall + `} {}`, `line 1: expected the end of the document`, ErrSyntax},
		{`{"call": ` + plainCall + `, "arguments": {"a":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `}}`, `at most 256 levels`, ErrTooLarge},
	} {
		got, err := ParseAdmission([]byte(tt.doc))
		if got != nil || !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%.80s: %+v, error %v; want %s", tt.doc, got, err, tt.want)
		}
	}
}

// What ParseAdmission reads is the call that ParseCall reads of the same text,
// and nothing makes it panic.
func FuzzParseAdmission(f *testing.F) {
	f.Add([]byte(`{"call": ` + plainCall + `, "arguments": {"a": [1, "x"]}, "session": "s", "expires_in": 60}`))
	f.Add([]byte(`{"call": {"tool": {"name": "t"}, "taint": "tainted"}, "approval": "a.b.c", "arguments": null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := ParseAdmission(data)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Line < 1 || a != nil {
				t.Fatalf("%q: %+v, error %v", data, a, err)
			}
			return
		}
		text, _ := member(data, "call")
		call, err := ParseCall(text)
		if err != nil || !reflect.DeepEqual(call, a.Call) || a.Call.Validate() != nil || a.Lifetime < 0 {
			t.Fatalf("%q: %+v, error %v", data, a, err)
		}
	})
}
