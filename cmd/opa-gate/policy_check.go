package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
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
  - decisions that are missing, have not the shape of a decision, have no answer
    or two of them: several thousand calls and skills are put to the policies
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
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
			defer stop()
			result, err := analysis.Check(ctx, args[0], &opts)
			if ctx.Err() != nil {
				complain(cmd.ErrOrStderr(), "interrupted before everything was looked at")
				return exit(exitInterrupted)
			}
			if err != nil {
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

// inDirectory names a file of a directory such that it can be opened from where
// the program runs.
func inDirectory(dir, file string) string { return filepath.Join(dir, filepath.FromSlash(file)) }

func writeFindings(cmd *cobra.Command, r *analysis.CheckResult, dir string, asJSON bool) error {
	w := cmd.OutOrStdout()
	out := bufio.NewWriterSize(w, bufferSize)
	fixed := func(w io.Writer) {
		for _, name := range r.Fixed {
			_, _ = fmt.Fprintf(w, "%s: formatted\n", wire.Printable(inDirectory(dir, name)))
		}
	}
	if asJSON {
		fixed(cmd.ErrOrStderr()) // it is no finding any more
		text, err := encode(append([]analysis.Finding{}, r.Findings...))
		if err != nil {
			return err
		}
		_, _ = out.Write(text)
		return out.Flush()
	}
	p := &printer{Writer: out, colour: wantsColour(w)}
	fixed(p)
	counts := map[analysis.Severity]int{}
	for _, f := range r.Findings {
		counts[f.Severity]++
		printFinding(p, f)
	}
	if len(r.Findings) > 0 {
		_ = p.WriteByte('\n')
	}
	switch errors, warnings := counts[analysis.SeverityError], counts[analysis.SeverityWarning]; {
	case errors > 0:
		text := counted(errors, "error", "errors")
		if warnings > 0 {
			text += ", " + counted(warnings, "warning", "warnings")
		}
		p.paint(red, text, 0)
	case warnings > 0:
		p.paint(yellow, "no errors, "+counted(warnings, "warning", "warnings"), 0)
	default:
		p.paint(green, "nothing is wrong", 0)
	}
	_, _ = p.WriteString(" in " + wire.Printable(dir) + "\n")
	return p.Flush()
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
