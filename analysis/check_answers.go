package analysis

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/skill"
)

const (
	checkedCalls      = 3072 // calls with the usual texts
	textCalls         = 256  // calls for each text that the rules name, in three forms
	maxTexts          = 24   // such texts
	specialCalls      = 128  // calls for each thing that a rule easily forgets
	manyNames         = 300  // in a grant
	argumentCallsEach = 48   // calls for each document of arguments
	callsAsked        = 6    // what they take, about, beside skills
	skillsAsked       = 1
	stride            = 0x9E3779B1 // a prime: steps of it spread over the domain evenly
)

// spreadCall returns call i of a spread. Three calls of four are kept such that
// rules behind the first steps are reached: of calls taken by chance, nearly all
// are vetoed, lack something, or ask for a person.
func spreadCall(i int, texts callTexts) *capability.Call {
	call := callOfKind(i*stride%callKinds, texts)
	if i%4 == 0 {
		return call
	}
	call.Policy.Vetoed, call.Policy.Veto = false, ""
	call.Policy.RequiresHuman = i%4 == 3 && call.Policy.RequiresHuman
	call.Policy.SandboxEscalation = i%4 == 3 && call.Policy.SandboxEscalation
	if i%4 != 1 {
		call.Grant.Base = capability.All
	}
	return call
}

// checkAnswers asks the policies about a spread of documents, and looks at what
// they answer: that there is an answer, one, and of the right shape.
func (c *checker) checkAnswers(ctx context.Context, uses *ruleUses, progress func(done, total int)) error {
	if c.failed() {
		return nil
	}
	if uses.network {
		c.add(c.files[0].start(), SeverityWarning, CodeNotEvaluated,
			"no answers were looked at: a decision calls a built-in of the network, and this would call it thousands of times")
		return nil
	}
	e, err := evaluator.New(ctx, &evaluator.Options{Dir: c.dir})
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		c.add(c.files[0].start(), SeverityError, CodeLoad, "%v", err)
		return nil
	}
	a := &answerChecker{checker: c, evaluator: e, meter: newMeter(progress, callsAsked+skillsAsked), asked: map[string]int{},
		left: map[string]bool{}, problems: map[string]*answerProblem{}}
	for _, ask := range []func(context.Context) error{a.calls, a.skills, a.broken} {
		if err := ask(ctx); err != nil {
			return err
		}
	}
	a.report(ctx)
	return ctx.Err()
}

// An answerChecker collects what is wrong with answers, each problem once.
type answerChecker struct {
	*checker
	evaluator *evaluator.Evaluator
	meter     *meter
	asked     map[string]int // documents, by the rule that decides them
	mu        sync.Mutex     // of problems
	problems  map[string]*answerProblem
	left      map[string]bool // rules that are asked about nothing more: each evaluation takes too much
}

// An answerProblem is what is wrong with some answers.
type answerProblem struct {
	rule  string // that was asked
	err   error
	shown []byte // the first document that shows it, as short as it can be written
	count int

	call    *capability.Call // the same; both are nil of a document that breaks the schema
	request *skill.Request
}

// note records what is wrong with the answer to one document.
func (a *answerChecker) note(found answerProblem) {
	key := found.rule + " " + found.err.Error()
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.problems[key]
	if p == nil {
		p = &found
		a.problems[key] = p
	}
	count := p.count + 1
	if cmp.Or(cmp.Compare(len(found.shown), len(p.shown)), bytes.Compare(found.shown, p.shown)) < 0 { // the same one in every run
		*p = found
	}
	p.count = count
}

func (a *answerChecker) calls(ctx context.Context) error {
	var calls []*capability.Call
	for i := range checkedCalls {
		calls = append(calls, spreadCall(i, usualTexts))
	}
	for _, text := range a.texts(decisionRules[0]) {
		// In front, behind and within: a rule may look for a part of the name.
		forms := []string{text, text + "x", "x" + text}
		for i := range textCalls {
			calls = append(calls, spreadCall(i, callTexts{forms[i%len(forms)], text, text, usualTexts.arguments}))
		}
	}
	special, err := a.specialCalls(ctx)
	if err != nil {
		return err
	}
	calls = append(calls, special...)
	engine := a.evaluator.Interpreter() // OPA itself: no two of these calls are of a kind
	return a.ask(ctx, decisionRules[0], len(calls), a.meter.phase(callsAsked), func(ctx context.Context, i int) *answerProblem {
		if _, err := engine.Decide(ctx, calls[i]); err != nil {
			return &answerProblem{err: err, shown: callDocument(calls[i], false), call: calls[i]}
		}
		return nil
	})
}

// specialCalls have what a rule easily forgets: names that grant nothing, one or very
// many; texts that are empty; and the arguments that rules look for.
func (a *answerChecker) specialCalls(ctx context.Context) ([]*capability.Call, error) {
	var calls []*capability.Call
	spread := func(n int, change func(c *capability.Call)) {
		for i := range n {
			c := spreadCall(i, usualTexts)
			change(c)
			calls = append(calls, c)
		}
	}
	var crowd []string
	for i := range manyNames {
		crowd = append(crowd, fmt.Sprintf("name-%d", i))
	}
	grants := [][]string{crowd}
	for _, name := range namesThatGrantNothing() {
		grants = append(grants, []string{name})
	}
	for _, names := range grants {
		spread(specialCalls, func(c *capability.Call) { // a grant that has names is stated
			c.Grant.Unknown, c.LeftOut = names, c.LeftOut&^capability.GrantMember
		})
	}
	spread(specialCalls, func(c *capability.Call) { c.Policy.Vetoed, c.Policy.Veto = true, "" })
	spread(specialCalls, func(c *capability.Call) { c.Policy.Transform = capability.Transform{Kind: capability.InjectContext} })
	uses, err := readArguments(ctx, a.evaluator)
	if err != nil {
		return nil, err
	}
	samples := append(argumentSamples(uses), json.RawMessage("{}"))
	texts := a.texts(decisionRules[0])
	for _, sample := range samples {
		spread(argumentCallsEach, func(c *capability.Call) {
			c.Policy.Transform = capability.Transform{Kind: capability.Rewrite, Arguments: sample}
			if n := len(calls); n%2 == 1 && len(texts) > 0 {
				c.Tool = texts[n/2%len(texts)]
			}
		})
	}
	return calls, nil
}

