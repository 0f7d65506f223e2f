package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/fixtures"
	"github.com/opa-gate/opa-gate/wire"
)

// firstDifferences is how many differences a person is shown at first.
const firstDifferences = 10

func newConform() *cobra.Command {
	engines := newEngineFlags(true)
	format := newFormat()
	var all bool
	cmd := &cobra.Command{
		Use:   "conform [PATH...]",
		Short: "Check that an engine answers as the specification demands",
		Long: `Conform puts conformance cases to an engine and compares its answers with the
wanted ones. A PATH is a case file or a folder of them; without one, the cases
that are built in are taken. The exit code is 1 if any answer differs.

The engine auto compiles the policies as they are used, so it is asked each case
several times: OPA answers at first, and a table where there is one later on. A
case counts once, and fails if any of its answers differs. The other engines
are asked once.`,
		Example: `  opa-gate conform
  opa-gate conform --engine auto,opa,native
  opa-gate conform --policies ./policies --all
  opa-gate conform --format json my-cases/`,
		RunE: func(cmd *cobra.Command, args []string) error {
			suite, err := loadCases(args)
			if err != nil {
				return err
			}
			var results []conformance
			failed := false
			names := strings.Split(engines.engine.value, ",")
			for i, name := range names {
				if slices.Contains(names[:i], name) {
					continue
				}
				engine, err := engines.open(cmd.Context(), name)
				if err != nil {
					return err
				}
				c := conform(cmd.Context(), name, engine, suite)
				failed = failed || !c.OK
				results = append(results, c)
			}
			if err := writeConformance(cmd.OutOrStdout(), results, !failed, format.value == "json", all); err != nil {
				return err
			}
			if failed {
				return exit(exitCheck)
			}
			return nil
		},
	}
	engines.add(cmd, "whose answers are checked: the policies', compiled as they are used or always by OPA, "+
		"the native reference's, or those of opa and native both, which must agree; or a list, one after the other")
	format.add(cmd, "format", "how the report is written; json has every difference")
	cmd.Flags().BoolVar(&all, "all", false, "show every difference, not only the first "+strconv.Itoa(firstDifferences))
	return cmd
}

func loadCases(paths []string) (fixtures.Suite, error) {
	if len(paths) == 0 {
		return fixtures.Load(fixtures.Cases())
	}
	return fixtures.LoadPaths(paths)
}

// A conformance is how one engine did.
type conformance struct {
	Engine string `json:"engine"`
	OK     bool   `json:"ok"`
	Total  int    `json:"total"`
	Failed int    `json:"failed"`
	fixtures.Report
	Differences []difference `json:"differences"` // in place of the report's
}

// A difference is a case that failed.
type difference struct {
	fixtures.Difference
	Again bool `json:"again,omitempty"` // the first answer was right
}

// autoRounds is how often a case is put to the engine that compiles policies as
// they are used. Its very first call leaves no trace, the first of a kind fills
// a table, and only what comes behind them is answered from it.
const autoRounds = 3

// conform puts a suite to an engine.
func conform(ctx context.Context, name string, engine evaluator.Engine, suite fixtures.Suite) conformance {
	rounds := 1
	if name == engineAuto {
		rounds = autoRounds
	}
	c := conformance{Engine: name, Differences: []difference{}}
	type id struct{ file, name string }
	failed := map[id]bool{}
	for round := range rounds {
		report := fixtures.Run(ctx, evaluator.Documents{Engine: engine}, suite)
		if round == 0 {
			c.Report = report
		}
		if c.Stopped == "" {
			c.Stopped = report.Stopped
		}
		for _, d := range report.Differences {
			if key := (id{d.File, d.Case}); !failed[key] {
				failed[key] = true
				c.add(d, round > 0)
			}
		}
	}
	c.OK = c.Report.OK() && len(c.Differences) == 0
	c.Total, c.Failed = c.Report.Total()
	return c
}

// add adds the difference of a case that has none yet. Those of the first round
// are in the counts already.
func (c *conformance) add(d fixtures.Difference, again bool) {
	c.Differences = append(c.Differences, difference{d, again})
	for i := range c.Counts {
		if again && c.Counts[i].Kind == d.Kind {
			c.Counts[i].Failed++
		}
	}
}

func writeConformance(w io.Writer, results []conformance, ok, asJSON, all bool) error {
	out := bufio.NewWriterSize(w, bufferSize)
	if asJSON {
		text, err := encode(struct {
			OK      bool          `json:"ok"`
			Engines []conformance `json:"engines"`
		}{ok, results})
		if err != nil {
			return err
		}
		_, _ = out.Write(text)
		return out.Flush()
	}
	p := &printer{Writer: out, colour: wantsColour(w)}
	for i := range results {
		results[i].print(p, all)
	}
	return out.Flush()
}

func (c *conformance) print(p *printer, all bool) {
	const width = 11 // "redeclare" and two blanks
	_, _ = p.WriteString(c.Engine + "\n")
	for _, n := range c.Counts {
		_, _ = p.WriteString("  ")
		pad(p, string(n.Kind), width)
		_, _ = p.WriteString(result(n.Total, n.Failed) + "\n")
	}
	_, _ = p.WriteString("  ")
	pad(p, "total", width)
	text, c1 := result(c.Total, c.Failed), green
	if !c.OK {
		c1 = red
	}
	p.paint(c1, text, 0)
	_ = p.WriteByte('\n')
	if c.Stopped != "" {
		_, _ = p.WriteString("  stopped: " + wire.Printable(c.Stopped) + "\n")
	}
	shown := c.Differences
	if !all && len(shown) > firstDifferences {
		shown = shown[:firstDifferences]
	}
	for _, d := range shown {
		again := ""
		if d.Again {
			again = ", when it was asked again"
		}
		_, _ = p.WriteString("\n  " + wire.Printable(d.File) + ": " + wire.Printable(d.Case) + " (" + string(d.Kind) + again + ")\n")
		for _, part := range []struct {
			label string
			value json.RawMessage
		}{{"input", d.Input}, {"want", d.Want}, {"got", d.Got}} {
			p.detail(part.label, compact(part.value))
		}
	}
	if more := len(c.Differences) - len(shown); more > 0 {
		_, _ = p.WriteString("\n  and " + strconv.Itoa(more) + " more; --all shows them\n")
	}
}

// result words how many cases ran and how many of them failed.
func result(total, failed int) string {
	text := counted(total, "case", "cases")
	if failed > 0 {
		text += ", " + strconv.Itoa(failed) + " failed"
	}
	return text
}
