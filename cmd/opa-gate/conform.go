package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/opa-gate/opa-gate/conformance"
	"github.com/opa-gate/opa-gate/fixtures"
)

func newConform() *cobra.Command {
	engines := conformEngines{list: engineList{value: engineAuto}}
	format := choice{value: "text", names: []string{"text", "json", "junit"}}
	var (
		all              bool
		baseline, output string
	)
	cmd := &cobra.Command{
		Use:   "conform [PATH...]",
		Short: "Check that an engine answers as the specification demands",
		Long: `Conform puts conformance cases to engines and compares their answers with the
wanted ones. A PATH is a case file or a folder of them; without one, the cases
that are built in are taken. The exit code is 1 if any answer differs.

The engine auto compiles the policies as they are used, so it is asked each case
several times: OPA answers at first, and a table where there is one later on. A
case counts once, and fails if any of its answers differs. The other engines
are asked once.

The engine wasm is the WebAssembly build of the policies, evaluated in this
process. The engine url=URL is a server with OPA's Data API, such as a stock OPA
with the policies; it is asked at URL/v1/data/gate/call/decision and
URL/v1/data/gate/skill/decision. Both see documents as they are written, and
decide calls and skills only: a document that breaks its schema they must deny,
and cases of which they cannot be asked are counted as not asked.

A server may want credentials: a user and password in the URL, or a bearer
token in the file that --url-token-file names or in the environment variable
` + tokenVariable + `. Neither is ever shown.

A case that an engine is known to answer otherwise stands in a baseline, with
the reason. It is shown as a known gap and is no failure. An entry that is not
true, or no longer, is one:

  {"gaps": [{"engine": "wasm", "file": "transforms.json", "case": "2^64", "reason": "…"}]}`,
		Example: `  opa-gate conform
  opa-gate conform --engine auto,opa,native,wasm
  opa-gate conform --engine native,url=http://localhost:8181
  opa-gate conform --policies ./policies --all
  opa-gate conform --format junit --output report.xml my-cases/`,
		RunE: func(cmd *cobra.Command, args []string) error {
			suite, err := loadCases(args)
			if err != nil {
				return err
			}
			known, err := readBaseline(cmd, baseline)
			if err != nil {
				return err
			}
			asked, err := engines.open(cmd)
			if err != nil {
				return err
			}
			report := conformance.Run(cmd.Context(), suite, known, asked...)
			if err := writeConformance(cmd, report, format.value, output, all); err != nil {
				return err
			}
			if !report.OK {
				return exit(exitCheck)
			}
			return nil
		},
	}
	engines.add(cmd)
	format.add(cmd, "format", "how the report is written; json and junit have every difference")
	cmd.Flags().BoolVar(&all, "all", false, "show every difference, not only the first "+strconv.Itoa(conformance.FirstDifferences))
	cmd.Flags().StringVar(&baseline, "baseline", "", "the known gaps of engines are in `FILE`, JSON or YAML")
	cmd.Flags().StringVar(&output, "output", "", "write the report to `FILE`, and nothing to the standard output")
	return cmd
}

func loadCases(paths []string) (fixtures.Suite, error) {
	if len(paths) == 0 {
		return fixtures.Load(fixtures.Cases())
	}
	return fixtures.LoadPaths(paths)
}

func readBaseline(cmd *cobra.Command, file string) (*conformance.Baseline, error) {
	if !cmd.Flags().Changed("baseline") {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--baseline: %w", err)
	}
	b, err := conformance.ParseBaseline(file, text)
	if err != nil {
		return nil, fmt.Errorf("--baseline: %w", err)
	}
	return b, nil
}

// writeConformance writes the report to a file, or, if none is named, to the
// standard output.
func writeConformance(cmd *cobra.Command, r *conformance.Report, format, file string, all bool) (err error) {
	w := cmd.OutOrStdout()
	if cmd.Flags().Changed("output") {
		f, err := os.Create(file)
		if err != nil {
			return fmt.Errorf("--output: %w", err)
		}
		err = writeConformReport(f, r, format, all)
		if closeErr := f.Close(); err == nil {
			err = closeErr
		}
		if err != nil {
			return fmt.Errorf("--output: %w", err)
		}
		return nil
	}
	return writeConformReport(w, r, format, all)
}

func writeConformReport(w io.Writer, r *conformance.Report, format string, all bool) error {
	switch format {
	case "json":
		return r.WriteJSON(w)
	case "junit":
		return r.WriteJUnit(w)
	default:
		return r.WriteText(w, &conformance.TextOptions{All: all, Colour: wantsColour(w)})
	}
}

// defaultURLTimeout is how long one question to a server may take.
const defaultURLTimeout = 10 * time.Second
