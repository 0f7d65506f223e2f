package hook_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/opa-gate/opa-gate/agent"
	"github.com/opa-gate/opa-gate/agent/hook"
	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/ledger"
)

const catalogue = `
[tools.V]
origin = "local-sandbox"
open_world = false
veto = "Not here."
[tools.H]
origin = "local-sandbox"
open_world = false
requires_human = true
set = {a = 1}
[tools.HN]
origin = "local-sandbox"
open_world = false
requires_human = true
note = "Mind the gap."
[tools.N]
origin = "local-sandbox"
open_world = false
note = "Mind the gap."
[tools.S]
origin = "local-sandbox"
open_world = false
set = {a = 1}
`

func newHandler(t *testing.T) (*hook.Handler, *ledger.Ledger) {
	t.Helper()
	return newHandlerAt(t, time.Now)
}

// newHandlerAt has a clock of its own.
func newHandlerAt(t *testing.T, now func() time.Time) (*hook.Handler, *ledger.Ledger) {
	t.Helper()
	c, err := agent.ParseCatalogue("c.toml", []byte(catalogue))
	if err != nil {
		t.Fatal(err)
	}
	key, err := ledger.LoadOrMakeKey(t.TempDir() + "/key")
	if err != nil {
		t.Fatal(err)
	}
	keys := &ledger.Keyring{}
	keys.Sign(key)
	l, err := ledger.Open(t.Context(), "memory:", &ledger.Options{Keys: keys, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	kept := agent.OnLedger(l)
	return &hook.Handler{Gate: &agent.Gate{
		Engine: evaluator.Native{}, Catalogue: c, Sessions: &agent.Sessions{Log: kept}, Approvals: kept, Revision: "r",
	}}, l
}

func handle(t *testing.T, h *hook.Handler, event map[string]any) hook.Reply {
	t.Helper()
	if event["session_id"] == nil {
		event["session_id"] = "s"
	}
	text, err := json.Marshal(event)
	if err != nil {
		t.Fatal(err)
	}
	return h.Handle(t.Context(), text, "")
}

func start(t *testing.T, h *hook.Handler) {
	t.Helper()
	if r := handle(t, h, map[string]any{"hook_event_name": "SessionStart", "source": "startup"}); r.Exit != 0 || string(r.Stdout) != "{}\n" {
		t.Fatalf("%+v", r)
	}
}

func call(tool string, more ...any) map[string]any {
	e := map[string]any{"hook_event_name": "PreToolUse", "tool_name": tool, "tool_use_id": "t1", "tool_input": map[string]any{"b": 2}, "cwd": "/w"}
	for i := 0; i < len(more); i += 2 {
		e[more[i].(string)] = more[i+1]
	}
	return e
}

const specific = `{"hookSpecificOutput":{"hookEventName":"PreToolUse",`

// What an agent reads, for each outcome, dialect and way to allow. Exit code 2
// is written as a line that begins with 2.
func TestAnswers(t *testing.T) {
	for _, tt := range []struct {
		tool            string
		claude, allowed string
		codex           string
	}{
		{"TaskList", `{}`, specific + `"permissionDecision":"allow","permissionDecisionReason":"The policy allows this call."}}`, `{}`},
		{"V", specific + `"permissionDecision":"deny","permissionDecisionReason":"Not here."}}`, "", "2 opa-gate: Not here."},
		{"H", specific + `"permissionDecision":"ask","permissionDecisionReason":"A person has to confirm this call.","updatedInput":{"a":1,"b":2}}}`, "",
			"2 opa-gate: A person has to confirm this call. It waits for a person: opa-gate approvals approve ID. Then make the same call again."},
		{"HN", specific + `"permissionDecision":"ask","permissionDecisionReason":"A person has to confirm this call.","additionalContext":"Mind the gap."}}`, "",
			"2 opa-gate: A person has to confirm this call. It waits for a person: opa-gate approvals approve ID. Then make the same call again."},
		{"N", specific + `"additionalContext":"Mind the gap."}}`, specific + `"permissionDecision":"allow","permissionDecisionReason":"The policy allows this call.","additionalContext":"Mind the gap."}}`,
			"2 opa-gate: the policy adds a note to this call, and this agent's hooks cannot pass it on"},
		{"S", specific + `"permissionDecision":"ask","permissionDecisionReason":"The policy changes this call's arguments.","updatedInput":{"a":1,"b":2}}}`,
			specific + `"permissionDecision":"allow","permissionDecisionReason":"The policy allows this call.","updatedInput":{"a":1,"b":2}}}`,
			`2 opa-gate: the policy changes this call's arguments, and this agent's hooks cannot change any; make the call with: {"a":1,"b":2}`},
	} {
		if tt.allowed == "" {
			tt.allowed = tt.claude
		}
		for _, way := range []struct {
			name string
			set  func(*hook.Handler)
			want string
		}{
			{"claude", func(*hook.Handler) {}, tt.claude},
			{"claude, auto-allow", func(h *hook.Handler) { h.AutoAllow = true }, tt.allowed},
			{"codex", func(h *hook.Handler) { h.Dialect = hook.Codex }, tt.codex},
			{"codex, auto-allow", func(h *hook.Handler) { h.Dialect, h.AutoAllow = hook.Codex, true }, tt.codex},
			{"shadow", func(h *hook.Handler) { h.Shadow = true }, "{}"},
		} {
			h, l := newHandler(t)
			way.set(h)
			start(t, h)
			r := handle(t, h, call(tt.tool))
			got := strings.TrimSpace(string(r.Stdout))
			if r.Exit != 0 {
				got = fmt.Sprint(r.Exit, " ", strings.TrimSpace(r.Stderr))
			}
			waiting, _, err := l.Waiting(t.Context(), 10)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range waiting {
				got = strings.ReplaceAll(got, p.ID, "ID")
			}
			if got != way.want {
				t.Errorf("%s, %s:\n got %s\nwant %s", tt.tool, way.name, got, way.want)
			}
		}
	}
}

// In a mode that asks nobody, an ask could be approved without a person.
func TestAsksOnlyWherePeopleAre(t *testing.T) {
	for mode, want := range map[string]string{
		"": "ask", "default": "ask", "acceptEdits": "ask", "plan": "ask",
		"bypassPermissions": "deny", "dontAsk": "deny", "auto": "deny", "newMode": "deny",
	} {
		h, _ := newHandler(t)
		start(t, h)
		r := handle(t, h, call("H", "permission_mode", mode))
		if r.Exit != 0 || !strings.Contains(string(r.Stdout), `"permissionDecision":"`+want+`"`) {
			t.Errorf("mode %q: %s", mode, r.Stdout)
		}
	}
}

func TestConversationsTaint(t *testing.T) {
	for name, tt := range map[string]struct {
		events []map[string]any
		want   capability.Taint
	}{
		"a new one":                  {[]map[string]any{{"hook_event_name": "SessionStart", "source": "startup"}}, capability.Clean},
		"cleared":                    {[]map[string]any{{"hook_event_name": "SessionStart", "source": "clear"}}, capability.Clean},
		"resumed":                    {[]map[string]any{{"hook_event_name": "SessionStart", "source": "resume"}}, capability.Tainted},
		"forked":                     {[]map[string]any{{"hook_event_name": "SessionStart", "source": "fork"}}, capability.Tainted},
		"no source":                  {[]map[string]any{{"hook_event_name": "SessionStart"}}, capability.Tainted},
		"known and resumed":          {[]map[string]any{{"hook_event_name": "SessionStart", "source": "startup"}, {"hook_event_name": "SessionStart", "source": "resume"}}, capability.Clean},
		"seen late":                  {[]map[string]any{{"hook_event_name": "UserPromptSubmit", "prompt": "x"}, {"hook_event_name": "SessionStart", "source": "startup"}}, capability.Tainted},
		"a person's prompt":          {[]map[string]any{{"hook_event_name": "SessionStart", "source": "startup"}, {"hook_event_name": "UserPromptSubmit", "prompt": "x", "source": "user"}}, capability.Clean},
		"a prompt nobody typed":      {[]map[string]any{{"hook_event_name": "SessionStart", "source": "startup"}, {"hook_event_name": "UserPromptSubmit", "prompt": "x", "source": "poll_event"}}, capability.Tainted},
		"a call that was let go":     {[]map[string]any{{"hook_event_name": "SessionStart", "source": "startup"}, call("WebFetch")}, capability.Tainted},
		"a call nobody asked about":  {[]map[string]any{{"hook_event_name": "SessionStart", "source": "startup"}, {"hook_event_name": "PostToolUse", "tool_name": "mcp__a__b", "tool_use_id": "t"}}, capability.Tainted},
		"a call that failed":         {[]map[string]any{{"hook_event_name": "SessionStart", "source": "startup"}, {"hook_event_name": "PostToolUseFailure", "tool_name": "WebFetch", "tool_use_id": "t", "error": "404"}}, capability.Tainted},
		"a file":                     {[]map[string]any{{"hook_event_name": "SessionStart", "source": "startup"}, call("TaskList"), {"hook_event_name": "PostToolUse", "tool_name": "TaskList", "tool_use_id": "t1"}}, capability.Clean},
		"a shell command of a skill": {[]map[string]any{{"hook_event_name": "SessionStart", "source": "startup"}, {"hook_event_name": "PreSkillShellCommand", "tool_name": "Bash", "tool_input": map[string]any{"command": "ls"}, "tool_use_id": "t"}}, capability.Tainted},
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := newHandler(t)
			for _, e := range tt.events {
				if r := handle(t, h, e); r.Exit != 0 {
					t.Fatalf("%v: %+v", e, r)
				}
			}
			st, err := h.Gate.Sessions.State(t.Context(), "s")
			if err != nil || st.Taint != tt.want {
				t.Errorf("%v, %v, want %v", st.Taint, err, tt.want)
			}
		})
	}
}

