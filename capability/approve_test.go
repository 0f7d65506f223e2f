package capability_test

import (
	"encoding/json"
	"testing"

	"github.com/opa-gate/opa-gate/capability"
)

// What an approval makes of an escalation, over every missing set, every coverage
// and every transform: the call goes on to step 4 if and only if each missing bit
// is covered.
func TestApproved(t *testing.T) {
	const nine = 512
	transforms := []struct {
		t    capability.Transform
		want capability.Kind
	}{
		{capability.Transform{}, capability.Allow},
		{capability.Transform{Kind: capability.Rewrite, Arguments: json.RawMessage(`{"n":1}`)}, capability.Modify},
		{capability.Transform{Kind: capability.InjectContext, Note: "n"}, capability.Inject},
		{capability.Transform{Kind: 3}, capability.Deny},
	}
	passed := 0
	for missing := range capability.Set(nine) {
		for coverage := range capability.Set(nine) {
			for _, tr := range transforms {
				o := capability.Outcome{Kind: capability.Escalate, Reason: "why", Missing: missing, Required: missing | 1, Granted: 30 &^ missing}
				got := o.Approved(coverage, tr.t)
				covered := true
				for bit := capability.Set(1); bit < nine; bit <<= 1 {
					covered = covered && (missing&bit == 0 || coverage&bit != 0)
				}
				if !covered {
					if got.Kind != o.Kind || got.Missing != missing || got.Reason != "why" || got.Required != o.Required || got.Granted != o.Granted || got.Arguments != nil || got.Note != "" {
						t.Fatalf("missing %d, coverage %d: %+v", missing, coverage, got)
					}
					continue
				}
				passed++
				if got.Kind != tr.want || got.Missing != 0 || got.Required != o.Required || got.Granted != o.Granted {
					t.Fatalf("missing %d, coverage %d: %+v", missing, coverage, got)
				}
				if string(got.Arguments) != string(tr.t.Arguments) || got.Note != tr.t.Note {
					t.Fatalf("missing %d, coverage %d: what the transform made is lost: %+v", missing, coverage, got)
				}
			}
		}
	}
	if want := 19683 * len(transforms); passed != want { // 3⁹ pairs of a set and a subset of it
		t.Errorf("%d passed, expected %d", passed, want)
	}
}

// No approval changes an outcome of another kind: a veto stays, and so does what
// was never decided.
func TestApprovedChangesNothingElse(t *testing.T) {
	for kind := range 256 {
		if capability.Kind(kind) == capability.Escalate {
			continue
		}
		for missing := range capability.Set(512) {
			o := capability.Outcome{Kind: capability.Kind(kind), Missing: missing, Reason: "a veto"}
			if got := o.Approved(0xffff, capability.Transform{}); !got.Equal(o) {
				t.Fatalf("kind %d becomes %+v", kind, got)
			}
		}
	}
	vetoed := capability.Decide(0, 0, capability.CallPolicy{Vetoed: true, RequiresHuman: true}, "t")
	if got := vetoed.Approved(0xffff, capability.Transform{}); got.Kind != capability.Deny {
		t.Errorf("an approval satisfies a veto: %+v", got)
	}
}
