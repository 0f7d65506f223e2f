package main

import (
	"runtime/debug"
	"testing"
)

// Whoever is in a hurry stays so when another's hurry ends before.
func TestHurry(t *testing.T) {
	t.Setenv("GOGC", "")
	was := debug.SetGCPercent(100)
	defer debug.SetGCPercent(was)
	percent := func() int {
		p := debug.SetGCPercent(100)
		debug.SetGCPercent(p)
		return p
	}
	first, second := hurry(), hurry()
	if got := debug.SetMemoryLimit(-1); got != hurriedMemory {
		t.Errorf("in a hurry the limit is %d", got)
	}
	first()
	first()
	if got := percent(); got != 400 {
		t.Errorf("with one in a hurry: %d", got)
	}
	second()
	if got := percent(); got != 100 {
		t.Errorf("with nobody in a hurry: %d", got)
	}
	if got := debug.SetMemoryLimit(-1); got <= hurriedMemory {
		t.Errorf("with nobody in a hurry the limit is %d", got)
	}
	t.Setenv("GOGC", "50")
	defer hurry()()
	if got := percent(); got != 100 {
		t.Errorf("with a pace that was set: %d", got)
	}
}
