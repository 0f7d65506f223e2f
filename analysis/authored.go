package analysis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/opa-gate/opa-gate/evaluator"
)

// authored holds every answer against the author's own invariants, one message
// as one invariant.
func (v *verifier) authored(ctx context.Context) error {
	query, err := v.evaluator.Query(ctx, invariantsRule)
	if errors.Is(err, evaluator.ErrNoRule) {
		return nil
	}
	if err != nil {
		return err
	}
	w := &authoredWalk{verifier: v, query: query, findings: map[string]*finding{}}
	looks := v.mentioned()
	err = overKinds(ctx, v.kinds, func(n int) {
		for c := range v.survey.CallsAmong(n, v.answers.Exact(n) && !looks) {
			a := v.ask(ctx, c)
			if a.err != nil {
				continue
			}
			value, err := query.Call(ctx, c, a.outcome)
			for _, message := range w.messages(ctx, value, err) {
				w.finding(message).addCall(message, &a, nil)
			}
		}
	})
	if err != nil {
		return err
	}
	overSkills(ctx, v.requests, func(i int) {
		r := &v.requests[i]
		a, err := v.evaluator.Skill(ctx, r)
		if err != nil {
			return
		}
		value, err := query.Skill(ctx, r, a)
		for _, message := range w.messages(ctx, value, err) {
			f := w.finding(message)
			f.add(message, explainSkillDocument(r), func() { f.request, f.answer = r, answerOf(a, nil) })
		}
	})
	if w.err != nil {
		return w.err
	}
	w.report(ctx)
	return ctx.Err()
}

// The texts of a call, each with the members of what the invariants see that hold
// it, or a sentence made of it.
var textMembers = [...][]ast.Ref{
	{ast.MustParseRef("input.call.tool.name"), ast.MustParseRef("input.decision.reason"), ast.MustParseRef("input.decision.warnings")},
	{ast.MustParseRef("input.call.policy.veto"), ast.MustParseRef("input.decision.reason"), ast.MustParseRef("input.decision.warnings")},
	{ast.MustParseRef("input.call.policy.transform.note"), ast.MustParseRef("input.decision.note"), ast.MustParseRef("input.decision.reason")},
}

