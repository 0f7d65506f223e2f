//go:build !linux

package main

import "time"

const threadClockIs = "ns/op is the time on the wall"

// threadTime is the time on the wall where a thread's own cannot be had.
func threadTime() time.Duration { return wallTime() }
