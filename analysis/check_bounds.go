package analysis

import (
	"context"
	"errors"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// What one evaluation may take, and what all of those of a rule may: a rule that
// takes more would hold up every decision.
const (
	maxEvaluation = 3 * time.Second
	maxMemory     = 1 << 30 // bytes more than before, of everything that runs meanwhile
	maxAsking     = 5 * time.Minute
)

var (
	errSlow   = errors.New("it takes longer than " + maxEvaluation.String())
	errMemory = errors.New("it takes more than a gigabyte of memory")
	errLong   = errors.New("it takes longer than " + maxAsking.String())
)

// bounded returns a context in which one evaluation ends when it takes too much;
// its cause says of what. OPA looks at it between its steps, and within the
// built-ins that can take long.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := context.WithTimeoutCause(ctx, maxEvaluation, errSlow)
	ctx, end := context.WithCancelCause(ctx)
	before := heap()
	var watch func()
	var mu sync.Mutex // of timer
	var timer *time.Timer
	watch = func() {
		if heap() > before+maxMemory {
			end(errMemory)
		}
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() == nil {
			timer.Reset(watchEvery)
		}
	}
	mu.Lock()
	timer = time.AfterFunc(watchEvery, watch)
	mu.Unlock()
	return ctx, func() { end(nil); stop(); timer.Stop() }
}

const watchEvery = 20 * time.Millisecond

// heap is how many bytes are in use, or were since they were last counted.
func heap() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// ask evaluates a rule on n documents. Once one takes too much it asks no more.
func (a *answerChecker) ask(ctx context.Context, rule string, n int, progress func(done, total int), one func(ctx context.Context, i int) *answerProblem) error {
	asking, stop := context.WithTimeoutCause(ctx, maxAsking, errLong)
	defer stop()
	asking, end := context.WithCancelCause(asking)
	defer end(nil)
	var asked atomic.Int64
	err := inParallel(asking, n, progress, func(i int) {
		limited, done := bounded(asking)
		defer done()
		p := one(limited, i)
		cause := context.Cause(limited)
		tooMuch := errors.Is(cause, errSlow) || errors.Is(cause, errMemory)
		switch {
		case asking.Err() != nil: // what came of it may come of that
			return
		case tooMuch && p != nil:
			end(cause)
			p.err = cause
		}
		asked.Add(1)
		if p != nil {
			p.rule = rule
			a.note(*p)
		}
	})
	a.asked[rule] = int(asked.Load())
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		a.left[rule] = true
	}
	if errors.Is(context.Cause(asking), errLong) {
		a.add(a.ruleOf(rule), SeverityWarning, CodeNotEvaluated, "only %d of %d documents were looked at, which took %v", a.asked[rule], n, maxAsking)
	}
	return nil
}

// ruleOf is where a rule that decides stands.
func (a *answerChecker) ruleOf(rule string) *ast.Location {
	compiler, _ := a.evaluator.Policies()
	return compiler.GetRulesExact(ast.MustParseRef(rule))[0].Location
}

// A lastSeen is a tracer that knows which expression is being evaluated.
type lastSeen struct {
	at *ast.Location
}

// Enabled implements topdown.QueryTracer.
func (*lastSeen) Enabled() bool { return true }

// Config implements topdown.QueryTracer.
func (*lastSeen) Config() topdown.TraceConfig { return topdown.TraceConfig{} }

// TraceEvent implements topdown.QueryTracer.
func (l *lastSeen) TraceEvent(e topdown.Event) {
	if x, ok := e.Node.(*ast.Expr); ok && e.Op == topdown.EvalOp && x.Location != nil && x.Location.File != "" {
		l.at = x.Location
	}
}

// tooMuch reports an evaluation that takes too much, where it was when it was ended.
func (a *answerChecker) tooMuch(ctx context.Context, p *answerProblem) {
	at := a.ruleOf(p.rule)
	limited, end := bounded(ctx)
	defer end()
	seen := &lastSeen{}
	switch {
	case p.call != nil:
		_, _, _ = a.evaluator.TraceCall(limited, p.call, seen)
	case p.request != nil:
		_, _, _ = a.evaluator.TraceSkill(limited, p.request, seen)
	}
	what := ""
	if seen.at != nil && limited.Err() != nil {
		at, what = seen.at, ", and was here when it was ended"
	}
	a.add(at, SeverityError, CodeEvaluation, "a decision takes too much: %v%s, for instance for %s; nothing more was asked of %s",
		p.err, what, shortJSON(p.shown), p.rule)
}
