package evaluator

import (
	"context"
	"errors"
	"io/fs"
	"regexp"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/test/cases"
	"github.com/open-policy-agent/opa/v1/test/cases/testdata"
	"github.com/open-policy-agent/opa/v1/util"

	"github.com/opa-gate/opa-gate/evaluator/internal/symbolic"
	"github.com/opa-gate/opa-gate/internal/race"
)

// oneRule is the form of the queries that ask for a rule's value.
var oneRule = regexp.MustCompile(`^(data(?:\.\w+|\["[^"]*"\])+) = x$`)

// OPA's own cases: whatever following the plan has an answer to, it is OPA's,
// and it has none where OPA fails.
func TestPlansAreFaithful(t *testing.T) {
	race.SkipSlow(t)
	counts := map[string]int{}
	err := fs.WalkDir(testdata.V1, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".yaml") {
			return err
		}
		text, err := fs.ReadFile(testdata.V1, name)
		if err != nil {
			return err
		}
		var set cases.Set
		if err := util.Unmarshal(text, &set); err != nil {
			return err
		}
		for _, c := range set.Cases {
			t.Run(c.Note, func(t *testing.T) { counts[faithfulCase(t, &c)]++ })
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(counts)
	if counts["answered"] < 500 || counts["undefined"] < 100 {
		t.Errorf("too few cases reach an answer: %v", counts)
	}
}

// faithfulCase runs one case and says what became of it.
func faithfulCase(t *testing.T, c *cases.TestCase) string {
	query := oneRule.FindStringSubmatch(c.Query)
	if query == nil || len(c.Env) > 0 {
		return "another query"
	}
	modules := map[string]*ast.Module{}
	for i, text := range c.Modules {
		m, err := ast.ParseModuleWithOpts("m"+string(rune('a'+i))+".rego", text, ast.ParserOptions{ProcessAnnotation: true, AllFutureKeywords: true})
		if err != nil {
			return "does not parse"
		}
		modules[m.Package.Location.File] = m
	}
	compiler := ast.NewCompiler()
	if compiler.Compile(modules); compiler.Failed() {
		return "does not compile"
	}
	data := map[string]any{}
	if c.Data != nil {
		data = *c.Data
	}
	var input ast.Value
	var err error
	switch {
	case c.InputTerm != nil:
		term, err := ast.ParseTerm(*c.InputTerm)
		if err != nil {
			return "does not parse"
		}
		input = term.Value
	case c.Input != nil:
		if input, err = ast.InterfaceToValue(*c.Input); err != nil {
			t.Fatal(err)
		}
	default:
		input = ast.NewObject() // both are asked with it
	}
	store := inmem.NewFromObjectWithOpts(data, inmem.OptReturnASTValuesOnRead(true))
	program, err := planOf(context.Background(), query[1], compiler, store, symbolic.NewTexts())
	if err != nil {
		return "not planned"
	}
	results, wantErr := rego.New(rego.Query("answer = "+query[1]), rego.Compiler(compiler), rego.Store(store),
		rego.StrictBuiltinErrors(true), rego.ParsedInput(input)).Eval(context.Background())
	answer, err := program.Eval(context.Background(), input)
	var d *symbolic.Dependence
	switch {
	case errors.As(err, &d):
		return "left to OPA"
	case wantErr != nil:
		t.Errorf("%s: OPA fails with %v, and the plan says %v, %v", c.Query, wantErr, answer, err)
	case errors.Is(err, symbolic.ErrUndefined) && len(results) == 0:
		return "undefined"
	case err != nil || len(results) != 1:
		t.Errorf("%s: OPA has %d results, and the plan says %v, %v", c.Query, len(results), answer, err)
	default:
		got, err := ast.JSON(answer.Value)
		if err != nil {
			return "no JSON"
		}
		want, err := ast.InterfaceToValue(results[0].Bindings["answer"])
		if err != nil {
			t.Fatal(err)
		}
		if value, err := ast.InterfaceToValue(got); err != nil || value.Compare(want) != 0 {
			t.Errorf("%s in\n%s\nOPA  %v\nplan %v", c.Query, strings.Join(c.Modules, "\n"), want, value)
		}
	}
	return "answered"
}
