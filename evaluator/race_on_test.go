//go:build race

package evaluator

// raceEnabled: the race detector makes an evaluation ten times slower.
const raceEnabled = true
