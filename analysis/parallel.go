package analysis

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/opa-gate/opa-gate/evaluator"
)

// inParallel calls f with every number below n, on all processors, until ctx
// ends. Its error is that of ctx. It tells progress, if that is not nil, now and
// then how many were begun.
func inParallel(ctx context.Context, n int, progress func(done, total int), f func(i int)) error {
	const told = 256 // times
	var next atomic.Int64
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if progress != nil && i%(n/told+1) == 0 {
					progress(i, n)
				}
				f(i)
			}
		})
	}
	workers.Wait()
	if err := ctx.Err(); err != nil {
		return err
	}
	if progress != nil {
		progress(1, 1)
	}
	return nil
}

// overKinds calls visit for the given kinds of call, nil being every one.
func overKinds(ctx context.Context, kinds []int, progress func(done, total int), visit func(n int)) error {
	if kinds == nil {
		return inParallel(ctx, evaluator.Cells, progress, visit)
	}
	return inParallel(ctx, len(kinds), progress, func(i int) { visit(kinds[i]) })
}

// A meter makes one progress of that of several phases. It goes on only, and to
// nobody if nobody asks.
type meter struct {
	report func(done, total int)
	total  int // the weights of all phases

	mu   sync.Mutex
	past int // the weights of the phases before this one
	told int
}

// meterSteps is how finely the progress of a phase of weight 1 is told.
const meterSteps = 100

func newMeter(report func(done, total int), total int) *meter {
	return &meter{report: report, total: total, told: -1}
}

// phase begins the next phase, and returns its progress.
func (m *meter) phase(weight int) func(done, total int) {
	if m == nil || m.report == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	past := m.past
	m.past += weight
	return func(done, total int) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if total <= 0 {
			return
		}
		at := min(past*meterSteps+min(done, total)*weight*meterSteps/total, m.total*meterSteps)
		if at > m.told {
			m.told = at
			m.report(at, m.total*meterSteps)
		}
	}
}
