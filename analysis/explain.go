package analysis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/skill"
)

// An Explanation tells why the policies answer one document as they do. As JSON
// it has the member names given here; a member without a value is left out.
type Explanation struct {
	// Call or Skill is the answer, as decide and skill write it.
	Call  *capability.Outcome `json:"call,omitempty"`
	Skill *skill.Answer       `json:"skill,omitempty"`

	// Decided is the branch of a rule that the answer's outcome came from, with
	// the conditions that held. If several rules gave the same, it is the first
	// of them, and Also has the rest.
	Decided Branch   `json:"decided"`
	Also    []Branch `json:"also,omitempty"`
	// Through is the way of the outcome from the entrypoint to Decided, which is
	// not in it.
	Through []Branch `json:"through,omitempty"`
	// Passed are the other branches of the rule that were tried and did not
	// apply, each with the condition that failed, in the order of trying.
	Passed []Branch `json:"passed,omitempty"`

	// Basis is what the answer rests on: for a call what is required and what is
	// granted, for a skill its trust, ceiling and enforcement.
	Basis []Basis `json:"basis"`

	// Nearest are the smallest sets of changes that would have the document go
	// ahead, at most three; Search says what was looked at.
	Nearest []Nearest `json:"nearest"`
	Search  Search    `json:"search"`
}

// A Place is a line of the policies.
type Place struct {
	Rule string `json:"rule"` // such as data.gate.call.answer
	File string `json:"file"`
	Line int    `json:"line"`
}

// A Branch is one branch of a rule: its head and body, or one of its elses.
type Branch struct {
	Place
	Default bool         `json:"default,omitempty"`
	Source  string       `json:"source"`           // its head, on one line, cut where it is long
	Held    []Expression `json:"held,omitempty"`   // of a branch that applied
	Failed  *Expression  `json:"failed,omitempty"` // of one that did not; none if its arguments did not match
}

// An Expression is an expression of a rule's body, or in its head.
type Expression struct {
	File   string    `json:"file"`
	Line   int       `json:"line"`
	Source string    `json:"source"`
	Head   bool      `json:"head,omitempty"`  // it is not in the body: the rule's value needs it
	Tried  int       `json:"tried,omitempty"` // of how many values it failed for, the first is shown
	Values []Operand `json:"values,omitempty"`
}

// An Operand is what a part of a condition was.
type Operand struct {
	Source    string          `json:"source"`
	Value     json.RawMessage `json:"value,omitempty"` // none if it is undefined
	Undefined bool            `json:"undefined,omitempty"`
	Absent    string          `json:"absent,omitempty"`  // the part of the document that is not there, if that is why
	From      *Place          `json:"from,omitempty"`    // the branch that gave the value
	Because   []Branch        `json:"because,omitempty"` // the branches that could have given one, and why they did not
}

// A Basis is a member of the answer and the branch that it came from.
type Basis struct {
	Member string          `json:"member"`
	Value  json.RawMessage `json:"value"`
	Names  []string        `json:"names,omitempty"` // of a mask
	From   Place           `json:"from"`
	Where  []string        `json:"where,omitempty"` // the conditions of the branch, which held
	Of     []Basis         `json:"of,omitempty"`    // the rules that this one computes with; their member is their source

	// LeftOut are the parts of the document that are not there, because of which
	// other branches of the rule, or of one that Where rests on, did not apply.
	LeftOut []string `json:"left_out,omitempty"`
}

// errNoFlow is an answer of OPA for which its trace has no rule.
var errNoFlow = errors.New("the trace does not show where the answer came from")

// A ConflictError says that several rules gave one document different values.
// It wraps the error of the evaluator, which matches evaluator.ErrEvaluation.
type ConflictError struct {
	Rules []Branch // that gave them, with the conditions that held
	Err   error
}

// Error implements error.
func (e *ConflictError) Error() string {
	text := e.Err.Error()
	for i, b := range e.Rules {
		sep := "; these apply: "
		if i > 0 {
			sep = ", "
		}
		text += fmt.Sprintf("%s%s:%d", sep, b.File, b.Line)
	}
	return text
}

// Unwrap returns Err.
func (e *ConflictError) Unwrap() error { return e.Err }

// Explain decides a call with the policies of e and tells why the answer is
// what it is, and what would have to change for the call to go ahead. The error
// is that of e's Decide; where rules contradict one another it is a
// *[ConflictError].
func Explain(ctx context.Context, e *evaluator.Evaluator, c *capability.Call) (*Explanation, error) {
	out, err := explainTrace(ctx, e, c)
	if err != nil {
		return nil, err
	}
	return out, nearestCalls(ctx, e, c, out)
}

// explainTrace is [Explain] without a search for what would go ahead: one
// evaluation instead of hundreds.
func explainTrace(ctx context.Context, e *evaluator.Evaluator, c *capability.Call) (*Explanation, error) {
	r := newExplainRecorder()
	o, traced, err := e.TraceCall(ctx, c, r)
	x := &explainer{ctx, r, traced}
	if err != nil {
		return nil, x.conflict(err)
	}
	out := &Explanation{Call: &o}
	if err := x.decided(out); err != nil {
		return nil, err
	}
	for _, b := range []struct {
		member, mask string
		set          capability.Set
	}{{"required", "required_mask", o.Required}, {"granted", "granted_mask", o.Granted}} {
		if err := x.basis(out, b.member, b.mask); err != nil {
			return nil, err
		}
		out.Basis[len(out.Basis)-1].Names = b.set.DisplayNames()
	}
	return out, nil
}

// ExplainSkill is [Explain] for a skill. To go ahead is to be deployed at the
// tier that it asks for.
func ExplainSkill(ctx context.Context, e *evaluator.Evaluator, q *skill.Request) (*Explanation, error) {
	out, err := explainSkillTrace(ctx, e, q)
	if err != nil {
		return nil, err
	}
	return out, nearestSkills(ctx, e, q, out)
}

func explainSkillTrace(ctx context.Context, e *evaluator.Evaluator, q *skill.Request) (*Explanation, error) {
	r := newExplainRecorder()
	a, traced, err := e.TraceSkill(ctx, q, r)
	x := &explainer{ctx, r, traced}
	if err != nil {
		return nil, x.conflict(err)
	}
	out := &Explanation{Skill: &a}
	if err := x.decided(out); err != nil {
		return nil, err
	}
	for _, member := range []string{"trust", "ceiling", "enforcement"} {
		if err := x.basis(out, member, member); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Relocate replaces the name of every file, say by one that can be opened from
// where the reader is.
func (x *Explanation) Relocate(name func(file string) string) {
	relocateBranch(name, &x.Decided)
	relocateBranches(name, x.Also)
	relocateBranches(name, x.Through)
	relocateBranches(name, x.Passed)
	relocateBasis(name, x.Basis)
}

func relocateBasis(name func(string) string, all []Basis) {
	for i := range all {
		all[i].From.File = name(all[i].From.File)
		relocateBasis(name, all[i].Of)
	}
}

func relocateBranches(name func(string) string, all []Branch) {
	for i := range all {
		relocateBranch(name, &all[i])
	}
}

func relocateBranch(name func(string) string, b *Branch) {
	b.File = name(b.File)
	for i := range b.Held {
		relocateCondition(name, &b.Held[i])
	}
	if b.Failed != nil {
		relocateCondition(name, b.Failed)
	}
}

func relocateCondition(name func(string) string, c *Expression) {
	c.File = name(c.File)
	for i := range c.Values {
		if from := c.Values[i].From; from != nil {
			from.File = name(from.File)
		}
		relocateBranches(name, c.Values[i].Because)
	}
}
