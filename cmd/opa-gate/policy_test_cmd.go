package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/opa-gate/opa-gate/analysis"
	"github.com/opa-gate/opa-gate/wire"
)

func newPolicyTest() *cobra.Command {
	format := newFormat()
	var opts analysis.TestOptions
	var all bool
	cmd := &cobra.Command{
		Use:   "test DIR",
		Short: "Run the tests of policies; say why one fails, and what none reaches",
		Long: `Test runs the tests of the policies in DIR with OPA's own runner: the rules
test_… in files …_test.rego. It tells

  - of a test that fails: the expression, and where what it got differs from what
    it wants
  - the lines that no test reaches, and the condition that kept all tests from them;
    lines are counted as opa test --coverage counts them
  - the decisions that no test asks for, as calls to paste

Decisions are counted by class. A class is the calls of one origin, under one
taint, with one verdict of the hook (a veto, a person asked for, a rewrite, a
note, or nothing), that the policies answer alike: an outcome, and of an escalate
whether something is missing. A class is touched if a test asks for
data.gate.call.decision with a call of it.

Exit codes: 0 every test passed, whatever is left out, 1 a test failed, 2 the tests
could not be run: wrong usage, or policies that do not compile.`,
		Example: `  opa-gate policy test my-policies
  opa-gate policy test my-policies --run 'call_test\.test_veto'
  opa-gate policy test my-policies --format json`,
		Args: oneDirectory,
		RunE: func(cmd *cobra.Command, args []string) error {
			report, err := interruptible(cmd, "every test was run", func(ctx context.Context) (*analysis.TestReport, error) {
				return analysis.Test(ctx, args[0], &opts)
			})
			if err != nil {
				return fmt.Errorf("policy test: %w", err)
			}
			locateTests(report, args[0])
			out := bufio.NewWriterSize(cmd.OutOrStdout(), bufferSize)
			if format.value == "json" {
				text, err := encode(report)
				if err != nil {
					return err
				}
				_, _ = out.Write(text)
			} else {
				printTests(&printer{Writer: out, colour: wantsColour(cmd.OutOrStdout())}, report, opts.Run != "", all)
			}
			if err := out.Flush(); err != nil {
				return err
			}
			if !report.OK() {
				return exit(exitCheck)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&opts.Run, "run", "", "run only the tests whose data.PACKAGE.NAME the `REGEX` matches")
	cmd.Flags().BoolVar(&all, "all", false, "list every test, and every decision that no test asks for")
	format.add(cmd, "format", "how the report is written; json has all of it")
	return cmd
}

// locateTests puts the policies' directory before the files of a report.
func locateTests(r *analysis.TestReport, dir string) {
	for i := range r.Tests {
		t := &r.Tests[i]
		t.File = inDirectory(dir, t.File)
		for j := range t.Failures {
			t.Failures[j].File = inDirectory(dir, t.Failures[j].File)
		}
	}
	for i := range r.Coverage.Files {
		r.Coverage.Files[i].File = inDirectory(dir, r.Coverage.Files[i].File)
	}
}

// printTests writes a report for a person: the failures, then what the tests leave
// out. With some of the tests only, what they leave out says nothing.
func printTests(p *printer, r *analysis.TestReport, some, all bool) {
	for i := range r.Tests {
		if t := &r.Tests[i]; all || t.Outcome != analysis.TestPassed || t.Output != "" {
			printTest(p, t)
		}
	}
	verdict, c := testVerdict(r.Tests)
	p.paint(c, verdict, 0)
	_ = p.WriteByte('\n')
	if some {
		return
	}
	printCoverage(p, &r.Coverage)
	printDecisions(p, r.Decisions, all)
}

// testVerdict says in a few words how tests went.
func testVerdict(tests []analysis.TestResult) (string, colour) {
	counts := map[analysis.TestOutcome]int{}
	for i := range tests {
		counts[tests[i].Outcome]++
	}
	text, c := counted(counts[analysis.TestPassed], "test passed", "tests passed"), green
	if n := counts[analysis.TestFailed] + counts[analysis.TestError]; n > 0 {
		text, c = fmt.Sprintf("%d failed, %s", n, text), red
	}
	if n := counts[analysis.TestSkipped]; n > 0 {
		text += fmt.Sprintf(", %d still to do", n)
	}
	return text, c
}

func printTest(p *printer, t *analysis.TestResult) {
	label, c := string(t.Outcome), red
	switch t.Outcome {
	case analysis.TestPassed:
		c = green
	case analysis.TestSkipped:
		label, c = "to do", yellow
	}
	p.paint(c, label, 7)
	_, _ = p.WriteString(wire.Printable(strings.TrimPrefix(t.Name, "data.")) + "  ")
	p.paint(faint, wire.Printable(fmt.Sprintf("%s:%d", t.File, t.Line)), 0)
	_ = p.WriteByte('\n')
	if t.Message != "" {
		_, _ = p.WriteString("    " + wire.Printable(t.Message) + "\n")
	}
	for _, line := range strings.Split(strings.TrimRight(t.Output, "\n"), "\n") {
		if line != "" {
			_, _ = p.WriteString("    " + wire.Printable(line) + "\n")
		}
	}
	for i := range t.Failures {
		printFailure(p, &t.Failures[i])
	}
	if t.Outcome != analysis.TestPassed && t.Outcome != analysis.TestSkipped {
		_ = p.WriteByte('\n')
	}
}

func printFailure(p *printer, f *analysis.TestFailure) {
	if f.Case != "" {
		_, _ = p.WriteString("    case " + wire.Printable(f.Case) + "\n")
	}
	_, _ = p.WriteString("    " + wire.Printable(fmt.Sprintf("%s:%d:%d: %s", f.File, f.Line, f.Column, f.Message)) + "\n")
	_, _ = p.WriteString("        ")
	p.paint(faint, wire.Printable(clip(f.Expression, 100)), 0)
	_ = p.WriteByte('\n')
	row := func(c colour, label, text string) {
		_, _ = p.WriteString("        ")
		p.paint(c, label, 8)
		_, _ = p.WriteString(wire.Printable(clip(text, longestText)) + "\n")
	}
	const shown = 8
	for i, d := range f.Differences {
		if i == shown {
			row(faint, "", fmt.Sprintf("and %d more differences; --format json has all", len(f.Differences)-shown))
			break
		}
		if d.Pointer != "" {
			row(faint, "at", d.Pointer)
		}
		row(green, "want", present(d.Want))
		row(red, "got", present(d.Got))
	}
	if f.Want != nil && len(f.Differences) == 0 {
		row(green, "want", compact(f.Want))
		row(red, "got", undefinedOr(f.Got))
	}
	for _, name := range slices.Sorted(maps.Keys(f.Values)) {
		row(faint, name, compact(f.Values[name]))
	}
}

func present(v json.RawMessage) string {
	if v == nil {
		return "(nothing there)"
	}
	return compact(v)
}

func undefinedOr(v json.RawMessage) string {
	if string(v) == "null" {
		return "undefined"
	}
	return compact(v)
}

// longestText is how much of a text is shown, in characters.
const longestText = 300

// clip cuts a text where it gets too long to read.
func clip(text string, longest int) string {
	if r := []rune(text); len(r) > longest {
		return string(r[:longest-1]) + "…"
	}
	return text
}

// printCoverage writes the lines that no test reaches, by file.
func printCoverage(p *printer, c *analysis.TestCoverage) {
	whole := 0
	for i := range c.Files {
		f := &c.Files[i]
		if len(f.Gaps) == 0 {
			whole++
			continue
		}
		p.title(fmt.Sprintf("%s, %.1f %% of %s", wire.Printable(f.File), f.Percent, counted(f.Lines, "line", "lines")))
		for i, g := range f.Gaps {
			_, _ = p.WriteString(wire.Printable(fmt.Sprintf("%s:%d: %s", f.File, g.Line, clip(g.Text, longestText))) + "\n")
			if i+1 == len(f.Gaps) || f.Gaps[i+1].Why != g.Why { // once for lines that have it in common
				p.paint(faint, "    "+wire.Printable(clip(g.Why, longestText)), 0)
				_ = p.WriteByte('\n')
			}
		}
	}
	colour := green
	text := fmt.Sprintf("%d of %s are fully covered", whole, counted(len(c.Files), "file", "files"))
	if whole < len(c.Files) {
		colour = yellow
		text = fmt.Sprintf("%.1f %% of the lines are covered, %s", c.Percent, text)
	} else {
		text = fmt.Sprintf("every line of %s is covered", counted(len(c.Files), "file", "files"))
	}
	_ = p.WriteByte('\n')
	p.paint(colour, text, 0)
	_ = p.WriteByte('\n')
}

// printDecisions writes how many classes of decisions tests ask for, and examples
// of those they do not.
func printDecisions(p *printer, d *analysis.TestedDecisions, all bool) {
	c := green
	if d.Touched < d.Total {
		c = yellow
	}
	_ = p.WriteByte('\n')
	p.paint(c, fmt.Sprintf("%.0f %% of the decisions are asked for: %d of %d classes, by %s", d.Percent, d.Touched, d.Total, counted(d.Calls, "call", "calls")), 0)
	_ = p.WriteByte('\n')
	note := []string{"A class is one origin, taint, verdict of the hook and answer. A test touches it that",
		"asks for data.gate.call.decision with a call of it."}
	if d.Parts > 0 {
		note[1] += fmt.Sprintf(" Not counted: %s, put to other rules.", counted(d.Parts, "call", "calls"))
	}
	for _, line := range note {
		p.paint(faint, line, 0)
		_ = p.WriteByte('\n')
	}
	rows := map[string][2]int{}
	var origins []string
	var left []analysis.DecisionClass
	perOrigin := map[string]int{}
	for _, class := range d.Classes {
		row, there := rows[class.Origin]
		if !there {
			origins = append(origins, class.Origin)
		}
		row[1]++
		if class.Touched {
			row[0]++
		} else {
			const shown = 1 // of each origin, unless all are asked for
			if perOrigin[class.Origin]++; all || perOrigin[class.Origin] <= shown {
				left = append(left, class)
			}
		}
		rows[class.Origin] = row
	}
	_ = p.WriteByte('\n')
	for _, origin := range origins {
		pad(p, "  "+origin, 26)
		_, _ = fmt.Fprintf(p, "%2d of %2d\n", rows[origin][0], rows[origin][1])
	}
	if len(left) == 0 {
		return
	}
	title := "not asked for"
	if !all {
		title += ", one of each origin (--all lists all of them)"
	}
	p.title(title)
	for _, class := range left {
		_, _ = p.WriteString(wire.Printable(fmt.Sprintf("%s, %s, verdict %s: %s", class.Origin, class.Taint, class.Verdict, class.Answer)) + "\n")
		_, _ = p.WriteString("    " + wire.Printable(compact(class.Example)) + "\n")
	}
}
