package wire_test

import (
	"strings"
	"testing"
	"unicode"

	"github.com/opa-gate/opa-gate/wire"
)

func TestPrintable(t *testing.T) {
	tests := []struct{ in, want string }{
		{"", ""},
		{"plain, naïve 日本 🙂", "plain, naïve 日本 🙂"},
		{"a\nb\tc\r", `a\nb\tc\r`},
		{"\x1b[31mred\x1b[0m", `\x1b[31mred\x1b[0m`},
		{"\x00\x07\x7f", `\x00\a\x7f`},
		{"\u0085\u009b", `\u0085\u009b`},
		{"\u202ecod.exe", `\u202ecod.exe`},
		{"\u2066\u2067\u2068\u2069\u200e\u200f", `\u2066\u2067\u2068\u2069\u200e\u200f`},
		{"a\u200bb\u200cc\u200dd\u2060e\ufefff", `a\u200bb\u200cc\u200dd\u2060e\ufefff`},
		{"\u00ad\u2028\u2029\u00a0", `\u00ad\u2028\u2029\u00a0`},
		{"\U000e0041", `\U000e0041`},
		{"a\xffb", `a\ufffdb`},
		{"a\u034fb\u115fc\u3164d\uffa0e\u17b4f\u2800", `a\u034fb\u115fc\u3164d\uffa0e\u17b4f\u2800`},
		{"\u2764\ufe0f\U000e0100\u180b", "\u2764" + `\ufe0f\U000e0100\u180b`},
		{"e\u0301\u0323 \u05e9\u05b8\u05c1", "e\u0301\u0323 \u05e9\u05b8\u05c1"},
		{"\u0301a \u0301b\x1b\u0301", `\u0301a \u0301b\x1b\u0301`},
		{"a" + strings.Repeat("\u0336", 6) + "b\u0336", "a" + strings.Repeat("\u0336", 4) + `\u0336\u0336` + "b\u0336"},
	}
	for _, tt := range tests {
		if got := wire.Printable(tt.in); got != tt.want {
			t.Errorf("%+q: got %s, want %s", tt.in, got, tt.want)
		}
	}
}

func TestNearest(t *testing.T) {
	names := []string{"local-read", "local-write", "arbitrary-egress"}
	for in, want := range map[string]string{
		"local-red":              "local-read",
		"LOCAL-READ":             "local-read",
		"local-writ":             "local-write",
		"arbitrary_egress":       "arbitrary-egress",
		"moon":                   "",
		"":                       "",
		strings.Repeat("x", 200): "",
	} {
		if got := wire.Nearest(in, names); got != want {
			t.Errorf("%.20q: got %q, want %q", in, got, want)
		}
	}
	formats := []string{"text", "json", "markdown", "html"}
	for in, want := range map[string]string{"yaml": "", "xml": "", "tex": "text", "hmtl": "html", "jsno": "json", "htm": "html", "marckdown": "markdown", "test": "text"} {
		if got := wire.Nearest(in, formats); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
	if got := wire.Nearest("x", nil); got != "" {
		t.Errorf("of none: %q", got)
	}
}

// What a message quotes from a document cannot act on a terminal.
func TestMessagesAreHarmless(t *testing.T) {
	for _, in := range []string{
		`{"tool":{"name":"t"},"taint":"\u001b[31m\u202e\u200b"}`,
		`{"tool":{"name":"t"},"taint":"clean","\u001b]0;x\u0007":1}`,
		"{\"tool\":{\"name\":\"t\"},\"taint\":\"clean\"} \x1b[2J",
		`{"tool":{"name":"t"},"taint":"` + strings.Repeat("é", 1000) + `"}`,
	} {
		_, err := wire.ParseCall([]byte(in))
		if err == nil {
			t.Errorf("%q is accepted", in)
			continue
		}
		e := err.(*wire.Error)
		if i := strings.IndexFunc(e.Message(), func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 || len(e.Message()) > 500 {
			t.Errorf("%.60q: says %q", in, e.Message())
		}
	}
}
