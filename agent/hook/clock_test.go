package hook_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opa-gate/opa-gate/agent"
	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/ledger"
)

// A clock that jumps under a gate that runs, back and forth: what came in stays
// in, what was cleared before something came in does not clear it, and an approval
// that has expired does not come back.
func TestClockJumps(t *testing.T) {
	const day = 24 * time.Hour
	for name, jumps := range map[string][]time.Duration{
		"stands":         {0, 0, 0, 0},
		"back":           {-30 * day, 0, 0, 0},
		"back each time": {-day, -day, -day, -day},
		"before 1970":    {-100 * 365 * day, 0, 0, 0},
		"back and forth": {-30 * day, 60 * day, -60 * day, 30 * day},
	} {
		t.Run(name, func(t *testing.T) {
			var offset atomic.Int64
			h, l := newHandlerAt(t, func() time.Time { return time.Now().Add(time.Duration(offset.Load())) })
			refused := func(what string) {
				t.Helper()
				r := handle(t, h, call("WebFetch", "tool_use_id", "again"))
				if r.Exit == 0 && !strings.Contains(string(r.Stdout), `"permissionDecision":"ask"`) {
					t.Fatalf("%s: a call went: %+v", what, r)
				}
			}
			jump := func(n int) { offset.Add(int64(jumps[n])) }

			start(t, h)
			if r := handle(t, h, call("WebFetch")); r.Exit != 0 || string(r.Stdout) != "{}\n" {
				t.Fatalf("the first does not go: %+v", r)
			}
			jump(0)
			refused("after a jump")

			// A person clears it, and content comes in once more, at an earlier time.
			if _, err := h.Gate.Sessions.Clear(t.Context(), "s", "ann", "looked at it"); err != nil {
				t.Fatal(err)
			}
			jump(1)
			if r := handle(t, h, call("WebFetch", "tool_use_id", "t2")); r.Exit != 0 || string(r.Stdout) != "{}\n" {
				t.Fatalf("it was cleared, and the call does not go: %+v", r)
			}
			jump(2)
			refused("after it was cleared, and came in again")

			// An approval that has run out, as the ledger saw, stays so.
			waiting, n, err := l.Waiting(t.Context(), 10)
			if err != nil || n != 1 {
				t.Fatal(n, err)
			}
			p, err := l.Decide(t.Context(), "ann", waiting[0].ID, ledger.Decision{Approve: true})
			if err != nil {
				t.Fatal(err)
			}
			offset.Store(int64(time.Until(p.Decision.Expires) + time.Hour))
			if _, err := h.Gate.Sessions.Begin(t.Context(), "other"); err != nil { // an entry of that time
				t.Fatal(err)
			}
			offset.Store(int64(-30 * day))
			jump(3)
			refused("with an approval that had run out")

			if st, err := h.Gate.Sessions.State(t.Context(), "s"); err != nil || st.Taint != capability.Tainted {
				t.Errorf("%v, %v", st.Taint, err)
			}
			if a, err := l.Audit(t.Context(), nil, nil); err != nil || a.Broken != nil || len(a.Forged) > 0 {
				t.Errorf("%+v, %v", a, err)
			}
			if _, err := h.Gate.Sessions.Clear(t.Context(), "other", "ann", ""); !errors.Is(err, agent.ErrNotCleared) {
				t.Errorf("a clean one was cleared: %v", err)
			}
		})
	}
}
