package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A report is what one run has found.
type report struct {
	Machine  string         `json:"machine"`
	Versions []string       `json:"versions"`
	Rounds   int            `json:"rounds"`
	Verified map[string]int `json:"verified"` // row: documents on which it agrees with native
	Sections []*section     `json:"sections"`
	Others   []figure       `json:"others"`
}

// A section is one table: one call, or one call from JSON to JSON.
type section struct {
	Name string    `json:"name"`
	Rows []rowCost `json:"rows"`
}

// A rowCost is one line of a table. A ratio is 0 where there is nothing to
// divide by.
type rowCost struct {
	Name string `json:"name"`
	cost
	ToNative float64 `json:"to_native"`
	ToWarm   float64 `json:"to_warm"`
}

// A figure is one that stands for itself.
type figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

func newReport() *report {
	r := &report{
		Machine:  fmt.Sprintf("%s/%s, %d processors, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version()),
		Rounds:   rounds,
		Verified: map[string]int{},
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, path := range []string{"github.com/open-policy-agent/opa", "cel.dev/cel-go", "github.com/cedar-policy/cedar-go"} {
			for _, dep := range info.Deps {
				if dep.Path == path {
					r.Versions = append(r.Versions, path[strings.LastIndex(path, "/")+1:]+" "+dep.Version)
				}
			}
		}
	}
	return r
}

// add adds the section of some measured items.
func (r *report) add(name string, items []*item) {
	costs := map[string]cost{}
	for _, it := range items {
		costs[it.name] = it.cost
	}
	ratio := func(c, to cost) float64 {
		if to.Nanoseconds == 0 {
			return 0
		}
		return c.Nanoseconds / to.Nanoseconds
	}
	s := &section{Name: name}
	for _, it := range items {
		s.Rows = append(s.Rows, rowCost{it.name, it.cost, ratio(it.cost, costs[nativeName]), ratio(it.cost, costs[autoName])})
	}
	r.Sections = append(r.Sections, s)
}

func (r *report) writeJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// writeMarkdown writes what can be pasted into a README as it is.
func (r *report) writeMarkdown(w io.Writer) error {
	var b strings.Builder
	for _, s := range r.Sections {
		lines := [][]string{{s.Name, "ns/op", "B/op", "allocs/op", "× native", "× warm"}}
		for _, c := range s.Rows {
			lines = append(lines, []string{c.Name, number(c.Nanoseconds), number(math.Round(c.Bytes)), number(math.Round(c.Allocations)),
				ratioText(c.ToNative), ratioText(c.ToWarm)})
		}
		table(&b, lines)
	}
	if len(r.Others) > 0 {
		lines := [][]string{{"besides", ""}}
		for _, f := range r.Others {
			lines = append(lines, []string{f.Name, number(f.Value) + " " + f.Unit})
		}
		table(&b, lines)
	}
	fmt.Fprintf(&b, "%s; %s.\n"+
		"Medians of %d rounds in which the rows take turns; %s.\n"+
		"Every row starts from the call in its own form, built beforehand. cel-go answers with the outcome and what is missing,\n"+
		"cedar-go with the outcome alone, the others with the whole decision; those of OPA also check the document.\n",
		r.Machine, strings.Join(r.Versions, ", "), r.Rounds, threadClockIs)
	_, err := io.WriteString(w, b.String())
	return err
}

// table writes lines, the first of which is the head, with the columns padded
// so that they stand in line unrendered too.
func table(b *strings.Builder, lines [][]string) {
	widths := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, text := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(text))
		}
	}
	write := func(line []string) {
		for i, text := range line {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text))
			if i == 0 {
				text += pad
			} else {
				text = pad + text
			}
			b.WriteString("| " + text + " ")
		}
		b.WriteString("|\n")
	}
	write(lines[0])
	for i, width := range widths {
		if i == 0 {
			b.WriteString("| " + strings.Repeat("-", width) + " ")
		} else {
			b.WriteString("| " + strings.Repeat("-", max(width-1, 1)) + ": ")
		}
	}
	b.WriteString("|\n")
	for _, line := range lines[1:] {
		write(line)
	}
	b.WriteString("\n")
}

func ratioText(f float64) string {
	if f == 0 {
		return "–"
	}
	return number(f)
}

// number writes what a measurement is worth: three figures, in groups of three.
// Below 100 whole numbers, such as counts, stand as they are.
func number(f float64) string {
	switch {
	case f < 100 && f == math.Trunc(f):
		return fmt.Sprintf("%.0f", f)
	case f < 0.0995:
		return strconv.FormatFloat(f, 'f', max(2, 1-int(math.Floor(math.Log10(f)))), 64)
	case f < 9.995:
		return fmt.Sprintf("%.2f", f)
	case f < 99.95:
		return fmt.Sprintf("%.1f", f)
	}
	scale := math.Pow10(int(math.Log10(f)) - 2)
	text := fmt.Sprintf("%.0f", math.Round(f/scale)*scale)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
