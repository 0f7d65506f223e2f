package evaluator

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/evaluator/internal/symbolic"
)

// A compilation is what an evaluator has compiled of its policies' decision on
// a call. A cell is filled after OPA has decided one of its calls: the plan of
// the policies is evaluated with marks in place of the call's texts, and the
// cell is kept if it says of that call what OPA said.
type compilation struct {
	tables
	interpreter *Interpreter
	compiler    *ast.Compiler
	store       storage.Store
	texts       *symbolic.Texts

	misses   atomic.Uint64 // calls that OPA decided
	follows  atomic.Uint64 // times that the plan was followed
	off      atomic.Bool   // the plan said another thing than OPA
	planning sync.Mutex
	planned  atomic.Pointer[planned] // nil: not yet
}

// planned is the policies' plan, or why there is none.
type planned struct {
	program *symbolic.Program
	err     error
}

func newCompilation(interpreter *Interpreter, b *built) *compilation {
	return &compilation{interpreter: interpreter, compiler: b.compiler, store: b.store, texts: symbolic.NewTexts()}
}

// answer returns the cell that answers c, or nil.
func (m *compilation) answer(c *capability.Call) *cell {
	// Arguments that another reader could read in another way (a member twice,
	// broken UTF-8) are not handed on as they are.
	if t := &c.Policy.Transform; t.Kind == capability.Rewrite && !jsontext.Value(t.Arguments).IsValid() {
		return nil
	}
	if m.off.Load() {
		return nil
	}
	return m.find(c)
}

// learn fills the cell of a call that OPA has decided. The first call of all
// teaches nothing: who asks once should not wait for a plan.
func (m *compilation) learn(ctx context.Context, c *capability.Call, decided *capability.Outcome) {
	if m.misses.Add(1) == 1 || m.off.Load() {
		return
	}
	at, ok := placeOf(c)
	if !ok {
		return
	}
	p := m.planned.Load()
	if p == nil && m.planning.TryLock() { // others need not wait for it
		p = m.plan(ctx)
		m.planning.Unlock()
	}
	if p == nil || p.err != nil {
		return
	}
	all := m.all.get(at)
	if all == nil {
		if all = m.learnAll(ctx, p.program, at, c, decided); all == nil {
			return
		}
	}
	if all.delegates(c.Tool) && m.wants(at, c.Tool) {
		if own, err := m.follow(ctx, p.program, c, ofTool(c.Tool), symbolic.Tool); err == nil {
			m.put(m.checked(own.cell, c, decided), at, c.Tool)
		}
	}
}

// learnAll fills a cell of the table for all tools and returns it; nil if it
// could not be done.
func (m *compilation) learnAll(ctx context.Context, program *symbolic.Program, at place, c *capability.Call, decided *capability.Outcome) *cell {
	f, err := m.follow(ctx, program, c, nil, symbolic.Tool)
	if err != nil {
		return nil
	}
	sample, want := *c, *decided
	if f.cell.decided && f.cell.delegates(c.Tool) { // it is not this call's: ask about one that is
		sample.Tool = rand.Text()
		if want, err = m.interpreter.decide(ctx, &sample); err != nil {
			return nil
		}
	}
	return m.put(m.checked(f.cell, &sample, &want), at, "")
}

// plan returns the plan; whoever calls it holds planning.
func (m *compilation) plan(ctx context.Context) *planned {
	p := m.planned.Load()
	if p == nil {
		p = &planned{}
		p.program, p.err = planOf(context.WithoutCancel(ctx), callQuery, m.compiler, m.store, m.texts)
		m.planned.Store(p)
	}
	return p
}

// wholePlan returns the plan, and waits for it.
func (m *compilation) wholePlan(ctx context.Context) (*symbolic.Program, error) {
	m.planning.Lock()
	defer m.planning.Unlock()
	p := m.plan(ctx)
	return p.program, p.err
}

// followed is what came of following the plan for calls like one.
type followed struct {
	cell    *cell
	except  map[symbolic.Hole][]string // texts for which the cell does not hold
	blocker *Blocker                   // why the cell is not decided; nil if it is
}

