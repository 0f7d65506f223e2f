package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/opa-gate/opa-gate/agent"
	"github.com/opa-gate/opa-gate/agent/replay"
	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/optional"
	"github.com/opa-gate/opa-gate/wire"
)

// A replayer is what the flags of replay say.
type replayer struct {
	policies  policyFlags
	other     string
	catalogue string
	corpus    string
	facts     string
	json      bool
	given     func(flag string) bool
}

// policyFlags name policies.
type policyFlags struct {
	dir  string
	with choice
}

func newReplay() *cobra.Command {
	format := newFormat()
	r := replayer{policies: policyFlags{with: choice{names: optional.Names(), many: true}}}
	cmd := &cobra.Command{
		Use:   "replay [FILE...|-]",
		Short: "Put recorded sessions to policies: what is answered, and how often a person is asked",
		Long: `Replay reads recorded tool calls and tells what the policies answer to each, and how
many approvals a person is asked for in each task. It runs nothing.

A file has an event a line: {"kind": "prompt", "text": …}, {"kind": "call", "id": …,
"tool": …, "arguments": …} or {"kind": "result", "id": …}, each with a session and a
task if you like; or it is the transcript of a Claude Code session. What the tools
are, --catalogue tells, as for opa-gate hook, over the catalogue that ships; its paths,
notes and fixed arguments do not count here. A tool that nobody names is of unknown
origin. Lines that are torn, broken or foreign are left out, counted and named.

With --diff OTHER it tells which calls other policies answer differently: a directory,
a bundle, REVISION:DIRECTORY of a Git repository, or the word builtin. --with steering lays the finer rule on taint
beside the policies.

With --agentdojo FILE it reads a benchmark instead: sequences of calls without
arguments, and labels of their tools. It tells how many injection tasks each of several
rules stops, and in how many legitimate tasks it asks a person. --facts FILE adds what
was found about calls in another way.

Exit codes: 0 done, 2 wrong usage, or input in which there is no call.`,
		Example: `  opa-gate replay --catalogue agent.toml session.jsonl
  opa-gate replay --catalogue agent.toml --with steering --diff builtin session.jsonl
  opa-gate replay ~/.claude/projects/my-project/*.jsonl
  opa-gate replay --agentdojo fixtures/agentdojo/agentdojo.json --facts fixtures/agentdojo/facts.json`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			r.json, r.given = format.value == "json", cmd.Flags().Changed
			p := newPrinter(cmd.OutOrStdout())
			var err error
			switch {
			case r.given("agentdojo"):
				err = r.curve(cmd.Context(), p, args)
			case r.given("facts"):
				err = errors.New("--facts belongs to --agentdojo")
			default:
				err = r.traces(cmd, p, args)
			}
			if err != nil {
				return err
			}
			return p.Flush()
		},
	}
	addPolicies(cmd, &r.policies.dir)
	r.policies.with.add(cmd, "with", "the optional policies to lay beside the others")
	cmd.Flags().StringVar(&r.other, "diff", "", "tell what the policies `OTHER` answer differently, named as in policy diff")
	addCatalogue(cmd, &r.catalogue)
	cmd.Flags().StringVar(&r.corpus, "agentdojo", "", "replay the benchmark's sequences in `FILE`")
	cmd.Flags().StringVar(&r.facts, "facts", "", "add what `FILE` says about calls of the benchmark")
	format.add(cmd, "format", "how the answers are written")
	return cmd
}

// load makes the policies that the flags name.
func (r *replayer) load(ctx context.Context) (*evaluator.Evaluator, error) {
	if r.given("policies") && r.policies.dir == "" {
		return nil, errNoDirectory
	}
	trees, err := optionalTrees(r.policies.with.value)
	if err != nil {
		return nil, err
	}
	e, err := evaluator.New(ctx, &evaluator.Options{Dir: r.policies.dir, With: trees})
	if err != nil && r.policies.dir != "" {
		err = fmt.Errorf("--policies %s: %w", r.policies.dir, err)
	}
	return e, err
}

// optionalTrees are the optional policies of a list of names.
func optionalTrees(names string) ([]fs.FS, error) {
	var trees []fs.FS
	if names == "" {
		return nil, nil
	}
	for name := range strings.SplitSeq(names, ",") {
		tree, err := optional.FS(name)
		if err != nil {
			return nil, err
		}
		trees = append(trees, tree)
	}
	return trees, nil
}

// A replayed file is a trace, what is answered, and what others answer.
type replayed struct {
	File    string           `json:"file"`
	Lines   int              `json:"lines"`
	Other   int              `json:"other_lines"` // of a transcript that tell of nothing that matters here
	Skipped []replay.Skip    `json:"skipped"`
	Report  *replay.Report   `json:"report"`
	Changes *[]replay.Change `json:"changes,omitempty"` // with --diff
}

