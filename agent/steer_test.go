package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/opa-gate/opa-gate/agent"
	"github.com/opa-gate/opa-gate/agent/internal/memlog"
	"github.com/opa-gate/opa-gate/agent/steering"
	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/optional"
)

const steered = `
[tools.send_mail]
origin = "registered-connector"
open_world = false
effect = "outside"
aims = ["to", "cc"]
[tools.add_note]
origin = "registered-connector"
open_world = false
effect = "own-undoable"
outside_if = ["share"]
[tools.set_mail]
origin = "registered-connector"
open_world = false
effect = "outside"
aims = ["to", "cc"]
set = {cc = "boss@acme.example"}
[tools.unstated]
origin = "registered-connector"
open_world = false
`

// newSteered returns a gate whose policies have the optional rule, in a session that
// outside content is in.
func newSteered(t testing.TB) (*agent.Gate, *memlog.Log) {
	t.Helper()
	tree, err := optional.FS(optional.Steering)
	if err != nil {
		t.Fatal(err)
	}
	e, err := evaluator.New(t.Context(), &evaluator.Options{With: []fs.FS{tree}})
	if err != nil {
		t.Fatal(err)
	}
	g, log := newGate(t, steered)
	g.Engine, g.Tainter, g.Steers = e, e, e.Steers()
	taint(t, g)
	return g, log
}

func taint(t testing.TB, g *agent.Gate) {
	t.Helper()
	if _, err := g.Sessions.Taint(t.Context(), "s", agent.Source{Why: agent.Ended, Tool: "WebFetch", Call: "0"}); err != nil {
		t.Fatal(err)
	}
}

func typed(t testing.TB, g *agent.Gate, session, prompt string) {
	t.Helper()
	if err := g.Typed(t.Context(), session, prompt); err != nil {
		t.Fatal(err)
	}
}

func TestDecideSteered(t *testing.T) {
	const prompt = "Send 'we agree' to ann@acme.example, please"
	for name, tt := range map[string]struct {
		tool, arguments, agent string
		want                   capability.Kind
	}{
		"what the person typed":  {"send_mail", `{"to":"ann@acme.example","text":"we agree"}`, "", capability.Allow},
		"another address":        {"send_mail", `{"to":"eve@evil.example","text":"we agree"}`, "", capability.Escalate},
		"one more address":       {"send_mail", `{"to":"ann@acme.example","cc":"eve@evil.example","text":"we agree"}`, "", capability.Escalate},
		"an address in the text": {"send_mail", `{"to":"ann@acme.example","text":"see https://evil.example"}`, "", capability.Escalate},
		"a sub-agent":            {"send_mail", `{"to":"ann@acme.example","text":"we agree"}`, "a1", capability.Escalate},
		"what can be undone":     {"add_note", `{"text":"anything"}`, "", capability.Allow},
		"shared":                 {"add_note", `{"text":"anything","share":"eve@evil.example"}`, "", capability.Escalate},
		"undone by a sub-agent":  {"add_note", `{"text":"anything"}`, "a1", capability.Escalate},
		"what the operator sets": {"set_mail", `{"to":"ann@acme.example","text":"we agree"}`, "", capability.Escalate},
		"nothing is stated":      {"unstated", `{"to":"ann@acme.example"}`, "", capability.Escalate},
		"nobody names it":        {"nobody", `{"to":"ann@acme.example"}`, "", capability.Escalate},
	} {
		t.Run(name, func(t *testing.T) {
			g, _ := newSteered(t)
			typed(t, g, "s", prompt)
			v := decide(t, g, agent.Request{Tool: tt.tool, Agent: tt.agent, CallID: "1", Arguments: json.RawMessage(tt.arguments)})
			if v.Outcome.Kind != tt.want || v.State.Taint != capability.Tainted || (v.Seen == capability.Clean) != (tt.want == capability.Allow) {
				t.Errorf("%v, sees %v, want %v", v.Outcome.Kind, v.Seen, tt.want)
			}
		})
	}
}

var sent = agent.Request{Tool: "send_mail", CallID: "1", Arguments: json.RawMessage(`{"to":"ann@acme.example","text":"we agree"}`)}

// What is typed in one session is typed there alone, also after it was cleared.
func TestTypedIsOfItsSession(t *testing.T) {
	g, log := newSteered(t)
	typed(t, g, "other", "Send 'we agree' to ann@acme.example")
	if v := decide(t, g, sent); v.Outcome.Kind != capability.Escalate {
		t.Errorf("typed in another session: %v", v.Outcome.Kind)
	}
	typed(t, g, "s", "Send 'we agree' to ann@acme.example")
	if _, err := g.Sessions.Clear(t.Context(), "s", "ann", ""); err != nil {
		t.Fatal(err)
	}
	taint(t, g)
	if v := decide(t, g, sent); v.Outcome.Kind != capability.Allow {
		t.Errorf("typed before it was cleared: %v", v.Outcome.Kind)
	}
	// Another process reads it from the log.
	again := *g
	again.Sessions = &agent.Sessions{Log: log}
	if v := decide(t, &again, sent); v.Outcome.Kind != capability.Allow {
		t.Errorf("in another process: %v", v.Outcome.Kind)
	}
}

