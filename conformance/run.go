package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/fixtures"
)

// An Engine is something that decides, as a run asks it.
type Engine struct {
	Name    string // what reports call it; no two engines of a run share one
	Judge   fixtures.Judge
	Rounds  int  // how often it is asked each case; less than 1 is once
	Workers int  // how many cases it is asked at the same time; less than 1 is one
	Outside bool // it decides calls and skills and nothing else: see the package comment
}

// Of returns an engine of this program, which is asked each case so many times.
func Of(engine evaluator.Engine, name string, rounds int) Engine {
	return Engine{Name: name, Judge: evaluator.Documents{Engine: engine}, Rounds: rounds}
}

// A status is how an engine did in one case.
type status uint8

const (
	unjudged status = iota // the run ended before
	same
	different
	known    // different, and the baseline has the reason
	notAsked // such an engine cannot be asked
)

// An answer is what became of one case and one engine.
type answer struct {
	status status
	got    json.RawMessage
	why    string // the reason of a known gap, or why it was not asked
	again  bool   // the first answer was right
}

// The reasons why an engine is not asked.
const (
	whyDecides = "this engine decides calls and skills only"
	whyNoJSON  = "a text that the gate's reader refuses before its schema cannot stand in a request to this engine"
)

// maxSilence is how many questions in a row an engine may leave unanswered
// before it is asked no more.
const maxSilence = 5

// run asks one engine every case, in order, and returns an answer for each.
// Stopped says why some are not judged.
func (e *Engine) run(ctx context.Context, cases []entry) (answers []answer, stopped string) {
	answers = make([]answer, len(cases))
	for round := range max(e.Rounds, 1) {
		if stopped = e.round(ctx, cases, answers, round > 0); stopped != "" {
			break
		}
	}
	return answers, stopped
}

// round asks every case once. A case that has failed stays failed.
func (e *Engine) round(ctx context.Context, cases []entry, answers []answer, again bool) string {
	inner, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var (
		next    atomic.Int64
		silence atomic.Int64
		workers sync.WaitGroup
	)
	for range max(e.Workers, 1) {
		workers.Go(func() {
			for inner.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(cases) {
					return
				}
				now, err := e.ask(inner, &cases[i])
				if inner.Err() != nil && err != nil {
					return // the answer is that the run has ended
				}
				if errors.Is(err, ErrNoAnswer) {
					if n := silence.Add(1); n >= maxSilence {
						stop(fmt.Errorf("%d questions in a row had no answer, the last one: %w", n, err))
					}
				} else if now.status != notAsked {
					silence.Store(0)
				}
				if was := answers[i].status; !again || was == unjudged {
					answers[i] = now
				} else if was == same && now.status == different {
					now.again = true
					answers[i] = now
				}
			}
		})
	}
	workers.Wait()
	if cause := context.Cause(inner); cause != nil {
		return cause.Error()
	}
	return ""
}

// ask puts one case to the engine. The error is the engine's last one.
func (e *Engine) ask(ctx context.Context, c *entry) (answer, error) {
	j := &listener{Judge: e.Judge}
	if e.Outside {
		switch c.kind {
		case fixtures.Names, fixtures.Viability:
			return answer{status: notAsked, why: whyDecides}, nil
		case fixtures.Invalid:
			return refuses(ctx, j, c), j.err
		}
	}
	got, ok := c.Put(ctx, c.kind, j)
	return judged(got, ok), j.err
}

func judged(got json.RawMessage, ok bool) answer {
	if ok {
		return answer{status: same, got: got}
	}
	return answer{status: different, got: got}
}

// refuses puts a broken document to an engine as it is. The engine must deny it
// and name the place in the reason, or refuse it as a bad request.
func refuses(ctx context.Context, j *listener, c *entry) answer {
	broken := fixtures.Suite{Files: []fixtures.File{{Name: c.file, Kind: c.kind, Cases: []fixtures.Case{c.Case}}}}.InvalidCases()[0]
	if broken.Fault != "schema" {
		return answer{status: notAsked, why: whyNoJSON}
	}
	ask := j.Call
	if broken.Document == fixtures.Skill {
		ask = j.Skill
	}
	got, err := ask(ctx, []byte(broken.Text))
	switch {
	case errors.Is(err, ErrBadRequest):
		return answer{status: same, got: errorText(err)}
	case err != nil:
		return answer{status: different, got: errorText(err)}
	case !json.Valid(got):
		return answer{status: different, got: errorText(errors.New("the answer is not JSON"))}
	}
	var decision struct {
		Outcome     string
		Reason      string
		Enforcement *struct{ Deploy, Blocked *bool }
	}
	if json.Unmarshal(got, &decision) != nil || decision.Outcome != "deny" || !strings.Contains(decision.Reason, place(broken.Pointer)) {
		return answer{status: different, got: got}
	}
	if broken.Document == fixtures.Skill {
		f := decision.Enforcement
		if f == nil || f.Deploy == nil || *f.Deploy || f.Blocked == nil || !*f.Blocked {
			return answer{status: different, got: got}
		}
	}
	return answer{status: same, got: got}
}

// place is how the reason of a denial names where a document is broken.
func place(pointer string) string {
	if pointer == "" {
		return " document breaks its schema: "
	}
	return " document breaks its schema at " + pointer + ": "
}

func errorText(err error) json.RawMessage {
	text, _ := json.Marshal(map[string]string{"error": err.Error()}) // a map of texts cannot fail
	return text
}

// A listener is a judge whose last error is kept.
type listener struct {
	fixtures.Judge
	err error
}

func (l *listener) Call(ctx context.Context, doc []byte) ([]byte, error) {
	got, err := l.Judge.Call(ctx, doc)
	l.err = err
	return got, err
}

func (l *listener) Skill(ctx context.Context, doc []byte) ([]byte, error) {
	got, err := l.Judge.Skill(ctx, doc)
	l.err = err
	return got, err
}

// An entry is a case and where it stands.
type entry struct {
	fixtures.Case
	file string
	kind fixtures.Kind
}

func entries(s fixtures.Suite) []entry {
	all := make([]entry, 0, s.Len())
	for _, f := range s.Files {
		for _, c := range f.Cases {
			all = append(all, entry{c, f.Name, f.Kind})
		}
	}
	return all
}

// Run puts every case of the suite to every engine, one engine after the other,
// and holds their answers against the wanted ones and against what the baseline
// knows; it may be nil. The suite must come from [fixtures.Load] or
// [fixtures.LoadPaths].
func Run(ctx context.Context, suite fixtures.Suite, baseline *Baseline, engines ...Engine) *Report {
	r := &Report{cases: entries(suite)}
	var kinds []fixtures.Kind
	for _, k := range fixtures.Kinds() {
		if slices.ContainsFunc(suite.Files, func(f fixtures.File) bool { return f.Kind == k }) {
			kinds = append(kinds, k)
		}
	}
	for i := range engines {
		answers, stopped := engines[i].run(ctx, r.cases)
		r.Engines = append(r.Engines, EngineReport{Engine: engines[i].Name, Stopped: stopped, answers: answers})
	}
	r.Baseline = baseline.apply(r)
	r.count(kinds)
	return r
}
