package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/mattn/go-isatty"

	"github.com/opa-gate/opa-gate/wire"
)

// A colour is a terminal's code for one.
type colour string

const (
	green  colour = "32"
	yellow colour = "33"
	red    colour = "31"
	cyan   colour = "36"
	faint  colour = "2"
)

const (
	labelWidth  = 16 // "inject_context" and two blanks
	detailWidth = 11 // "arguments" and two blanks
)

// A printer writes for people. Every text that comes from a document goes
// through wire.Printable on its way. A failed write stays with the writer
// until it is flushed.
type printer struct {
	*bufio.Writer
	colour bool
}

// newPrinter makes a printer to w.
func newPrinter(w io.Writer) *printer {
	return &printer{Writer: bufio.NewWriterSize(w, bufferSize), colour: wantsColour(w)}
}

// paint writes text in a colour, and blanks behind it up to width.
func (p *printer) paint(c colour, text string, width int) {
	if p.colour {
		_, _ = p.WriteString("\x1b[" + string(c) + "m" + text + "\x1b[0m")
	} else {
		_, _ = p.WriteString(text)
	}
	if n := width - utf8.RuneCountInString(text); n > 0 {
		_, _ = p.WriteString(strings.Repeat(" ", n))
	}
}

// head writes the line of one answer: what it is, whom it is about, and why.
func (p *printer) head(c colour, label, name, reason string) {
	p.paint(c, label, labelWidth)
	_, _ = p.WriteString(wire.Printable(name))
	if reason != "" {
		_, _ = p.WriteString("  " + wire.Printable(reason))
	}
	_ = p.WriteByte('\n')
}

// detail writes a line that belongs to the answer above.
func (p *printer) detail(label, text string) {
	_, _ = p.WriteString("    ")
	p.paint(faint, label, detailWidth)
	_, _ = p.WriteString(wire.Printable(text) + "\n")
}

// writeLine writes v as one line of JSON.
func writeLine(p *printer, v any) error {
	text, err := encode(v)
	if err != nil {
		return err
	}
	_, err = p.Write(text)
	return err
}

// compact returns JSON on one line, its texts and numbers as they are.
func compact(raw json.RawMessage) string {
	var buf bytes.Buffer
	if err := json.Compact(&buf, raw); err != nil {
		return string(raw)
	}
	return buf.String()
}

// wantsColour tells whether what is written to w is seen on a terminal by
// somebody who has not asked for plain text.
func wantsColour(w io.Writer) bool {
	return os.Getenv("NO_COLOR") == "" && isTerminal(w)
}

// isTerminal tells whether w is a terminal that can move about.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && os.Getenv("TERM") != "dumb" && isatty.IsTerminal(f.Fd())
}

// counted writes a number with its noun.
func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}