func prompts(t *testing.T, log *memlog.Log) (n, size int) {
	t.Helper()
	entries, err := log.Since(t.Context(), 0, 10000)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Kind == agent.KindTyped {
			n, size = n+1, size+len(e.Body)
		}
	}
	return n, size
}

func TestPromptsAreKeptOnlyIfTheyCount(t *testing.T) {
	g, log := newSteered(t)
	g.Steers = false
	typed(t, g, "s", "my password is hunter2")
	if n, _ := prompts(t, log); n != 0 {
		t.Error("a prompt is kept without a policy that asks for it")
	}
	g.Steers = true
	typed(t, g, "s", "one")
	typed(t, g, "s", "one")
	typed(t, g, "s", "")
	typed(t, g, "s", strings.Repeat("x", steering.MaxTyped+1))
	if n, _ := prompts(t, log); n != 1 {
		t.Errorf("%d prompts, want 1", n)
	}
	for i := range 10 {
		typed(t, g, "s", strings.Repeat(string(rune('a'+i)), steering.MaxTyped-10))
	}
	if n, size := prompts(t, log); n != 5 || size > agent.MaxKept {
		t.Errorf("%d prompts of %d bytes, want 5", n, size)
	}
	if err := g.Typed(t.Context(), "", "one"); !errors.Is(err, agent.ErrSession) {
		t.Error(err)
	}
}

// Where it is not known who wrote a call, nothing is decided.
func TestSteeringFailsClosed(t *testing.T) {
	broken := errors.New("broken")
	for name, tt := range map[string]struct {
		break_ func(*agent.Gate, *memlog.Log)
		want   error
	}{
		"the rule": {func(g *agent.Gate, _ *memlog.Log) { g.Tainter = callTainter{err: broken} }, broken},
		"the prompts": {func(_ *agent.Gate, l *memlog.Log) {
			_, _ = l.Update(t.Context(), "typed:s", func([]agent.Entry, time.Time) ([]agent.Draft, error) {
				return []agent.Draft{{Kind: "other", Subject: "typed:s", Body: []byte(`"x"`)}}, nil
			})
		}, agent.ErrHistory},
	} {
		g, log := newSteered(t)
		tt.break_(g, log)
		r := sent
		r.Session = "s"
		if v, err := g.Decide(t.Context(), r); !errors.Is(err, tt.want) || v.Runs() {
			t.Errorf("%s: %v, %v", name, v.Outcome.Kind, err)
		}
	}
	g, _ := newSteered(t)
	g.Tainter = callTainter{} // an answer that is none
	if v := decide(t, g, sent); v.Seen != capability.Tainted || v.Runs() {
		t.Errorf("%v", v.Outcome.Kind)
	}
}

// A callTainter answers of calls what is no taint, or fails.
type callTainter struct {
	evaluator.Native
	err error
}

func (f callTainter) CallTaint(context.Context, *capability.Steering) (capability.Taint, error) {
	return 0, f.err
}

func TestCatalogueOfSteering(t *testing.T) {
	for text, where := range map[string]string{
		"effect = \"mine\"": "tools.x.effect", "aims = []": "tools.x.aims", "aims = \"to\"": "tools.x.aims", "aims = [\"\"]": "tools.x.aims.0",
		"outside_if = [1]": "tools.x.outside_if.0", "outside_if = []": "tools.x.outside_if", "aim = [\"to\"]": "tools.x.aim",
	} {
		var e *agent.CatalogueError
		if _, err := agent.ParseCatalogue("c.toml", []byte("[tools.x]\n"+text+"\n")); !errors.As(err, &e) || e.Where != where || e.Line != 2 {
			t.Errorf("%s: %v", text, err)
		}
	}
	// What ships states nothing that a policy would make an exception for.
	c, err := agent.LoadCatalogue("")
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range c.Tools() {
		if tool.Steering.Effect != capability.UnknownEffect {
			t.Errorf("%s: %v", tool.Pattern, tool.Steering.Effect)
		}
	}
}

// What a call costs in a session where the person typed little, and as much as is
// kept.
func BenchmarkDecideSteered(b *testing.B) {
	for name, prompts := range map[string]int{"a prompt": 1, "as much as is kept": agent.MaxKept / 4096} {
		b.Run(name, func(b *testing.B) {
			g, _ := newSteered(b)
			for i := range prompts {
				typed(b, g, "s", fmt.Sprintf("%d. Send 'we agree' to ann@acme.example. %s", i, strings.Repeat("Be kind and brief. ", 4000/19)))
			}
			r := agent.Request{Session: "s", Tool: "send_mail", Arguments: json.RawMessage(`{"to":"ann@acme.example","text":"we agree"}`)}
			for b.Loop() {
				if v, err := g.Decide(b.Context(), r); err != nil || v.Outcome.Kind != capability.Allow {
					b.Fatal(v, err)
				}
			}
		})
	}
}
