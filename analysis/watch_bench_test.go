package analysis_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/opa-gate/opa-gate/analysis"
)

// A save of the rule that every call comes through, in the policies as they are
// and with the time that a round has by default.
func BenchmarkWatchRound(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "my")
	if _, err := analysis.Init(dir); err != nil {
		b.Fatal(err)
	}
	w, err := analysis.NewWatcher(dir, nil)
	if err != nil {
		b.Fatal(err)
	}
	watchRound(b, w)
	file := filepath.Join(dir, "gate", "call", "payments.rego")
	kinds, seconds, rounds := 0, 0.0, 0
	for b.Loop() {
		text := fmt.Sprintf("package gate.call\n\nasks_for_person if startswith(input.tool.name, \"pay_%d\")\n", rounds)
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			b.Fatal(err)
		}
		r := watchRound(b, w)
		if !r.OK || r.Quick.SameCalls {
			b.Fatal("the round was none")
		}
		kinds, seconds, rounds = kinds+r.Quick.Kinds, seconds+r.Seconds, rounds+1
	}
	b.ReportMetric(seconds/float64(rounds), "s/round")
	b.ReportMetric(float64(kinds)/float64(rounds), "kinds/round")
}
