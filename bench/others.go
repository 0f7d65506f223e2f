package main

import (
	"context"
	"encoding/json"
	"runtime"
	"sync"
	"time"

	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/util"

	"github.com/opa-gate/opa-gate/evaluator"
)

// jsonItems are the ways from the bytes of a call document to the bytes of the
// decision: reading it, deciding it, and writing the answer.
func jsonItems(ctx context.Context, auto *evaluator.Evaluator, doc *document) ([]*item, error) {
	stock, err := prepareOPA(ctx, goInput)
	if err != nil {
		return nil, err
	}
	engine := func(name string, e evaluator.Engine) *item {
		return &item{name: name, batch: batchOf(func() error {
			_, err := evaluator.DecideJSON(ctx, e, doc.text)
			return err
		})}
	}
	return []*item{
		engine(nativeName, evaluator.Native{}),
		engine(autoName, auto),
		engine(opaEachName, auto.Interpreter()),
		{name: goMapName, batch: batchOf(func() error {
			var v any
			if err := util.UnmarshalJSON(doc.text, &v); err != nil {
				return err
			}
			results, err := stock.query.Eval(ctx, rego.EvalInput(v))
			if err != nil {
				return err
			}
			decision, err := only(results)
			if err != nil {
				return err
			}
			_, err = json.Marshal(decision)
			return err
		})},
	}, nil
}

// activation measures what it takes to load, compile and prepare the embedded
// policies.
func activation(ctx context.Context) *item {
	return &item{n: 3, batch: timedBatchOf(wallTime, func() error {
		_, err := evaluator.New(ctx, nil)
		return err
	})}
}

// scaling returns how many times as many calls two goroutines decide as one
// does, in the same time on the wall: waiting for each other has to count. Of
// the rounds the best count, in which the machine left them most of itself.
func scaling(ctx context.Context, d decider, doc *document, perRound time.Duration) (float64, error) {
	var best [3]float64 // by the number of goroutines
	for range rounds {
		for goroutines := 1; goroutines <= 2; goroutines++ {
			calls, err := throughput(ctx, d, doc, goroutines, perRound)
			if err != nil {
				return 0, err
			}
			best[goroutines] = max(best[goroutines], calls)
		}
	}
	return best[2] / best[1], nil
}

// throughput returns how many calls a nanosecond so many goroutines decide.
func throughput(ctx context.Context, d decider, doc *document, goroutines int, span time.Duration) (float64, error) {
	const stride = 1000 // calls between two looks at the clock
	counts, errs := make([]int, goroutines), make([]error, goroutines)
	runtime.GC()
	var wg sync.WaitGroup
	start := time.Now()
	for g := range goroutines {
		wg.Go(func() {
			b, err := d.bind(ctx, doc) // here, so that no two share a cache line
			if err != nil {
				errs[g] = err
				return
			}
			count := 0
			for time.Since(start) < span {
				for range stride {
					if err := b.run(); err != nil {
						errs[g] = err
						return
					}
				}
				count += stride
			}
			counts[g] = count
		})
	}
	wg.Wait()
	spent := time.Since(start)
	total := 0
	for g := range goroutines {
		if errs[g] != nil {
			return 0, errs[g]
		}
		total += counts[g]
	}
	return float64(total) / float64(spent.Nanoseconds()), nil
}
