package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/policies"
)

func TestWasmHoldsTheSuite(t *testing.T) {
	w, err := NewWasm(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	holdsWhole(t, w.Engine())
}

// A directory's build is that directory's: a rule that is edited shows.
func TestWasmOfDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, policies.FS()); err != nil {
		t.Fatal(err)
	}
	w, err := NewWasm(t.Context(), &evaluator.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	holdsWhole(t, w.Engine())
	edit(t, filepath.Join(dir, "gate", "call", "call.rego"), "missing > 0\n", "missing > 1\n")
	if w, err = NewWasm(t.Context(), &evaluator.Options{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	if r := Run(t.Context(), whole(t), nil, w.Engine()); r.OK || r.Engines[0].Failed == 0 {
		t.Errorf("nobody noticed: %+v", r.Engines[0].Counts)
	}
	edit(t, filepath.Join(dir, "gate", "call", "call.rego"), "input.tool.name", "input.tool.nmae")
	if _, err := NewWasm(t.Context(), &evaluator.Options{Dir: dir}); !errors.Is(err, evaluator.ErrPolicy) || !strings.Contains(err.Error(), "call.rego:") {
		t.Errorf("got %v", err)
	}
}

func edit(t *testing.T, file, from, to string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(text), from) {
		t.Fatalf("%q is not in %s (%v)", from, file, err)
	}
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(string(text), from, to)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// OPA's WebAssembly computes with a library of its own, and some of its built-in
// functions fail beyond 64 bits. No count of a skill may come to that.
func TestWasmCounts(t *testing.T) {
	w, err := NewWasm(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	reference := evaluator.Documents{Engine: evaluator.Native{}}
	counts := []string{"0", "1", "3", "9007199254740992", "9007199254740993", "9223372036854775807", "9223372036854775808",
		"18446744073709551612", "18446744073709551614", "18446744073709551615", "18446744073709551616", "1e19", "1.8446744073709551615e19", "1e30", "-1", "0.5", "0.0"}
	for _, found := range []string{"0", "18446744073709551615"} {
		for _, good := range counts {
			for _, bad := range counts {
				doc := fmt.Sprintf(`{"skill":"s","requested":"full_access","provenance":{"signed":true,"signer_trusted":true,"scanned":true,`+
					`"source":"official","vulnerabilities":%s,"success_count":%s,"fail_count":%s}}`, found, good, bad)
				got, err := w.Skill(t.Context(), []byte(doc))
				if err != nil {
					t.Fatalf("%s: %v", doc, err)
				}
				want, err := reference.Skill(t.Context(), []byte(doc))
				if err != nil {
					if !strings.Contains(string(got), "The skill document breaks its schema at /provenance/") {
						t.Errorf("%s\n%v\n%s", doc, err, got)
					}
					continue
				}
				var a, b any
				if json.Unmarshal(got, &a) != nil || json.Unmarshal(want, &b) != nil || !reflect.DeepEqual(a, b) {
					t.Errorf("%s\nwant %s\n got %s", doc, want, got)
				}
			}
		}
	}
}

func TestWasmRefuses(t *testing.T) {
	w, err := NewWasm(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, doc := range []string{``, `{`, `{} {}`, `{}}`} {
		if got, err := w.Call(t.Context(), []byte(doc)); err == nil {
			t.Errorf("%q: %s", doc, got)
		}
	}
	w, err = NewWasm(t.Context(), &evaluator.Options{FS: fstest.MapFS{
		"call.rego":  {Data: []byte("package gate.call\ndecision := 1 if input.tool.name == \"one\"")},
		"skill.rego": {Data: []byte("package gate.skill\ndecision := true")},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := w.Call(t.Context(), []byte(`{"tool":{"name":"one"}}`)); err != nil || string(got) != "1" {
		t.Errorf("got %s, %v", got, err)
	}
	if got, err := w.Call(t.Context(), []byte(`{"tool":{"name":"two"}}`)); !errors.Is(err, evaluator.ErrUndefined) {
		t.Errorf("got %s, %v", got, err)
	}
}
