package analysis

import (
	"bytes"
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/skill"
)

// VerifyOptions say what a verification holds answers against besides the
// invariants of the specification.
type VerifyOptions struct {
	Native   bool                  // every answer must be that of the native reference
	System   string                // what sentences for a person call the system; the reference uses the same name
	Progress func(done, total int) // called now and then, one call after the other, if it is not nil; done never falls, nor exceeds total
}

// A Verification is the invariants held against every answer that policies can
// give.
type Verification struct {
	Calls      int         `json:"calls"`     // inputs that were looked at
	Skills     int         `json:"skills"`    // the same of skills
	Named      int         `json:"named"`     // of calls whose grant has a name that grants nothing: a sample, besides
	Arguments  int         `json:"arguments"` // of calls with arguments that rules look for: a sample, besides
	Results    int         `json:"results"`   // of results, if a rule tells which taint
	Steering   int         `json:"steering"`  // of what is known of a call, if a rule tells whether it sees the taint
	Invariants []Invariant `json:"invariants"`

	// Incomplete lists the uses of texts, and of what changes by itself, because of
	// which the verdict does not cover every text: where one is met, it covers the
	// texts that the policies mention, and some made from them. Those in the author's
	// own invariants are among them; of one about skills alone, Cells is 0.
	Incomplete []evaluator.Blocker `json:"incomplete"`
}

// OK reports whether every invariant holds.
func (v *Verification) OK() bool {
	return !slices.ContainsFunc(v.Invariants, func(i Invariant) bool { return i.Breach != nil })
}

// Complete reports whether the verdict covers every text: Incomplete is empty.
func (v *Verification) Complete() bool { return len(v.Incomplete) == 0 }

// An Invariant is something that no answer may break.
type Invariant struct {
	Name   string  `json:"name"`           // stays the same from version to version, such as veto-first; gate.invariants is the policies' own
	Title  string  `json:"title"`          // the invariant as a sentence
	File   string  `json:"file,omitempty"` // of a rule of gate.invariants
	Line   int     `json:"line,omitempty"`
	Breach *Breach `json:"breach,omitempty"` // nil: it holds for every input
}

// A Breach shows that an invariant does not hold.
type Breach struct {
	Problem  string          `json:"problem"`  // what is wrong, in words
	Inputs   int             `json:"inputs"`   // how many inputs show it
	Document json.RawMessage `json:"document"` // the smallest of them
	Answer   json.RawMessage `json:"answer"`   // or {"error": TEXT}

	// Against is the input that Document is held against, where an invariant
	// compares two.
	Against       json.RawMessage `json:"against,omitempty"`
	AgainstAnswer json.RawMessage `json:"against_answer,omitempty"`

	Rules []Place `json:"rules"` // that gave the answers, and the invariant itself if it is a rule
	Test  string  `json:"test"`  // a Rego test that fails until it is mended
}

// A finding collects the breaches of one invariant.
type finding struct {
	mu       sync.Mutex
	inputs   int
	problem  string
	document json.RawMessage
	call     *capability.Call
	request  *skill.Request
	against  *answered
	answer   json.RawMessage
}

// add adds a breach; the smallest document stays.
func (f *finding) add(problem string, doc json.RawMessage, keep func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inputs++
	if f.document == nil || smaller(doc, f.document) {
		f.problem, f.document = problem, doc
		keep()
	}
}

// merge adds the breaches of another finding.
func (f *finding) merge(other *finding) {
	inputs := f.inputs + other.inputs
	if f.document == nil || smaller(other.document, f.document) {
		f.problem, f.document, f.call, f.request = other.problem, other.document, other.call, other.request
		f.against, f.answer = other.against, other.answer
	}
	f.inputs = inputs
}

// smaller reports whether a document is shown rather than another one.
func smaller(a, b json.RawMessage) bool {
	return len(a) < len(b) || len(a) == len(b) && bytes.Compare(a, b) < 0
}

// Verify holds the invariants against the answers of e over the whole domain
// (specification, section 5; the finite part of section 6). Calls are covered
// for all texts but where Incomplete says otherwise; names in a grant that grant
// nothing, which are no part of a kind of call, and arguments that rules look into, by a sample of calls. The error is that of ctx, or
// one that matches evaluator.ErrPolicy.
func Verify(ctx context.Context, e *evaluator.Evaluator, opts *VerifyOptions) (*Verification, error) {
	if opts == nil {
		opts = &VerifyOptions{}
	}
	m := newMeter(opts.Progress, surveyWeight+verifyWeight)
	survey, err := e.Survey(ctx, m.phase(surveyWeight))
	if err != nil {
		return nil, err
	}
	return (&verifier{evaluator: e, survey: survey, answers: survey, named: true, opts: opts, meter: m}).verify(ctx)
}

