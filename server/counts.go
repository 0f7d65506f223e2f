package server

import (
	"bytes"

	"github.com/prometheus/client_golang/prometheus"
)

// counts are the gate's own metrics, beside those that OPA has of each request.
type counts struct {
	calls, skills, admissions map[string]prometheus.Counter // decisions by outcome
	refusals                  prometheus.Counter            // of changes of the policies
	gate                      *gate
	info                      *prometheus.Desc
}

// The outcomes that are counted: those of an answer, no answer, and whatever
// else there may be one day.
const (
	noAnswer = "error"
	another  = "other"
)

func newCounts(g *gate, to prometheus.Registerer) (*counts, error) {
	decisions := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "opa_gate_decisions_total",
		Help: "Documents that were put to /v1/gate/call, /v1/gate/admit and /v1/gate/skill, by what came of them.",
	}, []string{"api", "outcome"})
	of := func(api string, outcomes ...string) map[string]prometheus.Counter {
		counters := map[string]prometheus.Counter{}
		for _, outcome := range append(outcomes, noAnswer, another) {
			counters[outcome] = decisions.WithLabelValues(api, outcome)
		}
		return counters
	}
	c := &counts{
		calls:      of("call", "allow", "deny", "escalate", "modify", "inject_context"),
		skills:     of("skill", "allow", "deny"),
		admissions: of("admit", "allow", "deny", "escalate", "modify", "inject_context"),
		refusals: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "opa_gate_refused_total",
			Help: "Changes of the policies that were not let in.",
		}),
		gate: g,
		info: prometheus.NewDesc("opa_gate_policies_info", "The bundles that decide; none if nothing does.", []string{"bundle", "revision"}, nil),
	}
	for _, collector := range []prometheus.Collector{decisions, c.refusals, c} {
		if err := to.Register(collector); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Describe implements prometheus.Collector.
func (c *counts) Describe(to chan<- *prometheus.Desc) { to <- c.info }

// Collect implements prometheus.Collector.
func (c *counts) Collect(to chan<- prometheus.Metric) {
	p := c.gate.active.Load()
	if p == nil {
		return
	}
	for name, b := range p.bundles {
		if m, err := prometheus.NewConstMetric(c.info, prometheus.GaugeValue, 1, name, b.Revision); err == nil { // not UTF-8
			to <- m
		}
	}
}

// count counts one answer; nil is none.
func count(counters map[string]prometheus.Counter, answer []byte) {
	outcome := []byte(noAnswer)
	if answer != nil {
		_, rest, _ := bytes.Cut(answer, []byte(`"outcome":"`)) // before it there is no text of anybody's
		outcome, _, _ = bytes.Cut(rest, []byte{'"'})
	}
	counter, ok := counters[string(outcome)]
	if !ok {
		counter = counters[another]
	}
	counter.Inc()
}
