package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/opa-gate/opa-gate/wire"
)

// readAll describes what a reader makes of an input, one document a line.
func readAll(r *reader) string {
	var b strings.Builder
	for {
		d, err := r.next()
		switch {
		case errors.Is(err, io.EOF):
			return b.String()
		case err != nil:
			fmt.Fprintf(&b, "error: %v\n", err)
			return b.String()
		case d.err != nil:
			fmt.Fprintf(&b, "%d: broken at %d%s\n", d.line, d.err.Line, d.err.Pointer)
		default:
			fmt.Fprintf(&b, "%d: %s\n", d.line, strings.Join(strings.Fields(string(d.data)), ""))
		}
	}
}

func TestStream(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"empty":                 {"", "error: " + errEmpty.Error() + "\n"},
		"blank":                 {" \r\n\t\n", "error: " + errEmpty.Error() + "\n"},
		"mark only":             {"\ufeff", "error: " + errEmpty.Error() + "\n"},
		"one":                   {`{"a":1}`, "1: {\"a\":1}\n"},
		"mark":                  {"\ufeff{\"a\":1}\n", "1: {\"a\":1}\n"},
		"lines":                 {"\n{\"a\":1}\r\n\r\n{\"b\":2}\r\n", "2: {\"a\":1}\n4: {\"b\":2}\n"},
		"broken middle line":    {"{\"a\":1}\n{\"b\":\n{\"c\":3}", "1: {\"a\":1}\n2: {\"b\":\n3: {\"c\":3}\n"},
		"broken first line":     {"{\"a\":\n\n{\"b\":2}\n{\"c\":", "1: {\"a\":\n3: {\"b\":2}\n4: {\"c\":\n"},
		"garbage first":         {"hello\n{\"b\":2}\n", "1: hello\n2: {\"b\":2}\n"},
		"pretty":                {"{\n \"a\": 1\n}\n", "1: {\"a\":1}\n"},
		"pretty, several":       {"{\n \"a\": 1\n}\n\n{\n \"b\": [\n1]}{\"c\":3}\n", "1: {\"a\":1}\n5: {\"b\":[1]}\n7: {\"c\":3}\n"},
		"several on a line":     {"{\"a\":1}{\"b\":2}\n{\"c\":3}\n", "1: {\"a\":1}\n1: {\"b\":2}\n2: {\"c\":3}\n"},
		"brace in text":         {"{\n\"a\": \"}\\\"{\"\n}", "1: {\"a\":\"}\\\"{\"}\n"},
		"pretty, cut":           {"{\n \"a\": 1\n", "1: broken at 2\n"},
		"pretty, comma":         {"{\n \"a\": 1,\n}\n{\n \"b\": 2\n}\n", "1: broken at 3\n4: {\"b\":2}\n"},
		"pretty, not closed":    {"{\n \"a\": 1\n{\n \"b\": 2\n}\n", "1: broken at 3\n3: {\"b\":2}\n"},
		"part of a broken one":  {"{\n \"a\": x,\n \"b\":\n  {\"c\":3}\n}\n{\"d\":4}\n", "1: broken at 2/a\n6: {\"d\":4}\n"},
		"pretty, open text":     {"{\n \"a\": \"x\n}\n{\"d\":4}\n", "1: broken at 2/a\n4: {\"d\":4}\n"},
		"array":                 {"[]", ""},
		"array of two":          {" [{\"a\":1},\n\n{\"b\":\n2}\n]\n", "1: {\"a\":1}\n3: {\"b\":2}\n"},
		"array, not closed":     {"[{\"a\":1}\n", "1: {\"a\":1}\n2: broken at 2\n"},
		"array, broken":         {"[{\"a\":1},\n{\"b\":x},\n{\"c\":3}]", "1: {\"a\":1}\n2: broken at 2/b\n"},
		"array, more behind":    {"[{\"a\":1}]\n{\"b\":2}", "1: {\"a\":1}\n2: broken at 2\n"},
		"array, twice a member": {"[{\"a\":1,\"a\":2},{\"b\":3}]", "1: {\"a\":1,\"a\":2}\n1: {\"b\":3}\n"},
		"numbers":               {"1\n2\n", "1: 1\n2: 2\n"},
	} {
		t.Run(name, func(t *testing.T) {
			for how, in := range map[string]io.Reader{
				"whole": strings.NewReader(c.in), "byte by byte": iotest.OneByteReader(strings.NewReader(c.in)),
			} {
				if got := readAll(newReader(in, false)); got != c.want {
					t.Errorf("%s:\n got %q\nwant %q", how, got, c.want)
				}
			}
		})
	}
}

