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
func jsonItems(ctx context.Context, auto evaluator.Engine, doc *document) ([]*item, error) {
	stock, err := prepareOPA(ctx, goInput)
	if err != nil {
		return nil, err
	}
	gateway := func(name string, e evaluator.Engine) *item {
		return &item{name: name, batch: batchOf(func() error {
			_, err := evaluator.Documents{Engine: e}.Call(ctx, doc.text)
			return err
		})}
	}
	return []*item{
		gateway(nativeName, evaluator.Native{}),
		gateway(autoName, auto),
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
	return &item{n: 3, batch: batchOf(func() error {
		_, err := evaluator.New(ctx, nil)
		return err
	})}
}

// scaling returns how many times as many calls two goroutines decide as one
// does, in the same time.
func scaling(ctx context.Context, d decider, doc *document, perRound time.Duration) (float64, error) {
	ratios := make([]float64, rounds)
	for i := range ratios {
		one, err := throughput(ctx, d, doc, 1, perRound)
		if err != nil {
			return 0, err
		}
		two, err := throughput(ctx, d, doc, 2, perRound)
		if err != nil {
			return 0, err
		}
		ratios[i] = two / one
	}
	return median(ratios, func(f float64) float64 { return f }), nil
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
