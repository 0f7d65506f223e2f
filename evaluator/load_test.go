package evaluator

import (
	"context"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
)

// Files are parsed side by side, and still the error is that of the first one
// in order, be it a module's, the data's or that of data in two places.
func TestTheFirstErrorInOrder(t *testing.T) {
	syntax := &fstest.MapFile{Data: []byte("package x\n\nx := {")}
	long := &fstest.MapFile{Data: []byte("package x\n" + strings.Repeat("y := 1\n", 1000) + "x := {")}
	noJSON := &fstest.MapFile{Data: []byte("{")}
	pipe := &fstest.MapFile{Mode: fs.ModeNamedPipe | 0o644}
	fine := &fstest.MapFile{Data: []byte(`{"b": {"c": 1}}`)}
	tests := map[string]struct {
		tree fstest.MapFS
		want string
	}{
		"two modules":        {fstest.MapFS{"a.rego": long, "b.rego": syntax, "c.rego": syntax}, "a.rego:"},
		"a module, data":     {fstest.MapFS{"a.rego": long, "b/data.json": noJSON}, "a.rego:"},
		"data, a module":     {fstest.MapFS{"a/data.json": noJSON, "b.rego": syntax}, "a/data.json:"},
		"data twice":         {fstest.MapFS{"a/b/data.json": {Data: []byte(`{"c": 2}`)}, "a/data.json": fine, "b.rego": syntax}, "a/data.json: data at /a/b/c stands"},
		"a module, a pipe":   {fstest.MapFS{"a.rego": long, "b.rego": pipe}, "a.rego:"},
		"a pipe, a module":   {fstest.MapFS{"a.rego": pipe, "b.rego": syntax}, "a.rego is not a regular file"},
		"data twice, a pipe": {fstest.MapFS{"a/b/data.json": {Data: []byte(`{"c": 2}`)}, "a/data.json": fine, "b.rego": pipe}, "a/data.json: data at /a/b/c stands"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for range 20 {
				_, err := New(context.Background(), &Options{FS: tt.tree})
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Fatalf("error %v, want that of %q", err, tt.want)
				}
			}
		})
	}
}

// Facts that a data file brings along compare by what stands in the file.
func TestBroughtFacts(t *testing.T) {
	own := map[string]any{"all": 31, "names": []any{[]any{}, []any{"a", "b"}}}
	tests := map[string]bool{
		`{"all": 31, "names": [[], ["a", "b"]]}`:         true,
		`{"names": [[], ["a", "b"]], "all": 31}`:         true,
		`{"all": 31.0, "names": [[], ["a", "b"]]}`:       false,
		`{"all": "31", "names": [[], ["a", "b"]]}`:       false,
		`{"all": 31, "names": [[], ["b", "a"]]}`:         false,
		`{"all": 31, "names": [[], ["a"]]}`:              false,
		`{"all": 31, "names": [[], ["a", null]]}`:        false,
		`{"all": 31, "names": [[], {"0": "a"}]}`:         false,
		`{"all": 31}`:                                    false,
		`{"all": 31, "names": [[], ["a", "b"]], "x": 1}`: false,
		`{"all": 31, "Names": [[], ["a", "b"]]}`:         false,
		`[]`:                                             false,
		`null`:                                           false,
	}
	for text, want := range tests {
		p := part{name: "gate/facts/data.json"}
		if p.parse([]byte(text)); p.err != nil {
			t.Fatal(p.err)
		}
		s := &source{data: map[string]any{"gate": map[string]any{"facts": p.data}}}
		if err := s.prepareData(own, ""); (err == nil) != want {
			t.Errorf("%s: error %v, want the same: %v", text, err, want)
		}
	}
}
