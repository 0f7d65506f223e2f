package analysis_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/opa-gate/opa-gate/analysis"
	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/fixtures"
	"github.com/opa-gate/opa-gate/policies"
	"github.com/opa-gate/opa-gate/wire"
)

// explainPolicies is a copy of the policies in memory.
func explainPolicies(t *testing.T) fstest.MapFS {
	t.Helper()
	tree := fstest.MapFS{}
	err := fs.WalkDir(policies.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(policies.FS(), name)
		tree[name] = &fstest.MapFile{Data: text}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func explainOpen(t *testing.T, tree fs.FS) *evaluator.Evaluator {
	t.Helper()
	e, err := evaluator.New(t.Context(), &evaluator.Options{FS: tree})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// An explainBranch is a branch of a rule as it stands in a file.
type explainBranch struct {
	rule, file string
	line       int
}

func (b explainBranch) String() string { return fmt.Sprintf("%s (%s:%d)", b.rule, b.file, b.line) }

// explainBranches lists the branches of every rule, each with the text of the
// policies in which the branch's head says something else.
func explainBranches(t *testing.T, tree fstest.MapFS) map[explainBranch]fstest.MapFS {
	t.Helper()
	const marker = "the marker of a mutated head"
	reason := regexp.MustCompile(`"reason": "[^"]*"`)
	all := map[explainBranch]fstest.MapFS{}
	for name, file := range tree {
		if !strings.HasSuffix(name, ".rego") || strings.HasSuffix(name, "_test.rego") {
			continue
		}
		module, err := ast.ParseModule(name, string(file.Data))
		if err != nil {
			t.Fatal(err)
		}
		for _, rule := range module.Rules {
			for branch := rule; branch != nil; branch = branch.Else {
				at := branch.Head.Value.Loc()
				if at == nil || !bytes.HasPrefix(file.Data[at.Offset:], at.Text) || !strings.Contains(string(at.Text), "{") {
					continue // not an answer
				}
				text := "object.union(" + string(at.Text) + `, {"reason": "` + marker + `"})`
				if branch.Default { // that takes a constant only
					text = reason.ReplaceAllString(string(at.Text), `"reason": "`+marker+`"`)
				}
				mutated := maps.Clone(tree)
				mutated[name] = &fstest.MapFile{Data: slices.Concat(file.Data[:at.Offset], []byte(text), file.Data[at.Offset+len(at.Text):])}
				all[explainBranch{module.Package.Path.String() + "." + rule.Head.Name.String(), name, branch.Location.Row}] = mutated
			}
		}
	}
	return all
}

// The branch that is named is the one whose head makes the answer: another head
// makes another answer, and other heads of the rule's other branches do not.
func TestExplainNamesTheBranchThatMakesTheAnswer(t *testing.T) {
	if testing.Short() {
		t.Skip("every case against every mutation takes its time under the race detector; it runs without -short")
	}
	suite, err := fixtures.Load(fixtures.Cases())
	if err != nil {
		t.Fatal(err)
	}
	tree := explainPolicies(t)
	branches := explainBranches(t, tree)
	e := explainOpen(t, tree)
	for _, kind := range []struct {
		kind     fixtures.Kind
		rule     string // that decides all of them
		branches int    // of it
		explain  func(doc []byte) (*analysis.Explanation, error)
		judge    func(fixtures.Judge, context.Context, []byte) ([]byte, error)
	}{
		{fixtures.Call, "data.gate.call.answer", 6, func(doc []byte) (*analysis.Explanation, error) {
			c, err := wire.ParseCall(doc)
			if err != nil {
				return nil, err
			}
			return analysis.Explain(t.Context(), e, c)
		}, fixtures.Judge.Call},
		{fixtures.Skill, "data.gate.skill.gate", 3, func(doc []byte) (*analysis.Explanation, error) {
			q, err := wire.ParseSkill(doc)
			if err != nil {
				return nil, err
			}
			return analysis.ExplainSkill(t.Context(), e, q)
		}, fixtures.Judge.Skill},
	} {
		t.Run(string(kind.kind), func(t *testing.T) {
			mutants := map[explainBranch]fixtures.Judge{}
			for b, mutated := range branches {
				if b.rule == kind.rule {
					mutants[b] = evaluator.Documents{Engine: explainOpen(t, mutated).Interpreter()}
				}
			}
			if len(mutants) != kind.branches {
				t.Fatalf("%d branches of %s can be mutated, want %d", len(mutants), kind.rule, kind.branches)
			}
			whole := evaluator.Documents{Engine: e.Interpreter()}
			named, cases := map[explainBranch]int{}, 0
			for _, f := range suite.Files {
				if f.Kind != kind.kind {
					continue
				}
				for _, c := range f.Cases {
					x, err := kind.explain(c.Input)
					if err != nil {
						t.Fatalf("%s: %s: %v", f.Name, c.Name, err)
					}
					cases++
					d := explainBranch{x.Decided.Rule, x.Decided.File, x.Decided.Line}
					if named[d]++; mutants[d] == nil {
						t.Fatalf("%s: %s: decided by %v, want a branch of %s", f.Name, c.Name, d, kind.rule)
					}
					answer, err := kind.judge(whole, t.Context(), c.Input)
					if err != nil {
						t.Fatal(err)
					}
					for b, mutant := range mutants {
						other, err := kind.judge(mutant, t.Context(), c.Input)
						if err != nil {
							t.Fatal(err)
						}
						if changes := !bytes.Equal(answer, other); changes != (b == d) {
							t.Errorf("%s: %s: %v is named; another head of %v changes the answer: %v", f.Name, c.Name, d, b, changes)
						}
					}
				}
			}
			if len(named) != kind.branches {
				t.Errorf("only %d of %d branches decide a case", len(named), kind.branches)
			}
			t.Logf("%d cases, each against %d mutations; decided: %v", cases, len(mutants), named)
		})
	}
}
