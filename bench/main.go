// Command bench measures the gate beside other ways to decide the same calls:
// the native reference, a stock OPA with the same policies, and the same
// decision written for cel-go and for cedar-go. All of it in one run, because
// only then do the ratios mean something.
//
//	go run .
//
// Before a row's figures are printed, its answers are held against the native
// reference on several thousand calls; a row that differs is not printed.
//
// Every row gets the call in the form that it likes best, built beforehand, and
// is timed up to where its own API returns. The rows do not do the same work,
// and the difference favours cel-go and cedar-go. Those of this gate refuse an
// invalid call and answer in full, with the sentence for a person; those of OPA
// answer in full, and check the document against its schema as the policies
// say; cel-go and cedar-go do neither, see policy.cel and policy.cedar.
//
// The row of the first time is what a call costs whose cell is not compiled
// yet: OPA's decision, the compiling of the cell, and the check that both say
// the same. What an evaluator does once in its life stands beside it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"time"
)

type settings struct {
	format  string
	run     *regexp.Regexp // nil: everything
	perItem time.Duration
	step    int
}

func main() {
	format := flag.String("format", "markdown", "`markdown` or json")
	run := flag.String("run", "", "measure only the rows whose name matches this `regexp`, and nothing else")
	perItem := flag.Duration("time", time.Second, "how long to measure each row and call")
	flag.Parse()
	s := settings{format: *format, perItem: *perItem, step: spreadStep}
	if flag.NArg() > 0 || s.format != "markdown" && s.format != "json" {
		flag.Usage()
		os.Exit(2)
	}
	if *run != "" {
		var err error
		if s.run, err = regexp.Compile(*run); err != nil {
			fmt.Fprintln(os.Stderr, "bench: -run:", err)
			os.Exit(2)
		}
	}
	r, differ, err := s.measure(context.Background())
	if err == nil && s.format == "json" {
		err = r.writeJSON(os.Stdout)
	} else if err == nil {
		err = r.writeMarkdown(os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
	if err != nil || differ {
		os.Exit(1)
	}
}

func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...) }
