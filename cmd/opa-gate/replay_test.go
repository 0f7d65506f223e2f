package main

import (
	"reflect"
	"testing"

	"github.com/opa-gate/opa-gate/agent"
	"github.com/opa-gate/opa-gate/agent/replay"
	"github.com/opa-gate/opa-gate/agent/steering"
	"github.com/opa-gate/opa-gate/capability"
)

// What a trace leaves out, the catalogue states: profile, taint, what the finer rule
// needs, veto and grant.
func TestReplayOperator(t *testing.T) {
	c, err := agent.ParseCatalogue("c.toml", []byte(`
[tools.send]
origin = "first-party"
destructive = true
open_world = false
taints = true
effect = "outside"
aims = ["to"]
outside_if = ["x"]
veto = "No."
[tools.ask]
origin = "first-party"
requires_human = true
`))
	if err != nil {
		t.Fatal(err)
	}
	for tool, want := range map[string]replay.Tool{
		"send": {
			Profile:  capability.Profile{Origin: capability.FirstParty, Destructive: capability.Yes, OpenWorld: capability.No},
			Taints:   true,
			Steering: steering.Tool{Effect: capability.Outside, Aims: []string{"to"}, OutsideIf: []string{"x"}},
			Policy:   capability.CallPolicy{Vetoed: true, Veto: "No."},
		},
		"ask":     {Profile: capability.Profile{Origin: capability.FirstParty}, Policy: capability.CallPolicy{RequiresHuman: true}},
		"another": {},
	} {
		if got := operator(c).Tool(tool); !reflect.DeepEqual(got, want) {
			t.Errorf("%s is\n%+v, want\n%+v", tool, got, want)
		}
	}
	if got := operator(c).Tool("Read"); got.Profile.Origin != capability.LocalSandbox {
		t.Errorf("Read is %+v", got)
	}
}
