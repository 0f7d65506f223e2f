package evaluator

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/bundle"

	"github.com/opa-gate/opa-gate/policies"
)

// writeBundle packs the embedded policies, tests included, as an OPA bundle
// file, with edit applied to each Rego file.
func writeBundle(t *testing.T, edit func(name, text string) string) string {
	t.Helper()
	src, err := loadFS(policies.FS())
	if err != nil {
		t.Fatal(err)
	}
	b := bundle.Bundle{Data: src.data}
	b.Manifest.Init()
	for name, file := range copyTree(t) {
		if !strings.HasSuffix(name, ".rego") {
			continue
		}
		text := []byte(edit(name, string(file.Data)))
		b.Modules = append(b.Modules, bundle.ModuleFile{URL: name, Path: name, Raw: text,
			Parsed: ast.MustParseModuleWithOpts(string(text), ast.ParserOptions{ProcessAnnotation: true})})
	}
	var buf bytes.Buffer
	if err := bundle.NewWriter(&buf).Write(b); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "bundle.tar.gz")
	if err := os.WriteFile(path, buf.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A bundle file decides what its own rules say, on the whole suite, and a
// broken one is refused.
func TestPoliciesFromABundle(t *testing.T) {
	ctx := context.Background()
	e, err := New(ctx, &Options{Bundle: writeBundle(t, func(_, text string) string { return text })})
	if err != nil {
		t.Fatal(err)
	}
	if problem := suiteProblem(t, e.Interpreter()); problem != "" {
		t.Errorf("the policies as a bundle: %s", problem)
	}
	edited := writeBundle(t, func(name, text string) string {
		if name == "gate/taint/taint.rego" {
			text = replaceOnce(t, text, `input.taint == "tainted"`, `input.taint == "clean"`)
		}
		return text
	})
	if e, err = New(ctx, &Options{Bundle: edited}); err != nil {
		t.Fatal(err)
	}
	if suiteProblem(t, e.Interpreter()) == "" {
		t.Error("an edited bundle decides as the embedded policies do")
	}
	whole, err := os.ReadFile(edited)
	if err != nil {
		t.Fatal(err)
	}
	torn := filepath.Join(t.TempDir(), "torn.tar.gz")
	if err := os.WriteFile(torn, whole[:len(whole)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(ctx, &Options{Bundle: torn}); err == nil {
		t.Error("half a bundle is used")
	}
}
