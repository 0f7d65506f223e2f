// Package race tells tests whether the race detector is on. It makes an
// evaluation ten times slower, and has pools of the standard library drop what
// was put into them, so that what costs no memory otherwise is allocated anew.
package race

import "testing"

// SkipSlow skips, under the race detector, a test that takes long in goroutines that
// others start in the same way, or in none: it finds nothing there that they do not.
func SkipSlow(t testing.TB) {
	t.Helper()
	if Enabled {
		t.Skip("it takes minutes under the race detector, which watches shorter ones of its kind; it runs without")
	}
}
