package analysis

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
)

// steps is what a progress told.
type steps struct {
	mu     sync.Mutex
	inside bool
	done   []int
	total  int
}

// tell fails the test if two calls overlap, or one goes back or too far.
func (s *steps) tell(t *testing.T) func(done, total int) {
	return func(done, total int) {
		s.mu.Lock()
		overlaps := s.inside
		s.inside = true
		s.mu.Unlock()
		if overlaps {
			t.Error("two calls at once")
		}
		if n := len(s.done); done < 0 || done > total || n > 0 && (done <= s.done[n-1] || total != s.total) {
			t.Errorf("%d of %d after %d of %d", done, total, s.done[n-1], s.total)
		}
		s.done, s.total = append(s.done, done), total
		s.mu.Lock()
		s.inside = false
		s.mu.Unlock()
	}
}

// ended fails the test unless the progress came to its end, with steps in each of
// some parts of it.
func (s *steps) ended(t *testing.T, parts ...int) {
	t.Helper()
	if len(s.done) == 0 || s.done[len(s.done)-1] != s.total {
		t.Fatalf("it told %v of %d", s.done, s.total)
	}
	from := 0
	for i, weight := range parts {
		to := from + weight*meterSteps
		if !slices.ContainsFunc(s.done, func(n int) bool { return n > from && n <= to }) {
			t.Errorf("phase %d, %d to %d, is in none of %v", i, from, to, s.done)
		}
		from = to
	}
	if from != s.total {
		t.Errorf("the phases end at %d of %d", from, s.total)
	}
}

func TestMeter(t *testing.T) {
	tests := map[string]struct {
		tell func(first, second func(done, total int))
		want []int
	}{
		"both":          {func(a, b func(done, total int)) { a(1, 2); a(2, 2); b(1, 4); b(4, 4) }, []int{50, 100, 175, 400}},
		"not backwards": {func(a, b func(done, total int)) { a(2, 2); a(1, 2); b(0, 4); b(4, 4); b(3, 4) }, []int{100, 400}},
		"not too far":   {func(a, b func(done, total int)) { a(5, 2); b(9, 4) }, []int{100, 400}},
		"of nothing":    {func(a, b func(done, total int)) { a(0, 0); b(1, 1) }, []int{400}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var got steps
			m := newMeter(got.tell(t), 4)
			tt.tell(m.phase(1), m.phase(3))
			if !slices.Equal(got.done, tt.want) || got.total != 400 {
				t.Errorf("got %v of %d, want %v of 400", got.done, got.total, tt.want)
			}
		})
	}
	if newMeter(nil, 4).phase(1) != nil {
		t.Error("somebody is told though nobody asks")
	}
}

func TestInParallel(t *testing.T) {
	for _, n := range []int{0, 1, 2, 255, 257, 1000} {
		var got steps
		var mu sync.Mutex
		seen := make([]int, n)
		err := inParallel(t.Context(), n, newMeter(got.tell(t), 1).phase(1), func(i int) {
			mu.Lock()
			defer mu.Unlock()
			seen[i]++
		})
		if err != nil || slices.ContainsFunc(seen, func(times int) bool { return times != 1 }) {
			t.Errorf("%d: %v, %v", n, seen, err)
		}
		got.ended(t, 1)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := inParallel(ctx, 10, func(int, int) { t.Error("told after the end") }, func(int) { t.Error("visited after the end") }); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