func TestStreamWhole(t *testing.T) {
	const in = "[\n{\"a\":1}\n]\n[2]\n"
	if got, want := readAll(newReader(strings.NewReader(in), true)), "1: [{\"a\":1}]\n4: [2]\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A reading error is the input's: what came before it is not taken for all.
func TestStreamReadError(t *testing.T) {
	failure := errors.New("the disk is gone")
	for _, in := range []string{"", "{\"a\":1}\n{\"b\":", "{\n\"a\":", "[{\"a\":1},", "[{\"a\":1}]"} {
		r := newReader(io.MultiReader(strings.NewReader(in), iotest.ErrReader(failure)), false)
		var err error
		for err == nil {
			_, err = r.next()
		}
		if !errors.Is(err, failure) {
			t.Errorf("%q: got %v", in, err)
		}
	}
}

func TestStreamOverlong(t *testing.T) {
	const limit = 1 << 18 // the real one would take minutes under the race detector
	huge := strings.Repeat("x", limit+2*bufferSize)
	for name, c := range map[string]struct{ in, want string }{
		"first line": {"{\"a\":\"" + huge + "\"}\n{\"b\":2}\n", "1: broken at 1\n2: {\"b\":2}\n"},
		"last line":  {"{\"a\":1}\n{\"b\":\"" + huge, "1: {\"a\":1}\n2: broken at 2\n"},
		"next line":  {"{\n\"a\":\"" + huge + "\"}\n{\"b\":2}\n", "1: broken at 2\n3: {\"b\":2}\n"},
		"pretty":     {"{\n\"a\":[\n" + strings.Repeat("1,\n", limit/3+bufferSize) + "1]\n}\n{\n\"b\":2\n}\n", ""},
		"element":    {"[{\"a\":1},\n\"" + huge + "\"]", "1: {\"a\":1}\n2: broken at 2\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "pretty" {
				c.want = fmt.Sprintf("1: broken at 1\n%d: {\"b\":2}\n", strings.Count(c.in, "\n")-2)
			}
			r := newReader(strings.NewReader(c.in), false)
			if r.limit != wire.MaxBytes {
				t.Fatalf("the reader's limit is %d, want %d", r.limit, wire.MaxBytes)
			}
			r.limit = limit
			if got := readAll(r); got != c.want {
				t.Errorf("got %.200q, want %q", got, c.want)
			}
		})
	}
}

// FuzzStream: no input makes the reader panic or stall, how the bytes arrive
// makes no difference, and no line vanishes unless it belongs to a document
// that spans lines.
func FuzzStream(f *testing.F) {
	for _, seed := range []string{"", "{}\n{}", "[{},{]", "{\n}\n{", "\ufeff{}", "{\"a\":\n{}\nx\n{}", "{}{}\n[", "{\n\"a\n{}\n{\n}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		for _, whole := range []bool{false, true} {
			got := readAll(newReader(strings.NewReader(in), whole))
			if again := readAll(newReader(iotest.OneByteReader(strings.NewReader(in)), whole)); again != got {
				t.Fatalf("byte by byte %q, at once %q", again, got)
			}
			if got == "" && strings.Trim(strings.TrimPrefix(in, "\ufeff"), blanks) != "" && in != "" && !strings.Contains(in, "[") {
				t.Fatalf("%q came to nothing", in)
			}
		}
		lines := "{}\n" + strings.ReplaceAll(in, "\n", "\n{}\n")
		want := 0
		for line := range strings.Lines(lines) {
			if strings.Trim(line, blanks) != "" {
				want++
			}
		}
		if got := strings.Count(readAll(newReader(strings.NewReader(lines), false)), "\n"); got != want {
			t.Fatalf("%d results of %d lines", got, want)
		}
	})
}
