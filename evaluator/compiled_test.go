package evaluator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/evaluator/internal/symbolic"
	"github.com/opa-gate/opa-gate/internal/race"
)

// randomCall returns a call with texts that edited policies look for.
func randomCall(r *rand.Rand) *capability.Call {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	c := callAt(place{r.IntN(pageCount), r.IntN(pageCells)})
	retext(r, c)
	if r.IntN(12) == 0 {
		c.Grant.Unknown, c.LeftOut = []string{pick("a", "typo", "grant-admin")}, c.LeftOut&^capability.GrantMember
	}
	return c
}

// retext gives a call other texts.
func retext(r *rand.Rand, c *capability.Call) {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	c.Tool = pick("a", "b", "mcp_x", "mcp_y", "zz", "A", "x-a", "xa", "0", "7", "a\x00b", "decision", "a_very_long_name_of_a_tool", "\u202e\"%s")
	if c.Policy.Vetoed {
		c.Policy.Veto = pick("", "x", "a", "xy", "%d \"")
	}
	switch t := &c.Policy.Transform; t.Kind {
	case capability.Rewrite:
		t.Arguments = json.RawMessage(pick(`{}`, `{"path":"/etc"}`, `{"mode":"rw"}`, `{"path":"x","n":2}`, `{"t":1,"n":9007199254740993,"list":["x"]}`, `{"":{"a":[null]}}`))
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
	if e.compiled.off.Load() {
		t.Errorf("seed %d: the plan is not what OPA does\nof\n%s", seed, edits)
	}
	return true, stats
}

// Whatever people edit into the policies, an evaluator answers as OPA does.
func TestRandomEdits(t *testing.T) {
	race.SkipSlow(t)
	want := int64(1000)
	if testing.Short() || race.Enabled {
		want = 60
	}
	var seeds, compiled, cells, interpreted, tools, off atomic.Int64
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
					if stats.Off != "" {
						off.Add(1)
					}
				}
			}
		})
	}
	workers.Wait()
	t.Logf("%d edits of %d compile: %d cells compiled, %d left to OPA, %d tables of a tool's own; %d edits are not compiled",
		compiled.Load(), seeds.Load(), cells.Load(), interpreted.Load(), tools.Load(), off.Load())
	if compiled.Load() < want || cells.Load() == 0 || interpreted.Load() == 0 || tools.Load() == 0 ||
		off.Load() == 0 || off.Load() > compiled.Load()/2 {
		t.Error("the edits do not reach every kind of cell")
	}
}

// The table of the policies as they are: it answers every call there is, as
// the reference does, on first use and later, and stays within its bounds.
func TestWholeTable(t *testing.T) {
	if testing.Short() || race.Enabled {
		t.Skip("filling the whole table takes minutes under the race detector; it runs without -race and -short")
	}
	e, ctx := embedded(t), context.Background()
	overDomain(t, func(i int, c *capability.Call) bool {
		want := c.Decide("")
		for use := range 2 {
			if got, err := e.Decide(ctx, c); err != nil || !got.Equal(want) {
				t.Errorf("cell %d, use %d: native %+v, auto %+v, error %v", i, use+1, want, got, err)
				return false
			}
		}
		return true
	})
	asked := e.Stats()
	// What was asked while somebody else was planning taught nothing.
	if asked.Compiled < domainSize-500 || asked.Interpreted != 0 || asked.Evaluations > domainSize+500 {
		t.Errorf("after the domain was asked: %+v", asked)
	}
	fillTable(t, e)
	full := e.Stats()
	t.Logf("%+v", full)
	if full.Compiled != pageCount*pageCells || full.Interpreted != 0 || full.Full || full.Bytes > 16<<20 {
		t.Errorf("the full table: %+v", full)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	e.compiled = newCompilation(e.interpreter, &built{})
	runtime.GC()
	runtime.ReadMemStats(&after)
	held := int64(before.HeapAlloc) - int64(after.HeapAlloc)
	t.Logf("the table holds %d bytes of the heap", held)
	if held > 16<<20 || held < 2<<20 {
		t.Errorf("the table holds %d bytes of the heap, and says %d", held, full.Bytes)
	}
}

// fillTable fills the cells that nobody has asked for, on the strength of the
// reference's answer.
func fillTable(t *testing.T, e *Evaluator) {
	t.Helper()
	m, ctx := e.compiled, context.Background()
	program, err := m.wholePlan(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var next atomic.Int64
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for !t.Failed() {
				page := int(next.Add(1)) - 1
				if page >= pageCount {
					return
				}
				by := newFollower(program)
				for i := range pageCells {
					at := place{page, i}
					c := callAt(at)
					if got, ok := placeOf(c); got != at || !ok {
						t.Errorf("the call at %v is at %v", at, got)
					}
					if m.all.get(at) != nil {
						continue
					}
					f, err := m.followWith(ctx, by, c, nil, symbolic.Tool)
					if want := c.Decide(""); err != nil || f.blocker != nil || f.except != nil || !f.cell.outcome(c).Equal(want) {
						t.Errorf("%+v: native %+v, cell %+v, error %v", c, want, f.cell, err)
						return
					}
					m.put(f.cell, at, "")
				}
			}
		})
	}
	workers.Wait()
}

