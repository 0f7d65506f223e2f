package ledger

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/opa-gate/opa-gate/capability"
)

func digestOfCall(t testing.TB, c Call) Hash {
	t.Helper()
	h, err := c.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Calls that are the same JSON have one digest.
func TestDigestSame(t *testing.T) {
	for _, pair := range [][2]string{
		{`{"a":1,"b":2}`, " {\n\"b\" : 2 ,\t\"a\":1}\r\n"},
		{`{"a":{"x":[1,{"p":1,"q":2}]}}`, `{"a":{"x":[1,{"q":2,"p":1}]}}`},
		{`{"a":"A\u00e9\ud83d\ude00\/\n"}`, `{"\u0061":"\u0041é😀/\u000a"}`},
		{`{}`, ` { } `},
	} {
		a, b := digestOfCall(t, Call{Tool: "t", Arguments: json.RawMessage(pair[0])}), digestOfCall(t, Call{Tool: "t", Arguments: json.RawMessage(pair[1])})
		if a != b {
			t.Errorf("%s and %s have different digests", pair[0], pair[1])
		}
	}
	if digestOfCall(t, Call{Tool: "t"}) != digestOfCall(t, Call{Tool: "t", Arguments: json.RawMessage(`{}`)}) {
		t.Error("no arguments are not an empty object")
	}
	if digestOfCall(t, Call{Tool: "t", Session: "a", Revision: "b"}) != digestOfCall(t, Call{Tool: "t"}) {
		t.Error("session and revision are in the digest; an approval has them beside it")
	}
}

// No two of these calls share a digest, or the subject of what is recorded.
func TestDigestDifferent(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	tools := []string{"t", "T", "t:", ":t", "t t", "t  t", "t ", `t"`, `t","u`, `t\`, "tü", "tu\u0308", "t\u202e", "t\x00", "t\u0000\u0000", "t\u2028", "\ufffd", long, long + "x", "<t>", `\u003ct\u003e`}
	arguments := []string{`{}`, `{"a":1}`, `{"a":1.0}`, `{"a":1e0}`, `{"a":10e-1}`, `{"a":-0}`, `{"a":0}`, `{"a":9007199254740993}`, `{"a":9007199254740992}`,
		`{"a":9007199254740993.0}`, `{"a":"1"}`, `{"a":true}`, `{"a":null}`, `{"a":[]}`, `{"a":{}}`, `{"a":[[]]}`, `{"a":[1,2]}`, `{"a":[2,1]}`, `{"b":1}`, `{"A":1}`,
		`{"a":"` + long + `"}`, `{"a":"` + long + `x"}`, `{"` + long + `":1}`, `{"a":"\u0000"}`, `{"a":""}`, `{"a":" "}`, `{"a":"é"}`, `{"a":"e\u0301"}`, `{"a":"\ufffd"}`,
		`{"a:b":1}`, `{"a":"b:1"}`, `{"a":1,"b":1}`, `{"":1}`, `{"kind":"none"}`}
	transforms := []capability.Transform{{}, {Kind: capability.InjectContext}, {Kind: capability.InjectContext, Note: "n"}, {Kind: capability.InjectContext, Note: "n "},
		{Kind: capability.Rewrite}, {Kind: capability.Rewrite, Arguments: json.RawMessage(`{"a":1}`)}, {Kind: capability.Rewrite, Arguments: json.RawMessage(`{"a":1.0}`)}}
	seen := map[Hash]string{}
	for _, tool := range tools {
		for _, args := range arguments {
			for _, tr := range transforms {
				name := fmt.Sprintf("%.20q %.40s %v", tool, args, tr.Kind)
				h := digestOfCall(t, Call{Tool: tool, Arguments: json.RawMessage(args), Transform: tr})
				if other, ok := seen[h]; ok {
					t.Errorf("%s and %s share a digest", name, other)
				}
				seen[h] = name
			}
		}
	}
	if want := len(tools) * len(arguments) * len(transforms); len(seen) != want {
		t.Errorf("%d digests of %d calls", len(seen), want)
	}
	subjects := map[string]string{}
	texts := []string{"", "a", "a:", ":", "::", "a:b", "b", `"`, `","`, "\x00", long}
	for _, tool := range texts[1:] {
		for _, session := range texts {
			for _, revision := range texts {
				c := Call{Tool: tool, Session: session, Revision: revision}
				name := fmt.Sprintf("%.10q %.10q %.10q", tool, session, revision)
				exact, about := c.subjects(digestOfCall(t, c))
				for _, s := range []string{exact, about} {
					if other, ok := subjects[s]; ok {
						t.Errorf("%s and %s share a subject", name, other)
					}
					subjects[s] = name
				}
			}
		}
	}
}

func TestDigestRefuses(t *testing.T) {
	deep := func(n int) string { return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) }
	digestOfCall(t, Call{Tool: "t", Arguments: json.RawMessage(deep(MaxDepth - 1))})
	for name, c := range map[string]Call{
		"no tool":              {},
		"tool not UTF-8":       {Tool: "\xff"},
		"tool too long":        {Tool: strings.Repeat("t", maxText+1)},
		"session not UTF-8":    {Tool: "t", Session: "\xff"},
		"revision too long":    {Tool: "t", Revision: strings.Repeat("r", maxText+1)},
		"note not UTF-8":       {Tool: "t", Transform: capability.Transform{Kind: capability.InjectContext, Note: "\xff"}},
		"a member twice":       {Tool: "t", Arguments: json.RawMessage(`{"a":1,"a":1}`)},
		"twice, spelt apart":   {Tool: "t", Arguments: json.RawMessage(`{"a":1,"\u0061":2}`)},
		"twice, inside":        {Tool: "t", Arguments: json.RawMessage(`{"x":[{"a":1,"a":2}]}`)},
		"half a surrogate":     {Tool: "t", Arguments: json.RawMessage(`{"a":"\ud800"}`)},
		"not UTF-8":            {Tool: "t", Arguments: json.RawMessage("{\"a\":\"\xff\"}")},
		"an array":             {Tool: "t", Arguments: json.RawMessage(`[]`)},
		"null":                 {Tool: "t", Arguments: json.RawMessage(`null`)},
		"nothing":              {Tool: "t", Arguments: json.RawMessage(``)},
		"torn":                 {Tool: "t", Arguments: json.RawMessage(`{"a":`)},
		"two values":           {Tool: "t", Arguments: json.RawMessage(`{}{}`)},
		"a number like 01":     {Tool: "t", Arguments: json.RawMessage(`{"a":01}`)},
		"NaN":                  {Tool: "t", Arguments: json.RawMessage(`{"a":NaN}`)},
		"too deep":             {Tool: "t", Arguments: json.RawMessage(deep(MaxDepth + 1))},
		"far too deep":         {Tool: "t", Arguments: json.RawMessage(strings.Repeat(`{"a":`, 100_000))},
		"too long":             {Tool: "t", Arguments: json.RawMessage(`{"a":"` + strings.Repeat("x", MaxArguments) + `"}`)},
		"transform not known":  {Tool: "t", Transform: capability.Transform{Kind: 3}},
		"rewritten to a text":  {Tool: "t", Transform: capability.Transform{Kind: capability.Rewrite, Arguments: json.RawMessage(`"x"`)}},
		"rewritten, and twice": {Tool: "t", Transform: capability.Transform{Kind: capability.Rewrite, Arguments: json.RawMessage(`{"a":1,"a":1}`)}},
	} {
		if _, err := c.Digest(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzDigest compares two calls with what encoding/json, which has no part in the
// digest, makes of them.
func FuzzDigest(f *testing.F) {
	f.Add("a", `{"a":1}`, "a", `{"a":1.0}`)
	f.Add("a:b", `{"a":{"b":[1,2]}}`, "a", `{"b":{"a":[1,2]}}`)
	f.Add("a", `{"a":9007199254740993}`, "a", `{"a":9007199254740992}`)
	f.Add("a", `{"a":"\u0061"}`, "a", ` {"a":"a"}`)
	f.Add("a\x00", `{}`, "a", ``)
	f.Fuzz(func(t *testing.T, tool, arguments, otherTool, otherArguments string) {
		a, b := Call{Tool: tool, Arguments: json.RawMessage(arguments)}, Call{Tool: otherTool, Arguments: json.RawMessage(otherArguments)}
		x, errA := a.Digest()
		y, errB := b.Digest()
		if errA != nil || errB != nil {
			return
		}
		same := tool == otherTool && reflect.DeepEqual(decoded(t, arguments), decoded(t, otherArguments))
		if (x == y) != same {
			t.Errorf("%q %s and %q %s: the same JSON is %v, the same digest %v", tool, arguments, otherTool, otherArguments, same, x == y)
		}
		if !utf8.ValidString(arguments) {
			t.Errorf("%q has a digest", arguments)
		}
	})
}

func decoded(t *testing.T, text string) any {
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s has a digest: %v", text, err)
	}
	return v
}
