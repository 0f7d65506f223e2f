package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/opa-gate/opa-gate/analysis"
	"github.com/opa-gate/opa-gate/wire"
)

func newPolicyWatch() *cobra.Command {
	format := newFormat()
	var opts analysis.WatchOptions
	var once bool
	cmd := &cobra.Command{
		Use:   "watch DIR",
		Short: "Check, test and verify policies each time a file is saved",
		Long: `Watch looks at the policies in DIR now and each time a file is saved, and tells in
under two seconds for the built-in policies

  - what policy check finds, but for what it takes thousands of answers to find
  - the tests that fail, and why
  - the invariants that do not hold, and how answers differ from those of the
    last good state, on a spread of documents: each origin and taint with each
    verdict of the hook, the annotations that can matter and a base of everything,
    of nothing and of all but one, others from all over the domain, and texts that
    the rules compare with. What the changed rules mention comes first; if no
    decision depends on what changed, nothing is asked.

It says how many of the kinds of call these are, and how many of the documents
there was time for. Afterwards, until the next save, it verifies the state as
policy verify does, over every kind of call, and finds the whole difference from
the state before, as policy diff does; --quick leaves this out.

A state is good if nothing was found to be wrong with it, warnings aside. One that
the whole verification refuses is not good any more.

It ends with Ctrl-C. With --format json each event is one object on a line, and
its member event is round, whole or note.

Exit codes: 0 interrupted, or with --once a good state, 1 with --once a state that
is not, 2 wrong usage or a directory that cannot be read.`,
		Example: `  opa-gate policy watch my-policies
  opa-gate policy watch my-policies --once --time 10s
  opa-gate policy watch my-policies --quick --format json`,
		Args: oneDirectory,
		RunE: func(cmd *cobra.Command, args []string) error {
			if opts.Budget <= 0 {
				return fmt.Errorf("--time: expected more than no time, got %v", opts.Budget)
			}
			if once && opts.Quick {
				return errors.New("--quick has no effect with --once, which never verifies or compares the whole; leave it out")
			}
			w, err := analysis.NewWatcher(args[0], &opts)
			if err != nil {
				return fmt.Errorf("policy watch: %w", err)
			}
			defer hurry()()
			view := newWatchView(cmd, args[0], format.value == "json")
			if once {
				return watchOnce(cmd, w, view)
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
			defer stop()
			view.stop = stop
			err = w.Run(ctx, &analysis.WatchEvents{Round: view.round, Whole: view.whole, Note: view.note, Progress: view.progress})
			if failed := view.close(); err == nil {
				return failed
			}
			return fmt.Errorf("policy watch: %w", err)
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "look once, and exit with 0 or 1")
	cmd.Flags().BoolVar(&opts.Quick, "quick", false, "leave out the whole verification and difference")
	cmd.Flags().DurationVar(&opts.Budget, "time", time.Second, "ask the policies for so long after each save")
	cmd.Flags().StringSliceVar(&opts.Allow, "allow", nil, "let rules call these `BUILT-INS`, separated by commas")
	format.add(cmd, "format", "how events are written")
	return cmd
}

func watchOnce(cmd *cobra.Command, w *analysis.Watcher, view *watchView) error {
	r, err := interruptible(cmd, "everything was looked at", w.Round)
	if err != nil {
		return fmt.Errorf("policy watch: %w", err)
	}
	view.round(r)
	if err := view.close(); err != nil {
		return err
	}
	if !r.OK {
		return exit(exitCheck)
	}
	return nil
}

// A watchView writes what happens to a directory.
type watchView struct {
	out    io.Writer
	dir    string
	json   bool
	colour bool
	stop   func() // ends what there would be to write

	mu     sync.Mutex // progress comes from other goroutines
	errs   io.Writer
	shown  *progress // nil: none is under way
	any    bool      // something was written
	failed error     // why something was not
}

func newWatchView(cmd *cobra.Command, dir string, asJSON bool) *watchView {
	out := cmd.OutOrStdout()
	return &watchView{out: out, dir: dir, json: asJSON, colour: wantsColour(out), stop: func() {}, errs: cmd.ErrOrStderr()}
}

// progress draws a bar on a terminal; lines now and then would only stand
// between the rounds.
func (v *watchView) progress(done, total int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case !isTerminal(v.errs):
	case total == 0:
		v.end()
	default:
		if v.shown == nil {
			v.shown = newProgress(v.errs)
		}
		v.shown.show(done, total)
	}
}

// close is the end of what is written; the error is why not all of it was.
func (v *watchView) close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.end()
	return v.failed
}

