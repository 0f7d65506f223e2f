package agent_test

import (
	"testing"

	"github.com/opa-gate/opa-gate/agent"
	"github.com/opa-gate/opa-gate/capability"
)

// What a catalogue states goes over what is put under it, and neither changes
// the catalogue that it was put under.
func TestOver(t *testing.T) {
	stated, err := agent.ParseCatalogue("c.toml", []byte(`
[tools.mcp__files__read]
origin = "local-sandbox"
[tools."mcp__notes__*"]
origin = "first-party"
`))
	if err != nil {
		t.Fatal(err)
	}
	origin := func(o capability.Origin) capability.Profile { return capability.Profile{Origin: o} }
	c := stated
	for _, pattern := range []string{"mcp__files__*", "mcp__notes__*", "mcp__files__read", "mcp__files__send"} {
		c = c.Over(agent.Tool{Pattern: pattern, Profile: origin(capability.Fetcher)})
	}
	for tool, want := range map[string]capability.Origin{
		"mcp__files__read": capability.LocalSandbox, "mcp__notes__x": capability.FirstParty,
		"mcp__files__x": capability.Fetcher, "mcp__files__send": capability.Fetcher, "mcp__other__x": capability.Unknown,
	} {
		if got := c.Lookup(tool).Profile.Origin; got != want {
			t.Errorf("%s: got %v, want %v", tool, got, want)
		}
	}
	if got := stated.Lookup("mcp__files__x").Profile.Origin; got != capability.Unknown {
		t.Errorf("the catalogue was changed: %v", got)
	}
}
