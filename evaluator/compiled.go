package evaluator

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/evaluator/internal/symbolic"
)

// Compiled is what an evaluator has compiled of its policies' decision on a
// call. A cell is filled after OPA has decided one of its calls: the plan of the
// policies is evaluated with marks in place of the call's texts, and the cell is
// kept if it says for that call what OPA said.
type compiled struct {
	tables
	interpreter *Interpreter
	compiler    *ast.Compiler
	store       storage.Store
	texts       *symbolic.Texts

	misses   atomic.Uint64 // calls that OPA decided
	planning sync.Mutex
	program  atomic.Pointer[symbolic.Program]
	off      atomic.Pointer[string] // why nothing is compiled
	unlike   atomic.Uint64          // cells given up because the plan says another thing than OPA
}

func newCompiled(interpreter *Interpreter, compiler *ast.Compiler, store storage.Store) *compiled {
	return &compiled{interpreter: interpreter, compiler: compiler, store: store, texts: symbolic.NewTexts()}
}

// answer returns the cell that answers c, or nil.
func (m *compiled) answer(c *capability.Call) *cell {
	if m.off.Load() != nil {
		return nil
	}
	return m.find(c)
}

// learn fills the cell of a call that OPA has decided. The first call of all
// teaches nothing: who asks once should not wait for a plan.
func (m *compiled) learn(ctx context.Context, c *capability.Call, decided *capability.Outcome) {
	if m.misses.Add(1) == 1 || m.off.Load() != nil {
		return
	}
	at, ok := placeOf(c)
	if !ok {
		return
	}
	program := m.plan(ctx)
	if program == nil {
		return
	}
	all := m.all.get(at)
	if all == nil {
		var err error
		if all, err = m.follow(ctx, program, c, m.texts.Text(symbolic.Tool)); err != nil {
			return
		}
		sample, want := c, decided
		if all.leaves(c.Tool) && all.decided { // it is not this call's: ask about one that is
			other := *c
			other.Tool = rand.Text()
			o, err := m.interpreter.decide(ctx, &other)
			if err != nil {
				return
			}
			sample, want = &other, &o
		}
		all = m.checked(all, sample, want)
		m.put(all, at, "")
	}
	if all.leaves(c.Tool) {
		own, err := m.follow(ctx, program, c, c.Tool)
		if err == nil {
			m.put(m.checked(own, c, decided), at, c.Tool)
		}
	}
}

// plan returns the plan; nil if there is none, or none yet because somebody
// else is at it.
func (m *compiled) plan(ctx context.Context) *symbolic.Program {
	if p := m.program.Load(); p != nil {
		return p
	}
	if !m.planning.TryLock() {
		return nil
	}
	defer m.planning.Unlock()
	if p := m.program.Load(); p != nil || m.off.Load() != nil {
		return p
	}
	p, err := plan(context.WithoutCancel(ctx), m.compiler, m.store, m.texts)
	if err != nil {
		m.turnOff(err.Error())
		return nil
	}
	m.program.Store(p)
	return p
}

func (m *compiled) turnOff(why string) { m.off.CompareAndSwap(nil, &why) }

// follow returns the cell of calls like c of that tool, which may be the mark
// for all. The error is one that another call may not meet.
func (m *compiled) follow(ctx context.Context, program *symbolic.Program, c *capability.Call, tool string) (*cell, error) {
	answer, err := m.symbolic(ctx, program, c, tool)
	var dependence *symbolic.Dependence
	switch {
	case errors.As(err, &dependence) && dependence.OnTool:
		return perTool, nil
	case err != nil && ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return interpreted, nil
	}
	cell, err := newCell(m.texts, answer)
	if err != nil {
		return interpreted, nil
	}
	return cell, nil
}

// symbolic evaluates the plan with marks for the call's texts.
func (m *compiled) symbolic(ctx context.Context, program *symbolic.Program, c *capability.Call, tool string) (*symbolic.Answer, error) {
	marked := *c
	marked.Tool = tool
	if c.Policy.Vetoed {
		marked.Policy.Veto = m.texts.Text(symbolic.Veto)
	}
	switch t := &marked.Policy.Transform; t.Kind {
	case capability.Rewrite:
		t.Arguments = []byte(m.texts.Text(symbolic.Arguments))
	case capability.InjectContext:
		t.Note = m.texts.Text(symbolic.Note)
	}
	input, err := callInput(&marked)
	if err != nil {
		return nil, err
	}
	return program.Eval(ctx, input)
}

// checked returns a cell that answers a call as OPA did, and otherwise the one
// that leaves its calls to OPA. The two differ where the order of a set's
// members shows, which OPA does not always sort.
func (m *compiled) checked(c *cell, call *capability.Call, decided *capability.Outcome) *cell {
	if !c.decided {
		return c
	}
	if o := c.outcome(call); !o.Equal(*decided) {
		m.unlike.Add(1)
		return interpreted
	}
	return c
}

// Stats are counts of what an [Evaluator] has compiled so far.
type Stats struct {
	Compiled    int    `json:"compiled"`      // cells of calls that are answered without OPA
	Interpreted int    `json:"interpreted"`   // cells of calls that OPA decides each time
	Unlike      uint64 `json:"unlike"`        // of them: the policies' plan says another thing than OPA
	Tools       int    `json:"tools"`         // tools with a table of their own
	Evaluations uint64 `json:"evaluations"`   // calls that OPA has decided
	Bytes       int    `json:"bytes"`         // memory of tables and answers
	Full        bool   `json:"full"`          // the bounds are reached: what is not compiled yet never will be
	Off         string `json:"off,omitempty"` // why nothing is compiled; "" if something may be
}

// Stats counts what was compiled so far. It goes through all tables.
func (e *Evaluator) Stats() Stats {
	m := e.compiled
	s := Stats{Evaluations: m.misses.Load(), Unlike: m.unlike.Load()}
	if off := m.off.Load(); off != nil {
		s.Off = *off
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s.Full = m.full
	s.Bytes = m.bytes + m.pages*int(unsafe.Sizeof(page{})) + int(unsafe.Sizeof(*m))
	s.count(&m.all)
	if tools := m.tools.Load(); tools != nil {
		s.Tools = len(*tools)
		s.Bytes += len(*tools) * (int(unsafe.Sizeof(table{})) + 2*maxToolName)
		for _, t := range *tools {
			s.count(t)
		}
	}
	return s
}

func (s *Stats) count(t *table) {
	for i := range t.pages {
		p := t.pages[i].Load()
		if p == nil {
			continue
		}
		for j := range p {
			switch c := p[j].Load(); {
			case c == nil || c.byTool:
			case c.decided:
				s.Compiled++
			default:
				s.Interpreted++
			}
		}
	}
}
