package evaluator

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/opa-gate/opa-gate/capability"
)

// randomCall returns a call with texts that edited policies look for.
func randomCall(r *rand.Rand) *capability.Call {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	c := callAt(place{r.IntN(pageCount), r.IntN(pageCells)})
	retext(r, c)
	if r.IntN(12) == 0 {
		c.Grant.Unknown = []string{pick("a", "typo", "grant-admin")}
	}
	return c
}

// retext gives a call other texts.
func retext(r *rand.Rand, c *capability.Call) {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	c.Tool = pick("a", "b", "mcp_x", "mcp_y", "zz", "A", "x-a", "7", "decision", "a_very_long_name_of_a_tool", "\u202e\"%s")
	if c.Policy.Vetoed {
		c.Policy.Veto = pick("", "x", "a", "xy", "%d \"")
	}
	switch t := &c.Policy.Transform; t.Kind {
	case capability.Rewrite:
		t.Arguments = json.RawMessage(pick(`{}`, `{"path":"/etc"}`, `{"path":"x","n":2}`, `{"t":1,"n":9007199254740993,"list":["x"]}`, `{"":{"a":[null]}}`))
	case capability.InjectContext:
		t.Note = pick("", "x", "a", "be careful")
	}
}

// same reports how the answer of an evaluator differs from that of OPA; "" is
// not at all.
func same(got capability.Outcome, gotErr error, want capability.Outcome, wantErr error) string {
	switch {
	case (gotErr == nil) != (wantErr == nil), gotErr != nil && gotErr.Error() != wantErr.Error():
		return fmt.Sprintf("error %v, of OPA %v", gotErr, wantErr)
	case gotErr == nil && !got.Equal(want):
		return fmt.Sprintf("%+v, of OPA %+v", got, want)
	case gotErr != nil && got.Kind.Valid():
		return "an error with an answer"
	}
	return ""
}

// checkEdit holds an edited policy's evaluator against OPA on calls that share
// cells and differ in texts, on first and on later use.
func checkEdit(t *testing.T, seed uint64) (compiles bool, stats Stats) {
	tree, edits := anEdit(t, seed)
	ctx := context.Background()
	e, err := New(ctx, &Options{FS: tree})
	if err != nil {
		return false, Stats{}
	}
	r := rand.New(rand.NewPCG(seed, 11))
	type asked struct {
		call *capability.Call
		want capability.Outcome
		err  error
	}
	var calls []asked
	for range 5 {
		c := randomCall(r)
		for range 4 {
			again := *c
			retext(r, &again)
			calls = append(calls, asked{call: &again})
		}
	}
	for round := range 3 {
		for i := range calls {
			a := &calls[i]
			if round == 0 {
				a.want, a.err = e.Interpreter().Decide(ctx, a.call)
			}
			got, err := e.Decide(ctx, a.call)
			if problem := same(got, err, a.want, a.err); problem != "" {
				t.Errorf("seed %d, use %d: %s\non %+v\nof\n%s", seed, round+1, problem, a.call, edits)
				return true, e.Stats()
			}
		}
		r.Shuffle(len(calls), func(i, j int) { calls[i], calls[j] = calls[j], calls[i] })
	}
	stats = e.Stats()
	if stats.Off != "" {
		t.Errorf("seed %d: %s\nof\n%s", seed, stats.Off, edits)
	}
	if stats.Unlike > 0 && !strings.Contains(edits, "some x in {input.tool.name") {
		t.Errorf("seed %d: the plan of the policies is not what OPA does\nof\n%s", seed, edits)
	}
	return true, stats
}

// Whatever people edit into the policies, an evaluator answers as OPA does.
func TestRandomEdits(t *testing.T) {
	want := int64(1000)
	if testing.Short() || raceEnabled {
		want = 60
	}
	var seeds, compiled, cells, interpreted, unlike, tools atomic.Int64
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for compiled.Load() < want && seeds.Load() < 2*want && !t.Failed() {
				ok, stats := checkEdit(t, uint64(seeds.Add(1)))
				if ok {
					compiled.Add(1)
					cells.Add(int64(stats.Compiled))
					interpreted.Add(int64(stats.Interpreted))
					tools.Add(int64(stats.Tools))
					unlike.Add(int64(stats.Unlike))
				}
			}
		})
	}
	workers.Wait()
	t.Logf("%d edits of %d compile: %d cells compiled, %d left to OPA (%d of them on sight), %d tables of a tool's own",
		compiled.Load(), seeds.Load(), cells.Load(), interpreted.Load(), unlike.Load(), tools.Load())
	if compiled.Load() < want || cells.Load() == 0 || interpreted.Load() == 0 || tools.Load() == 0 {
		t.Error("the edits do not reach every kind of cell")
	}
}
