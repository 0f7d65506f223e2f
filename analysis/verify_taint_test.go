package analysis

import (
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/optional"
	"github.com/opa-gate/opa-gate/policies"
)

// edited are the embedded policies and the optional one with one text of a file
// replaced by another.
func edited(t *testing.T, file, old, replacement string) *evaluator.Evaluator {
	t.Helper()
	steering, err := optional.FS(optional.Steering)
	if err != nil {
		t.Fatal(err)
	}
	tree, found := fstest.MapFS{}, false
	for _, part := range []fs.FS{policies.FS(), steering} {
		err := fs.WalkDir(part, ".", func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || strings.HasSuffix(name, "_test.rego") {
				return err
			}
			text, err := fs.ReadFile(part, name)
			if name == file {
				found = strings.Contains(string(text), old)
				text = []byte(strings.Replace(string(text), old, replacement, 1))
			}
			tree[name] = &fstest.MapFile{Data: text}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if !found {
		t.Fatalf("%s has no %q to replace", file, old)
	}
	e, err := evaluator.New(t.Context(), &evaluator.Options{FS: tree})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

const steeringFile, resultFile = "gate/steering/steering.rego", "gate/taint/result.rego"

// Each edit that lets outside content steer a call, or enter unseen, breaks an
// invariant, with a document and a test that show it.
func TestVerifyTaint(t *testing.T) {
	tests := map[string]struct {
		file, old, replacement string
		broken                 []string
		document               string // of the first; "" is not looked at
	}{
		"as it ships":    {steeringFile, "package", "package", nil, ""},
		"a stricter one": {steeringFile, `input.payload in {"plain", "inert", "typed"}`, `input.payload == "typed"`, nil, ""},
		"clean by default": {steeringFile, `default taint := "tainted"`, `default taint := "clean"`,
			[]string{"steering-unknown-kept", "steering-aim-kept", "steering-payload-kept", "steering-access-kept"},
			`{"session": "tainted", "tool": {"name": "tool", "origin": "unknown"}, "effect": "access", "aim": "none", "payload": "inert"}`},
		"any aim": {steeringFile, "input.aim == \"typed\"\n", "input.aim in {\"typed\", \"none\"}\n", []string{"steering-aim-kept"},
			`{"session": "tainted", "tool": {"name": "tool", "origin": "fetcher"}, "effect": "outside", "aim": "none", "payload": "inert"}`},
		"an untyped payload": {steeringFile, `"plain", "inert", "typed"`, `"untyped", "plain", "inert", "typed"`, []string{"steering-payload-kept"},
			`{"session": "tainted", "tool": {"name": "tool", "origin": "fetcher"}, "effect": "outside", "aim": "typed", "payload": "untyped"}`},
		"a fetch that is undoable": {steeringFile, `profile.origin in {"local-sandbox", "first-party"`, `profile.origin in {"fetcher", "first-party"`,
			[]string{"steering-aim-kept", "steering-payload-kept"}, ""},
		"an unknown effect": {steeringFile, `input.effect == "own-undoable"`, `input.effect in {"own-undoable", "unknown"}`,
			[]string{"steering-unknown-kept"}, ""},
		"what lasts": {steeringFile, `input.effect == "own-undoable"`, `input.effect in {"own-undoable", "own-lasting"}`,
			[]string{"steering-access-kept"}, ""},
		"an invitation": {steeringFile, `{"local-sandbox", "fetcher", "first-party", "registered-connector"}`, `{"access-grant", "fetcher"}`,
			[]string{"steering-access-kept"}, ""},
		"one tool by its name": {steeringFile, `input.effect == "own-undoable"`, "input.effect == \"own-undoable\"\n}\n\nrelaxed if {\n\tinput.tool.name == \"post\"",
			[]string{"steering-unknown-kept", "steering-aim-kept", "steering-payload-kept", "steering-access-kept"},
			`{"session": "tainted", "tool": {"name": "post", "origin": "unknown"}, "effect": "access", "aim": "none", "payload": "inert"}`},
		"no answer": {steeringFile, `default taint := "tainted"`, ``, []string{"steering-answered"},
			`{"session": "tainted", "tool": {"name": "tool", "origin": "fetcher"}, "effect": "access", "aim": "none", "payload": "inert"}`},
		"results are clean by default": {resultFile, "default result := true", "default result := false", []string{"result-taints"},
			`{"tool": {"name": "tool", "origin": "fetcher"}}`},
		"a fetcher is vouched for": {resultFile, `"local-sandbox"`, `"fetcher"`, []string{"result-taints"},
			`{"tool": {"name": "tool", "origin": "fetcher", "open_world": false}}`},
		"the operator is not heard": {resultFile, "in {false, null}", "in {false, null, true}", []string{"result-taints"}, ""},
		"results have no answer":    {resultFile, "default result := true", "", []string{"result-answered"}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := verifySample(t, edited(t, test.file, test.old, test.replacement), []int{}, noSkills, false)
			if v.Results < 729 || v.Steering < 48600 {
				t.Errorf("%d results and %d facts were looked at", v.Results, v.Steering)
			}
			if got := brokenNames(v); !slices.Equal(got, test.broken) && len(got)+len(test.broken) > 0 {
				t.Fatalf("broken are %q, want %q", got, test.broken)
			}
			if len(test.broken) == 0 {
				return
			}
			b := broken(t, v, test.broken[0])
			if test.document != "" && string(b.Document) != test.document {
				t.Errorf("it is shown by %s, want %s", b.Document, test.document)
			}
			if !strings.Contains(b.Test, string(b.Document)) || len(b.Rules) == 0 || b.Rules[0].File != test.file || b.Inputs == 0 {
				t.Errorf("%+v", b)
			}
		})
	}
}

// Policies without the rules have no invariants on them.
func TestVerifyWithoutTaintRules(t *testing.T) {
	v := verifySample(t, minimal(t, "decision := ok\n"), []int{}, noSkills, false)
	if v.Results != 0 || v.Steering != 0 || len(v.Invariants) != 13 {
		t.Errorf("%d results, %d facts, %d invariants", v.Results, v.Steering, len(v.Invariants))
	}
}
