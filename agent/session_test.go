package agent_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opa-gate/opa-gate/agent"
	"github.com/opa-gate/opa-gate/agent/internal/memlog"
	"github.com/opa-gate/opa-gate/capability"
)

func fetched(call string, why agent.Why) agent.Source {
	return agent.Source{Why: why, Tool: "WebFetch", Call: call, Shows: "https://example.org/a"}
}

func TestSessionTaint(t *testing.T) {
	ctx := context.Background()
	s := &agent.Sessions{Log: &memlog.Log{}}
	must := func(st agent.State, err error) agent.State {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	is := func(id string, want capability.Taint, sources int) agent.State {
		t.Helper()
		st := must(s.State(ctx, id))
		if st.Taint != want || len(st.Sources) != sources {
			t.Fatalf("session %s is %v with %d sources, want %v with %d", id, st.Taint, len(st.Sources), want, sources)
		}
		return st
	}
	is("a", capability.Tainted, 0) // nobody saw it begin
	must(s.Begin(ctx, "a"))
	is("a", capability.Clean, 0)
	must(s.Continue(ctx, "a"))
	is("a", capability.Clean, 0)

	must(s.Taint(ctx, "a", fetched("1", agent.Started)))
	if st := is("a", capability.Tainted, 1); st.Sources[0].Why != agent.Started || !strings.Contains(st.Describe(), "https://example.org/a (call 1), whose end is not known") {
		t.Errorf("%+v: %s", st.Sources, st.Describe())
	}
	must(s.Taint(ctx, "a", fetched("1", agent.Ended)))
	if st := is("a", capability.Tainted, 1); st.Sources[0].Why != agent.Ended {
		t.Errorf("%+v", st.Sources)
	}
	must(s.Taint(ctx, "a", fetched("1", agent.Started))) // told late
	if st := is("a", capability.Tainted, 1); st.Sources[0].Why != agent.Ended {
		t.Errorf("%+v", st.Sources)
	}
	must(s.Begin(ctx, "a")) // a beginning does not clear
	is("a", capability.Tainted, 1)

	if _, err := s.Clear(ctx, "a", " ", ""); !errors.Is(err, agent.ErrNotCleared) {
		t.Errorf("cleared by nobody: %v", err)
	}
	st := must(s.Clear(ctx, "a", "ann", "a page of ours"))
	if len(st.Cleared) != 1 || st.Cleared[0].By != "ann" || st.Cleared[0].Comment != "a page of ours" {
		t.Errorf("%+v", st.Cleared)
	}
	is("a", capability.Clean, 0)
	if _, err := s.Clear(ctx, "a", "ann", ""); !errors.Is(err, agent.ErrNotCleared) {
		t.Errorf("cleared twice: %v", err)
	}
	// The end of a call that ran while somebody cleared.
	must(s.Taint(ctx, "a", fetched("1", agent.Failed)))
	is("a", capability.Tainted, 1)

	must(s.Continue(ctx, "b"))
	must(s.Begin(ctx, "b")) // too late
	is("b", capability.Tainted, 1)
	if _, err := s.Clear(ctx, "c", "ann", ""); !errors.Is(err, agent.ErrNotCleared) {
		t.Errorf("cleared what is not there: %v", err)
	}
	list, err := s.List(ctx)
	if err != nil || len(list) != 2 {
		t.Errorf("%d sessions, %v", len(list), err)
	}
}

func TestSessionIDs(t *testing.T) {
	s := &agent.Sessions{Log: &memlog.Log{}}
	for _, id := range []string{"", strings.Repeat("x", agent.MaxSessionID+1), "a\nb", "a\xff"} {
		if _, err := s.Begin(context.Background(), id); !errors.Is(err, agent.ErrSession) {
			t.Errorf("session %q: %v", id, err)
		}
	}
}

// What is recorded of a conversation stays small, however long it goes on.
func TestSessionBounded(t *testing.T) {
	ctx := context.Background()
	log := &memlog.Log{}
	s := &agent.Sessions{Log: log}
	for i := range 1000 {
		call := fmt.Sprint(i)
		for _, why := range []agent.Why{agent.Started, agent.Ended, agent.Failed, agent.Started} {
			if _, err := s.Taint(ctx, "a", fetched(call, why)); err != nil {
				t.Fatal(err)
			}
		}
	}
	st, err := s.State(ctx, "a")
	if err != nil || len(st.Sources) != agent.MaxSources || !st.More {
		t.Errorf("%d sources, more %v, %v", len(st.Sources), st.More, err)
	}
	entries, _ := log.Subject(ctx, "session:a")
	if n := len(entries); n > 2*agent.MaxSources+1 {
		t.Errorf("%d entries", n)
	}
}

// An entry that nobody can read may be what tells of taint.
func TestSessionHistory(t *testing.T) {
	ctx := context.Background()
	for _, d := range []agent.Draft{
		{Kind: "session.new", Body: []byte("{}")},
		{Kind: agent.KindTainted, Body: []byte("{}")},
		{Kind: agent.KindTainted, Body: []byte("x")},
		{Kind: agent.KindCleared, Body: []byte("{}")},
	} {
		log := &memlog.Log{}
		d.Subject = "session:a"
		if _, err := log.Update(ctx, d.Subject, func([]agent.Entry, time.Time) ([]agent.Draft, error) { return []agent.Draft{d}, nil }); err != nil {
			t.Fatal(err)
		}
		if st, err := (&agent.Sessions{Log: log}).State(ctx, "a"); !errors.Is(err, agent.ErrHistory) {
			t.Errorf("%s %s: %v, %v", d.Kind, d.Body, st.Taint, err)
		}
	}
}

// 64 calls at once: each is decided on a state that was there before any of
// their results, and none is missed.
func TestSessionAtOnce(t *testing.T) {
	ctx := context.Background()
	s := &agent.Sessions{Log: &memlog.Log{}}
	if _, err := s.Begin(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			st, err := s.Taint(ctx, "a", fetched(fmt.Sprint(i), agent.Started))
			if err != nil || st.Taint != capability.Tainted {
				t.Errorf("call %d: %v, %v", i, st.Taint, err)
			}
			if st, err := s.State(ctx, "a"); err != nil || st.Taint != capability.Tainted {
				t.Errorf("after call %d: %v, %v", i, st.Taint, err)
			}
		})
	}
	wg.Wait()
	if st, err := s.State(ctx, "a"); err != nil || len(st.Sources) != 64 {
		t.Errorf("%d sources, %v", len(st.Sources), err)
	}
}
