package main

import (
	"os"
	"runtime/debug"
	"sync"
)

// The pace of the garbage collector: who is in a hurry, and the percentage
// that is in force when nobody is.
var pace struct {
	sync.Mutex
	hurried int
	usual   int
	limit   int64 // of memory, as it was
}

// hurriedMemory is from where on the collector does not wait: four times of a large
// heap are more than a machine may have.
const hurriedMemory = 1 << 30

// hurry lets the heap grow until end is called. At its usual pace the collector
// runs four times while policies are compiled, a fifth of the time of one
// decision, and frees what the process then ends without; a survey of policies
// makes garbage and little else. Whatever goes on for longer has the usual pace,
// so that its memory stays small. Whoever has set GOGC keeps it.
func hurry() (end func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	pace.Lock()
	defer pace.Unlock()
	if pace.hurried++; pace.hurried == 1 {
		pace.usual = debug.SetGCPercent(400)
		if pace.limit = debug.SetMemoryLimit(-1); pace.limit > hurriedMemory {
			debug.SetMemoryLimit(hurriedMemory)
		}
	}
	return sync.OnceFunc(func() {
		pace.Lock()
		defer pace.Unlock()
		if pace.hurried--; pace.hurried == 0 {
			debug.SetGCPercent(pace.usual)
			debug.SetMemoryLimit(pace.limit)
		}
	})
}
