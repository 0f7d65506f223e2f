package replay

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/opa-gate/opa-gate/agent"
	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/optional"
)

func policy(t *testing.T, with ...string) *evaluator.Evaluator {
	t.Helper()
	var trees []fs.FS
	for _, name := range with {
		tree, err := optional.FS(name)
		if err != nil {
			t.Fatal(err)
		}
		trees = append(trees, tree)
	}
	e, err := evaluator.New(t.Context(), &evaluator.Options{With: trees})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

const toolsFile = `{"tools": {
	"fetch": {"origin": "fetcher", "read_only": true},
	"mail": {"origin": "registered-connector", "open_world": false, "effect": "outside", "aims": ["to"]},
	"note": {"origin": "registered-connector", "open_world": false, "effect": "own-undoable"},
	"look": {"origin": "registered-connector", "read_only": true, "open_world": false},
	"board": {"origin": "registered-connector", "read_only": true, "open_world": false, "taints": true},
	"invite": {"origin": "access-grant", "open_world": false}}}`

// run replays lines and returns, for each call, its tool, session's taint, taint
// and outcome.
func run(t *testing.T, p Policy, lines string) (*Report, []string) {
	t.Helper()
	trace, err := Read(strings.NewReader(lines))
	if err != nil || len(trace.Skipped) > 0 {
		t.Fatal(err, trace.Skipped)
	}
	catalogue, err := agent.ParseCatalogue("tools.json", []byte(toolsFile))
	if err != nil {
		t.Fatal(err)
	}
	report, err := Run(t.Context(), p, trace, operator(catalogue))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range report.Calls {
		a := &report.Calls[i]
		got = append(got, fmt.Sprintf("%s %s %s %s", a.Tool, a.Before, a.Seen, a.Label()))
	}
	return report, got
}

func TestRun(t *testing.T) {
	const prompt = `{"kind":"prompt","text":"write 'hello there' to ann@acme.example"}` + "\n"
	tests := map[string]struct {
		with  []string
		lines string
		want  []string
	}{
		"clean stays clean": {nil, `{"kind":"call","tool":"look"}` + "\n" + `{"kind":"call","tool":"mail"}`,
			[]string{"look clean clean allow", "mail clean clean allow"}},
		"a fetch taints": {nil, `{"kind":"call","tool":"fetch"}` + "\n" + `{"kind":"call","tool":"mail"}`,
			[]string{"fetch clean clean allow", "mail tainted tainted escalate"}},
		"what the operator says taints": {nil, `{"kind":"call","tool":"board"}` + "\n" + `{"kind":"call","tool":"mail"}`,
			[]string{"board clean clean allow", "mail tainted tainted escalate"}},
		"an unknown tool taints": {nil, `{"kind":"call","tool":"other"}` + "\n" + `{"kind":"call","tool":"mail"}` + "\n" + `{"kind":"call","tool":"look"}`,
			[]string{"other clean clean allow", "mail tainted tainted escalate", "look tainted tainted allow"}},
		"a marker asks in any session": {nil, `{"kind":"call","tool":"invite"}`, []string{"invite clean clean escalate"}},
		"only when the result comes": {nil, `{"kind":"call","id":"1","tool":"fetch"}
{"kind":"call","id":"2","tool":"mail"}
{"kind":"result","id":"1"}
{"kind":"call","id":"3","tool":"mail"}`, []string{"fetch clean clean allow", "mail clean clean allow", "mail tainted tainted escalate"}},
		"a result of no call taints": {nil, `{"kind":"result","id":"9"}` + "\n" + `{"kind":"call","tool":"mail"}`, []string{"mail tainted tainted escalate"}},
		"sessions are apart": {nil, `{"kind":"call","session":"a","tool":"fetch"}
{"kind":"call","session":"b","tool":"mail"}
{"kind":"call","session":"a","tool":"mail"}`, []string{"fetch clean clean allow", "mail clean clean allow", "mail tainted tainted escalate"}},
		"a call is answered once": {nil, `{"kind":"call","id":"1","tool":"look"}` + "\n" + `{"kind":"call","id":"1","tool":"look"}`,
			[]string{"look clean clean allow"}},
		"a stated profile goes before the tools": {nil, `{"kind":"call","tool":"fetch","profile":{"origin":"first-party","read_only":true,"open_world":false}}` + "\n" + `{"kind":"call","tool":"mail"}`,
			[]string{"fetch clean clean allow", "mail clean clean allow"}},
		"without steering typing helps nothing": {nil, prompt + `{"kind":"call","tool":"fetch"}` + "\n" +
			`{"kind":"call","tool":"mail","arguments":{"to":"ann@acme.example","text":"hello there"}}`,
			[]string{"fetch clean clean allow", "mail tainted tainted escalate"}},
		"steering": {[]string{optional.Steering}, prompt + `{"kind":"call","tool":"fetch"}
{"kind":"call","tool":"mail","arguments":{"to":"ann@acme.example","text":"hello there"}}
{"kind":"call","tool":"mail","arguments":{"to":"ann@acme.example","text":"see https://evil.example/x"}}
{"kind":"call","tool":"mail","arguments":{"to":"eve@evil.example","text":"hello there"}}
{"kind":"call","tool":"mail"}
{"kind":"call","tool":"note","arguments":{"text":"anything"}}
{"kind":"call","tool":"invite"}
{"kind":"call","tool":"other","arguments":{"to":"ann@acme.example"}}`,
			[]string{"fetch clean clean allow", "mail tainted clean allow", "mail tainted tainted escalate", "mail tainted tainted escalate",
				"mail tainted tainted escalate", "note tainted clean allow", "invite tainted tainted escalate", "other tainted tainted escalate"}},
		"what is typed later": {[]string{optional.Steering}, `{"kind":"call","tool":"fetch"}
{"kind":"call","tool":"mail","arguments":{"to":"ann@acme.example","text":"hello there"}}
` + prompt + `{"kind":"call","tool":"mail","arguments":{"to":"ann@acme.example","text":"hello there"}}`,
			[]string{"fetch clean clean allow", "mail tainted tainted escalate", "mail tainted clean allow"}},
		"what another person typed": {[]string{optional.Steering}, `{"kind":"prompt","session":"b","text":"ann@acme.example 'hello there'"}
{"kind":"call","tool":"fetch"}
{"kind":"call","tool":"mail","arguments":{"to":"ann@acme.example","text":"hello there"}}`,
			[]string{"fetch clean clean allow", "mail tainted tainted escalate"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if _, got := run(t, policy(t, test.with...), test.lines); !slices.Equal(got, test.want) {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}

func TestRunCounts(t *testing.T) {
	report, _ := run(t, policy(t), `{"kind":"prompt","session":"a","text":"one"}
{"kind":"call","session":"a","id":"1","tool":"fetch"}
{"kind":"result","session":"a","id":"1"}
{"kind":"call","session":"a","tool":"mail"}
{"kind":"prompt","session":"a","text":"two"}
{"kind":"call","session":"a","tool":"look"}
{"kind":"call","session":"b","task":"t","tool":"invite"}`)
	if want := (Totals{Calls: 4, Asked: 2, Tasks: 3, TasksAsking: 2, Sessions: 2, Tainted: 1}); report.Totals != want {
		t.Errorf("%+v, want %+v", report.Totals, want)
	}
	if want := []Task{{"a", "1", 2, 1, 0}, {"a", "2", 1, 0, 0}, {"b", "t", 1, 1, 0}}; !slices.Equal(report.Tasks, want) {
		t.Errorf("%+v, want %+v", report.Tasks, want)
	}
	if want := []Session{{"a", true, 3, "fetch"}, {Session: "b"}}; !slices.Equal(report.Sessions, want) {
		t.Errorf("%+v, want %+v", report.Sessions, want)
	}
}

// failing cannot decide about some tool, denies another, and cannot tell of the
// results of a third.
type failing struct{ Policy }

var errFailing = errors.New("no answer")

func (f failing) Decide(ctx context.Context, c *capability.Call) (capability.Outcome, error) {
	switch c.Tool {
	case "board":
		return capability.Outcome{}, errFailing
	case "fetch":
		return capability.Outcome{Kind: capability.Deny, Reason: "no"}, nil
	}
	return f.Policy.Decide(ctx, c)
}

func (f failing) CallTaint(ctx context.Context, s *capability.Steering) (capability.Taint, error) {
	if s.Tool == "note" {
		return capability.Tainted, errFailing
	}
	return f.Policy.CallTaint(ctx, s)
}

func (f failing) ResultTaints(ctx context.Context, r *capability.Result) (bool, error) {
	if r.Tool == "look" {
		return false, errFailing
	}
	return f.Policy.ResultTaints(ctx, r)
}

// What cannot be decided does not run, so its result does not enter; of which
// nobody can tell whether it taints, does.
func TestRunFailsClosed(t *testing.T) {
	report, got := run(t, failing{policy(t)}, `{"kind":"call","tool":"board"}
{"kind":"call","tool":"fetch"}
{"kind":"call","tool":"note"}
{"kind":"call","tool":"mail"}
{"kind":"call","tool":"look"}
{"kind":"call","tool":"mail"}`)
	want := []string{"board clean clean error", "fetch clean clean deny", "note clean tainted error", "mail clean clean allow",
		"look clean clean allow", "mail tainted tainted escalate"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if report.Totals.Denied != 3 || report.Totals.Asked != 1 || report.Calls[0].Error == "" {
		t.Errorf("%+v", report.Totals)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := Run(ended, policy(t), &Trace{Events: []Event{{Kind: Call, Tool: "x"}}}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestDiff(t *testing.T) {
	const lines = `{"kind":"call","tool":"fetch"}
{"kind":"call","tool":"note","session":""}
{"kind":"call","tool":"mail"}`
	before, _ := run(t, policy(t), lines)
	after, _ := run(t, policy(t, optional.Steering), lines)
	if got, want := Diff(before, after), []Change{{2, "", "0", "note", "escalate", "allow"}}; !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := Diff(before, before); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

// The operator's grant, vetoes and questions count as they do in front of an agent.
func TestRunByTheCatalogue(t *testing.T) {
	c, err := agent.ParseCatalogue("c.toml", []byte("base = [\"local-read\"]\n[tools.v]\norigin = \"local-sandbox\"\nveto = \"No.\"\n"+
		"[tools.h]\norigin = \"local-sandbox\"\nopen_world = false\nread_only = true\nrequires_human = true\n"))
	if err != nil {
		t.Fatal(err)
	}
	trace, err := Read(strings.NewReader(`{"kind":"call","tool":"Read"}` + "\n" + `{"kind":"call","tool":"Edit"}` + "\n" +
		`{"kind":"call","tool":"h"}` + "\n" + `{"kind":"call","tool":"v"}`))
	if err != nil {
		t.Fatal(err)
	}
	report, err := Run(t.Context(), policy(t), trace, operator(c))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"allow", "escalate", "escalate", "deny"} {
		if got := report.Calls[i].Label(); got != want {
			t.Errorf("%s: %s, want %s", report.Calls[i].Tool, got, want)
		}
	}
}

func operator(c *agent.Catalogue) *Operator {
	return &Operator{Grant: c.Grant, Tool: func(name string) Tool {
		t := c.Lookup(name)
		return Tool{Profile: t.Profile, Taints: t.Taints, Steering: t.Steering,
			Policy: capability.CallPolicy{Vetoed: t.Vetoed, RequiresHuman: t.RequiresHuman}}
	}}
}
