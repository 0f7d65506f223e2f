package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opa-gate/opa-gate/agent"
	"github.com/opa-gate/opa-gate/agent/internal/memlog"
	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/skill"
)

func newGate(t testing.TB, catalogue string) (*agent.Gate, *memlog.Log) {
	t.Helper()
	c, err := agent.ParseCatalogue("c.toml", []byte(catalogue))
	if err != nil {
		t.Fatal(err)
	}
	log := &memlog.Log{}
	g := &agent.Gate{Engine: evaluator.Native{}, Catalogue: c, Sessions: &agent.Sessions{Log: log}}
	if _, err := g.Sessions.Begin(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	return g, log
}

func decide(t *testing.T, g *agent.Gate, r agent.Request) agent.Verdict {
	t.Helper()
	if r.Session == "" {
		r.Session = "s"
	}
	v, err := g.Decide(t.Context(), r)
	if err != nil {
		t.Fatalf("%s: %v", r.Tool, err)
	}
	return v
}

func TestDecideFollowsTaint(t *testing.T) {
	g, _ := newGate(t, "")
	if v := decide(t, g, agent.Request{Tool: "WebFetch", CallID: "1", Arguments: json.RawMessage(`{"url":"https://u:p@example.org/a?key=secret#x"}`)}); v.Outcome.Kind != capability.Allow || !v.Tainting {
		t.Fatalf("%+v", v)
	}
	// Before anything is heard of the call's end.
	v := decide(t, g, agent.Request{Tool: "WebFetch", CallID: "2"})
	if v.Outcome.Kind != capability.Escalate || v.Outcome.Missing != capability.SetOf(capability.ArbitraryEgress) {
		t.Fatalf("%+v", v.Outcome)
	}
	if got := v.State.Sources; len(got) != 1 || got[0].Shows != "https://example.org/a" || got[0].Call != "1" || got[0].Why != agent.Started {
		t.Errorf("sources %+v", got)
	}
	if v := decide(t, g, agent.Request{Tool: "TaskList"}); v.Outcome.Kind != capability.Allow || v.Tainting {
		t.Errorf("%+v", v)
	}
	// A call that was asked about and refused has brought nothing in.
	if st, err := g.Sessions.State(t.Context(), "s"); err != nil || len(st.Sources) != 1 {
		t.Errorf("%+v, %v", st.Sources, err)
	}
}

// Where the surface asks, the call may run without another word to the gate.
func TestDecideAskedCallTaints(t *testing.T) {
	for _, asks := range []bool{false, true} {
		g, _ := newGate(t, "[tools.X]\norigin = \"fetcher\"\nrequires_human = true\n")
		if v := decide(t, g, agent.Request{Tool: "X", CallID: "1", Asks: asks}); v.Outcome.Kind != capability.Escalate {
			t.Fatalf("%+v", v)
		}
		st, err := g.Sessions.State(t.Context(), "s")
		if err != nil || (st.Taint == capability.Tainted) != asks {
			t.Errorf("asks %v: %v, %v", asks, st.Taint, err)
		}
	}
}

func TestResultTaints(t *testing.T) {
	for _, tt := range []struct {
		tool   string
		failed bool
		want   agent.Why
	}{{"WebFetch", false, agent.Ended}, {"WebFetch", true, agent.Failed}, {"Nobody", false, agent.Ended}, {"Read", false, ""}} {
		g, _ := newGate(t, "")
		st, err := g.Result(t.Context(), agent.Result{Request: agent.Request{Session: "s", Tool: tt.tool, CallID: "1"}, Failed: tt.failed})
		if err != nil {
			t.Fatal(err)
		}
		var got agent.Why
		if len(st.Sources) > 0 {
			got = st.Sources[0].Why
		}
		if got != tt.want || (st.Taint == capability.Tainted) != (tt.want != "") {
			t.Errorf("%s, failed %v: %q, want %q", tt.tool, tt.failed, got, tt.want)
		}
	}
}

func TestDecidePolicyOfTheCatalogue(t *testing.T) {
	g, _ := newGate(t, `base = ["local-read", "local-write"]
[tools.V]
origin = "local-sandbox"
veto = "Not here."
[tools.H]
origin = "local-sandbox"
requires_human = true
set = {a = 1}
[tools.N]
origin = "local-sandbox"
note = "Mind the gap."
[tools.S]
origin = "local-sandbox"
set = {big = 9007199254740993, gone = false}
`)
	if v := decide(t, g, agent.Request{Tool: "V"}); v.Outcome.Kind != capability.Deny || v.Outcome.Reason != "Not here." {
		t.Errorf("%+v", v.Outcome)
	}
	if v := decide(t, g, agent.Request{Tool: "H", Arguments: json.RawMessage(`{"b":2}`)}); v.Outcome.Kind != capability.Escalate || string(v.Transform.Arguments) != `{"a":1,"b":2}` {
		t.Errorf("%+v", v)
	}
	if v := decide(t, g, agent.Request{Tool: "N"}); v.Outcome.Kind != capability.Inject || v.Outcome.Note != "Mind the gap." {
		t.Errorf("%+v", v.Outcome)
	}
	if v := decide(t, g, agent.Request{Tool: "S", Arguments: json.RawMessage(`{"gone": true, "n": 1e400}`)}); v.Outcome.Kind != capability.Modify || string(v.Outcome.Arguments) != `{"big":9007199254740993,"gone":false,"n":1e400}` {
		t.Errorf("%s", v.Outcome.Arguments)
	}
	// A server that minds no case would take GONE for gone.
	if v := decide(t, g, agent.Request{Tool: "S", Arguments: json.RawMessage(`{"GONE": true, "big": 1, "Big": 2, "bi": 3}`)}); string(v.Outcome.Arguments) != `{"bi":3,"big":9007199254740993,"gone":false}` {
		t.Errorf("%s", v.Outcome.Arguments)
	}
	if v := decide(t, g, agent.Request{Tool: "WebFetch"}); v.Outcome.Kind != capability.Escalate {
		t.Errorf("the base does not grant it: %+v", v.Outcome)
	}
	// What a server declares does not make its tool the operator's.
	local := capability.Profile{Origin: capability.LocalSandbox, ReadOnly: capability.Yes, OpenWorld: capability.No}
	if v := decide(t, g, agent.Request{Tool: "mcp__x__y", Declared: &local}); v.Outcome.Kind != capability.Escalate || v.Profile.Origin != capability.Unknown {
		t.Errorf("%+v", v)
	}
}

type engine struct {
	evaluator.Engine
	decide func(*capability.Call) (capability.Outcome, error)
}

func (e engine) Decide(_ context.Context, c *capability.Call) (capability.Outcome, error) {
	return e.decide(c)
}
func (engine) Skill(context.Context, *skill.Request) (skill.Answer, error) { panic("not asked") }

type approvals func(agent.Case, capability.Outcome) (agent.Admission, error)

func (f approvals) Admit(_ context.Context, c agent.Case, o capability.Outcome) (agent.Admission, error) {
	return f(c, o)
}

func (approvals) Wait(context.Context, string) error             { return nil }
func (approvals) Withdraw(context.Context, string, string) error { return nil }

// A tainter says that nothing taints, or fails.
type tainter struct{ err error }

func (f tainter) ResultTaints(context.Context, *capability.Result) (bool, error) { return false, f.err }
func (f tainter) CallTaint(context.Context, *capability.Steering) (capability.Taint, error) {
	return capability.Clean, f.err
}

// Whatever goes wrong, the verdict beside the error refuses.
func TestDecideRefusesWhatFails(t *testing.T) {
	broken := errors.New("broken")
	fetch := agent.Request{Session: "s", Tool: "WebFetch", CallID: "1"}
	tests := map[string]struct {
		request agent.Request
		break_  func(*agent.Gate, *memlog.Log)
		want    error
	}{
		"the log": {fetch, func(_ *agent.Gate, l *memlog.Log) { l.Err = broken }, broken},
		"the engine": {fetch, func(g *agent.Gate, _ *memlog.Log) {
			g.Engine = engine{decide: func(*capability.Call) (capability.Outcome, error) {
				return capability.Outcome{Kind: capability.Allow}, broken
			}}
		}, broken},
		"no outcome": {fetch, func(g *agent.Gate, _ *memlog.Log) {
			g.Engine = engine{decide: func(*capability.Call) (capability.Outcome, error) { return capability.Outcome{}, nil }}
		}, agent.ErrPanic},
		"a panic": {fetch, func(g *agent.Gate, _ *memlog.Log) {
			g.Engine = engine{decide: func(*capability.Call) (capability.Outcome, error) { panic("x") }}
		}, agent.ErrPanic},
		"the rule":     {fetch, func(g *agent.Gate, _ *memlog.Log) { g.Tainter = tainter{err: broken} }, broken},
		"no catalogue": {fetch, func(g *agent.Gate, _ *memlog.Log) { g.Catalogue = nil }, agent.ErrPanic},
		"the approvals": {agent.Request{Session: "never seen", Tool: "WebFetch"}, func(g *agent.Gate, _ *memlog.Log) {
			g.Approvals = approvals(func(agent.Case, capability.Outcome) (agent.Admission, error) {
				return agent.Admission{Outcome: capability.Outcome{Kind: capability.Allow}}, broken
			})
		}, broken},
		"no tool":        {agent.Request{Session: "s"}, nil, agent.ErrRequest},
		"no session":     {agent.Request{Tool: "Read"}, nil, agent.ErrSession},
		"a list":         {agent.Request{Session: "s", Tool: "Read", Arguments: json.RawMessage(`[]`)}, nil, agent.ErrRequest},
		"a member twice": {agent.Request{Session: "s", Tool: "Read", Arguments: json.RawMessage(`{"file_path":"/a","file_path":"/b"}`)}, nil, agent.ErrRequest},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			g, log := newGate(t, "")
			if tt.break_ != nil {
				tt.break_(g, log)
			}
			v, err := g.Decide(t.Context(), tt.request)
			if !errors.Is(err, tt.want) || v.Runs() || v.Asks() || v.Outcome.Kind.Valid() {
				t.Errorf("%+v, %v", v.Outcome, err)
			}
		})
	}
	t.Run("no time left", func(t *testing.T) {
		g, _ := newGate(t, "")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if v, err := g.Decide(ctx, fetch); !errors.Is(err, context.Canceled) || v.Runs() {
			t.Errorf("%+v, %v", v, err)
		}
	})
}

