package evaluator

import (
	"context"
	"fmt"
	"io/fs"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage/inmem"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/skill"
)

// An Engine decides calls and skills. An error means that it could not; the
// answer beside it is the zero one, which is not a valid answer.
type Engine interface {
	Decide(ctx context.Context, c *capability.Call) (capability.Outcome, error)
	Skill(ctx context.Context, r *skill.Request) (skill.Answer, error)
}

// Options say which policies an [Evaluator] uses. Of Dir, FS and Bundle at most
// one is given; with none, it is the embedded policies.
type Options struct {
	Dir    string // a directory of policies
	FS     fs.FS  // a tree of policies
	Bundle string // an OPA bundle file; its signature is not looked at
	System string // what sentences for a person call this system; "" leaves it to the policies
}

// An Evaluator is the embedded OPA with one set of policies, and what was
// compiled of them so far. It implements [Engine], and answers what OPA answers,
// error for error: see the package comment. It is safe for use by several
// goroutines. Policies and data of an Evaluator never change; others are
// another Evaluator, which starts with nothing compiled.
type Evaluator struct {
	interpreter *Interpreter
	compiled    *compiled
}

// New loads, compiles and prepares policies; nil options mean the embedded
// ones. The taxonomy's facts are added as data.gate.facts. Its errors match
// ErrPolicy and say file and line where they can.
func New(ctx context.Context, opts *Options) (*Evaluator, error) {
	if opts == nil {
		opts = &Options{}
	}
	src, err := load(opts)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPolicy, err)
	}
	return prepare(ctx, src, Facts(), opts.System)
}

func prepare(ctx context.Context, src *source, facts map[string]any, system string) (*Evaluator, error) {
	if err := src.prepareData(facts, system); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPolicy, err)
	}
	compiler, err := src.compile()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPolicy, err)
	}
	for _, query := range []string{callQuery, skillQuery} {
		if len(compiler.GetRulesExact(ast.MustParseRef(query))) == 0 {
			return nil, fmt.Errorf("%w: there is no rule %s", ErrPolicy, query)
		}
	}
	store := inmem.NewFromObjectWithOpts(src.data,
		inmem.OptRoundTripOnWrite(true), inmem.OptReturnASTValuesOnRead(true))
	interpreter := newInterpreter(ctx, compiler, store)
	if _, err := interpreter.call(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPolicy, err)
	}
	return &Evaluator{interpreter, newCompiled(interpreter, compiler, store)}, nil
}

// Interpreter returns OPA with the same policies, and nothing compiled.
func (e *Evaluator) Interpreter() *Interpreter { return e.interpreter }

// Decide implements [Engine]: the decision of gate/call/decision. It refuses a
// call that is not valid; see [capability.Call.Validate].
func (e *Evaluator) Decide(ctx context.Context, c *capability.Call) (capability.Outcome, error) {
	if err := c.Validate(); err != nil {
		return capability.Outcome{}, err
	}
	if cell := e.compiled.answer(c); cell != nil {
		return cell.outcome(c), nil
	}
	o, err := e.interpreter.decide(ctx, c)
	if err == nil {
		e.compiled.learn(ctx, c, &o)
	}
	return o, err
}

// Skill implements [Engine]: the decision of gate/skill/decision. Its counters
// have no finite domain, so OPA decides every request.
func (e *Evaluator) Skill(ctx context.Context, r *skill.Request) (skill.Answer, error) {
	return e.interpreter.Skill(ctx, r)
}
