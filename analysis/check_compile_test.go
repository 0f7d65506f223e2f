package analysis

import (
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/opa-gate/opa-gate/evaluator"
)

// What can come of rules that were left out is told from other errors by OPA's
// words, since it has no types for them. These are its words.
func TestConsequencesAreInOPAsWords(t *testing.T) {
	tests := map[string]struct{ rules, want string }{
		"a function of another package":  {"x if data.other.gone(1)", "undefined function data."},
		"a member of a rule":             {"x if y.gone\n\ny := {\"a\": 1}", "undefined ref: data."},
		"a variable":                     {"x if gone == 1", "var gone is unsafe"},
		"a variable that nothing uses":   {"x if {\n\ty := 1\n}", "unused"},
		"an argument that nothing uses":  {"x(y) := 1", "unused"},
		"an import that nothing uses":    {"import data.other\n\nx := 1", "unused"},
		"values that can never be equal": {"x if y == \"a\"\n\ny := 1", "match error"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			compiler, err := evaluator.NewCompiler()
			if err != nil {
				t.Fatal(err)
			}
			compiler.Compile(map[string]*ast.Module{"x.rego": ast.MustParseModule("package x\n\n" + tt.rules)})
			if len(compiler.Errors) == 0 {
				t.Fatal("it compiles")
			}
			left := &compilation{removed: map[string]bool{"data.x.gone": true}}
			for _, e := range compiler.Errors {
				if !strings.Contains(e.Message, tt.want) || !left.isConsequence(e) {
					t.Errorf("%q, which is a consequence %v; want a consequence with %q", e.Message, left.isConsequence(e), tt.want)
				}
				if (&compilation{whole: true}).isConsequence(e) {
					t.Errorf("%q is a consequence though nothing was left out", e.Message)
				}
			}
		})
	}
}