// What parts of the work take, about: a survey is the most of it, unless an author's
// invariants look at texts.
const (
	surveyWeight        = 12
	callsWeight         = 4
	redeclarationWeight = 1
	skillsWeight        = 1
	taintWeight         = 1
	authoredWeight      = 6
	verifyWeight        = callsWeight + redeclarationWeight + skillsWeight + taintWeight + authoredWeight + skillsWeight
)

// verify runs all checks.
func (v *verifier) verify(ctx context.Context) (*Verification, error) {
	v.result = &Verification{Incomplete: slices.Clone(v.survey.Incomplete)}
	if v.requests == nil {
		v.requests = skillRequests()
	}
	if v.result.Incomplete == nil {
		v.result.Incomplete = []evaluator.Blocker{}
	}
	for _, step := range []func(context.Context) error{v.calls, v.redeclarations, v.skills, v.taint, v.authored} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return v.result, nil
}

type verifier struct {
	evaluator *evaluator.Evaluator
	survey    *evaluator.Survey // for the texts, and the calls with them
	answers   answers           // the survey, but for tests
	kinds     []int             // all of them if it is nil, which it is but in tests
	requests  []skill.Request   // the same
	named     bool              // whether calls with names that grant nothing are looked at: but in tests, they are
	arguments argumentCalls     // with arguments that rules look for
	opts      *VerifyOptions
	meter     *meter // nil: nobody asks
	result    *Verification
}

// answers are what policies answer to calls.
type answers interface {
	// Exact reports whether one answer stands for all texts of the calls of a kind.
	Exact(n int) bool
	Decide(ctx context.Context, c *capability.Call) (capability.Outcome, error)
}

// ask answers a call of the survey.
func (v *verifier) ask(ctx context.Context, c *capability.Call) answered {
	o, err := v.answers.Decide(ctx, c)
	return answered{c, o, err}
}

// calls holds each call against the invariants of single calls, and against the
// reference.
func (v *verifier) calls(ctx context.Context) error {
	checks := slices.Clone(callInvariants)
	if v.opts.Native {
		checks = append(checks, callInvariant{"equals-native", "Every answer to a call is that of the native reference.",
			func(a *answered, _ func(*capability.Call) answered) (string, *answered) {
				if want := a.call.Decide(v.opts.System); a.err != nil || !a.outcome.Equal(want) {
					return "the reference answers " + string(answerOf(want, nil)), nil
				}
				return "", nil
			}})
	}
	findings := make([]finding, len(checks))
	var inputs atomic.Int64
	hold := func(c *capability.Call) {
		a := v.ask(ctx, c)
		for i := range checks {
			problem, against := checks[i].broken(&a, func(c *capability.Call) answered { return v.ask(ctx, c) })
			if problem != "" {
				findings[i].addCall(problem, &a, against)
			}
		}
	}
	err := overKinds(ctx, v.kinds, v.meter.phase(callsWeight), func(n int) {
		exact := v.answers.Exact(n)
		for _, m := range partners(n) {
			exact = exact && v.answers.Exact(m)
		}
		for c := range v.survey.CallsAmong(n, exact) {
			inputs.Add(1)
			hold(c)
		}
	})
	v.result.Calls = int(inputs.Load())
	if err == nil && v.named {
		calls := namedCalls()
		v.result.Named = len(calls)
		if v.arguments, err = newArgumentCalls(ctx, v.evaluator, v.survey); err == nil {
			looked := v.arguments.among(v.answers.Exact)
			v.result.Arguments = len(looked)
			calls = append(calls, looked...)
			err = inParallel(ctx, len(calls), nil, func(i int) { hold(calls[i]) })
		}
	}
	if err != nil {
		return err
	}
	for i := range checks {
		v.report(ctx, Invariant{Name: checks[i].name, Title: checks[i].title}, &findings[i])
	}
	return ctx.Err()
}

