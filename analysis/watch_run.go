package analysis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// WatchEvents are told what happens, one after the other, by the goroutine of Run.
// Any may be nil.
type WatchEvents struct {
	Round    func(*WatchRound)
	Whole    func(*WatchWhole)
	Note     func(text string)     // what else a person should know
	Progress func(done, total int) // of what is done as a whole, now and then; total is 0 when it has ended
}

func (e *WatchEvents) note(format string, args ...any) {
	if e.Note != nil {
		e.Note(fmt.Sprintf(format, args...))
	}
}

// Run makes a round, and another one whenever the files have changed. In between
// it verifies the last good state as a whole, and finds its whole difference
// from the last state that was verified so; a change ends that. It returns
// when ctx ends, with nil; an error is why it could not begin.
func (w *Watcher) Run(ctx context.Context, events *WatchEvents) error {
	if events == nil {
		events = &WatchEvents{}
	}
	if err := w.makeRound(ctx, events); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	job := w.startWhole(ctx)
	defer func() { job.stop(events) }()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var gone time.Time // when the directory was first found to be gone; zero: it is there
	told := false
	seen := w.files
	for {
		select {
		case <-ctx.Done():
			return nil
		case p := <-job.progress:
			job.tell(p, events)
			continue
		case step := <-job.steps:
			job.told(events)
			w.conclude(job, step, events)
			continue
		case <-tick.C:
		}
		now, err := lookAt(w.dir, seen)
		switch {
		case err != nil && gone.IsZero():
			gone = time.Now()
			continue
		case err != nil:
			if !told && time.Since(gone) > goneFor {
				told = true
				events.note("%s cannot be read; waiting until it can: %v", w.dir, err)
			}
			continue
		}
		seen, gone = now, time.Time{}
		if told {
			told = false
			events.note("%s can be read again", w.dir)
		}
		if len(changedFiles(w.files, now)) == 0 {
			continue
		}
		if now = settle(ctx, w.dir, now); len(changedFiles(w.files, now)) == 0 {
			continue // it was only put back, or is gone again
		}
		job.stop(events)
		if err := w.makeRound(ctx, events); err != nil {
			job = &wholeJob{}
			if errors.Is(err, errUnsettled) {
				events.note("%v", err)
			}
			continue // if it went away meanwhile, the next look tells
		}
		seen = w.files
		job = w.startWhole(ctx)
	}
}

// goneFor is how long a directory may be away without a word: version control
// and deployments take one away and put another in its place.
const goneFor = time.Second

func (w *Watcher) makeRound(ctx context.Context, events *WatchEvents) error {
	r, err := w.Round(ctx)
	if err != nil {
		return err
	}
	if events.Round != nil {
		events.Round(r)
	}
	return nil
}

// A wholeJob is the whole verification of a state, and its whole difference.
type wholeJob struct {
	state    *goodState
	steps    chan *WatchWhole // closed at the end
	progress chan [2]int      // how far a step is: what nobody took yet is replaced
	telling  bool             // the end of a progress is still to be told
	cancel   context.CancelFunc
}

// stop ends a job and waits until it has ended: a round needs the processors.
func (j *wholeJob) stop(events *WatchEvents) {
	if j.cancel == nil {
		return
	}
	j.cancel()
	for range j.steps {
		continue
	}
	j.cancel = nil
	j.told(events)
}

// show leaves how far a step is for Run to tell.
func (j *wholeJob) show(done, total int) {
	select {
	case <-j.progress:
	default:
	}
	j.progress <- [2]int{done, total} // nobody else sends: there is room
}

// tell tells how far a step is.
func (j *wholeJob) tell(p [2]int, events *WatchEvents) {
	if events.Progress != nil {
		j.telling = true
		events.Progress(p[0], p[1])
	}
}

// told tells the end of a step's progress, if any of it was told.
func (j *wholeJob) told(events *WatchEvents) {
	select {
	case <-j.progress:
	default:
	}
	if j.telling {
		j.telling = false
		events.Progress(0, 0)
	}
}

// startWhole begins what takes longer than a round, if the last round was good,
// as far as it was not done for an equal state.
func (w *Watcher) startWhole(ctx context.Context) *wholeJob {
	if w.opts.Quick || w.current == nil || w.current.network {
		return &wholeJob{}
	}
	base, state, proven := w.base, w.current, w.current.proven
	if base == state || sameRules(base, state) {
		base = nil
	}
	if proven && base == nil {
		return &wholeJob{}
	}
	ctx, cancel := context.WithCancel(ctx)
	j := &wholeJob{state: state, steps: make(chan *WatchWhole), progress: make(chan [2]int, 1), cancel: cancel}
	go func() {
		defer close(j.steps)
		if !proven {
			step := wholeVerification(ctx, state, j.show)
			if !j.send(ctx, step) || !step.OK() {
				return
			}
		}
		if base != nil {
			j.send(ctx, wholeDifference(ctx, base, state, j.show))
		}
	}()
	return j
}

// send hands a step over, unless the job was ended.
func (j *wholeJob) send(ctx context.Context, step *WatchWhole) bool {
	if ctx.Err() != nil {
		return false
	}
	select {
	case j.steps <- step:
		return true
	case <-ctx.Done():
		return false
	}
}

func wholeVerification(ctx context.Context, s *goodState, progress func(done, total int)) *WatchWhole {
	begin := time.Now()
	step := &WatchWhole{State: s.time}
	v, err := Verify(ctx, s.evaluator, &VerifyOptions{Progress: progress})
	if err != nil {
		step.Problem = err.Error()
	}
	step.Verification, step.Time, step.Seconds = v, time.Now(), time.Since(begin).Seconds()
	return step
}

func wholeDifference(ctx context.Context, base, s *goodState, progress func(done, total int)) *WatchWhole {
	begin := time.Now()
	since := base.time
	step := &WatchWhole{State: s.time, Since: &since}
	const clock = "15:04:05"
	d, err := Diff(ctx, base.evaluator, s.evaluator, &DiffOptions{
		Old: "the state of " + base.time.Format(clock), New: "that of " + s.time.Format(clock), Progress: progress})
	if err != nil {
		step.Problem = err.Error()
	}
	step.Difference, step.Time, step.Seconds = d, time.Now(), time.Since(begin).Seconds()
	return step
}

// sameRules reports whether two states answer the same because they have the
// same rules and data.
func sameRules(a, b *goodState) bool {
	return maps.EqualFunc(a.rules, b.rules, func(x, y []ruleText) bool { return slices.EqualFunc(x, y, ruleText.same) }) &&
		!slices.ContainsFunc(changedFiles(a.files, b.files), isData)
}

// conclude takes in what a job has found; nil is that it has ended. A state with a
// breach is no good one, whatever its round has seen: the one is that it was held
// against.
func (w *Watcher) conclude(j *wholeJob, step *WatchWhole, events *WatchEvents) {
	switch {
	case step == nil:
		if j.cancel(); j.state.proven {
			w.base = j.state
		}
		j.steps, j.cancel = nil, nil
		return
	case step.Verification != nil && step.OK():
		j.state.proven = true
	case step.Verification != nil:
		if w.base == j.state {
			w.base = nil
		}
		w.good, w.current = w.base, nil
	}
	if events.Whole != nil {
		events.Whole(step)
	}
}
