package gateway

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opa-gate/opa-gate/evaluator"
)

// direct is a client of a fake server with nothing between.
func direct(b *testing.B, behaviour string) *rawClient {
	g, err := New(Config{Servers: []ServerConfig{fake("fake", behaviour, connector)}}, nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	conn, err := g.spawn(&g.config.Servers[0])
	if err != nil {
		b.Fatal(err)
	}
	line := conn.(*lineConn)
	b.Cleanup(func() { _ = line.Close() })
	return newRawClient(b, line.reader, line.writer)
}

// BenchmarkCall makes each call twice, with the gateway and without it, in turns.
// Added is the median of what the gateway adds.
func BenchmarkCall(b *testing.B) {
	for _, size := range []int{10, 10_000} {
		b.Run(fmt.Sprintf("arguments of %d bytes", size), func(b *testing.B) {
			without := direct(b, "good")
			with := benchGateway(b, "good").start()
			params := `{"name":"look","arguments":{"text":"` + strings.Repeat("x", size) + `"}}`
			without.hello(`{}`)
			with.hello(`{}`)
			for range 50 { // both are warm
				without.request("tools/call", params)
				with.request("tools/call", params)
			}
			var plain, gated, added []time.Duration
			for b.Loop() {
				start := time.Now()
				m := without.request("tools/call", params)
				middle := time.Now()
				n := with.request("tools/call", params)
				end := time.Now()
				if m.Error != nil || n.Error != nil || string(m.Result) != string(n.Result) {
					b.Fatalf("%s\n%s", m.line, n.line)
				}
				plain, gated = append(plain, middle.Sub(start)), append(gated, end.Sub(middle))
				added = append(added, end.Sub(middle)-middle.Sub(start))
			}
			b.ReportMetric(micros(plain), "µs-direct")
			b.ReportMetric(micros(gated), "µs-gateway")
			b.ReportMetric(micros(added), "µs-added")
		})
	}
}

func micros(d []time.Duration) float64 {
	slices.Sort(d)
	return float64(d[len(d)/2].Nanoseconds()) / 1e3
}

// benchGateway decides as the program does: with the Rego, and a ledger in a file.
func benchGateway(b *testing.B, behaviour string) *bench {
	out := newBenchOn(b, b.TempDir()+"/ledger.db", "", fake("fake", behaviour, connector))
	e, err := evaluator.New(b.Context(), nil)
	if err != nil {
		b.Fatal(err)
	}
	out.policy.Gate.Engine = e
	delete(out.config.Servers[0].Env, "EXECUTED") // the file would be most of the time
	return out
}

// BenchmarkInFlight has 200 calls in flight, each of which the server answers
// after 300 ms: one operation is all of them.
func BenchmarkInFlight(b *testing.B) {
	const calls = 200
	gate := benchGateway(b, "slow-each")
	c := gate.start()
	c.hello(`{}`)
	c.request("tools/list", `{}`)
	for b.Loop() {
		var calling sync.WaitGroup
		for range calls {
			calling.Go(func() {
				if m := c.call("look"); m.Error != nil {
					b.Errorf("%s", m.line)
				}
			})
		}
		calling.Wait()
	}
}
