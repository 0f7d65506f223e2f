package gateway

import (
	"encoding/json"
	"io/fs"
	"testing"

	"github.com/opa-gate/opa-gate/agent"
	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/optional"
)

// A gateway sees no prompts, so nothing is typed: what can be undone is let go in a
// tainted conversation, what goes out is asked about, whoever it goes to.
func TestSteeringWithoutPrompts(t *testing.T) {
	tree, err := optional.FS(optional.Steering)
	if err != nil {
		t.Fatal(err)
	}
	e, err := evaluator.New(t.Context(), &evaluator.Options{With: []fs.FS{tree}})
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, `
[tools.mcp__fake__note]
origin = "registered-connector"
open_world = false
effect = "own-undoable"
[tools.mcp__fake__send]
origin = "registered-connector"
open_world = false
effect = "outside"
aims = ["to"]
`, fake("fake", "good", connector))
	g := b.policy.Gate
	g.Engine, g.Tainter, g.Steers = e, e, e.Steers()
	if err := b.policy.Begin(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Sessions.Taint(t.Context(), "s", agent.Source{Why: agent.Ended, Tool: "x"}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		tool, arguments string
		want            capability.Kind
	}{
		{"note", `{"text":"anything"}`, capability.Allow},
		{"send", `{"to":"ann@acme.example","text":"we agree"}`, capability.Escalate},
		{"send", `{"text":""}`, capability.Escalate},
		{"send", `{}`, capability.Escalate},
		{"other", `{}`, capability.Escalate},
	} {
		c := &Call{Session: "s", ID: tt.tool + tt.arguments, Server: "fake", Tool: tt.tool, Arguments: json.RawMessage(tt.arguments)}
		c.Profile = b.policy.Profile("fake", tt.tool, capability.Profile{})
		v, err := b.policy.Decide(t.Context(), c)
		if err != nil || v.Outcome.Kind != tt.want {
			t.Errorf("%s %s: %v, %v, want %v", tt.tool, tt.arguments, v.Outcome.Kind, err, tt.want)
		}
	}
}
