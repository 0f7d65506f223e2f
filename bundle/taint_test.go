package bundle_test

import (
	"fmt"
	"io/fs"
	"os"
	"testing"

	"github.com/opa-gate/opa-gate/bundle"
	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/internal/race"
	"github.com/opa-gate/opa-gate/optional"
	"github.com/opa-gate/opa-gate/policies"
)

// The rules on taint are no entrypoints, and come along however a bundle of Rego is optimized.
func TestBuildKeepsTheRulesOnTaint(t *testing.T) {
	race.SkipSlow(t)
	steering, err := optional.FS(optional.Steering)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, tree := range []fs.FS{policies.FS(), steering} {
		if err := os.CopyFS(dir, tree); err != nil {
			t.Fatal(err)
		}
	}
	for _, opts := range []bundle.BuildOptions{{Dir: dir}, {Dir: dir, Optimize: 1}, {Dir: dir, Optimize: 2}} {
		t.Run(fmt.Sprintf("-O %d", opts.Optimize), func(t *testing.T) {
			built, err := bundle.Build(t.Context(), &opts)
			if err != nil {
				t.Fatal(err)
			}
			e, err := evaluator.New(t.Context(), &evaluator.Options{Packed: built.Bytes})
			if err != nil {
				t.Fatal(err)
			}
			if !e.JudgesResults() || !e.Steers() {
				t.Fatalf("the rule on results is there: %v, that on steering: %v", e.JudgesResults(), e.Steers())
			}
			for _, origin := range capability.Origins() {
				for hint := range capability.Hint(3) {
					p := capability.Profile{Origin: origin, OpenWorld: hint}
					r := &capability.Result{Tool: "read", Profile: p, Untrusted: hint}
					if got, err := e.ResultTaints(t.Context(), r); err != nil || got != r.Taints() {
						t.Errorf("%+v taints: %v, %v", r, got, err)
					}
					for _, payload := range capability.Payloads() {
						s := &capability.Steering{Session: capability.Tainted, Tool: "send", Profile: p,
							Effect: capability.Outside, Aim: capability.TypedAim, Payload: payload}
						if got, err := e.CallTaint(t.Context(), s); err != nil || got != s.Seen(capability.AllRelaxations) {
							t.Errorf("%+v sees %v, %v", s, got, err)
						}
					}
				}
			}
		})
	}
}