// addCall adds a breach by a call.
func (f *finding) addCall(problem string, a, against *answered) {
	c := *a.call
	f.add(problem, callDocument(&c, false), func() {
		f.call, f.answer, f.against = &c, answerOf(a.outcome, a.err), nil
		if against != nil {
			other := *against.call
			f.against = &answered{&other, against.outcome, against.err}
		}
	})
}

// redeclarations holds what each tool requires against what it requires once
// it is declared anew in any way, everything else in the call being the same.
func (v *verifier) redeclarations(ctx context.Context) error {
	var f finding
	err := overKinds(ctx, v.kinds, v.meter.phase(redeclarationWeight), func(n int) {
		first := evaluator.CellCall(n)
		if first.Profile != (capability.Profile{Origin: first.Profile.Origin}) {
			return // each group of profiles is looked at once
		}
		var profiles [27]capability.Profile
		exact := true
		for i := range profiles {
			profiles[i] = capability.Profile{Origin: first.Profile.Origin, ReadOnly: capability.Hint(i % 3),
				Destructive: capability.Hint(i / 3 % 3), OpenWorld: capability.Hint(i / 9)}
			c := *first
			c.Profile = profiles[i]
			exact = exact && v.answers.Exact(cellOf(&c))
		}
		for c := range v.survey.CallsAmong(n, exact) {
			v.redeclare(ctx, c, profiles[:], &f)
		}
	})
	if err != nil {
		return err
	}
	v.report(ctx, Invariant{Name: redeclarationName, Title: redeclarationTitle}, &f)
	return ctx.Err()
}

func (v *verifier) redeclare(ctx context.Context, c *capability.Call, profiles []capability.Profile, f *finding) {
	answers := make([]answered, len(profiles))
	for i, p := range profiles {
		with := *c
		with.Profile = p
		answers[i] = v.ask(ctx, &with)
	}
	for i, merged := range profiles {
		now := &answers[i]
		if now.err != nil {
			continue
		}
		var before *answered // with the smallest document, so that a call counts once
		for j, p := range profiles {
			old := &answers[j]
			if old.err != nil || old.outcome.Required.SubsetOf(now.outcome.Required) || !becomes(p, merged, profiles) {
				continue
			}
			if before == nil || smaller(callDocument(old.call, false), callDocument(before.call, false)) {
				before = old
			}
		}
		if before != nil {
			less := before.outcome.Required.Minus(now.outcome.Required)
			f.addCall("declared anew it no longer requires "+less.String(), now, before)
		}
	}
}

// becomes reports whether a tool of profile p has another one once it is
// declared anew as any of those.
func becomes(p, merged capability.Profile, declared []capability.Profile) bool {
	return slices.ContainsFunc(declared, func(next capability.Profile) bool { return p.Redeclare(next) == merged })
}

// skills holds the domain of skills against its invariants.
func (v *verifier) skills(ctx context.Context) error {
	checks := slices.Clone(skillInvariants)
	if v.opts.Native {
		checks = append(checks, skillInvariant{"skill-equals-native", "Every answer to a skill is that of the native reference.",
			func(r *skill.Request, a skill.Answer, err error) string {
				if want := r.Decide(); err != nil || !reflect.DeepEqual(a, want) {
					return "the reference answers " + string(answerOf(want, nil))
				}
				return ""
			}})
	}
	findings := make([]finding, len(checks))
	requests := v.requests
	err := inParallel(ctx, len(requests), v.meter.phase(skillsWeight), func(i int) {
		r := &requests[i]
		a, err := v.evaluator.Skill(ctx, r)
		for i := range checks {
			if problem := checks[i].broken(r, a, err); problem != "" {
				findings[i].add(problem, skillDocument(r, false), func() {
					findings[i].request, findings[i].answer = r, answerOf(a, err)
				})
			}
		}
	})
	if err != nil {
		return err
	}
	v.result.Skills = len(requests)
	for i := range checks {
		v.report(ctx, Invariant{Name: checks[i].name, Title: checks[i].title}, &findings[i])
	}
	return ctx.Err()
}

// Relocate gives each file that is named its place in the file system.
func (v *Verification) Relocate(place func(file string) string) {
	move := func(file *string) {
		if *file != "" {
			*file = place(*file)
		}
	}
	for i := range v.Invariants {
		move(&v.Invariants[i].File)
		if b := v.Invariants[i].Breach; b != nil {
			for j := range b.Rules {
				move(&b.Rules[j].File)
			}
		}
	}
	for i := range v.Incomplete {
		move(&v.Incomplete[i].File)
	}
}
