package analysis

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/opa-gate/opa-gate/capability"
)

// A ruleText is one rule as it is written, and what its file imports.
type ruleText struct {
	rule    *ast.Rule
	imports []*ast.Import
}

// writtenRules is the rules outside of tests by name, those of one name in the
// order of files and lines.
type writtenRules map[string][]ruleText

func rulesOf(files map[string]*checkFile) writtenRules {
	rules := writtenRules{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if isTestFile(name) || files[name].module == nil {
			continue
		}
		for _, r := range files[name].module.Rules {
			group := ruleName(r)
			rules[group] = append(rules[group], ruleText{r, files[name].module.Imports})
		}
	}
	return rules
}

func ruleName(r *ast.Rule) string { return r.Ref().GroundPrefix().String() }

// same reports whether two rules do the same: wherever they stand, and whatever
// comments say.
func (r ruleText) same(o ruleText) bool {
	return r.rule.Compare(o.rule) == 0 && slices.EqualFunc(r.imports, o.imports, (*ast.Import).Equal)
}

// A touch is what a change can reach.
type touch struct {
	names                     []string // of rules that changed and that something depends on; nil in a first round
	calls, skills, invariants bool     // whether an answer, or the author's own invariants, can be another
	origins                   map[capability.Origin]bool
	texts                     map[string]bool // that the changed rules mention
}

// everything is a touch of which nothing is known.
func everything() *touch { return &touch{calls: true, skills: true, invariants: true} }

// touched tells what the changes from one state to another can reach. An answer
// depends on the rules that its decision depends on, before or after, and on
// data; a decision none of whose rules is another one answers as before.
func touched(before, now *goodState, changed []string) *touch {
	if slices.ContainsFunc(changed, isData) {
		return everything()
	}
	names := map[string]bool{}
	for name, group := range now.rules {
		if !slices.EqualFunc(group, before.rules[name], ruleText.same) {
			names[name] = true
		}
	}
	for name := range before.rules {
		if now.rules[name] == nil {
			names[name] = true
		}
	}
	t := &touch{names: []string{}, origins: map[capability.Origin]bool{}, texts: map[string]bool{}}
	reached := map[string]bool{}
	for decision, hit := range map[string]*bool{decisionRules[0]: &t.calls, decisionRules[1]: &t.skills, invariantsRule: &t.invariants} {
		for _, s := range []*goodState{before, now} {
			compiler, _ := s.evaluator.Policies()
			visited := map[*ast.Rule]bool{}
			(&ruleUses{compiler: compiler}).reach(compiler.GetRulesExact(ast.MustParseRef(decision)), func(r *ast.Rule) bool {
				if name := ruleName(r); names[name] {
					*hit = true
					reached[name] = true
				}
				seen := visited[r]
				visited[r] = true
				return !seen
			})
		}
	}
	t.names = append(t.names, slices.Sorted(maps.Keys(reached))...)
	for _, name := range t.names {
		for _, group := range [][]ruleText{before.rules[name], now.rules[name]} {
			for _, r := range group {
				t.mention(r.rule)
			}
		}
	}
	return t
}

// mention collects the texts in a rule: of origins wherever they stand, of others
// those that something is compared with or computed from.
func (t *touch) mention(rule *ast.Rule) {
	ast.WalkTerms(rule, func(term *ast.Term) bool {
		if text, ok := term.Value.(ast.String); ok {
			if origin, ok := capability.ParseOrigin(string(text)); ok {
				t.origins[origin] = true
			}
		}
		return false
	})
	known := knownTexts()
	for r := rule; r != nil; r = r.Else {
		ast.NewGenericVisitor(func(x any) bool {
			switch x := x.(type) {
			case ast.Ref, ast.Object:
				return true
			case ast.String:
				if text := string(x); !known[text] && !strings.ContainsAny(text, " \n") {
					t.texts[text] = true
				}
			}
			return false
		}).Walk(r.Body)
	}
}

// knownTexts are the texts that mean something to the gate itself.
var knownTexts = sync.OnceValue(func() map[string]bool {
	known := map[string]bool{"": true}
	for _, set := range schemaValues() {
		for _, text := range set.texts {
			known[text] = true
		}
	}
	for _, d := range capability.Taxonomy() {
		known[d.Name] = true
	}
	return known
})

// callsNetwork reports whether a decision calls a built-in that talks to others:
// that would be done thousands of times.
func callsNetwork(compiler *ast.Compiler) bool {
	found := false
	for rule := range newRuleUses(compiler).byDecision {
		eachExpression(rule, func(x *ast.Expr) { found = found || x.IsCall() && isNetwork(x.Operator().String()) })
	}
	return found
}
