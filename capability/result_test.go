package capability_test

import (
	"slices"
	"testing"

	. "github.com/opa-gate/opa-gate/capability"
)

// Wants by hand from the specification, section 2: a result taints if its tool is
// open_world, which a tool is that does not say otherwise, if its origin is unknown
// or a fetcher, or if the operator says so.
func TestResultTaints(t *testing.T) {
	tainting := []Origin{Unknown, Fetcher, 9, 255}
	for _, origin := range append(Origins(), 9, 255) {
		for readOnly := range Hint(3) {
			for destructive := range Hint(3) {
				for openWorld := range Hint(4) {
					for untrusted := range Hint(4) {
						r := Result{"read", Profile{origin, readOnly, destructive, openWorld}, untrusted}
						want := slices.Contains(tainting, origin) || openWorld != No || untrusted == Yes || untrusted == 3
						if got := r.Taints(); got != want {
							t.Errorf("%+v taints: %v, want %v", r, got, want)
						}
					}
				}
			}
		}
	}
	if !(&Result{}).Taints() {
		t.Error("the zero result does not taint")
	}
}
