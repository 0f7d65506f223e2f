package analysis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/opa-gate/opa-gate/evaluator"
)

// WatchOptions say how a [Watcher] looks at policies.
type WatchOptions struct {
	Allow  []string      // built-ins that rules may call, as in CheckOptions
	Budget time.Duration // how long one round puts documents to the policies; 0 is a second
	Quick  bool          // leave out what takes longer than a round
}

// A WatchRound is what was found out about one state of a directory at once:
// whether it compiles, passes its tests, and, on a spread of documents, keeps the
// invariants and answers as the last good state does.
type WatchRound struct {
	Time    time.Time `json:"time"`
	Seconds float64   `json:"seconds"` // that it took
	Changed []string  `json:"changed"` // files, since the round before; in a first round none
	OK      bool      `json:"ok"`      // it is the last good state from here on
	Problem string    `json:"problem"` // why the round did not get to its end; "" if it did

	Findings []Finding    `json:"findings"` // as policy check has them, but for what takes many answers
	Tests    []TestResult `json:"tests"`    // null if they could not be run
	Quick    *WatchQuick  `json:"quick"`    // null if the policies could not be asked
}

// A WatchQuick is what a spread of documents has shown.
type WatchQuick struct {
	*Verification            // its numbers are those of the documents that were looked at
	Kinds         int        `json:"kinds"`    // kinds of call among them
	OfKinds       int        `json:"of_kinds"` // that there are
	Rules         []string   `json:"rules"`    // that changed and that a decision or an invariant depends on; null: it cannot be told
	SameCalls     bool       `json:"same_calls"`
	SameSkills    bool       `json:"same_skills"` // no decision of that sort depends on what changed: none was looked at
	Since         *time.Time `json:"since"`       // the round of the last good state, null if there is none
	Compared      int        `json:"compared"`    // documents that were held against its answers
	Left          string     `json:"left"`        // why no document was looked at, or not all there was time for

	Changes []WatchChange `json:"changes"` // widening first, most documents first
}

// A WatchWhole is what a whole verification of a state has found, or, after
// that, its whole difference from the last state that was verified so.
type WatchWhole struct {
	Time         time.Time     `json:"time"`
	State        time.Time     `json:"state"` // the round of the state
	Seconds      float64       `json:"seconds"`
	Problem      string        `json:"problem"` // why there is none
	Verification *Verification `json:"verification,omitempty"`
	Since        *time.Time    `json:"since,omitempty"` // the round of the state before
	Difference   *Difference   `json:"difference,omitempty"`
}

// OK reports whether nothing was found to be wrong.
func (w *WatchWhole) OK() bool {
	return w.Problem == "" && (w.Verification == nil || w.Verification.OK())
}

// A goodState is a state of the directory whose policies can be asked. Only those
// that passed their rounds are kept.
type goodState struct {
	time      time.Time
	evaluator *evaluator.Evaluator
	rules     writtenRules
	files     watchedFiles
	calls     map[callKey]answered // that a round has asked
	skills    map[int]skillAnswer
	network   bool // a decision depends on others: it is not asked thousands of times
	proven    bool // by a whole verification
}

// A Watcher follows the states of a directory of policies. It belongs to one
// goroutine.
type Watcher struct {
	dir  string
	opts WatchOptions

	files   watchedFiles // of the last round; nil: there was none
	good    *goodState   // the last that passed its round, and no whole verification has refused; nil: none
	base    *goodState   // the last that a whole verification has proven, or the first good one
	current *goodState   // of the last round, if it is good
}

// NewWatcher returns a [Watcher] of the policies in dir that has looked at nothing
// yet. An error means that the options are wrong.
func NewWatcher(dir string, opts *WatchOptions) (*Watcher, error) {
	w := &Watcher{dir: dir}
	if opts != nil {
		w.opts = *opts
	}
	if err := checkAllowed(w.opts.Allow); err != nil {
		return nil, err
	}
	switch {
	case w.opts.Budget < 0:
		return nil, fmt.Errorf("the budget of a round is %v, expected more than no time", w.opts.Budget)
	case w.opts.Budget == 0:
		w.opts.Budget = time.Second
	}
	return w, nil
}

// errUnsettled: files change faster than a round can look at them.
var errUnsettled = errors.New("its files change again and again while they are looked at")

// Round looks at the directory as it is now. A round during which a file was
// changed is made anew, since its parts may have seen different states. The error
// is why the directory cannot be read, or that of ctx.
func (w *Watcher) Round(ctx context.Context) (*WatchRound, error) {
	const attempts = 20
	for range attempts {
		files, err := lookAt(w.dir, w.files)
		if err != nil {
			return nil, err
		}
		r := &WatchRound{Time: time.Now(), Changed: []string{}, Findings: []Finding{}}
		if w.files != nil {
			r.Changed = changedFiles(w.files, files)
		}
		state := w.round(ctx, r, files)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		after, err := lookAt(w.dir, files)
		if err != nil {
			return nil, err
		}
		if len(changedFiles(files, after)) > 0 {
			settle(ctx, w.dir, after)
			continue
		}
		r.Seconds = time.Since(r.Time).Seconds()
		w.files, w.current = files, nil
		if r.OK {
			w.good, w.current = state, state
			if w.base == nil {
				w.base = state
			}
		}
		return r, nil
	}
	return nil, fmt.Errorf("%s: %w", w.dir, errUnsettled)
}