// followTime bounds one evaluation of the plan: a policy that takes this long has
// nothing to gain from a table that takes as long to fill.
const followTime = time.Second

// surveyTime is the same for those who look at everything: nobody waits for one
// evaluation, and what they find must not hang on how busy the machine is.
const surveyTime = time.Minute

var errFollowTime = errors.New("the policies take longer than a second to follow")

// fixed are texts that stand for themselves; a mark stands for any other.
type fixed map[symbolic.Hole]string

func ofTool(name string) fixed { return fixed{symbolic.Tool: name} }

// follow follows the plan for calls like c with some texts fixed. Texts in split
// may be compared with constants. The error is that of ctx.
func (m *compilation) follow(ctx context.Context, program *symbolic.Program, c *capability.Call, fixed fixed, split ...symbolic.Hole) (followed, error) {
	return m.followWith(ctx, follower{callInput, program.Eval, followTime}, c, fixed, split...)
}

// A follower is how documents are built and the plan is evaluated for them.
type follower struct {
	input func(c *capability.Call) (ast.Value, error)
	eval  func(ctx context.Context, input ast.Value, split ...symbolic.Hole) (*symbolic.Answer, error)
	limit time.Duration // of one evaluation
}

// newFollower returns one for many calls that have much in common. It belongs to
// one goroutine.
func newFollower(program *symbolic.Program) follower {
	return follower{newInputs().call, program.NewSession().Eval, surveyTime}
}

func (m *compilation) followWith(ctx context.Context, by follower, c *capability.Call, fixed fixed, split ...symbolic.Hole) (followed, error) {
	for _, text := range fixed {
		if m.texts.In(ast.String(text)) { // who knows the marks must not be able to use them
			return followed{cell: interpreted, blocker: &Blocker{Why: "a text of the call looks like a mark"}}, nil
		}
	}
	m.follows.Add(1)
	limited, stop := context.WithTimeoutCause(ctx, by.limit, errFollowTime)
	defer stop()
	answer, err := m.evaluate(limited, by, c, fixed, split...)
	if ctx.Err() != nil {
		return followed{}, ctx.Err()
	}
	if limited.Err() != nil {
		err = errFollowTime
	}
	if err == nil {
		var decided *cell
		if decided, err = newCell(m.texts, answer); err == nil {
			return followed{cell: decided, except: answer.Except}, nil
		}
	}
	var d *symbolic.Dependence
	if !errors.As(err, &d) {
		return followed{cell: interpreted, blocker: &Blocker{Why: err.Error()}}, nil
	}
	b := &Blocker{File: d.File, Line: d.Row, Column: d.Col, Expression: oneLine(d.Expression), Why: d.Why, PerTool: d.OnTool}
	if d.OnTool {
		return followed{cell: perTool, blocker: b}, nil
	}
	return followed{cell: interpreted, blocker: b}, nil
}

// evaluate evaluates the plan with the fixed texts, and marks for the call's
// others.
func (m *compilation) evaluate(ctx context.Context, by follower, c *capability.Call, fixed fixed, split ...symbolic.Hole) (*symbolic.Answer, error) {
	text := func(h symbolic.Hole) string {
		if text, ok := fixed[h]; ok {
			return text
		}
		return m.texts.Text(h)
	}
	marked := *c
	marked.Tool = text(symbolic.Tool)
	if c.Policy.Vetoed {
		marked.Policy.Veto = text(symbolic.Veto)
	}
	switch t := &marked.Policy.Transform; t.Kind {
	case capability.Rewrite:
		t.Arguments = []byte(text(symbolic.Arguments))
	case capability.InjectContext:
		t.Note = text(symbolic.Note)
	}
	input, err := by.input(&marked)
	if err != nil {
		return nil, err
	}
	return by.eval(ctx, input, split...)
}

// checked returns a cell that answers a call as OPA did. If it does not, what
// was followed is not what OPA does, here and perhaps where nobody has looked:
// nothing is compiled from then on, and no table answers.
func (m *compilation) checked(c *cell, call *capability.Call, decided *capability.Outcome) *cell {
	if !c.decided {
		return c
	}
	if o := c.outcome(call); !o.Equal(*decided) {
		m.off.Store(true)
		return interpreted
	}
	return c
}