func TestApprovedElsewhere(t *testing.T) {
	h, l := newHandler(t)
	h.Dialect = hook.Codex
	start(t, h)
	if r := handle(t, h, call("WebFetch")); r.Exit != 0 { // taints
		t.Fatalf("%+v", r)
	}
	second := call("WebFetch", "tool_use_id", "t2")
	if r := handle(t, h, second); r.Exit != 2 {
		t.Fatalf("%+v", r)
	}
	waiting, n, err := l.Waiting(t.Context(), 10)
	if err != nil || n != 1 {
		t.Fatal(n, err)
	}
	if _, err := l.Decide(t.Context(), "ann", waiting[0].ID, ledger.Decision{Approve: true}); err != nil {
		t.Fatal(err)
	}
	if r := handle(t, h, call("WebFetch", "tool_use_id", "t3", "tool_input", map[string]any{"b": 3})); r.Exit != 2 {
		t.Errorf("other arguments passed: %+v", r)
	}
	if r := handle(t, h, second); r.Exit != 0 || string(r.Stdout) != "{}\n" {
		t.Errorf("%+v", r)
	}
	if r := handle(t, h, second); r.Exit != 2 {
		t.Errorf("once was twice: %+v", r)
	}
}

func TestWait(t *testing.T) {
	h, l := newHandler(t)
	h.Wait = 20 * time.Second
	start(t, h)
	decided := make(chan error, 1)
	go func() {
		for {
			waiting, n, err := l.Waiting(context.Background(), 1)
			if err == nil && n == 1 {
				_, err = l.Decide(context.Background(), "ann", waiting[0].ID, ledger.Decision{Approve: true})
				decided <- err
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	r := handle(t, h, call("HN"))
	if err := <-decided; err != nil {
		t.Fatal(err)
	}
	if want := specific + `"additionalContext":"Mind the gap."}}` + "\n"; string(r.Stdout) != want {
		t.Errorf("%s, want %s", r.Stdout, want)
	}
	h.Wait = 10 * time.Millisecond // nobody comes
	if r := handle(t, h, call("H")); !strings.Contains(string(r.Stdout), `"ask"`) {
		t.Errorf("%+v", r)
	}
}

// A person who agrees at the agent has decided what waits in the ledger.
func TestAskedAndMade(t *testing.T) {
	h, l := newHandler(t)
	start(t, h)
	handle(t, h, call("H"))
	if _, n, _ := l.Waiting(t.Context(), 1); n != 1 {
		t.Fatalf("%d wait", n)
	}
	if r := handle(t, h, map[string]any{"hook_event_name": "PostToolUse", "tool_name": "H", "tool_use_id": "t1"}); r.Exit != 0 {
		t.Fatalf("%+v", r)
	}
	if _, n, _ := l.Waiting(t.Context(), 1); n != 0 {
		t.Errorf("%d wait", n)
	}
}

type broken struct{ agent.Log }

var errBroken = errors.New("disk full")

func (broken) Subject(context.Context, string) ([]agent.Entry, error) { return nil, errBroken }
func (broken) Update(context.Context, string, func([]agent.Entry, time.Time) ([]agent.Draft, error)) ([]agent.Entry, error) {
	return nil, errBroken
}

type panics struct{ agent.Log }

// Every event with everything that can fail: exit code 2, one line, no answer.
func TestFailuresBlock(t *testing.T) {
	events := []string{"PreToolUse", "PreSkillShellCommand", "PostToolUse", "PostToolUseFailure", "UserPromptSubmit", "SessionStart"}
	for _, log := range []agent.Log{broken{}, panics{}} {
		for _, event := range events {
			for _, dialect := range []hook.Dialect{hook.Claude, hook.Codex} {
				h, _ := newHandler(t)
				h.Gate.Sessions = &agent.Sessions{Log: log}
				h.Dialect, h.AutoAllow = dialect, true
				r := handle(t, h, map[string]any{"hook_event_name": event, "tool_name": "WebFetch", "source": "startup"})
				blocked(t, event, r)
				h.Shadow = true
				if r := handle(t, h, map[string]any{"hook_event_name": event, "tool_name": "WebFetch"}); r.Exit != 0 || string(r.Stdout) != "{}\n" {
					t.Errorf("shadow interferes: %+v", r)
				}
			}
		}
	}
	for _, text := range []string{
		"", "null", "[]", "{", "{}", `{"hook_event_name":"PreToolUse"}`, `{"hook_event_name":"PreToolUse","session_id":"s"}`,
		`{"hook_event_name":"PreToolUse","session_id":7,"tool_name":"Read"}`,
		`{"hook_event_name":"PreToolUse","session_id":"s","tool_name":"Read","tool_name":"Bash"}`,
		`{"hook_event_name":"PreToolUse","session_id":"s","tool_name":"TaskList","tool_input":"x"}`,
		`{"hook_event_name":"PreToolUse","session_id":"s","tool_name":"TaskList","tool_input":{"a":1,"a":2}}`,
		`{"hook_event_name":"PreToolUse","session_id":"s","tool_name":"TaskList"}{}`,
		`{"HOOK_EVENT_NAME":"PreToolUse","session_id":"s","tool_name":"TaskList"}`,
		`{"hook_event_name":"Stop","session_id":"s"}`,
		"{\"hook_event_name\":\"PreToolUse\",\"session_id\":\"s\",\"tool_name\":\"\xff\"}",
		strings.Repeat("[", 100_000),
	} {
		h, _ := newHandler(t)
		blocked(t, text[:min(len(text), 100)], h.Handle(t.Context(), []byte(text), ""))
	}
	h, _ := newHandler(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	text, _ := json.Marshal(call("TaskList", "session_id", "s"))
	blocked(t, "no time", h.Handle(ctx, text, ""))
}

func blocked(t *testing.T, what string, r hook.Reply) {
	t.Helper()
	if r.Exit != hook.ExitBlock || len(r.Stdout) > 0 || strings.Count(r.Stderr, "\n") != 1 || !strings.HasPrefix(r.Stderr, "opa-gate: ") {
		t.Errorf("%s: %+v", what, r)
	}
}

func TestLog(t *testing.T) {
	var log bytes.Buffer
	h, _ := newHandler(t)
	h.Log = &log
	start(t, h)
	handle(t, h, call("V", "tool_input", map[string]any{"secret": "hunter2"}))
	if strings.Contains(log.String(), "hunter2") {
		t.Error("arguments are in the log")
	}
	var line struct{ Tool, Outcome, Taint string }
	if err := json.Unmarshal(log.Bytes(), &line); err != nil || line.Tool != "V" || line.Outcome != "deny" || line.Taint != "clean" {
		t.Errorf("%s: %+v, %v", log.String(), line, err)
	}
}

// Whatever an agent writes, the answer is one that it can read, and only an
// object with exit code 0 lets a call run.
func FuzzHandle(f *testing.F) {
	for _, tool := range []string{"TaskList", "V", "H", "S", "WebFetch"} {
		text, _ := json.Marshal(call(tool, "session_id", "s"))
		f.Add(text, true)
	}
	c, err := agent.ParseCatalogue("c.toml", []byte(catalogue))
	if err != nil {
		f.Fatal(err)
	}
	l, err := ledger.Open(f.Context(), "memory:", nil)
	if err != nil {
		f.Fatal(err)
	}
	kept := agent.OnLedger(l)
	f.Fuzz(func(t *testing.T, input []byte, codex bool) {
		h := &hook.Handler{Gate: &agent.Gate{Engine: evaluator.Native{}, Catalogue: c, Sessions: &agent.Sessions{Log: kept}}}
		if codex {
			h.Dialect = hook.Codex
		}
		switch r := h.Handle(t.Context(), input, ""); r.Exit {
		case hook.ExitDone:
			var v map[string]any
			if err := json.Unmarshal(r.Stdout, &v); err != nil || codex && len(v) > 0 {
				t.Errorf("%s: %v", r.Stdout, err)
			}
		case hook.ExitBlock:
			if len(r.Stdout) > 0 || strings.Count(r.Stderr, "\n") != 1 {
				t.Errorf("%+v", r)
			}
		default:
			t.Errorf("exit code %d", r.Exit)
		}
	})
}

// A call that nobody could approve is refused, and it is not the gate that is to be
// looked at.
func TestCannotBeApproved(t *testing.T) {
	for name, input := range map[string]any{
		"large": map[string]any{"a": strings.Repeat("x", ledger.MaxArguments)},
		"deep":  json.RawMessage(strings.Repeat(`{"a":`, ledger.MaxDepth+1) + "1" + strings.Repeat("}", ledger.MaxDepth+1)),
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := newHandler(t)
			start(t, h)
			handle(t, h, call("WebFetch"))
			r := handle(t, h, call("WebFetch", "tool_use_id", "t2", "tool_input", input))
			if r.Exit != hook.ExitBlock || !strings.Contains(r.Stderr, "arguments that a person can approve") || strings.Contains(r.Stderr, "hook status") {
				t.Errorf("%+v", r)
			}
		})
	}
}