// mentioned adds the texts that the invariants may compare a text with to those
// that calls are looked at with. It reports whether they look at any text at all:
// if not, calls that differ in their texts are the same to them.
func (v *verifier) mentioned() (looks bool) {
	rules := v.invariantRules()
	for i, list := range []*[]string{&v.survey.Tools, &v.survey.Vetoes, &v.survey.Notes} {
		var readers []*ast.Rule
		handed := false
		for _, rule := range rules {
			switch reads, names := reading(rule, textMembers[i], rules); {
			case reads:
				readers = append(readers, rule)
				handed = handed || names
			default:
				handed = handed || names
			}
		}
		if len(readers) == 0 {
			continue
		}
		looks = true
		if handed { // to another rule, which may compare it
			readers = rules
		}
		for _, rule := range readers {
			*list = append(*list, stringsIn(rule)...)
		}
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return looks
}

// invariantRules lists the rules in the module of the author's invariants, and
// those of the modules that they use.
func (v *verifier) invariantRules() []*ast.Rule {
	compiler, _ := v.evaluator.Policies()
	var rules []*ast.Rule
	seen := map[*ast.Module]bool{}
	var add func(found []*ast.Rule)
	add = func(found []*ast.Rule) {
		for _, rule := range found {
			if seen[rule.Module] {
				continue
			}
			seen[rule.Module] = true
			rules = append(rules, rule.Module.Rules...)
			for _, r := range rule.Module.Rules {
				ast.WalkRefs(r, func(ref ast.Ref) bool {
					if ref.HasPrefix(ast.DefaultRootRef) {
						add(compiler.GetRules(ref))
					}
					return false
				})
			}
		}
	}
	add(compiler.GetRulesExact(ast.MustParseRef(invariantsRule)))
	return rules
}

// reading reports whether a rule may read one of some members of the input, and
// whether it names one of the given rules: only then a text goes from one to another.
func reading(rule *ast.Rule, members []ast.Ref, rules []*ast.Rule) (reads, names bool) {
	ast.WalkRefs(rule.Body, func(r ast.Ref) bool {
		reads = reads || slices.ContainsFunc(members, func(member ast.Ref) bool { return mayReach(r, member) })
		names = names || slices.ContainsFunc(rules, func(other *ast.Rule) bool {
			return mayReach(r, other.Ref().GroundPrefix())
		})
		return false
	})
	if rule.Else != nil {
		elseReads, elseNames := reading(rule.Else, members, rules)
		reads, names = reads || elseReads, names || elseNames
	}
	return reads, names
}

// mayReach reports whether a reference can be to a member, to one around it or
// to one in it.
func mayReach(r, member ast.Ref) bool {
	for i := range min(len(r), len(member)) {
		if i > 0 && !r[i].IsGround() {
			return true
		}
		if !r[i].Equal(member[i]) {
			return false
		}
	}
	return true
}

// stringsIn lists the strings in a rule that are no names of members, and not
// the message alone.
func stringsIn(rule *ast.Rule) []string {
	var texts []string
	collect := func(t *ast.Term) bool {
		if _, isRef := t.Value.(ast.Ref); isRef {
			return true
		}
		if text, ok := t.Value.(ast.String); ok && text != "" {
			texts = append(texts, string(text))
		}
		return false
	}
	ast.WalkTerms(rule.Body, collect)
	for _, arg := range rule.Head.Args {
		ast.WalkTerms(arg, collect)
	}
	if rule.Else != nil {
		texts = append(texts, stringsIn(rule.Else)...)
	}
	return texts
}

// authoredWalk collects what the author's invariants say.
type authoredWalk struct {
	*verifier
	query    *evaluator.Query
	mu       sync.Mutex
	findings map[string]*finding // by message
	err      error               // the first failure of a rule
}

// messages returns what the rule says; a failure ends the walk.
func (w *authoredWalk) messages(ctx context.Context, value any, err error) []string {
	if err != nil {
		if ctx.Err() == nil {
			w.fail(fmt.Errorf("%s: %w", invariantsRule, err))
		}
		return nil
	}
	list, ok := value.([]any)
	if !ok {
		w.fail(fmt.Errorf("%s: expected a set of sentences, got %s", invariantsRule, encode(value)))
	}
	messages := make([]string, len(list))
	for i, item := range list {
		text, ok := item.(string)
		if !ok {
			text = string(encode(item))
		}
		messages[i] = text
	}
	return messages
}

func (w *authoredWalk) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
}

func (w *authoredWalk) finding(message string) *finding {
	w.mu.Lock()
	defer w.mu.Unlock()
	f, ok := w.findings[message]
	if !ok {
		f = &finding{}
		w.findings[message] = f
	}
	return f
}

// report adds one invariant for each message, and one that holds if there is
// none.
func (w *authoredWalk) report(ctx context.Context) {
	places := w.query.Sources()
	i := Invariant{Name: "gate.invariants", Title: "The policies' own invariants.", File: places[0].File, Line: places[0].Line}
	if len(w.findings) == 0 {
		w.result.Invariants = append(w.result.Invariants, i)
		return
	}
	messages := make([]string, 0, len(w.findings))
	for message := range w.findings {
		messages = append(messages, message)
	}
	slices.Sort(messages)
	for _, message := range messages {
		one := i
		one.Title = message
		longest := 0
		for _, p := range places { // the rule that has the most of the message in its text
			if n := common(message, p.Text); n > longest {
				longest, one.File, one.Line = n, p.File, p.Line
			}
		}
		w.verifier.report(ctx, one, w.findings[message])
	}
}

// common returns the length of the longest text that is in both.
func common(a, b string) int {
	longest := 0
	for i := range a {
		for i+longest < len(a) && strings.Contains(b, a[i:i+longest+1]) {
			longest++
		}
	}
	return longest
}
