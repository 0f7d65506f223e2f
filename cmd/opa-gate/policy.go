package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/opa-gate/opa-gate/evaluator"
)

func newPolicy() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "policy",
		Short:   "Work on policies: check, test, verify, compare, explain",
		Example: "  opa-gate policy explain --policies ./policies call.json",
		Args:    knownCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newPolicyInit(), newPolicyCheck(), newPolicyTest(), newPolicyVerify(), newPolicyDiff(), newPolicyWatch(), newExplain())
	return cmd
}

// everyKind is what a survey is interrupted before.
const everyKind = "every kind of call was looked at"

// interruptible does work that Ctrl-C ends. It is told then what had not
// happened yet, and the error is that of exitInterrupted.
func interruptible[T any](cmd *cobra.Command, before string, work func(context.Context) (T, error)) (T, error) {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
	defer stop()
	result, err := work(ctx)
	if ctx.Err() != nil {
		complain(cmd.ErrOrStderr(), "interrupted before "+before)
		err = exit(exitInterrupted)
	}
	return result, err
}

// inDirectory names a file of a directory such that it can be opened from where
// the program runs. The built-in policies have no directory, and what stands
// nowhere has no file.
func inDirectory(dir, file string) string {
	if file == "" {
		return ""
	}
	return filepath.Join(dir, filepath.FromSlash(file))
}

func newExplain() *cobra.Command {
	format := newFormat()
	var (
		engine, all bool
		dir, system string
	)
	cmd := &cobra.Command{
		Use:   "explain [FILE|-]",
		Short: "Tell why a document is answered as it is, or with --engine how calls are",
		Long: `Explain reads call and skill documents, in the forms that decide takes, and tells
of each which branch of which rule decided it; which other branches of that rule
were tried, and the condition of each that failed, with the values it saw; which
rules the answer rests on; and the fewest changes to the document with which it
would go ahead. Every line of the policies is named as file:line.

The search changes up to three members: taint, names in the grant, the verdict,
the tool's annotations, and where it comes from only if nothing else helps or if
that was left out. It changes no texts. For a skill it changes the provenance,
the tier and a person's approval.

` + explainEngine,
		Example: `  opa-gate policy explain call.json
  echo '{"tool": {"name": "web_fetch", "origin": "fetcher"}, "taint": "tainted"}' | opa-gate policy explain
  opa-gate policy explain --policies ./policies --format json call.json
  opa-gate policy explain --engine --policies ./policies --all`,
		Args: func(cmd *cobra.Command, args []string) error {
			if engine && len(args) > 0 {
				return fmt.Errorf("policy explain --engine reads no input and takes no value, got %q", args[0])
			}
			return oneInput(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if !engine {
				if all {
					return errors.New("--all lists the rules of the report that --engine makes, and a document has none")
				}
				return explainInput(cmd, args, dir, system, format.value)
			}
			if cmd.Flags().Changed("system") {
				return errors.New("--system has no effect with --engine, whose report has no sentences for a person; leave it out")
			}
			report, err := interruptible(cmd, everyKind, func(ctx context.Context) (*evaluator.Report, error) {
				return survey(ctx, cmd, dir)
			})
			if err != nil {
				return err
			}
			return writeReport(cmd.OutOrStdout(), report, format.value == "json", all)
		},
	}
	cmd.Flags().BoolVar(&engine, "engine", false, "tell which calls a table answers, and which rules prevent it")
	cmd.Flags().BoolVar(&all, "all", false, "with --engine, list every rule")
	cmd.Flags().StringVar(&system, "system", "", "the `NAME` of the system in sentences for a person")
	format.add(cmd, "format", "how the explanation or report is written")
	addPolicies(cmd, &dir)
	return cmd
}

// explainEngine is what help says of explain --engine.
const explainEngine = `With --engine it reads nothing. It goes through every kind of call and tells how
the engine auto answers it: from one table whatever the call's texts are, from a
table for each tool because a rule looks into the tool's name, or by OPA each
time because a rule does more with a text than to pass it on. It names each
expression that is the reason, and how many kinds of call meet it first. One
that needs a table for each tool and then meets what only OPA can decide counts
for both expressions, and is decided by OPA.

A rule is interpreted or per-tool if such an expression stands in it, compiled if
none does, and unused if no decision on a call depends on it.

A kind of call is everything in a call but its texts: the tool's name, a veto, a
note, rewritten arguments. Calls whose grant names an unknown capability are
outside of them; OPA decides those each time. Where a rule names tools one by
one, each of these has a table of its own, and is surveyed too; where it takes
names apart, the survey looks at one name that no rule knows.

No answer depends on any of this, only the time it takes. The survey itself can
take minutes. The exit code is 0 whatever it finds.`

// survey makes the report on the policies in dir, or on the built-in ones. Its
// files are named such that they can be opened from where the program runs.
func survey(ctx context.Context, cmd *cobra.Command, dir string) (*evaluator.Report, error) {
	e, err := loadPolicies(ctx, dir, cmd.Flags().Changed("policies"), "")
	if err != nil {
		return nil, err
	}
	p := newProgress(cmd.ErrOrStderr())
	report, err := e.Report(ctx, p.show)
	p.end()
	if err != nil {
		return nil, err
	}
	locate(report, dir)
	return report, nil
}

// locate puts the policies' directory before the files of a report.
func locate(r *evaluator.Report, dir string) {
	for i := range r.Rules {
		r.Rules[i].File = inDirectory(dir, r.Rules[i].File)
	}
	for i := range r.Blockers {
		r.Blockers[i].File = inDirectory(dir, r.Blockers[i].File)
	}
}

func writeReport(w io.Writer, r *evaluator.Report, asJSON, all bool) error {
	out := bufio.NewWriterSize(w, bufferSize)
	if asJSON {
		shown := *r
		shown.Rules = append([]evaluator.Rule{}, r.Rules...) // none is an empty list
		shown.Blockers = append([]evaluator.Blocker{}, r.Blockers...)
		text, err := encode(shown)
		if err != nil {
			return err
		}
		_, _ = out.Write(text)
		return out.Flush()
	}
	printReport(&printer{Writer: out, colour: wantsColour(w)}, r, all)
	return out.Flush()
}
