package evaluator

import (
	"context"
	"testing"

	"github.com/opa-gate/opa-gate/capability"
)

// The two engines side by side, on the same calls.
func BenchmarkDecide(b *testing.B) {
	calls := []struct {
		name string
		call capability.Call
	}{
		{"allow", capability.Call{Tool: "read_file", Grant: capability.DefaultGrant(), Taint: capability.Clean,
			Profile: capability.Profile{Origin: capability.LocalSandbox, ReadOnly: capability.Yes}}},
		{"escalate", capability.Call{Tool: "web_fetch", Grant: capability.DefaultGrant(), Taint: capability.Tainted,
			Profile: capability.Profile{Origin: capability.Fetcher, Destructive: capability.No}}},
	}
	engines := []struct {
		name   string
		engine Engine
	}{{"native", Native{}}, {"opa", embedded(b)}}
	for _, c := range calls {
		for _, e := range engines {
			b.Run(c.name+"/"+e.name, func(b *testing.B) {
				ctx := context.Background()
				b.ReportAllocs()
				for b.Loop() {
					if _, err := e.engine.Decide(ctx, &c.call); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