func (r *replayer) traces(cmd *cobra.Command, p *printer, args []string) error {
	ctx := cmd.Context()
	if len(args) == 0 {
		args = []string{"-"}
	}
	policy, err := r.load(ctx)
	if err != nil {
		return err
	}
	var other *evaluator.Evaluator
	if r.given("diff") {
		if other, err = openNamed(ctx, r.other); err != nil {
			return fmt.Errorf("--diff: %w", err)
		}
	}
	catalogue, err := agent.LoadCatalogue(r.catalogue)
	if err != nil {
		return err
	}
	calls := 0
	for n, arg := range args {
		f, err := r.file(cmd, arg, policy, other, operator(catalogue))
		if err != nil {
			return err
		}
		calls += len(f.Report.Calls)
		if r.json {
			if err := writeLine(p, f); err != nil {
				return err
			}
			continue
		}
		if n > 0 {
			_ = p.WriteByte('\n')
		}
		showReplayed(p, f, len(args) > 1)
	}
	if calls == 0 {
		_ = p.Flush()
		return errors.New("there is no call in the input: expected events, or the transcript of a session")
	}
	return nil
}

func (r *replayer) file(cmd *cobra.Command, arg string, policy, other *evaluator.Evaluator, o *replay.Operator) (*replayed, error) {
	in, name, err := open(cmd, []string{arg})
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }() // nothing was written to it
	trace, err := replay.Read(in)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	f := &replayed{File: name, Lines: trace.Lines, Other: trace.Other, Skipped: append([]replay.Skip{}, trace.Skipped...)}
	if f.Report, err = replay.Run(cmd.Context(), policy, trace, o); err != nil {
		return nil, err
	}
	if other != nil {
		report, err := replay.Run(cmd.Context(), other, trace, o)
		if err != nil {
			return nil, err
		}
		changes := replay.Diff(f.Report, report)
		f.Changes = &changes
	}
	return f, nil
}

// operator is what a catalogue states. Its paths, notes and fixed arguments do not
// count: a trace does not tell what a path led to.
func operator(c *agent.Catalogue) *replay.Operator {
	return &replay.Operator{Grant: c.Grant, Tool: func(name string) replay.Tool {
		t := c.Lookup(name)
		return replay.Tool{Profile: t.Profile, Taints: t.Taints, Steering: t.Steering,
			Policy: capability.CallPolicy{Vetoed: t.Vetoed, Veto: t.Veto, RequiresHuman: t.RequiresHuman}}
	}}
}

// readFile reads the file of a flag.
func readFile[T any](name string, read func(r io.Reader) (T, error)) (T, error) {
	var none T
	f, err := os.Open(name)
	if err != nil {
		return none, err
	}
	defer func() { _ = f.Close() }() // nothing was written to it
	v, err := read(f)
	if err != nil {
		return none, fmt.Errorf("%s: %w", name, err)
	}
	return v, nil
}

func showReplayed(p *printer, f *replayed, named bool) {
	if named {
		_, _ = p.WriteString(wire.Printable(f.File) + "\n")
	}
	session, task := "", ""
	for i := range f.Report.Calls {
		a := &f.Report.Calls[i]
		if i == 0 || a.Session != session || a.Task != task {
			session, task = a.Session, a.Task
			p.title(strings.TrimSpace("session " + session + " task " + task))
		}
		showReplayedCall(p, a)
	}
	for _, s := range f.Report.Sessions {
		if s.Tainted {
			from := "a result of a call that is not in the trace"
			if s.Tool != "" {
				from = "the result of " + s.Tool
			}
			_, _ = fmt.Fprintf(p, "\nOutside content entered session %s at line %d: %s.\n", wire.Printable(s.Session), s.Line, wire.Printable(from))
		}
	}
	if f.Changes != nil {
		p.title("answered differently by the other policies")
		for _, c := range *f.Changes {
			_, _ = fmt.Fprintf(p, "line %-6d %s -> %s  %s\n", c.Line, c.From, c.To, wire.Printable(c.Tool))
		}
		_, _ = fmt.Fprintf(p, "%s of %d\n", counted(len(*f.Changes), "call", "calls"), len(f.Report.Calls))
	}
	t := &f.Report.Totals
	_, _ = fmt.Fprintf(p, "\n%s in %s: %s, %s asked for, in %d of them; %d denied\n", counted(t.Calls, "call", "calls"),
		counted(t.Sessions, "session", "sessions"), counted(t.Tasks, "task", "tasks"), counted(t.Asked, "approval", "approvals"), t.TasksAsking, t.Denied)
	const shown = 10
	for i, s := range f.Skipped {
		if i == shown {
			_, _ = fmt.Fprintf(p, "… and %d more\n", len(f.Skipped)-shown)
			break
		}
		p.paint(yellow, "left out", 0)
		_, _ = fmt.Fprintf(p, "  line %d: %s\n", s.Line, wire.Printable(s.Reason))
	}
	if len(f.Skipped) > 0 {
		_, _ = fmt.Fprintf(p, "%d of %s left out\n", len(f.Skipped), counted(f.Lines, "line is", "lines are"))
	}
}

func showReplayedCall(p *printer, a *replay.Answer) {
	colour, reason := red, a.Error
	if a.Outcome != nil {
		colour, reason = kindColour(a.Outcome.Kind), a.Outcome.Reason
		if reason == "" && a.Before != a.Seen {
			reason = "(not steered by what is in the session)"
		}
	}
	p.head(colour, a.Label(), a.Tool, reason)
}