// round fills a round, and returns the state if its policies could be asked.
func (w *Watcher) round(ctx context.Context, r *WatchRound, files watchedFiles) *goodState {
	checked, err := Check(ctx, w.dir, &CheckOptions{Allow: w.opts.Allow, Static: true})
	if err != nil {
		r.Problem = err.Error()
		return nil
	}
	r.Findings = append(r.Findings, checked.Findings...)
	suite, err := newTestSuite(ctx, w.dir)
	if err != nil {
		if checked.OK() { // else the findings say it, and better
			r.Problem = err.Error()
		}
		return nil
	}
	compiler, _ := suite.evaluator.Policies()
	state := &goodState{time: r.Time, evaluator: suite.evaluator, rules: rulesOf(suite.files), files: files, network: callsNetwork(compiler)}
	tests, err := suite.run(ctx, "", nil)
	switch {
	case err == nil:
		for i := range tests {
			if tests[i].Outcome == TestFailed {
				tests[i].Failures = suite.explain(ctx, &tests[i])
			}
		}
		r.Tests = append([]TestResult{}, tests...)
	case checked.OK():
		r.Problem = "the tests could not be run: " + err.Error()
	}
	if err := w.quick(ctx, r, state); err != nil && r.Problem == "" {
		r.Problem = err.Error()
	}
	r.OK = r.Problem == "" && checked.OK() && (&TestReport{Tests: tests}).OK() && r.Quick.OK()
	return state
}

// quick puts a spread of documents to the policies of a state.
func (w *Watcher) quick(ctx context.Context, r *WatchRound, state *goodState) error {
	q := &quickLook{engine: state.evaluator.Interpreter(), before: w.good, changes: map[quickChange]*WatchChange{},
		calls: map[callKey]answered{}, skills: map[int]skillAnswer{},
		verifier: &verifier{evaluator: state.evaluator, opts: &VerifyOptions{}, result: &Verification{Invariants: []Invariant{}, Incomplete: []evaluator.Blocker{}}}}
	r.Quick = &WatchQuick{Verification: q.result, OfKinds: evaluator.Cells, Changes: []WatchChange{}}
	t := everything()
	if w.good != nil {
		t = touched(w.good, state, changedFiles(w.good.files, state.files))
		since := w.good.time
		r.Quick.Since = &since
	}
	r.Quick.Rules, r.Quick.SameCalls, r.Quick.SameSkills = t.names, !t.calls, !t.skills
	if state.network {
		r.Quick.Left = "a decision calls a built-in of the network, and this would call it thousands of times"
		return nil
	}
	authored, err := q.openAuthored(ctx)
	if err != nil {
		return err
	}
	hard, stop := context.WithTimeout(ctx, w.opts.Budget+quickGrace)
	defer stop()
	q.hard = hard
	start := time.Now()
	q.deadline = start.Add(w.opts.Budget)
	switch {
	case t.calls:
		if t.skills {
			q.deadline = start.Add(w.opts.Budget * 7 / 10)
		}
		texts := (&answerChecker{evaluator: state.evaluator}).texts(decisionRules[0])
		if authored != nil {
			texts = append(texts, authored.query.Texts()...)
		}
		calls := quickCalls(texts, t)
		looked, err := q.lookAtCalls(ctx, calls, authored)
		if err != nil {
			return err
		}
		if looked < len(calls) {
			r.Quick.Left = fmt.Sprintf("there was time for %s of %s", thousands(looked), number(len(calls), "call", "calls"))
		}
	default:
		q.calls = w.good.calls
		if t.invariants {
			err = q.again(ctx, authored)
		}
	}
	q.deadline = start.Add(w.opts.Budget)
	switch {
	case err != nil:
		return err
	case t.skills:
		if err := q.lookAtSkills(ctx, authored); err != nil {
			return err
		}
		if r.Quick.Left == "" && q.result.Skills < skillKinds {
			r.Quick.Left = fmt.Sprintf("there was time for %s of %s", thousands(q.result.Skills), number(skillKinds, "skill", "skills"))
		}
	default:
		q.skills = w.good.skills
		if t.invariants {
			err = q.skillsAgain(ctx, authored)
		}
	}
	if authored != nil && authored.err == nil && (t.calls || t.skills || t.invariants) {
		authored.report(ctx)
	}
	if authored != nil && authored.err != nil {
		err = errors.Join(err, authored.err)
	}
	r.Quick.Kinds = kindsOf(q.calls, q.result.Calls)
	r.Quick.Compared, r.Quick.Changes = q.held, q.sortedChanges()
	state.calls, state.skills = q.calls, q.skills
	if w.good != nil && w.good.proven && !t.calls && !t.skills && !t.invariants {
		state.proven = true // what was found out about that one is true of this one
	}
	return err
}

// again holds the author's own invariants against answers that were given before.
func (q *quickLook) again(ctx context.Context, authored *authoredWalk) error {
	calls := make([]answered, 0, len(q.calls))
	for _, a := range q.calls {
		calls = append(calls, a)
	}
	if err := inParallel(ctx, len(calls), nil, func(i int) { q.authoredCall(authored, &calls[i]) }); err != nil {
		return err
	}
	q.result.Calls = len(calls)
	return nil
}

func (q *quickLook) skillsAgain(ctx context.Context, authored *authoredWalk) error {
	if err := inParallel(ctx, skillKinds, nil, func(i int) {
		if a, ok := q.skills[i]; ok {
			q.authoredSkill(authored, skillOfKind(i), a)
		}
	}); err != nil {
		return err
	}
	q.result.Skills = len(q.skills)
	return nil
}

// kindsOf counts the kinds of the calls, if any was looked at.
func kindsOf(calls map[callKey]answered, looked int) int {
	if looked == 0 {
		return 0
	}
	kinds := map[int]bool{}
	for key := range calls {
		kinds[key.kind] = true
	}
	return len(kinds)
}
