package evaluator

import "testing"

// What a process pays before its first decision. A process is younger than
// this: its first New takes longer, and the pages of its heap are new too.
func BenchmarkNew(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := New(b.Context(), nil); err != nil {
			b.Fatal(err)
		}
	}
}