// What a policy does with the tool's name, and what becomes of its cells.
func TestDependences(t *testing.T) {
	const compiled = ""
	tests := []struct{ condition, want string }{
		{`input.tool.name`, compiled},
		{`is_string(input.tool.name)`, compiled},
		{`input.tool.name != ""`, compiled},
		{`x := input.tool.name; y := [x, 1]; y[1] == 1`, compiled},
		{`object.get(input.tool, "name", "none") != 7`, compiled},
		{`sprintf("%s/%v", [input.tool.name, 1])`, compiled},
		{`count([input.tool.name, "x"]) == 2`, compiled},
		{`input.tool.name == "a"`, "except a"},
		{`not input.tool.name == "a"`, "except a"},
		{`input.tool.name in {"b", "a"}`, "except a b"},
		{`{"a": 1, "b": 2}[input.tool.name] > 0`, "except a b"},
		{`[input.tool.name, input.taint] == ["a", "tainted"]`, "except a"},
		{`blocked(input.tool.name)`, "except a"},
		{`startswith(input.tool.name, "mcp_")`, `per tool 3:39 startswith(input.tool.name, "mcp_") computes with a text`},
		{`count(input.tool.name) > 3`, `per tool 3:39 count(input.tool.name) counts a text's characters`},
		{`{input.tool.name, "x"}[_] != "z"`, `per tool 3:39 {input.tool.name, "x"} puts a text into a set with others`},
		{`sprintf("%q", [input.tool.name])`, `per tool 3:39 sprintf("%q", [input.tool.name]) formats a text in another way than with %s or %v alone`},
		{`concat("-", ["x", input.tool.name]) == "x-a"`, `per tool 3:39 concat("-", ["x", input.tool.name]) == "x-a" compares a text`},
		{`prefixed(input.tool.name)`, `per tool 16:29 startswith(name, "z") computes with a text`},
		{`time.now_ns() > 0`, `opa 3:39 time.now_ns() can give another result each time`},
		{`rand.intn("x", 2) == 1`, `opa 3:39 rand.intn("x", 2) can give another result each time`},
		{`input.policy.veto == "x"`, `opa 3:39 input.policy.veto == "x" compares a text`},
		{`input.policy.veto == input.tool.name`, `opa 3:39 input.policy.veto == input.tool.name compares a text`},
		{`startswith(input.policy.veto, "x")`, `opa 3:39 startswith(input.policy.veto, "x") computes with a text`},
		{`input.policy.transform.arguments.path == "/etc"`, `opa 3:39 input.policy.transform.arguments.path == "/etc" looks into the arguments`},
		{`some v in input.policy.transform.arguments`, `opa 3:39 some v in input.policy.transform.arguments goes through the arguments`},
		{`count(input.policy.transform.arguments) > 0`, `opa 3:39 count(input.policy.transform.arguments) looks into the arguments`},
		{`walk(input, [_, "x"])`, `opa 3:39 walk(input, [_, "x"]) goes through a document`},
		{`json.marshal(input)`, `opa 3:39 json.marshal(input) computes with a text`},
		{`numbers.range(1, 600000)[_] < 0`, `opa 3:39 numbers.range(1, 600000)[_] < 0 takes too many steps to follow`},
	}
	for _, tt := range tests {
		t.Run(tt.condition, func(t *testing.T) {
			e := engineOf(t, "\ndecision := object.union(ok, {}) if { "+tt.condition+" }\nelse := ok\n\nok := "+okDecision+`
blocked("a") if input.taint

blocked(name) if name == 7





prefixed(name) := name if { startswith(name, "z") }
`, okSkill)
			ctx := context.Background()
			program, err := e.compiled.wholePlan(ctx)
			if err != nil {
				t.Fatal(err)
			}
			c := &capability.Call{Tool: "tool", Taint: capability.Clean, Policy: capability.CallPolicy{Vetoed: true,
				Transform: capability.Transform{Kind: capability.Rewrite, Arguments: json.RawMessage("{}")}}}
			answer, err := e.compiled.evaluate(ctx, follower{callInput, program.Eval, followTime}, c, nil, symbolic.Tool)
			var d *symbolic.Dependence
			got := compiled
			switch {
			case errors.As(err, &d):
				got = "opa"
				if d.OnTool {
					got = "per tool"
				}
				got += fmt.Sprintf(" %d:%d %s %s", d.Row, d.Col, d.Expression, d.Why)
			case err != nil:
				got = err.Error()
			case len(answer.Except) > 0:
				got = "except " + strings.Join(answer.Except[symbolic.Tool], " ")
			}
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// What was found out about a cell is not found out again, whatever it was, and
// neither is what finds no room.
func TestNothingIsCompiledTwice(t *testing.T) {
	long := strings.Repeat("n", maxToolName+1)
	for _, condition := range []string{
		`startswith(input.tool.name, "a"); time.now_ns() > 0`,
		`input.tool.name in {"a", "b"}; time.now_ns() > 0`,
		`startswith(input.tool.name, "a")`,
		`input.tool.name in {"a", "b"}`,
		`time.now_ns() > 0`,
		`concat(",", [x | some x in {"z", input.taint}]) != ""`,
		`input.tool.name == "` + long + `"`,
		`upper(input.tool.name) == "` + strings.ToUpper(long) + `"`,
	} {
		e := engineOf(t, "decision := object.union(ok, {\"reason\": \"held\"}) if { "+condition+" }\nelse := ok\n\nok := "+okDecision, okSkill)
		ask := func() {
			for _, tool := range []string{"a", "ab", "b", "c", long} {
				c := &capability.Call{Tool: tool, Taint: capability.Clean}
				want, wantErr := e.Interpreter().Decide(context.Background(), c)
				got, err := e.Decide(context.Background(), c)
				if problem := same(got, err, want, wantErr); problem != "" {
					t.Errorf("%s: %s", condition, problem)
				}
			}
		}
		ask()
		ask()
		before := e.compiled.follows.Load()
		for range 3 {
			ask()
		}
		if after := e.compiled.follows.Load(); after != before || before == 0 {
			t.Errorf("%s: the plan was followed %d times at first, and %d times later", condition, before, after-before)
		}
	}
}

// Arguments are the same bytes on first and on later use: those of the call,
// unless there are two ways to read these.
func TestArgumentsStayTheSame(t *testing.T) {
	e, ctx := embedded(t), context.Background()
	for given, want := range map[string]string{
		`{"b": 1, "a":"\u0041", "n": 1e2}`:  `{"b": 1, "a":"\u0041", "n": 1e2}`,
		`{"b":1,"a":"A","b":2}`:             `{"a":"A","b":2}`,
		"{\"a\":\"\xff\"}":                  "{\"a\":\"\ufffd\"}",
		`{"a":{"x":1,"x":2}}`:               `{"a":{"x":2}}`,
		`{"n":9007199254740993,"z":-0.0e1}`: `{"n":9007199254740993,"z":-0.0e1}`,
	} {
		for use := range 4 {
			c := &capability.Call{Tool: "t", Taint: capability.Clean, Grant: capability.DefaultGrant(), Policy: capability.CallPolicy{
				Transform: capability.Transform{Kind: capability.Rewrite, Arguments: json.RawMessage(given)}}}
			for name, engine := range map[string]Engine{"auto": e, "opa": e.Interpreter()} {
				if o, err := engine.Decide(ctx, c); err != nil || string(o.Arguments) != want {
					t.Errorf("use %d of %s on %s: %s, %v, want %s", use+1, given, name, o.Arguments, err, want)
				}
			}
		}
	}
}

// Whoever gets an answer may change it.
func TestAnswersAreNotShared(t *testing.T) {
	e := engineOf(t, `decision := object.union(ok, {"outcome": "modify", "arguments": {"a": "b"}, "warnings": ["w"]})`+"\nok := "+okDecision, okSkill)
	for range 4 {
		o, err := e.Decide(context.Background(), &anyCall)
		if err != nil || string(o.Arguments) != `{"a":"b"}` || o.Warnings[0] != "w" {
			t.Fatalf("%s %q, %v", o.Arguments, o.Warnings, err)
		}
		o.Arguments[2], o.Warnings[0] = 'X', "X"
	}
}

// Many ask at once, from the first call on.
func TestManyAskAtOnce(t *testing.T) {
	e, ctx := embedded(t), context.Background()
	var clients sync.WaitGroup
	for client := range 16 {
		clients.Go(func() {
			r := rand.New(rand.NewPCG(uint64(client), 3))
			for range 300 {
				c := callAt(place{r.IntN(4), r.IntN(24)})
				retext(r, c)
				want := c.Decide("")
				if o, err := e.Decide(ctx, c); err != nil || !o.Equal(want) {
					t.Errorf("%+v: native %+v, auto %+v, error %v", c, want, o, err)
					return
				}
			}
		})
	}
	clients.Wait()
	if s := e.Stats(); s.Compiled == 0 || s.Off != "" {
		t.Errorf("%+v", s)
	}
}

// Evaluators are made side by side, each in use at once.
func TestManyAreMadeAtOnce(t *testing.T) {
	var makers sync.WaitGroup
	for seed := range uint64(8) {
		makers.Go(func() {
			tree, _ := anEdit(t, seed+100)
			e, err := New(context.Background(), &Options{FS: tree})
			if err != nil {
				return // not every edit compiles
			}
			for range 3 {
				c := callAt(place{1, 2})
				got, err := e.Decide(context.Background(), c)
				want, wantErr := e.Interpreter().Decide(context.Background(), c)
				if problem := same(got, err, want, wantErr); problem != "" {
					t.Error(problem)
				}
			}
		})
	}
	makers.Wait()
}

// A switch to other policies is complete: from the moment Replace returns, no
// answer is of the old ones, although their tables are full of it.
func TestSwitch(t *testing.T) {
	engine := func(reason string) *Evaluator {
		return engineOf(t, `decision := object.union(ok, {"reason": "`+reason+`"})`+"\nok := "+okDecision, okSkill)
	}
	var s Switch
	if _, err := s.Decide(context.Background(), &anyCall); !errors.Is(err, ErrNoEngine) {
		t.Errorf("an empty switch: %v", err)
	}
	if _, err := s.Skill(context.Background(), nil); !errors.Is(err, ErrNoEngine) {
		t.Errorf("an empty switch: %v", err)
	}
	var revision atomic.Int64
	s.Replace(engine("0"))
	done := make(chan struct{})
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				oldest := revision.Load()
				o, err := s.Decide(context.Background(), &anyCall)
				newest := revision.Load() + 1 // Replace may have happened, the count not yet
				if n, numErr := strconv.ParseInt(o.Reason, 10, 64); err != nil || numErr != nil || n < oldest || n > newest {
					t.Errorf("revision %q answers between %d and %d, error %v", o.Reason, oldest, newest, err)
					return
				}
			}
		})
	}
	for i := range int64(50) {
		next := engine(strconv.FormatInt(i+1, 10))
		s.Replace(next)
		revision.Store(i + 1)
	}
	close(done)
	clients.Wait()
}
