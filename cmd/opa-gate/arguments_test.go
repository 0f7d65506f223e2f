package main

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

func TestReadable(t *testing.T) {
	long := strings.Repeat("a", 600) + strings.Repeat("b", 5000) + strings.Repeat("c", 200)
	for _, tt := range []struct {
		in, want string
		cut      bool
	}{
		{`{}`, `{}`, false},
		{`{"a":[],"b":{},"c":null,"d":true,"e":9007199254740993,"f":1.0}`,
			"{\n  \"a\": [],\n  \"b\": {},\n  \"c\": null,\n  \"d\": true,\n  \"e\": 9007199254740993,\n  \"f\": 1.0\n}", false},
		{`{"z":[1,{"y":"x"}]}`, "{\n  \"z\": [\n    1,\n    {\n      \"y\": \"x\"\n    }\n  ]\n}", false},
		// An escape shows what it stands for.
		{`{"cmd":"\u0072\u006d -rf \/"}`, "{\n  \"cmd\": \"rm -rf /\"\n}", false},
		// What stands in a text cannot look like something beside it.
		{`{"a":"x\",\n  \"safe\": true"}`, "{\n  \"a\": \"x\\\",\\n\n          \\\"safe\\\": true\"\n}", false},
		{`{"a":"line\n"}`, "{\n  \"a\": \"line\\n\"\n}", false},
		{`{"a":"\\n \\u202e"}`, "{\n  \"a\": \"\\\\n \\\\u202e\"\n}", false},
		{`{"a":"\u202egpj.exe\u0007\u001b[2J\r\t\u200b\u3164"}`, "{\n  \"a\": \"" + `\u202egpj.exe\a\x1b[2J\r\t\u200b\u3164` + "\"\n}", false},
		{`{"a\nb":"⟪… 5 characters left out …⟫"}`, "{\n  \"a\\n\n   b\": \"" + `\u27ea… 5 characters left out …\u27eb` + "\"\n}", false},
		// A long text is cut in its middle, and says how much is left out.
		{`"` + long + `"`, `"` + strings.Repeat("a", 600) + "⟪… 5000 characters left out …⟫" + strings.Repeat("c", 200) + `"`, true},
		{`"` + strings.Repeat("a", 900) + `"`, `"` + strings.Repeat("a", 900) + `"`, false},
		{`not json`, `not json`, false},
	} {
		lines, cut := readable(json.RawMessage(tt.in), false)
		if got := strings.Join(lines, "\n"); got != tt.want || cut != tt.cut {
			t.Errorf("%s:\n%s\nwant\n%s", tt.in, got, tt.want)
		}
	}
	if lines, cut := readable(json.RawMessage(`"`+long+`"`), true); cut || len(lines) != 1 || len(lines[0]) != len(long)+2 {
		t.Error("in full, a long text is cut")
	}
	many := json.RawMessage("[" + strings.Repeat("1,", 99) + "2]") // 102 lines
	lines, cut := readable(many, false)
	if !cut || len(lines) != 61 || lines[45] != "… 42 lines left out …" || lines[60] != "]" || lines[59] != "  2" {
		t.Errorf("%d lines: %q", len(lines), lines)
	}
	if lines, cut := readable(many, true); cut || len(lines) != 102 {
		t.Errorf("in full: %d lines, cut %v", len(lines), cut)
	}
}

// Whatever the value, nothing in it acts on a terminal, and every text can be
// read back.
func FuzzReadable(f *testing.F) {
	f.Add(`{"a":"x\",\n \u202e\u001b[2J","b":[1,{"c":"é\u0301\u0301\u0301\u0301\u0301\u0301"}]}`)
	f.Add(`"\\u202e \\ \" \u2028"`)
	f.Fuzz(func(t *testing.T, text string) {
		value := jsontext.Value(text)
		if !value.IsValid() {
			return
		}
		lines, cut := readable(json.RawMessage(text), true)
		if cut {
			t.Fatalf("%q is cut", text)
		}
		for _, line := range lines {
			for _, r := range line {
				if !unicode.IsPrint(r) || unicode.Is(unicode.Bidi_Control, r) || r == utf8.RuneError {
					t.Fatalf("%q shows %+q", text, line)
				}
			}
		}
		if value.Kind() == '"' {
			var want string
			if err := json.Unmarshal(value, &want); err != nil {
				return
			}
			// A line of a text ends in \n, and the next one is indented by one blank.
			got := ""
			for i, line := range lines {
				if i > 0 {
					line = strings.TrimPrefix(line, " ")
				}
				got += line
			}
			if back := unquote(t, got); back != want {
				t.Fatalf("%q reads %q", want, back)
			}
		}
	})
}

// unquote undoes the escapes of Go's quotes, which are those that are shown.
func unquote(t *testing.T, text string) string {
	t.Helper()
	text = strings.TrimSuffix(strings.TrimPrefix(text, `"`), `"`)
	var b strings.Builder
	for text != "" {
		r, _, rest, err := strconv.UnquoteChar(text, 0x22)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		b.WriteRune(r)
		text = rest
	}
	return b.String()
}
