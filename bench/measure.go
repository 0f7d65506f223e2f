package main

import (
	"math"
	"runtime"
	"slices"
	"time"
)

// rounds is how often every item is measured. The items take turns, so that
// what else the machine does in the meantime hits all of them alike; of an
// item's rounds the median counts.
const rounds = 25

// A cost is what one decision costs.
type cost struct {
	Nanoseconds float64 `json:"ns"`
	Bytes       float64 `json:"bytes"`
	Allocations float64 `json:"allocations"`
}

// An item is one thing to be measured.
type item struct {
	name  string
	batch func(n int) (cost, error) // runs it n times, and gives the mean
	n     int                       // 0: as many as fill the time of a round
	cost  cost
}

// measure measures every item, each for about perItem in all.
func measure(items []*item, perItem time.Duration, progress func(round int)) error {
	for _, it := range items {
		if err := it.calibrate(perItem / rounds); err != nil {
			return err
		}
	}
	costs := make([][rounds]cost, len(items))
	for round := range rounds {
		progress(round + 1)
		for i := range items {
			if round%2 == 1 { // there and back: no item always follows the same one
				i = len(items) - 1 - i
			}
			var err error
			if costs[i][round], err = items[i].batch(items[i].n); err != nil {
				return err
			}
		}
	}
	for i, it := range items {
		it.cost = cost{
			Nanoseconds: median(costs[i][:], func(c cost) float64 { return c.Nanoseconds }),
			Bytes:       median(costs[i][:], func(c cost) float64 { return c.Bytes }),
			Allocations: median(costs[i][:], func(c cost) float64 { return c.Allocations }),
		}
	}
	return nil
}

// calibrate finds the n that fills a round. Of three tries the fastest counts:
// a pause of the machine must not pass for the cost of a short batch.
func (it *item) calibrate(round time.Duration) error {
	for n := 1; it.n == 0; n *= 4 {
		fastest := math.Inf(1)
		for range 3 {
			c, err := it.batch(n)
			if err != nil {
				return err
			}
			fastest = min(fastest, max(c.Nanoseconds, 1)) // a clock may have stood still
		}
		if fastest*float64(n) > float64(round)/8 {
			it.n = max(1, int(float64(round)/fastest))
		}
	}
	return nil
}

// batchOf returns the batch of something that is run again and again, by the
// clock of its thread.
func batchOf(run func() error) func(int) (cost, error) { return timedBatchOf(threadTime, run) }

var started = time.Now()

// wallTime is for what several threads do together.
func wallTime() time.Duration { return time.Since(started) }

func timedBatchOf(clock func() time.Duration, run func() error) func(int) (cost, error) {
	return func(n int) (cost, error) {
		var before, after runtime.MemStats
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		runtime.GC() // one item's garbage is not another's cost
		runtime.ReadMemStats(&before)
		start := clock()
		for range n {
			if err := run(); err != nil {
				return cost{}, err
			}
		}
		spent := clock() - start
		runtime.ReadMemStats(&after)
		return cost{
			Nanoseconds: float64(spent.Nanoseconds()) / float64(n),
			Bytes:       float64(after.TotalAlloc-before.TotalAlloc) / float64(n),
			Allocations: float64(after.Mallocs-before.Mallocs) / float64(n),
		}, nil
	}
}

// median returns the middle one of some figures, of two the upper.
func median[T any](all []T, figure func(T) float64) float64 {
	figures := make([]float64, len(all))
	for i, one := range all {
		figures[i] = figure(one)
	}
	slices.Sort(figures)
	return figures[len(figures)/2]
}
