package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/opa-gate/opa-gate/wire"
)

// Bounds of what is shown unless all of it is asked for.
const (
	shownLines = 60  // of a value
	shownHead  = 600 // characters at the beginning of a longer text
	shownTail  = 200 // and at its end
	shownSlack = 100 // not worth a cut
)

// readable writes a JSON value for a person who has to decide by it: one member a
// line, each text as it will be read, whatever escapes it came with. In texts only
// quotes and backslashes are escaped, and what wire.Printable escapes; lines of a
// text stand below one another, each with the \n that ends it. So nothing in a
// text can look like something beside it. Unless full, long texts and long values
// are cut, with what is left out counted.
func readable(value json.RawMessage, full bool) (lines []string, cut bool) {
	w := readableWriter{full: full}
	d := jsontext.NewDecoder(bytes.NewReader(value))
	if err := w.value(d, ""); err != nil { // what is recorded is JSON, so this is damage
		return []string{wire.Printable(string(value))}, false
	}
	w.end()
	if omitted := len(w.lines) - shownLines; !full && omitted > 1 {
		head, tail := w.lines[:shownLines*3/4], w.lines[len(w.lines)-shownLines/4:]
		w.lines = append(append(head[:len(head):len(head)], fmt.Sprintf("… %d lines left out …", omitted)), tail...)
		w.cut = true
	}
	return w.lines, w.cut
}

type readableWriter struct {
	full  bool
	cut   bool
	lines []string
	line  strings.Builder
}

func (w *readableWriter) end() {
	w.lines = append(w.lines, w.line.String())
	w.line.Reset()
}

const indentation = "  "

// value writes the next value of d. Indent is that of the line it stands on.
func (w *readableWriter) value(d *jsontext.Decoder, indent string) error {
	t, err := d.ReadToken()
	if err != nil {
		return err
	}
	switch t.Kind() {
	case jsontext.KindString:
		w.text(t.String())
	case jsontext.KindBeginObject, jsontext.KindBeginArray:
		return w.members(d, t.Kind(), indent)
	default:
		w.line.WriteString(w.shorten(t.String(), wire.Printable))
	}
	return nil
}

func (w *readableWriter) members(d *jsontext.Decoder, begin jsontext.Kind, indent string) error {
	open, shut, end := "{", "}", jsontext.KindEndObject
	if begin == jsontext.KindBeginArray {
		open, shut, end = "[", "]", jsontext.KindEndArray
	}
	w.line.WriteString(open)
	inner := indent + indentation
	n := 0
	for ; d.PeekKind() != end; n++ {
		if n > 0 {
			w.line.WriteString(",")
		}
		w.end()
		w.line.WriteString(inner)
		if begin == jsontext.KindBeginObject {
			name, err := d.ReadToken()
			if err != nil {
				return err
			}
			w.text(name.String())
			w.line.WriteString(": ")
		}
		if err := w.value(d, inner); err != nil {
			return err
		}
	}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	if n > 0 {
		w.end()
		w.line.WriteString(indent)
	}
	w.line.WriteString(shut)
	return nil
}

// text writes a text in quotes, each of its lines below the one before.
func (w *readableWriter) text(text string) {
	column := strings.Repeat(" ", min(utf8.RuneCountInString(w.line.String()), 40))
	rest := w.shorten(text, inQuotes)
	w.line.WriteString(`"`)
	for {
		i := strings.Index(rest, "\n")
		if i < 0 {
			break
		}
		w.line.WriteString(rest[:i] + `\n`)
		rest = rest[i+1:]
		if rest == "" { // only the quote is left
			break
		}
		w.end()
		w.line.WriteString(column + " ")
	}
	w.line.WriteString(rest + `"`)
}

// shorten escapes a text, and leaves out the middle of a long one.
func (w *readableWriter) shorten(text string, escape func(string) string) string {
	n := utf8.RuneCountInString(text)
	if w.full || n <= shownHead+shownTail+shownSlack {
		return escape(text)
	}
	w.cut = true
	runes := []rune(text)
	return escape(string(runes[:shownHead])) + fmt.Sprintf("⟪… %d characters left out …⟫", n-shownHead-shownTail) +
		escape(string(runes[n-shownTail:]))
}

// quotes escapes what could be taken for the end of a text, or for a cut in it.
var quotes = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "⟪", `\u27ea`, "⟫", `\u27eb`)

// inQuotes escapes a text for quotes, but for the ends of its lines.
func inQuotes(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = wire.Printable(quotes.Replace(line))
	}
	return strings.Join(lines, "\n")
}