func (v *watchView) end() {
	if v.shown != nil {
		v.shown.end()
		v.shown = nil
	}
}

// write writes one event, as an object or for a person.
func (v *watchView) write(event string, value any, text func(p *printer)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.end()
	out := bufio.NewWriterSize(v.out, bufferSize)
	var err error
	if v.json {
		var line []byte
		if line, err = eventJSON(event, value); err == nil {
			_, err = out.Write(line)
		}
	} else {
		if v.any {
			_ = out.WriteByte('\n')
		}
		text(&printer{Writer: out, colour: v.colour})
	}
	v.any = true
	if err = errors.Join(err, out.Flush()); err != nil {
		v.failed = errors.Join(v.failed, err) // nobody would see what comes after it either
		v.stop()
	}
}

// eventJSON writes an object with its event as the first member.
func eventJSON(event string, value any) ([]byte, error) {
	text, err := encode(value)
	if err != nil {
		return nil, err
	}
	return append([]byte(`{"event":"`+event+`",`), text[1:]...), nil
}

func (v *watchView) note(text string) {
	now := time.Now()
	v.write("note", map[string]any{"time": now, "text": text}, func(p *printer) {
		p.paint(faint, now.Format(time.TimeOnly), 10)
		_, _ = p.WriteString(wire.Printable(text) + "\n")
	})
}

func (v *watchView) round(r *analysis.WatchRound) {
	for i := range r.Findings {
		r.Findings[i].File = inDirectory(v.dir, r.Findings[i].File)
	}
	locateTests(&analysis.TestReport{Tests: r.Tests}, v.dir)
	if r.Quick != nil {
		r.Quick.Relocate(func(file string) string { return inDirectory(v.dir, file) })
	}
	changed := make([]string, len(r.Changed))
	for i, file := range r.Changed {
		changed[i] = inDirectory(v.dir, file)
	}
	r.Changed = changed
	v.write("round", r, func(p *printer) { printRound(p, r, v.dir) })
}

func (v *watchView) whole(w *analysis.WatchWhole) {
	place := func(file string) string { return inDirectory(v.dir, file) }
	if w.Verification != nil {
		w.Verification.Relocate(place)
	}
	if d := w.Difference; d != nil {
		d.Relocate(place, place)
	}
	v.write("whole", w, func(p *printer) { printWhole(p, w) })
}

// watchStep writes the line of one part of a round.
func watchStep(p *printer, c colour, part, text string) {
	_, _ = p.WriteString("  ")
	p.paint(c, part, 8)
	_, _ = p.WriteString(wire.Printable(text) + "\n")
}

// printRound writes a round: a line for each part, and below it what is wrong, in
// the words of the command of that name.
func printRound(p *printer, r *analysis.WatchRound, dir string) {
	title := strings.Join(r.Changed, ", ")
	const named = 4
	switch n := len(r.Changed); {
	case n == 0:
		title = dir
	case n > named:
		title = fmt.Sprintf("%s and %d more", strings.Join(r.Changed[:named], ", "), n-named)
	}
	p.paint(faint, r.Time.Format(time.TimeOnly), 10)
	p.paint(cyan, wire.Printable(title), 0)
	_ = p.WriteByte('\n')
	if r.Problem == "" || len(r.Findings) > 0 {
		printRoundCheck(p, r.Findings)
	}
	if r.Tests != nil {
		printRoundTests(p, r.Tests)
	}
	if r.Quick != nil {
		printQuick(p, r.Quick)
	}
	if r.Problem != "" {
		watchStep(p, red, "problem", r.Problem)
	}
	_, _ = p.WriteString("  ")
	if r.OK {
		p.paint(green, "good", 8)
	} else {
		p.paint(red, "not good", 8)
	}
	p.paint(faint, fmt.Sprintf(" %.1f s", r.Seconds), 0)
	_ = p.WriteByte('\n')
}

func printRoundCheck(p *printer, findings []analysis.Finding) {
	verdict, c := checkVerdict(findings)
	watchStep(p, c, "check", verdict)
	for _, f := range findings {
		printFinding(p, f)
	}
}