func TestDecideWithApprovals(t *testing.T) {
	g, _ := newGate(t, "[tools.X]\norigin = \"fetcher\"\nrequires_human = true\nset = {a = 1}\n")
	g.Revision = "r1"
	var got agent.Case
	admission := agent.Admission{Pending: "p1"}
	g.Approvals = approvals(func(c agent.Case, o capability.Outcome) (agent.Admission, error) {
		got = c
		if admission.Outcome.Kind == 0 {
			admission.Outcome = o
		}
		return admission, nil
	})
	v := decide(t, g, agent.Request{Tool: "X", CallID: "1"})
	if !v.Asks() || v.Pending != "p1" {
		t.Errorf("%+v", v)
	}
	if got.Tool != "X" || string(got.Arguments) != "{}" || got.Session != "s" || got.Revision != "r1" || string(got.Policy.Transform.Arguments) != `{"a":1}` {
		t.Errorf("%+v", got)
	}
	if st, _ := g.Sessions.State(t.Context(), "s"); st.Taint != capability.Clean {
		t.Error("a call that waits has tainted")
	}
	admission = agent.Admission{Outcome: capability.Outcome{Kind: capability.Allow}, Approved: "a1"}
	if v := decide(t, g, agent.Request{Tool: "X", CallID: "1"}); !v.Runs() || v.Approved != "a1" {
		t.Errorf("%+v", v)
	}
	if st, _ := g.Sessions.State(t.Context(), "s"); st.Taint != capability.Tainted {
		t.Error("a call that was approved has not tainted")
	}
	admission = agent.Admission{Outcome: capability.Outcome{Kind: capability.Deny, Reason: "rejected"}}
	if v := decide(t, g, agent.Request{Tool: "X", CallID: "1"}); v.Runs() || v.Asks() {
		t.Errorf("%+v", v)
	}
}

