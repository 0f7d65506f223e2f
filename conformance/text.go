package conformance

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/opa-gate/opa-gate/wire"
)

// FirstDifferences is how many differences a text shows unless all are asked for.
const FirstDifferences = 10

// TextOptions say how a report is written for people.
type TextOptions struct {
	All    bool // show every difference
	Colour bool // for a terminal
}

// WriteText writes the report for people. Whatever in it could act on a terminal
// is escaped. Nil options are the zero ones.
func (r *Report) WriteText(w io.Writer, opts *TextOptions) error {
	if opts == nil {
		opts = &TextOptions{}
	}
	t := &text{bufio.NewWriter(w), opts}
	for i := range r.Engines {
		t.engine(&r.Engines[i])
		if len(r.Engines) == 1 {
			t.differences(r.Engines[i].Differences)
		}
	}
	t.comparisons(r.Cases)
	t.baseline(r.Baseline)
	return t.Flush()
}

// A text is a report in the writing. A failed write stays with the writer until
// it is flushed.
type text struct {
	*bufio.Writer
	opts *TextOptions
}

const (
	green = "32"
	red   = "31"
	faint = "2"
)

func (t *text) add(parts ...string) {
	for _, p := range parts {
		_, _ = t.WriteString(p)
	}
}

// paint writes text in a colour, and blanks behind it up to width.
func (t *text) paint(colour, text string, width int) {
	if t.opts.Colour {
		t.add("\x1b[", colour, "m", text, "\x1b[0m")
	} else {
		t.add(text)
	}
	t.add(strings.Repeat(" ", max(0, width-utf8.RuneCountInString(text))))
}

func (t *text) engine(e *EngineReport) {
	t.add(wire.Printable(e.Engine), "\n")
	for _, n := range e.Counts {
		t.add("  ", fmt.Sprintf("%-11s", n.Kind), result(n.Total, n.Failed, n.Known, n.NotAsked), "\n")
	}
	known, left := 0, 0
	for _, n := range e.Counts {
		known, left = known+n.Known, left+n.NotAsked
	}
	t.add("  ", fmt.Sprintf("%-11s", "total"))
	colour := green
	if !e.OK {
		colour = red
	}
	t.paint(colour, result(e.Total, e.Failed, known, left), 0)
	t.add("\n")
	if e.Stopped != "" {
		t.add("  stopped: ", wire.Printable(e.Stopped), "\n")
	}
	var whys []string
	for _, n := range e.NotAsked {
		if !slices.Contains(whys, n.Why) {
			whys = append(whys, n.Why)
		}
	}
	for _, why := range whys {
		var cases []string
		for _, n := range e.NotAsked {
			if n.Why == why {
				cases = append(cases, strconv.Itoa(n.Cases)+" of "+string(n.Kind))
			}
		}
		t.add("  not asked: ", strings.Join(cases, ", "), ": ", why, "\n")
	}
	for _, d := range e.Known {
		t.add("  known gap: ", wire.Printable(d.File), ": ", wire.Printable(d.Case), " (", string(d.Kind), "): ", wire.Printable(d.Reason), "\n")
	}
}

func (t *text) detail(label string, value json.RawMessage, width int) {
	t.add("    ")
	t.paint(faint, label, width)
	t.add(wire.Printable(compact(value)), "\n")
}

const labelWidth = 11

func (t *text) differences(all []Difference) {
	shown := t.first(len(all))
	for _, d := range all[:shown] {
		again := ""
		if d.Again {
			again = ", when it was asked again"
		}
		t.head(d.File, d.Case, string(d.Kind)+again)
		t.detail("input", d.Input, labelWidth)
		t.detail("want", d.Want, labelWidth)
		t.detail("got", d.Got, labelWidth)
	}
	t.more(len(all) - shown)
}

func (t *text) comparisons(all []Comparison) {
	shown := t.first(len(all))
	for _, c := range all[:shown] {
		t.head(c.File, c.Case, string(c.Kind))
		width := labelWidth
		for _, a := range c.Answers {
			width = max(width, utf8.RuneCountInString(wire.Printable(a.Engine))+2)
		}
		t.detail("input", c.Input, width)
		t.detail("want", c.Want, width)
		for _, a := range c.Answers {
			label := wire.Printable(a.Engine)
			switch {
			case a.Same:
				t.detail(label, json.RawMessage("as wanted"), width)
			case a.Absent != "":
				t.detail(label, json.RawMessage("not asked: "+a.Absent), width)
			case a.Known != "":
				t.detail(label, json.RawMessage(compact(a.Got)+"  known gap: "+a.Known), width)
			default:
				t.detail(label, a.Got, width)
			}
		}
	}
	t.more(len(all) - shown)
}

func (t *text) baseline(b *BaselineReport) {
	if b == nil {
		return
	}
	for _, s := range b.Stale {
		t.add("\n")
		t.paint(red, "stale", 0)
		t.add(" entry of the baseline: ", wire.Printable(s.Engine), ", ", wire.Printable(s.File), ": ", wire.Printable(s.Case), "\n")
		t.add("    ", wire.Printable(s.Problem), "\n")
	}
	if len(b.Unasked) > 0 {
		var names []string
		for _, g := range b.Unasked {
			if name := wire.Printable(g.Engine); !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		t.add("\n", counted(len(b.Unasked), "entry", "entries"), " of the baseline not looked at: not asked were ",
			strings.Join(names, ", "), "\n")
	}
}

func (t *text) head(file, name, kind string) {
	t.add("\n  ", wire.Printable(file), ": ", wire.Printable(name), " (", kind, ")\n")
}

// first is how many of n differences are shown.
func (t *text) first(n int) int {
	if t.opts.All {
		return n
	}
	return min(n, FirstDifferences)
}

func (t *text) more(n int) {
	if n > 0 {
		t.add("\n  and ", strconv.Itoa(n), " more; --all shows them\n")
	}
}

// result words how many cases ran, and what became of them.
func result(total, failed, known, notAsked int) string {
	text := counted(total, "case", "cases")
	if failed > 0 {
		text += ", " + strconv.Itoa(failed) + " failed"
	}
	if known > 0 {
		text += ", " + counted(known, "known gap", "known gaps")
	}
	if notAsked > 0 {
		text += ", " + strconv.Itoa(notAsked) + " not asked"
	}
	return text
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// compact returns JSON on one line, its texts and numbers as they are.
func compact(raw json.RawMessage) string {
	var buf bytes.Buffer
	if err := json.Compact(&buf, raw); err != nil {
		return string(raw)
	}
	return buf.String()
}