func printRoundTests(p *printer, tests []analysis.TestResult) {
	verdict, c := testVerdict(tests)
	watchStep(p, c, "test", verdict)
	for i := range tests {
		if t := &tests[i]; t.Outcome == analysis.TestFailed || t.Outcome == analysis.TestError || t.Output != "" {
			printTest(p, t)
		}
	}
}

func printQuick(p *printer, q *analysis.WatchQuick) {
	broken := 0
	for i := range q.Invariants {
		if q.Invariants[i].Breach != nil {
			broken++
		}
	}
	var asked []string
	if q.Calls > 0 || q.Skills == 0 {
		asked = append(asked, manyOf(q.Calls, "call"))
	}
	if q.Skills > 0 {
		asked = append(asked, manyOf(q.Skills, "skill"))
	}
	looked := " for " + strings.Join(asked, " and ") + " looked at"
	switch {
	case q.Calls+q.Skills == 0 && q.Left != "":
		watchStep(p, yellow, "verify", "nothing was asked: "+q.Left)
		return
	case q.Calls+q.Skills == 0:
		watchStep(p, green, "verify", "no decision and no invariant depends on what changed")
		return
	case broken > 0:
		watchStep(p, red, "verify", doNotHold(broken, len(q.Invariants))+looked)
	default:
		watchStep(p, green, "verify", counted(len(q.Invariants), "invariant holds", "invariants hold")+looked)
	}
	if q.Kinds > 0 {
		note := fmt.Sprintf("%s of %s kinds of call", grouped(q.Kinds), grouped(q.OfKinds))
		if q.Left != "" {
			note += "; " + q.Left
		}
		_, _ = p.WriteString(strings.Repeat(" ", 10))
		p.paint(faint, note, 0)
		_ = p.WriteByte('\n')
	}
	for i := range q.Invariants {
		if q.Invariants[i].Breach != nil {
			printBreach(p, &q.Invariants[i])
			_ = p.WriteByte('\n')
		}
	}
	if q.Since != nil {
		printQuickChanges(p, q)
	}
}

func printQuickChanges(p *printer, q *analysis.WatchQuick) {
	changed := 0
	for _, c := range q.Changes {
		changed += c.Inputs
	}
	since := q.Since.Format(time.TimeOnly)
	switch {
	case q.Compared == 0:
		return
	case changed == 0:
		watchStep(p, green, "diff", fmt.Sprintf("all of %s are answered as at %s", manyOf(q.Compared, "document"), since))
		return
	}
	watchStep(p, yellow, "diff", fmt.Sprintf("%s of %s are answered differently than at %s", grouped(changed), manyOf(q.Compared, "document"), since))
	for _, c := range q.Changes {
		turn := c.From + " → " + c.To
		if c.From == c.To {
			turn = c.From + ", in other words"
		}
		colour := faint
		switch c.Direction {
		case analysis.Widening:
			colour = yellow
		case analysis.Narrowing:
			colour = cyan
		}
		_, _ = p.WriteString(strings.Repeat(" ", 10))
		p.paint(colour, string(c.Direction), 10)
		_, _ = p.WriteString(wire.Printable(fmt.Sprintf("%s: %s, e.g. %s", turn, manyOf(c.Inputs, c.Kind), c.Example)) + "\n")
	}
}

// printWhole writes what was found over the whole domain, in the words of policy
// verify and policy diff.
func printWhole(p *printer, w *analysis.WatchWhole) {
	p.paint(faint, w.Time.Format(time.TimeOnly), 10)
	p.paint(cyan, fmt.Sprintf("the state of %s as a whole, in %.1f s", w.State.Format(time.TimeOnly), w.Seconds), 0)
	_ = p.WriteByte('\n')
	switch {
	case w.Problem != "":
		watchStep(p, red, "problem", w.Problem)
	case w.Difference != nil:
		_ = w.Difference.WriteText(p, p.colour) // the printer keeps its failure
	case w.Verification.OK() && len(w.Verification.Incomplete) == 0:
		v := w.Verification
		p.paint(green, fmt.Sprintf("All %d invariants hold for %s calls and %s skills.", len(v.Invariants), grouped(v.Calls), grouped(v.Skills)), 0)
		_ = p.WriteByte('\n')
	default:
		printVerification(p, w.Verification)
		if !w.Verification.OK() {
			watchStep(p, red, "not good", "it is no longer the last good state")
		}
	}
}