func TestSandbox(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	root, extra := filepath.Join(base, "root"), filepath.Join(base, "extra")
	for _, dir := range []string{root + "/sub", root + "/.claude", root + "/sub/.git/hooks", extra, base + "/out"} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"/leads-out": base + "/out", "/dangles": base + "/nothing", "/loop": root + "/loop", "/in": root + "/sub"} {
		if err := os.Symlink(to, root+link); err != nil {
			t.Fatal(err)
		}
	}
	g, _ := newGate(t, "sandbox = [\""+extra+"\", \"/no/such/folder\"]\n")
	for _, tt := range []struct {
		path        string
		read, write bool // without a person
	}{
		{root + "/a.txt", true, true},
		{root, true, true},
		{"a.txt", true, true},
		{"sub/../a.txt", true, true},
		{"no/such/dir/a", true, true},
		{extra + "/x", true, true},
		{root + "/in/x", true, true},
		{"../root/a", true, true},
		{root + "x", false, false},
		{"../out/a", false, false},
		{"sub/../../out", false, false},
		{"in/../../out/x", false, false},
		{root + "/leads-out/x", false, false},
		{root + "/leads-out/../root/x", true, true}, // where the file system would go
		{root + "/dangles", false, false},
		{root + "/dangles/x", false, false},
		{root + "/loop/x", false, false},
		{"no/such/../../../out", false, false},
		{"/etc/passwd", false, false},
		{"~/.ssh/id_ed25519", false, false},
		{"a\u0000b", false, false},
		{root + "/.claude/settings.json", true, false},
		{root + "/.Claude/settings.json", true, false},
		{root + "/.claude", true, false},
		{root + "/.claudette", true, true},
		{root + "/sub/.git/hooks/pre-commit", true, false},
		{".mcp.json", true, false},
	} {
		arguments, _ := json.Marshal(map[string]string{"file_path": tt.path})
		for tool, want := range map[string]bool{"Read": tt.read, "Write": tt.write} {
			v := decide(t, g, agent.Request{Tool: tool, Arguments: arguments, Root: root})
			if v.Runs() != want {
				t.Errorf("%s %q: runs %v, want %v", tool, tt.path, v.Runs(), want)
			}
		}
	}
	for name, r := range map[string]agent.Request{
		"no root":         {Arguments: json.RawMessage(`{"file_path":"/a"}`)},
		"a relative root": {Root: "root", Arguments: json.RawMessage(`{"file_path":"a"}`)},
		"no text":         {Root: root, Arguments: json.RawMessage(`{"file_path":["a"]}`)},
		"another case":    {Root: root, Arguments: json.RawMessage(`{"File_Path":"a"}`)},
		"in two cases":    {Root: root, Arguments: json.RawMessage(`{"file_path":"a","FILE_PATH":"/etc/passwd"}`)},
	} {
		r.Tool = "Write"
		if v := decide(t, g, r); !v.Asks() {
			t.Errorf("%s: %v", name, v.Outcome.Kind)
		}
	}
	if v := decide(t, g, agent.Request{Tool: "Glob", Root: root, Arguments: json.RawMessage(`{"pattern":"**/*.go","path":null}`)}); !v.Runs() {
		t.Errorf("%+v", v.Outcome)
	}
	if v := decide(t, g, agent.Request{Tool: "Glob", Root: root, Arguments: json.RawMessage(`{"pattern":"../out/*"}`)}); !v.Asks() {
		t.Errorf("%+v", v.Outcome)
	}
}

