package conformance

import (
	"encoding/xml"
	"io"
	"strings"
)

// The elements of a JUnit report, as the tools that read them expect them.
type (
	junitSuites struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Skipped  int          `xml:"skipped,attr"`
		Errors   int          `xml:"errors,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Errors   int         `xml:"errors,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Class   string     `xml:"classname,attr"`
		Name    string     `xml:"name,attr"`
		Failure *junitNote `xml:"failure"`
		Error   *junitNote `xml:"error"`
		Skipped *junitNote `xml:"skipped"`
	}
	junitNote struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

func (s *junitSuite) add(c junitCase) {
	s.Tests++
	switch {
	case c.Failure != nil:
		s.Failures++
	case c.Error != nil:
		s.Errors++
	case c.Skipped != nil:
		s.Skipped++
	}
	s.Cases = append(s.Cases, c)
}

func (s *junitSuites) add(suite junitSuite) {
	if suite.Tests == 0 {
		return
	}
	s.Tests += suite.Tests
	s.Failures += suite.Failures
	s.Skipped += suite.Skipped
	s.Errors += suite.Errors
	s.Suites = append(s.Suites, suite)
}

// WriteJUnit writes the report as JUnit XML: a testsuite for each engine and
// kind, and a testcase for each case. Known gaps and cases that an engine is not
// asked are skipped, with the reason. A run that stopped is an error, and so is
// a stale entry of the baseline a failure. Characters that XML cannot contain
// are replaced.
func (r *Report) WriteJUnit(w io.Writer) error {
	var all junitSuites
	for i := range r.Engines {
		e := &r.Engines[i]
		for _, n := range e.Counts {
			suite := junitSuite{Name: e.Engine + ": " + string(n.Kind)}
			for k := range r.cases {
				if r.cases[k].kind == n.Kind {
					suite.add(r.junit(e, k))
				}
			}
			all.add(suite)
		}
		if e.Stopped != "" {
			suite := junitSuite{Name: e.Engine + ": run"}
			suite.add(junitCase{Class: e.Engine, Name: "the run comes to its end", Error: &junitNote{Message: e.Stopped}})
			all.add(suite)
		}
	}
	if b := r.Baseline; b != nil {
		suite := junitSuite{Name: "baseline"}
		for _, s := range b.Stale {
			suite.add(junitCase{Class: s.Engine + ": " + s.File, Name: s.Case, Failure: &junitNote{Message: "stale: " + s.Problem}})
		}
		for _, g := range b.Unasked {
			suite.add(junitCase{Class: g.Engine + ": " + g.File, Name: g.Case, Skipped: &junitNote{Message: "the engine was not asked"}})
		}
		all.add(suite)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// junit is one case and one engine.
func (r *Report) junit(e *EngineReport, i int) junitCase {
	c, a := &r.cases[i], &e.answers[i]
	out := junitCase{Class: c.file, Name: c.Name}
	switch a.status {
	case different:
		message := "the answer is not the wanted one"
		if a.again {
			message = "the answer is not the wanted one, when it was asked again"
		}
		out.Failure = &junitNote{message, r.sides(i)}
	case known:
		out.Skipped = &junitNote{"known gap: " + a.why, r.sides(i)}
	case notAsked:
		out.Skipped = &junitNote{Message: "not asked: " + a.why}
	case unjudged:
		out.Skipped = &junitNote{Message: "not asked: " + whyUnjudged}
	}
	return out
}

// sides is the input, the want, and what each engine said, one a line.
func (r *Report) sides(i int) string {
	c := r.compare(i)
	var b strings.Builder
	line := func(label, value string) { b.WriteString(label + ": " + value + "\n") }
	line("input", compact(c.Input))
	line("want", compact(c.Want))
	for _, a := range c.Answers {
		switch {
		case a.Absent != "":
			line(a.Engine, "not asked: "+a.Absent)
		case a.Known != "":
			line(a.Engine, compact(a.Got)+" (known gap: "+a.Known+")")
		default:
			line(a.Engine, compact(a.Got))
		}
	}
	return b.String()
}