// texts returns the texts with which rules that a decision depends on compare
// something or compute: not those in answers, not those with blanks, which are
// sentences, and not names that the gate knows.
func (a *answerChecker) texts(decision string) []string {
	known := map[string]bool{"": true}
	for _, set := range schemaValues() {
		for _, text := range set.texts {
			known[text] = true
		}
	}
	for _, d := range capability.Taxonomy() {
		known[d.Name] = true
	}
	compiler, _ := a.evaluator.Policies()
	uses := newRuleUses(compiler)
	found := map[string]bool{}
	for rule := range uses.byDecision {
		if uses.byDecision[rule] != decision || rule.Module.Package.Path.String() == "data.gate.wire" {
			continue
		}
		ast.NewGenericVisitor(func(x any) bool {
			switch x := x.(type) {
			case ast.Ref, ast.Object:
				return true
			case ast.String:
				if text := string(x); !known[text] && !strings.ContainsAny(text, " \n") {
					found[text] = true
				}
			}
			return false
		}).Walk(rule.Body)
	}
	texts := slices.Sorted(maps.Keys(found))
	return texts[:min(len(texts), maxTexts)]
}

func (a *answerChecker) skills(ctx context.Context) error {
	return a.ask(ctx, decisionRules[1], skillKinds, a.meter.phase(skillsAsked), func(ctx context.Context, i int) *answerProblem {
		r := skillOfKind(i)
		if _, err := a.evaluator.Skill(ctx, r); err != nil {
			return &answerProblem{err: err, shown: skillDocument(r, true), request: r}
		}
		return nil
	})
}

// brokenDocuments break the schema, each in another way, of calls and of skills.
var brokenDocuments = map[string][]string{
	decisionRules[0]: {
		`null`, `[]`, `{}`,
		`{"tool": {"name": "t", "origin": "local-sandbox", "read_only": true}}`,
		`{"tool": {"name": "t", "origin": "local-sandbox", "read_only": true}, "taint": "unknown"}`,
		`{"tool": {"name": "t", "origin": "somewhere"}, "taint": "clean"}`,
		`{"tool": {"name": "t", "origin": "local-sandbox", "read_only": true}, "taint": "clean", "policy": {"veto": 1}}`,
		`{"tool": {"name": "t", "origin": "local-sandbox", "read_only": true}, "taint": "clean", "policy": {"transform": {"kind": "x"}}}`,
		`{"tool": {"name": "t", "origin": "local-sandbox", "read_only": true}, "taint": "clean", "verdict": {"veto": "no"}}`,
	},
	decisionRules[1]: {
		`null`, `[]`, `{}`,
		`{"skill": "s", "requested": "root"}`,
		`{"skill": "s", "requested": "read_only", "provenance": {"scanned": "yes"}}`,
		`{"skill": "s", "requested": "read_only", "approved": true}`,
	},
}

// errBroken is what is wrong with the answer to a broken document.
type errBroken string

func (e errBroken) Error() string { return string(e) }

// broken asks about documents that break the schema. The program refuses those
// before any rule sees them, a stock OPA does not.
func (a *answerChecker) broken(ctx context.Context) error {
	for _, rule := range decisionRules {
		for _, document := range brokenDocuments[rule] {
			if a.left[rule] {
				break
			}
			limited, end := bounded(ctx)
			value, err := a.evaluate(limited, rule, []byte(document))
			cause := context.Cause(limited)
			end()
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if cause != nil {
				err = cause
			}
			problem := ""
			switch answer, _ := value.(map[string]any); {
			case err != nil:
				problem = "fails: " + err.Error()
			case value == nil:
				problem = "has no answer"
			case answer["outcome"] != "deny":
				problem = fmt.Sprintf("is answered with %v", answer["outcome"])
			}
			if problem != "" {
				a.note(answerProblem{rule: rule, err: errBroken(problem), shown: []byte(document)})
			}
		}
	}
	return nil
}

// evaluate has OPA answer one document; nil means that it is undefined.
func (a *answerChecker) evaluate(ctx context.Context, rule string, document []byte) (any, error) {
	input, err := ast.ValueFromReader(bytes.NewReader(document))
	if err != nil {
		return nil, err
	}
	compiler, store := a.evaluator.Policies()
	var q rego.PreparedEvalQuery
	evaluator.WhileCompiling(func() {
		q, err = rego.New(rego.Query(rule), rego.Compiler(compiler), rego.Store(store), rego.StrictBuiltinErrors(true)).PrepareForEval(ctx)
	})
	if err != nil {
		return nil, err
	}
	results, err := q.Eval(ctx, rego.EvalParsedInput(input))
	if err != nil || len(results) == 0 {
		return nil, err
	}
	return results[0].Expressions[0].Value, nil
}