// What is wrong with the news of a call's end does not keep what came in from being
// recorded.
func TestResultThatCannotBeRead(t *testing.T) {
	long := strings.Repeat("x", agent.MaxTool+1)
	for name, r := range map[string]agent.Request{
		"no tool":                    {},
		"a long name":                {Tool: long},
		"a long call":                {Tool: "WebFetch", CallID: long},
		"arguments that are a text":  {Tool: "WebFetch", Arguments: json.RawMessage(`"x"`)},
		"arguments given twice":      {Tool: "WebFetch", Arguments: json.RawMessage(`{"url":1,"url":2}`)},
		"a tool that taints nothing": {Tool: "TaskList", Arguments: json.RawMessage(`[]`)},
		"who asked cannot be told":   {Tool: "WebFetch", CallID: "asked"},
	} {
		for _, failed := range []bool{false, true} {
			g, log := newGate(t, "")
			g.Approvals = noApprovals{}
			if _, err := log.Update(t.Context(), `asked:["s","asked"]`, func([]agent.Entry, time.Time) ([]agent.Draft, error) {
				return []agent.Draft{{Kind: agent.KindAsked, Subject: `asked:["s","asked"]`, Body: []byte("5")}}, nil
			}); err != nil {
				t.Fatal(err)
			}
			r.Session = "s"
			if _, err := g.Result(t.Context(), agent.Result{Request: r, Failed: failed}); !errors.Is(err, agent.ErrRequest) && !errors.Is(err, agent.ErrHistory) {
				t.Errorf("%s: %v", name, err)
			}
			st, err := g.Sessions.State(t.Context(), "s")
			if err != nil || st.Taint != capability.Tainted || len(st.Describe()) > 1000 {
				t.Errorf("%s: %v, %+v, %v", name, st.Taint, st.Sources, err)
			}
		}
	}
	g, _ := newGate(t, "")
	if _, err := g.Result(t.Context(), agent.Result{Request: agent.Request{Session: "a\n", Tool: "WebFetch"}}); !errors.Is(err, agent.ErrSession) || strings.Count(err.Error(), agent.ErrSession.Error()) != 1 {
		t.Errorf("%v", err)
	}
}

// noApprovals are never asked.
type noApprovals struct{ agent.Approvals }
