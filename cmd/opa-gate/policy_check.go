package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/opa-gate/opa-gate/analysis"
	"github.com/opa-gate/opa-gate/wire"
)

func newPolicyCheck() *cobra.Command {
	format := newFormat()
	var opts analysis.CheckOptions
	cmd := &cobra.Command{
		Use:   "check DIR",
		Short: "Find what is wrong with policies, with file, line and what would be right",
		Long: `Check compiles the policies in DIR strictly, with the schemas of the documents,
and tells everything that is wrong with them, tests and data included:

  - paths into the input or into data that do not exist, texts that are compared
    with what can never be them, and the names that were meant
  - files that are not formatted; --fix rewrites them
  - decisions that are missing, do not have the shape of a decision, have no answer
    or two of them: several thousand calls and skills are put to the policies, with
    the texts and arguments that rules look for; one that takes seconds ends that
  - built-ins that let a decision depend on a clock, on chance or on others;
    --allow names the ones that may be called all the same
  - rules that nothing uses (a warning), but for those whose METADATA has
    "unused: true" in its custom part

Each line is FILE:LINE:COLUMN: SEVERITY: MESSAGE [CODE]; the codes stay the same
from version to version. With --format json it is one array of objects with file,
line, column, severity, code and message.

Exit codes: 0 no errors (there may be warnings), 1 errors, 2 wrong usage or a
directory that cannot be read.`,
		Example: `  opa-gate policy check my-policies
  opa-gate policy check my-policies --fix
  opa-gate policy check my-policies --allow time.now_ns --format json`,
		Args: oneDirectory,
		RunE: func(cmd *cobra.Command, args []string) error {
			result, err := interruptible(cmd, "everything was looked at", func(ctx context.Context) (*analysis.CheckResult, error) {
				p := newProgressOf(cmd.ErrOrStderr(), "asking", "asked about %d %% of the documents")
				defer p.end()
				opts.Progress = p.show
				return analysis.Check(ctx, args[0], &opts)
			})
			if err != nil {
				printFixed(cmd.ErrOrStderr(), result.Fixed, args[0])
				return fmt.Errorf("policy check: %w", err)
			}
			for i := range result.Findings {
				result.Findings[i].File = inDirectory(args[0], result.Findings[i].File)
			}
			if err := writeFindings(cmd, result, args[0], format.value == "json"); err != nil {
				return err
			}
			if !result.OK() {
				return exit(exitCheck)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&opts.Fix, "fix", false, "rewrite files that are not formatted")
	cmd.Flags().StringSliceVar(&opts.Allow, "allow", nil, "let rules call these `BUILT-INS`, separated by commas")
	format.add(cmd, "format", "how the findings are written")
	return cmd
}

func writeFindings(cmd *cobra.Command, r *analysis.CheckResult, dir string, asJSON bool) error {
	w := cmd.OutOrStdout()
	out := bufio.NewWriterSize(w, bufferSize)
	if asJSON {
		printFixed(cmd.ErrOrStderr(), r.Fixed, dir) // it is no finding any more
		text, err := encode(append([]analysis.Finding{}, r.Findings...))
		if err != nil {
			return err
		}
		_, _ = out.Write(text)
		return out.Flush()
	}
	p := &printer{Writer: out, colour: wantsColour(w)}
	printFixed(p, r.Fixed, dir)
	for _, f := range r.Findings {
		printFinding(p, f)
	}
	if len(r.Findings) > 0 {
		_ = p.WriteByte('\n')
	}
	verdict, c := checkVerdict(r.Findings)
	p.paint(c, verdict, 0)
	_, _ = p.WriteString(" in " + wire.Printable(dir))
	if slices.ContainsFunc(r.Findings, func(f analysis.Finding) bool { return f.Code == analysis.CodeUnformatted }) {
		_, _ = p.WriteString("; --fix rewrites what is not formatted")
	}
	_ = p.WriteByte('\n')
	return p.Flush()
}

// printFixed tells which files were rewritten.
func printFixed(w io.Writer, files []string, dir string) {
	for _, name := range files {
		_, _ = fmt.Fprintf(w, "%s: formatted\n", wire.Printable(inDirectory(dir, name)))
	}
}

// checkVerdict says in a few words what findings come to.
func checkVerdict(findings []analysis.Finding) (string, colour) {
	counts := map[analysis.Severity]int{}
	for _, f := range findings {
		counts[f.Severity]++
	}
	warnings := counted(counts[analysis.SeverityWarning], "warning", "warnings")
	switch errors := counts[analysis.SeverityError]; {
	case errors > 0 && errors < len(findings):
		return counted(errors, "error", "errors") + ", " + warnings, red
	case errors > 0:
		return counted(errors, "error", "errors"), red
	case len(findings) > 0:
		return "no errors, " + warnings, yellow
	default:
		return "nothing is wrong", green
	}
}

// printFinding writes a finding behind its place, as compilers do.
func printFinding(p *printer, f analysis.Finding) {
	_, _ = p.WriteString(wire.Printable(f.File) + ":" + strconv.Itoa(f.Line) + ":" + strconv.Itoa(f.Column) + ": ")
	c := red
	if f.Severity == analysis.SeverityWarning {
		c = yellow
	}
	p.paint(c, string(f.Severity), 0)
	_, _ = p.WriteString(": " + wire.Printable(f.Message) + " ")
	p.paint(faint, "["+string(f.Code)+"]", 0)
	_ = p.WriteByte('\n')
}
