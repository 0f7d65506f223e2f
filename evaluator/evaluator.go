package evaluator

import (
	"context"
	"fmt"
	"io/fs"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/policies"
	"github.com/opa-gate/opa-gate/skill"
)

// An Engine decides calls and skills. An error means that it could not; the
// answer beside it is the zero one, which is not a valid answer.
type Engine interface {
	Decide(ctx context.Context, c *capability.Call) (capability.Outcome, error)
	Skill(ctx context.Context, r *skill.Request) (skill.Answer, error)
}

// Options say which policies an [Evaluator] uses. Of Dir, FS, Bundle, Packed and
// Store at most one is given; with none, it is the embedded policies.
type Options struct {
	Dir    string  // a directory of policies
	FS     fs.FS   // a tree of policies
	Bundle string  // an OPA bundle file; its signature is not looked at
	Packed []byte  // the bytes of such a file
	Store  *Stored // what an OPA has in its store
	System string  // what sentences for a person call this system; "" leaves it to the policies
}

// Stored are the policies and the data of an OPA's store as one transaction
// sees them. Of the modules, those that the gate's packages refer to are taken:
// an OPA may have others beside them, which know nothing of the gate's schemas.
type Stored struct {
	Store storage.Store
	Txn   storage.Transaction
}

// An Evaluator is the embedded OPA with one set of policies, and what was
// compiled of them so far. It implements [Engine], and answers what OPA answers,
// error for error but for those of a context that ends: see the package comment.
// It is safe for use by several goroutines. Policies and data of an Evaluator
// never change; others are another Evaluator, which starts with nothing compiled.
type Evaluator struct {
	interpreter *Interpreter
	compiled    *compilation
	digest      func() (string, error)
}

// New loads, compiles and prepares policies; nil options mean the embedded
// ones. The taxonomy's facts are added as data.gate.facts. Its errors match
// ErrPolicy and say file and line where they can.
//
// The query on skills is prepared when the first one is asked about, and of the
// embedded policies, those on skills are compiled then.
func New(ctx context.Context, opts *Options) (*Evaluator, error) {
	if opts == nil {
		opts = &Options{}
	}
	if opts.Dir == "" && opts.FS == nil && opts.Bundle == "" && opts.Packed == nil && opts.Store == nil {
		return newEmbedded(ctx, opts.System)
	}
	src, err := load(ctx, opts)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPolicy, err)
	}
	return prepare(ctx, src, Facts(), opts.System)
}

// prepare makes an evaluator of one set of policies.
func prepare(ctx context.Context, src *source, facts map[string]any, system string) (*Evaluator, error) {
	built, err := src.build(facts, system, callQuery, skillQuery)
	if err != nil {
		return nil, err
	}
	return newEvaluator(built, built.prepared(ctx, callQuery), built.prepared(ctx, skillQuery))
}

// newEmbedded makes an evaluator of the embedded policies. They are a part of
// the program that its tests have compiled as a whole, so a process that asks
// about calls alone need not do it again.
func newEmbedded(ctx context.Context, system string) (*Evaluator, error) {
	build := func(tree fs.FS, query string) (*built, error) {
		src, err := loadFS(tree)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrPolicy, err)
		}
		return src.build(Facts(), system, query)
	}
	calls, err := build(policies.Calls(), callQuery)
	if err != nil {
		return nil, err
	}
	calls.digest = sync.OnceValues(func() (string, error) { // of all modules, as from a bundle of the same policies
		src, err := loadFS(policies.FS())
		if err == nil {
			err = src.prepareData(Facts(), system)
		}
		if err != nil {
			return "", fmt.Errorf("%w: %w", ErrPolicy, err)
		}
		return src.digest()()
	})
	return newEvaluator(calls, calls.prepared(ctx, callQuery), sync.OnceValues(func() (rego.PreparedEvalQuery, error) {
		all, err := build(policies.FS(), skillQuery)
		if err != nil {
			return rego.PreparedEvalQuery{}, err
		}
		return all.prepared(ctx, skillQuery)()
	}))
}

// newEvaluator makes an evaluator that compiles the decision on calls from
// what was built.
func newEvaluator(b *built, call, skill func() (rego.PreparedEvalQuery, error)) (*Evaluator, error) {
	if _, err := call(); err != nil {
		return nil, err
	}
	interpreter := &Interpreter{call, skill}
	return &Evaluator{interpreter, newCompilation(interpreter, b), b.digest}, nil
}

// built is a set of policies as OPA takes it.
type built struct {
	compiler *ast.Compiler
	store    storage.Store
	digest   func() (string, error)
}

// build compiles the policies, which must have the rules that answer queries.
func (s *source) build(facts map[string]any, system string, queries ...string) (*built, error) {
	if err := s.prepareData(facts, system); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPolicy, err)
	}
	digest := s.digest()
	stored := make(chan storage.Store, 1) // beside the compiler, which reads the modules only
	go func() { stored <- inmem.NewFromObjectWithOpts(s.data, inmem.OptReturnASTValuesOnRead(true)) }()
	compiler, err := s.compile()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPolicy, err)
	}
	for _, query := range queries {
		if len(compiler.GetRulesExact(ast.MustParseRef(query))) == 0 {
			return nil, fmt.Errorf("%w: there is no rule %s", ErrPolicy, query)
		}
	}
	return &built{compiler, <-stored, digest}, nil
}

// prepared prepares a query when it is first asked for.
func (b *built) prepared(ctx context.Context, query string) func() (rego.PreparedEvalQuery, error) {
	return sync.OnceValues(func() (rego.PreparedEvalQuery, error) {
		compiling.Lock()
		defer compiling.Unlock()
		q, err := rego.New(rego.Query(query), rego.Compiler(b.compiler), rego.Store(b.store),
			rego.StrictBuiltinErrors(true)).PrepareForEval(context.WithoutCancel(ctx))
		if err != nil {
			err = fmt.Errorf("%w: %w", ErrPolicy, err)
		}
		return q, err
	})
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
