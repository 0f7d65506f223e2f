package bundle

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseIfNoneMatch(t *testing.T) {
	for _, c := range []struct {
		name  string
		lines []string
		want  []string
		any   bool
	}{
		{name: "none"},
		{name: "empty, as OPA sends it at first", lines: []string{""}},
		{name: "one", lines: []string{`"a"`}, want: []string{`"a"`}},
		{name: "a list", lines: []string{`"a", "b" ,"c"`}, want: []string{`"a"`, `"b"`, `"c"`}},
		{name: "several lines", lines: []string{`"a"`, `"b"`}, want: []string{`"a"`, `"b"`}},
		{name: "weak", lines: []string{`W/"a", "b"`}, want: []string{`"a"`, `"b"`}},
		{name: "weak in small letters is no tag", lines: []string{`w/"a"`}},
		{name: "empty elements", lines: []string{` , "a",, "b",`}, want: []string{`"a"`, `"b"`}},
		{name: "a comma within", lines: []string{`"a,b"`}, want: []string{`"a,b"`}},
		{name: "an empty tag", lines: []string{`""`}, want: []string{`""`}},
		{name: "any", lines: []string{" * "}, any: true},
		{name: "any in a list is no tag", lines: []string{`"a", *`}, want: []string{`"a"`}},
		{name: "without quotes", lines: []string{`a`}},
		{name: "not closed", lines: []string{`"a`}},
		{name: "a blank within", lines: []string{`"a b"`}},
		{name: "stops at what is none", lines: []string{`"a" "b"`}, want: []string{`"a"`}},
		{name: "letters beyond ASCII", lines: []string{`"ä"`}, want: []string{`"ä"`}},
		{name: "too many", lines: []string{strings.Repeat(`"a",`, 1000)}, want: slices.Repeat([]string{`"a"`}, maxTags)},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := parseIfNoneMatch(c.lines)
			if !slices.Equal(got.tags, c.want) || got.any != c.any {
				t.Errorf("got %q, any %v; want %q, any %v", got.tags, got.any, c.want, c.any)
			}
			for _, tag := range c.want {
				if !got.met(tag) {
					t.Errorf("%s is not met", tag)
				}
			}
			if got.met(`"other"`) != c.any {
				t.Errorf(`"other" is met: %v, want %v`, !c.any, c.any)
			}
		})
	}
}

func TestParsePrefer(t *testing.T) {
	for _, c := range []struct {
		name  string
		lines []string
		want  preference
	}{
		{name: "none"},
		{name: "OPA polls", lines: []string{"modes=snapshot,delta"}, want: preference{delta: true}},
		{name: "OPA waits", lines: []string{"modes=snapshot,delta;wait=10"}, want: preference{true, 10 * time.Second}},
		{name: "snapshots alone", lines: []string{"modes=snapshot;wait=10"}, want: preference{false, 10 * time.Second}},
		{name: "as RFC 7240 writes it", lines: []string{`wait=10, modes="snapshot,delta"`}, want: preference{true, 10 * time.Second}},
		{name: "on two lines", lines: []string{"modes=delta", "wait=3"}, want: preference{true, 3 * time.Second}},
		{name: "blanks and capitals", lines: []string{" Modes = snapshot , Delta ; Wait = 2 "}, want: preference{true, 2 * time.Second}},
		{name: "the first counts", lines: []string{"wait=1;wait=100"}, want: preference{wait: time.Second}},
		{name: "delta is no preference of its own", lines: []string{"respond-async, delta"}},
		{name: "delta of something else", lines: []string{"modes=snapshot;wait=1;other=x,delta"}, want: preference{wait: time.Second}},
		{name: "no number", lines: []string{"wait=soon"}},
		{name: "a negative one", lines: []string{"wait=-1"}},
		{name: "nothing", lines: []string{"wait="}},
		{name: "a huge one", lines: []string{"wait=99999999999999999999999999"}, want: preference{wait: maxSeconds * time.Second}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := parsePrefer(c.lines); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func FuzzIfNoneMatch(f *testing.F) {
	for _, seed := range []string{`"a"`, `W/"a", "b"`, `*`, `"a" "b"`, `,,"", "x,y"`, "\"\x00\""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		c := parseIfNoneMatch([]string{line})
		if c.any && (len(c.tags) > 0 || strings.Trim(line, " \t") != "*") {
			t.Fatalf("%q means any and %q", line, c.tags)
		}
		// What was read, written again, is read as the same.
		if again := parseIfNoneMatch([]string{strings.Join(c.tags, ", ")}); !slices.Equal(again.tags, c.tags) {
			t.Fatalf("%q is read as %q, and that as %q", line, c.tags, again.tags)
		}
		for _, tag := range c.tags {
			if len(tag) < 2 || tag[0] != '"' || tag[len(tag)-1] != '"' || !strings.Contains(line, tag) {
				t.Fatalf("%q holds no tag %q", line, tag)
			}
		}
	})
}

func FuzzPrefer(f *testing.F) {
	for _, seed := range []string{"modes=snapshot,delta;wait=10", "wait=99999999999999999999", `wait="3", modes="delta"`, ";=,=;"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		p := parsePrefer([]string{line})
		if p.wait < 0 || p.wait > maxSeconds*time.Second {
			t.Fatalf("%q waits for %v", line, p.wait)
		}
		if p.delta && !strings.Contains(strings.ToLower(line), "delta") {
			t.Fatalf("%q wants no delta", line)
		}
	})
}
