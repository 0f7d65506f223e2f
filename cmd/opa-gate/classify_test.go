package main

import (
	"bufio"
	"io"
	"io/fs"
	"strings"
	"testing"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/fixtures"
)

// The lists of real servers are read whole, and no tool of theirs is missing.
func TestRealLists(t *testing.T) {
	names, err := fs.Glob(fixtures.Real(), "*.json")
	if err != nil || len(names) == 0 {
		t.Fatalf("%d lists, %v", len(names), err)
	}
	total := 0
	for _, name := range names {
		text, err := fs.ReadFile(fixtures.Real(), name)
		if err != nil {
			t.Fatal(err)
		}
		tools, more, err := readTools(strings.NewReader(string(text)), name)
		if err != nil || more || len(tools) != strings.Count(string(text), `"name":`) {
			t.Errorf("%s: %d tools, more %v, %v", name, len(tools), more, err)
		}
		c, err := classify(tools, capability.RegisteredConnector)
		if err != nil || c.Summary.Tools != len(tools) {
			t.Errorf("%s: %v", name, err)
		}
		total += len(tools)
	}
	t.Logf("%d tools in %d lists", total, len(names))
}

// Colours are around the words, not around the blanks that align them.
func TestColour(t *testing.T) {
	var text strings.Builder
	out := bufio.NewWriter(&text)
	c, err := classify([]tool{{name: "a"}}, capability.RegisteredConnector)
	if err != nil {
		t.Fatal(err)
	}
	c.print(&printer{Writer: out, colour: true})
	if err := out.Flush(); err != nil {
		t.Fatal(err)
	}
	if want := "\x1b[32mallow\x1b[0m  \x1b[33mescalate\x1b[0m  writes"; !strings.Contains(text.String(), want) {
		t.Errorf("got %q, want %q in it", text.String(), want)
	}
	if wantsColour(out) {
		t.Error("colour for something that is no terminal")
	}
}

// FuzzTools: no list makes classify panic, and none is taken for another: what
// is read has a name and can be decided.
func FuzzTools(f *testing.F) {
	for _, seed := range []string{
		`{"tools":[{"name":"a","annotations":{"readOnlyHint":true}}],"nextCursor":"x"}`,
		`{"jsonrpc":"2.0","result":{"tools":[]}}`, `{"error":{"code":1,"message":"m"}}`, "[\n{}]", `[{"name":null}]`, `{"result":3}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		tools, _, err := readTools(strings.NewReader(in), "in")
		if err != nil {
			if len(tools) > 0 {
				t.Fatal("an error and tools")
			}
			return
		}
		c, err := classify(tools, capability.Unknown)
		if err != nil {
			t.Fatal(err)
		}
		for _, asJSON := range []bool{false, true} {
			if err := c.write(io.Discard, asJSON); err != nil {
				t.Fatal(err)
			}
		}
	})
}
