package conformance

import (
	"encoding/json"
	"io"
	"slices"

	"github.com/opa-gate/opa-gate/fixtures"
)

// A Report is what engines answered to the cases of a suite. It is JSON as it
// stands. The zero Report is not OK.
type Report struct {
	OK      bool           `json:"ok"` // every engine is, and no entry of the baseline is disproved
	Engines []EngineReport `json:"engines"`
	// Cases are those that some engine answered otherwise, with what each of
	// several engines said.
	Cases    []Comparison    `json:"cases,omitempty"`
	Baseline *BaselineReport `json:"baseline,omitempty"` // nil without a baseline

	cases []entry
}

// An EngineReport is how one engine did.
type EngineReport struct {
	Engine      string       `json:"engine"`
	OK          bool         `json:"ok"`
	Total       int          `json:"total"`  // cases that were judged
	Failed      int          `json:"failed"` // of them, without the known gaps
	Counts      []Count      `json:"counts"` // one for each kind in the suite
	Stopped     string       `json:"stopped,omitempty"`
	Differences []Difference `json:"differences"`
	Known       []Difference `json:"known,omitempty"`     // known gaps
	NotAsked    []NotAsked   `json:"not_asked,omitempty"` // what such an engine cannot be asked

	answers []answer // one for each case of the report
}

// A Count is how the cases of one kind went.
type Count struct {
	Kind     fixtures.Kind `json:"kind"`
	Total    int           `json:"total"`  // cases that were judged
	Failed   int           `json:"failed"` // of them, without the known gaps
	Known    int           `json:"known,omitempty"`
	NotAsked int           `json:"not_asked,omitempty"`
}

// A Difference is a case that an engine answered otherwise than is wanted.
type Difference struct {
	fixtures.Difference
	Again  bool   `json:"again,omitempty"`  // the first answer was right
	Reason string `json:"reason,omitempty"` // of a known gap
}

// NotAsked says how many cases of a kind an engine was not asked, and why.
type NotAsked struct {
	Kind  fixtures.Kind `json:"kind"`
	Cases int           `json:"cases"`
	Why   string        `json:"why"`
}

// A Comparison is one case and what each engine answered.
type Comparison struct {
	File    string          `json:"file"`
	Case    string          `json:"case"`
	Kind    fixtures.Kind   `json:"kind"`
	Input   json.RawMessage `json:"input"`
	Want    json.RawMessage `json:"want"`
	Answers []Answer        `json:"answers"` // in the order of the engines
}

// An Answer is what one engine said to a case.
type Answer struct {
	Engine string          `json:"engine"`
	Same   bool            `json:"same"`
	Got    json.RawMessage `json:"got,omitempty"`    // left out if there is none
	Known  string          `json:"known,omitempty"`  // the reason, if it is a known gap
	Absent string          `json:"absent,omitempty"` // why there is no answer
}

// whyUnjudged is why there is no answer to a case that the run did not come to.
const whyUnjudged = "the run ended before"

// count fills in what follows from the answers.
func (r *Report) count(kinds []fixtures.Kind) {
	r.OK = len(r.Engines) > 0 && (r.Baseline == nil || len(r.Baseline.Stale) == 0)
	for i := range r.Engines {
		r.Engines[i].count(kinds, r.cases)
		r.OK = r.OK && r.Engines[i].OK
	}
	if len(r.Engines) < 2 {
		return
	}
	for i := range r.cases {
		if !slices.ContainsFunc(r.Engines, func(e EngineReport) bool {
			return e.answers[i].status == different || e.answers[i].status == known
		}) {
			continue
		}
		r.Cases = append(r.Cases, r.compare(i))
	}
}

// compare returns what each engine said to one case.
func (r *Report) compare(i int) Comparison {
	c := &r.cases[i]
	out := Comparison{File: c.file, Case: c.Name, Kind: c.kind, Input: c.Input, Want: c.Want}
	for _, e := range r.Engines {
		a := e.answers[i]
		one := Answer{Engine: e.Engine, Same: a.status == same, Got: a.got}
		switch a.status {
		case known:
			one.Known = a.why
		case notAsked:
			one.Absent = a.why
		case unjudged:
			one.Absent = whyUnjudged
		}
		out.Answers = append(out.Answers, one)
	}
	return out
}

func (e *EngineReport) count(kinds []fixtures.Kind, cases []entry) {
	e.Differences = []Difference{}
	e.OK = e.Stopped == "" && len(kinds) > 0
	asked := false
	for _, kind := range kinds {
		n := Count{Kind: kind}
		for i := range cases {
			if cases[i].kind != kind {
				continue
			}
			switch e.answers[i].status {
			case same:
				n.Total++
			case different:
				n.Total++
				n.Failed++
			case known:
				n.Total++
				n.Known++
			case notAsked:
				n.NotAsked++
				e.leaveOut(kind, e.answers[i].why)
			}
		}
		// A kind of which nothing ran proves nothing.
		e.OK = e.OK && n.Failed == 0 && n.Total+n.NotAsked > 0
		asked = asked || n.Total > 0
		e.Total += n.Total
		e.Failed += n.Failed
		e.Counts = append(e.Counts, n)
	}
	e.OK = e.OK && asked
	for _, again := range []bool{false, true} { // what failed at once comes first
		for i := range cases {
			a, c := e.answers[i], &cases[i]
			if a.again != again {
				continue
			}
			d := Difference{fixtures.Difference{File: c.file, Case: c.Name, Kind: c.kind, Input: c.Input, Want: c.Want, Got: a.got}, again, ""}
			switch a.status {
			case different:
				e.Differences = append(e.Differences, d)
			case known:
				d.Reason = a.why
				e.Known = append(e.Known, d)
			}
		}
	}
}

func (e *EngineReport) leaveOut(kind fixtures.Kind, why string) {
	for i := range e.NotAsked {
		if n := &e.NotAsked[i]; n.Kind == kind && n.Why == why {
			n.Cases++
			return
		}
	}
	e.NotAsked = append(e.NotAsked, NotAsked{kind, 1, why})
}

// WriteJSON writes the report as one line of JSON.
func (r *Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(r)
}
