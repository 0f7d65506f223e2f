package main

import (
	"time"

	"golang.org/x/sys/unix"
)

const threadClockIs = "ns/op is the time that the deciding thread had a processor"

// threadTime returns the processor time of this thread so far. On a machine
// with nothing else to do it passes like the time on the wall; on a busy one it
// leaves out what others take.
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err) // the only errors are of the arguments
	}
	return time.Duration(t.Nano())
}
