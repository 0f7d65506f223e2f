package main

import (
	"context"
	"fmt"
	"time"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/evaluator"
)

// coldCells is how many cells a round of the first-time row asks.
const coldCells = 64

// primer is asked of a new evaluator twice before the calls that are measured.
// It shares no cell with one, so each of them is still asked for the first
// time, of an evaluator that has what it makes once in its life.
const primer = `{"tool": {"name": "invite", "origin": "access-grant"}, "taint": "clean"}`

// A coldItem measures the first answer of a cell: OPA evaluates the policies
// for this call, as it does for every call of the rows named OPA, and then the
// cell is compiled, so that the next call of it is answered from the table.
// Each round has an evaluator of its own, which is not timed, and asks it many
// different cells that have the same answer.
type coldItem struct {
	item
	first, second []float64 // nanoseconds of each new evaluator's first two answers of all
}

func newColdItem(ctx context.Context, doc *document) (*coldItem, error) {
	prime, err := newDocument("primer", []byte(primer))
	if err != nil {
		return nil, err
	}
	calls := alike(doc.call)
	cold := &coldItem{item: item{name: coldName, n: len(calls)}}
	cold.batch = func(n int) (cost, error) {
		e, err := evaluator.New(ctx, nil)
		if err != nil {
			return cost{}, err
		}
		for _, times := range []*[]float64{&cold.first, &cold.second} {
			start := time.Now()
			if _, err := e.Decide(ctx, prime.call); err != nil {
				return cost{}, err
			}
			*times = append(*times, float64(time.Since(start).Nanoseconds()))
		}
		next := 0
		c, err := batchOf(func() error {
			_, err := e.Decide(ctx, calls[next])
			next++
			return err
		})(n)
		if stats := e.Stats(); err == nil && (stats.Compiled < n || stats.Evaluations < uint64(n)) {
			err = fmt.Errorf("the first time was not the first, or nothing came of it: %+v", stats)
		}
		return c, err
	}
	return cold, nil
}

// alike returns calls of different cells that require the same as c does, and
// are answered the same.
func alike(c *capability.Call) []*capability.Call {
	want := c.Decide("")
	var calls []*capability.Call
	for i := range 32 * 3 * 3 {
		one := *c
		one.Grant.Base, one.LeftOut = capability.Set(i/9), one.LeftOut&^capability.GrantMember
		one.Profile.OpenWorld = capability.Hint(i % 9 / 3)
		one.Profile.Destructive = capability.Hint(i % 3)
		o := one.Decide("")
		same := o.Kind == want.Kind && o.Missing == want.Missing && o.Required == want.Required
		if same && len(calls) < coldCells {
			calls = append(calls, &one)
		}
	}
	return calls
}
