package main

import (
	"bufio"
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
that are built in are taken. The exit code is 1 if any answer differs.`,
		Example: `  opa-gate conform
  opa-gate conform --engine native,opa
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
				c := conformance{Engine: name, Report: fixtures.Run(cmd.Context(), evaluator.Documents{Engine: engine}, suite)}
				c.OK = c.Report.OK()
				c.Total, c.Failed = c.Report.Total()
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
	engines.add(cmd)
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
		_, _ = p.WriteString("\n  " + wire.Printable(d.File) + ": " + wire.Printable(d.Case) + " (" + string(d.Kind) + ")\n")
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
