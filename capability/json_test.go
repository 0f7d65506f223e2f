package capability

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/opa-gate/opa-gate/internal/race"
)

// reference is the decision document as a struct for encoding/json, which is
// what the writer must spell alike.
type reference struct {
	Outcome      string          `json:"outcome"`
	Reason       string          `json:"reason"`
	Missing      []string        `json:"missing"`
	MissingMask  uint16          `json:"missing_mask"`
	Required     []string        `json:"required"`
	RequiredMask uint16          `json:"required_mask"`
	Granted      []string        `json:"granted"`
	GrantedMask  uint16          `json:"granted_mask"`
	Arguments    json.RawMessage `json:"arguments,omitempty"`
	Note         *string         `json:"note,omitempty"`
	Warnings     []string        `json:"warnings,omitempty"`
}

func marshalReference(o Outcome) ([]byte, error) {
	if !o.Kind.Valid() {
		return nil, &json.UnsupportedValueError{Str: "an outcome of " + o.Kind.String()}
	}
	d := reference{
		Outcome: o.Kind.String(), Reason: o.Reason,
		Missing: o.Missing.DisplayNames(), MissingMask: o.Missing.Mask(),
		Required: o.Required.DisplayNames(), RequiredMask: o.Required.Mask(),
		Granted: o.Granted.DisplayNames(), GrantedMask: o.Granted.Mask(),
		Warnings: o.Warnings,
	}
	switch o.Kind {
	case Modify:
		d.Arguments = o.Arguments
	case Inject:
		d.Note = &o.Note
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	err := enc.Encode(d)
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), err
}

// compare holds both writers against the reference, in text and in error.
func compare(t *testing.T, o Outcome) {
	t.Helper()
	want, wantErr := marshalReference(o)
	const before = "before"
	got, err := o.AppendJSON([]byte(before))
	if fmt.Sprintf("%T %v", err, err) != fmt.Sprintf("%T %v", wantErr, wantErr) {
		t.Fatalf("%+v: error %v, want %v", o, err, wantErr)
	}
	if err != nil {
		want = nil
	}
	if string(got) != before+string(want) {
		t.Fatalf("%+v:\n got %q\nwant %q", o, got, before+string(want))
	}
	got, err = o.MarshalJSON()
	if (err == nil) != (wantErr == nil) || !bytes.Equal(got, want) || err != nil && got != nil {
		t.Fatalf("%+v: MarshalJSON gives %q %v, want %q", o, got, err, want)
	}
}

func TestAppendJSONMasks(t *testing.T) {
	for kind := range Deny + 2 {
		for mask := range Set(1 << len(taxonomy)) {
			compare(t, Outcome{
				Kind: kind, Reason: "r", Missing: mask, Required: mask ^ math.MaxUint16, Granted: mask<<7 | mask>>9,
				Arguments: json.RawMessage(`{ "a" : 1 }`), Note: "n",
			})
		}
	}
}

func TestAppendJSONTexts(t *testing.T) {
	texts := []string{
		"", "plain", `"quoted" \ back`, "<a href='x'>&</a>", "naïve 日本 🙂", "\ufffd is a character",
		"\u2027\u2028\u2029\u202a", "\x7f\u0080", "a\xffb\xe2\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x80\xa8\xe2\x80",
		strings.Repeat("x", 1000) + "\n", "\xef\xbf", "a\x00b",
	}
	for b := range 256 {
		texts = append(texts, string([]byte{byte(b)}), "a"+string([]byte{byte(b)})+"b")
	}
	for r := rune(0x2000); r < 0x2100; r++ {
		texts = append(texts, string(r))
	}
	for _, text := range texts {
		compare(t, Outcome{Kind: Deny, Reason: text, Warnings: []string{text, "", text}})
		compare(t, Outcome{Kind: Inject, Note: text, Warnings: []string{text}})
	}
}

func TestAppendJSONArguments(t *testing.T) {
	for _, text := range []string{
		"", " ", "null", "{}", " \t\r\n{ \"a\" : [ 1 , 2 ] } \n", `{"a b":" \" \\"}`, "{\"s\":\"\u2028<&>\xff\"}",
		`{"a":1e3,"a":2}`, "{", "{}x", "{} {}", "\"\x01\"", `{"a":01}`, "nul", "\xff", `"\ud800"`, `"\x"`,
		strings.Repeat("[", 10001) + strings.Repeat("]", 10001),
	} {
		for _, kind := range []Kind{Allow, Modify, Inject} {
			compare(t, Outcome{Kind: kind, Arguments: json.RawMessage(text), Warnings: []string{"w"}})
		}
	}
}

// The buffer that the caller reuses is all the memory there is.
func TestAppendJSONAllocates(t *testing.T) {
	if race.Enabled {
		t.Skip("the pool of encoding/json is at times empty under the race detector")
	}
	dst := make([]byte, 0, 4096)
	for _, o := range outcomes() {
		if n := testing.AllocsPerRun(100, func() {
			if _, err := o.AppendJSON(dst); err != nil {
				t.Fatal(err)
			}
		}); n > 0 {
			t.Errorf("%v: %v allocations", o.Kind, n)
		}
	}
}

func FuzzAppendJSON(f *testing.F) {
	f.Add(uint8(Modify), uint16(1), uint16(2), uint16(3), "r", []byte(`{ "a" : 1 }`), "n", "w")
	f.Add(uint8(Inject), uint16(math.MaxUint16), uint16(0), uint16(511), "\u2028\xff\x00", []byte("{"), "\"\\", "")
	f.Fuzz(func(t *testing.T, kind uint8, missing, required, granted uint16, reason string, arguments []byte, note, warning string) {
		o := Outcome{
			Kind: Kind(kind), Reason: reason, Missing: Set(missing), Required: Set(required), Granted: Set(granted),
			Arguments: arguments, Note: note,
		}
		if warning != "" {
			o.Warnings = []string{warning, reason, warning}
		}
		compare(t, o)
		if text, err := o.AppendJSON(nil); err == nil && kind != uint8(Modify) && (!json.Valid(text) || !utf8.Valid(text)) {
			t.Fatalf("not JSON: %q", text)
		}
	})
}

// outcomes is one of each kind.
func outcomes() []Outcome {
	return []Outcome{
		{Kind: Allow, Required: 8, Granted: All},
		{Kind: Modify, Required: 8, Granted: All, Arguments: json.RawMessage(`{"path": "/tmp/a", "bytes": [9007199254740993]}`)},
		{Kind: Inject, Required: 8, Granted: All, Note: "Read with care: naïve."},
		{Kind: Escalate, Required: 24, Missing: 24, Granted: 7, Reason: Reason(24, "web_fetch", DefaultSystem), Warnings: []string{`unknown capability "x"`}},
		{Kind: Deny, Required: 8, Granted: All, Reason: `not on a "Friday"`},
	}
}

func BenchmarkAppendJSON(b *testing.B) {
	for _, o := range outcomes() {
		b.Run(o.Kind.String(), func(b *testing.B) {
			b.ReportAllocs()
			dst := make([]byte, 0, 4096)
			for b.Loop() {
				if _, err := o.AppendJSON(dst); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("reference", func(b *testing.B) {
		o := outcomes()[3]
		b.ReportAllocs()
		for b.Loop() {
			if _, err := marshalReference(o); err != nil {
				b.Fatal(err)
			}
		}
	})
}
