package evaluator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/skill"
)

// ErrNoRule: the policies have no such rule.
var ErrNoRule = errors.New("the policies have no such rule")

// A Query is a rule of the policies that looks at decisions, such as
// data.gate.invariants.breach. Its input has the document as call or as skill,
// as the policies see it, and the answer to it as decision. It is safe for use by
// several goroutines.
type Query struct {
	prepared rego.PreparedEvalQuery
	compiler *ast.Compiler
	rules    []*ast.Rule
}

// Query prepares the rule with that name, which begins with "data.". Its errors
// match ErrNoRule and ErrPolicy.
func (e *Evaluator) Query(ctx context.Context, rule string) (*Query, error) {
	ref, err := ast.ParseRef(rule)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoRule, err)
	}
	b := &built{compiler: e.compiled.compiler, store: e.compiled.store}
	rules := b.compiler.GetRulesExact(ref)
	if len(rules) == 0 {
		return nil, fmt.Errorf("%w: %s", ErrNoRule, rule)
	}
	prepared, err := b.prepared(ctx, rule)()
	return &Query{prepared, b.compiler, rules}, err
}

// Call asks about the answer to a call. Its errors match ErrEvaluation and
// ErrUndefined.
func (q *Query) Call(ctx context.Context, c *capability.Call, o capability.Outcome) (any, error) {
	doc, err := callInput(c)
	if err != nil {
		return nil, err
	}
	return q.ask(ctx, "call", doc, o)
}

// Skill asks about the answer to a skill.
func (q *Query) Skill(ctx context.Context, r *skill.Request, a skill.Answer) (any, error) {
	return q.ask(ctx, "skill", skillInput(r), a)
}

func (q *Query) ask(ctx context.Context, member string, doc ast.Value, answer json.Marshaler) (any, error) {
	text, err := answer.MarshalJSON()
	if err != nil {
		return nil, err
	}
	decision, err := parseJSON(text)
	if err != nil {
		return nil, err
	}
	input := objectOf(memberOf(member, doc), memberOf("decision", decision.Value))
	return evaluate(ctx, func() (rego.PreparedEvalQuery, error) { return q.prepared, nil }, input.Value)
}

func memberOf(name string, v ast.Value) member { return member{name, ast.NewTerm(v)} }

// A RuleSource is where one definition of a rule stands, and its text.
type RuleSource struct {
	File string
	Line int
	Text string
}

// Sources returns the rule's definitions in the order of the files.
func (q *Query) Sources() []RuleSource {
	var sources []RuleSource
	for _, r := range q.rules {
		sources = append(sources, RuleSource{r.Loc().File, r.Loc().Row, string(r.Loc().Text)})
	}
	slices.SortFunc(sources, func(a, b RuleSource) int {
		if c := strings.Compare(a.File, b.File); c != 0 {
			return c
		}
		return a.Line - b.Line
	})
	return sources
}

// Texts returns the strings in the modules that the rule stands in, sorted.
func (q *Query) Texts() []string {
	var texts []string
	seen := map[*ast.Module]bool{}
	for _, r := range q.rules {
		if seen[r.Module] || r.Module == nil {
			continue
		}
		seen[r.Module] = true
		for _, rule := range r.Module.Rules {
			ast.WalkTerms(rule.Body, func(t *ast.Term) bool {
				if _, isRef := t.Value.(ast.Ref); isRef {
					return true // the members that it names are no texts
				}
				if text, ok := t.Value.(ast.String); ok && text != "" {
					texts = append(texts, string(text))
				}
				return false
			})
		}
	}
	slices.Sort(texts)
	return slices.Compact(texts)
}
