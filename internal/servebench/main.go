// Servebench measures opa-gate serve beside an unchanged OPA with the same
// policies, in one run on one machine: the same documents over as many
// connections, in rounds that take turns.
//
//	go run ./internal/servebench
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/opa-gate/opa-gate/bundle"
	"github.com/opa-gate/opa-gate/internal/stockopa"
)

// What a run is held against. An aim that is missed is said, and no failure: the
// figures of a busy machine are none.
const (
	aimSingle = 3
	aimBatch  = 20
)

// batchSize is how many documents an array has.
const batchSize = 100

func main() {
	connections := flag.Int("connections", 8, "connections at the same time")
	rounds := flag.Int("rounds", 3, "rounds of each way")
	round := flag.Duration("round", 2*time.Second, "how long a round takes")
	only := flag.String("only", "", "measure this way alone, to profile it: stock, gate or batch")
	flag.Parse()
	if err := run(context.Background(), *connections, *rounds, *round, *only); err != nil {
		fmt.Fprintln(os.Stderr, "servebench:", err)
		os.Exit(1)
	}
}

// A way is one of those that documents are put in.
type way struct {
	name     string
	server   *process
	requests [][]byte
	each     int // documents of a request

	rates     []float64 // documents a second, by round
	latencies []time.Duration
}

func run(ctx context.Context, connections, rounds int, round time.Duration, only string) (err error) {
	dir, err := os.MkdirTemp("", "servebench")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	stock, gate, err := start(ctx, dir)
	defer func() {
		for _, p := range []*process{stock, gate} {
			if p != nil {
				p.stop()
			}
		}
	}()
	if err != nil {
		return err
	}
	docs := documents()
	if err := agree(docs, stock, gate); err != nil {
		return err
	}
	time.Sleep(2 * time.Second)
	rest := [2]int{stock.memory(), gate.memory()}
	ways := []*way{
		{name: "stock", server: stock, each: 1},
		{name: "gate", server: gate, each: 1},
		{name: "batch", server: gate, each: batchSize},
	}
	for i, doc := range docs {
		ways[0].requests = append(ways[0].requests, request("/v1/data/gate/call/decision", `{"input":`+doc+`}`))
		ways[1].requests = append(ways[1].requests, request("/v1/gate/call", doc))
		array := []byte{'['}
		for j := range batchSize {
			array = append(append(array, docs[(i+j)%len(docs)]...), ',')
		}
		array[len(array)-1] = ']'
		ways[2].requests = append(ways[2].requests, request("/v1/gate/call", string(array)))
	}
	for i := range rounds + 1 { // the first one warms up
		for _, w := range ways {
			if only != "" && only != w.name {
				continue
			}
			if err := w.measure(connections, round, i > 0); err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
		}
	}
	if only == "" {
		time.Sleep(3 * time.Second)
		report(ways, rest, [2]int{stock.memory(), gate.memory()}, connections, rounds, round)
	}
	return nil
}

// start builds and starts both servers.
func start(ctx context.Context, dir string) (stock, gate *process, err error) {
	opa, err := stockopa.Program()
	if err != nil {
		return nil, nil, err
	}
	built, err := bundle.Build(ctx, nil)
	if err != nil {
		return nil, nil, err
	}
	policies, program := filepath.Join(dir, "bundle.tar.gz"), filepath.Join(dir, "opa-gate")
	if err := os.WriteFile(policies, built.Bytes, 0o600); err != nil {
		return nil, nil, err
	}
	compile := exec.CommandContext(ctx, "go", "build", "-o", program, "github.com/opa-gate/opa-gate/cmd/opa-gate")
	compile.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := compile.CombinedOutput(); err != nil {
		return nil, nil, fmt.Errorf("go build: %w: %s", err, bytes.TrimSpace(out))
	}
	if stock, err = launch(opa, "run", "--server", "--log-level", "error", "--disable-telemetry", "--bundle", policies); err != nil {
		return nil, nil, err
	}
	gate, err = launch(program, "serve", "--log-level", "error")
	return stock, gate, err
}

func report(ways []*way, rest, loaded [2]int, connections, rounds int, round time.Duration) {
	fmt.Printf("%d connections, %d rounds of %v each, taking turns; medians\n\n", connections, rounds, round)
	fmt.Printf("%-42s %12s %12s %10s %10s\n", "", "requests/s", "decisions/s", "p50 µs", "p99 µs")
	names := []string{"stock OPA, /v1/data/gate/call/decision", "opa-gate serve, /v1/gate/call", fmt.Sprintf("opa-gate serve, arrays of %d", batchSize)}
	rates := make([]float64, len(ways))
	for i, w := range ways {
		slices.Sort(w.rates)
		slices.Sort(w.latencies)
		rates[i] = w.rates[len(w.rates)/2]
		fmt.Printf("%-42s %12.0f %12.0f %10d %10d\n", names[i], rates[i]/float64(w.each), rates[i],
			w.latencies[len(w.latencies)/2].Microseconds(), w.latencies[len(w.latencies)*99/100].Microseconds())
	}
	fmt.Println()
	ratio := func(what string, got, aim float64) {
		said := "met"
		if got < aim {
			said = "MISSED"
		}
		fmt.Printf("%-42s %12.1f × stock OPA; aim %.0f ×: %s\n", what, got, aim, said)
	}
	ratio("decisions/s, one a request", rates[1]/rates[0], aimSingle)
	ratio("decisions/s, in arrays", rates[2]/rates[0], aimBatch)
	said := "met"
	if rest[1] > rest[0] {
		said = "MISSED"
	}
	fmt.Printf("%-42s %9.1f MiB, stock OPA %.1f MiB; aim no more: %s\n", "memory at rest", mib(rest[1]), mib(rest[0]), said)
	fmt.Printf("%-42s %9.1f MiB, stock OPA %.1f MiB\n", "memory after the load", mib(loaded[1]), mib(loaded[0]))
}

func mib(kib int) float64 { return float64(kib) / 1024 }