// curve replays a benchmark.
func (r *replayer) curve(ctx context.Context, p *printer, args []string) error {
	switch {
	case len(args) > 0:
		return errors.New("--agentdojo takes the place of a FILE: leave one of them out")
	case r.given("diff") || r.given("catalogue"):
		return errors.New("--diff and --catalogue belong to traces, not to --agentdojo")
	}
	corpus, err := readFile(r.corpus, replay.ReadCorpus)
	if err != nil {
		return err
	}
	if r.given("facts") {
		_, err := readFile(r.facts, func(in io.Reader) (struct{}, error) {
			return struct{}{}, corpus.AddFacts(in)
		})
		if err != nil {
			return err
		}
	}
	policies, err := r.curvePolicies(ctx, corpus.HasFacts())
	if err != nil {
		return err
	}
	curve, err := corpus.Curve(ctx, policies)
	if err != nil {
		return err
	}
	if r.json {
		return writeLine(p, curve)
	}
	showCurve(p, curve, corpus.HasFacts())
	return nil
}

// curvePolicies are the policies of a curve: the built-in ones, with the finer rule
// and its relaxations one after the other, and those that the flags name.
func (r *replayer) curvePolicies(ctx context.Context, facts bool) ([]replay.NamedPolicy, error) {
	plain, err := evaluator.New(ctx, nil)
	if err != nil {
		return nil, err
	}
	trees, err := optionalTrees(optional.Steering)
	if err != nil {
		return nil, err
	}
	steering, err := evaluator.New(ctx, &evaluator.Options{With: trees})
	if err != nil {
		return nil, err
	}
	list := []replay.NamedPolicy{
		{Name: "built-in policies", Policy: plain},
		{Name: "with steering, labels alone", Policy: steering},
		{Name: "with steering, labels and names", Policy: steering, Told: replay.Names},
	}
	if facts {
		list = append(list,
			replay.NamedPolicy{Name: "facts: own-undoable", Policy: replay.Relaxed(plain, capability.RelaxOwnUndoable), Told: replay.Added},
			replay.NamedPolicy{Name: "facts: and typed-call", Policy: replay.Relaxed(plain, capability.RelaxOwnUndoable|capability.RelaxTypedCall), Told: replay.Added},
			replay.NamedPolicy{Name: "facts: and typed-aim (with steering)", Policy: steering, Told: replay.Added})
	}
	if r.given("policies") || r.given("with") {
		own, err := r.load(ctx)
		if err != nil {
			return nil, err
		}
		name := "these policies"
		if r.policies.dir != "" {
			name = r.policies.dir
		}
		told := replay.Names
		if facts {
			told = replay.Added
		}
		list = append(list, replay.NamedPolicy{Name: name, Policy: own, Told: told})
	}
	return list, nil
}

func showCurve(p *printer, c *replay.Curve, facts bool) {
	const nameWidth, width = 38, 20
	columns := append([]replay.SuiteCurve{}, c.Suites...)
	columns = append(columns, replay.SuiteCurve{Suite: "all", Points: c.All})
	row := func(name string, cell func(s *replay.SuiteCurve) string) {
		var line strings.Builder
		fmt.Fprintf(&line, "%-*s", nameWidth, name)
		for i := range columns {
			fmt.Fprintf(&line, "%-*s", width, cell(&columns[i]))
		}
		_, _ = p.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	row("", func(s *replay.SuiteCurve) string { return wire.Printable(s.Suite) })
	row("rule", func(*replay.SuiteCurve) string { return "stopped    ask" })
	for n := range c.All {
		row(wire.Printable(c.All[n].Rule), func(s *replay.SuiteCurve) string {
			point := &s.Points[n]
			return fmt.Sprintf("%-10s %s", fraction(point.Stopped, point.Injections), fraction(point.Asking, point.Tasks))
		})
	}
	_, _ = p.WriteString("\nstopped: injection tasks in which a person is asked, or the call denied, before any harm; ask: legitimate tasks that ask a person.\n" +
		"names: what adds to the person's own things, by the first word of its name, and reaches nobody is judged to be undoable.\n")
	for _, s := range c.Suites {
		if !s.Facts && facts {
			_, _ = fmt.Fprintf(p, "%s: no facts were added, so labels are all that is known.\n", wire.Printable(s.Suite))
		}
		if len(s.Harmless) > 0 {
			_, _ = fmt.Fprintf(p, "%s: not counted, since they call nothing that does harm: %s\n", wire.Printable(s.Suite), wire.Printable(strings.Join(s.Harmless, ", ")))
		}
		if len(s.Unlabelled) > 0 {
			_, _ = fmt.Fprintf(p, "%s: tools without a label, taken for the worst: %s\n", wire.Printable(s.Suite), wire.Printable(strings.Join(s.Unlabelled, ", ")))
		}
	}
}

func fraction(n, of int) string { return strconv.Itoa(n) + "/" + strconv.Itoa(of) }
