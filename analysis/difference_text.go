package analysis

import (
	"fmt"
	"io"
	"strings"

	"github.com/opa-gate/opa-gate/wire"
)

// The terminal's codes of the directions; what is only said along is faint.
var directionColours = map[Direction]string{Widening: "33", Narrowing: "36", Rewording: "2"}

// WriteText writes the difference for a person at a terminal: a sentence, then
// the changes by direction, each with a document to paste. Nothing in it acts on
// a terminal but the colours, if they are asked for.
func (d *Difference) WriteText(w io.Writer, colour bool) error {
	var b strings.Builder
	paint := func(code, text string) string {
		if !colour {
			return text
		}
		return "\x1b[" + code + "m" + text + "\x1b[0m"
	}
	detail := func(label, text string) {
		b.WriteString("    " + paint("2", fmt.Sprintf("%-9s", label)) + " " + text + "\n")
	}
	headlineColour := "33"
	if len(d.Changes) == 0 {
		headlineColour = "32"
	}
	b.WriteString(paint(headlineColour, d.headline()) + "\n")
	b.WriteString(paint("2", wire.Printable(d.compared())) + "\n")
	for _, g := range d.groups() {
		if len(g.Changes) == 0 {
			continue
		}
		b.WriteString("\n" + paint(directionColours[g.Direction], g.Title+":") + "\n")
		for _, c := range g.Changes {
			b.WriteString(wire.Printable(c.summary()) + "\n")
			detail("example", documentLine(c.Example))
			if c.From == c.To || c.From == "error" || c.To == "error" { // else the outcome says it
				for _, t := range c.contrasts() {
					detail(t.Member, t.Before+" → "+t.After)
				}
			}
		}
	}
	if len(d.Incomplete) > 0 {
		b.WriteString("\n" + paint("33", "not covered for every text:") + "\n" + d.reservation() + "\n")
		for i := range d.Incomplete {
			b.WriteString(wire.Printable(blockerLine(&d.Incomplete[i])) + "\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// compared says what was held against what.
func (d *Difference) compared() string {
	return fmt.Sprintf("Before: %s, after: %s; %s and %s compared.", d.Old, d.New,
		number(d.Calls, "call", "calls"), number(d.Skills, "skill", "skills"))
}

// blockerPlace is where an expression stands, as compilers write it.
func blockerPlace(b *Uncovered) string {
	if b.File == "" {
		return ""
	}
	return fmt.Sprintf("%s:%d:%d", b.File, b.Line, b.Column)
}

func blockerLine(b *Uncovered) string {
	text := b.Why + " (" + number(b.Cells, "kind of call", "kinds of call") + ")"
	if b.Expression != "" {
		text = b.Expression + " " + text
	}
	if place := blockerPlace(b); place != "" {
		text = place + ": " + text
	}
	return b.Of + ": " + text
}

// MarshalJSON writes the difference with empty lists where it has none.
func (d Difference) MarshalJSON() ([]byte, error) {
	type plain Difference // without this method
	out := plain(d)
	out.Changes = make([]Change, len(d.Changes))
	for i, c := range d.Changes {
		conditions := make([]Condition, len(c.Conditions))
		for j, condition := range c.Conditions {
			condition.Values = append([]string{}, condition.Values...)
			conditions[j] = condition
		}
		c.Conditions = conditions
		out.Changes[i] = c
	}
	out.Matrix = make([]Square, len(d.Matrix))
	for i, s := range d.Matrix {
		s.Before, s.After = append([]string{}, s.Before...), append([]string{}, s.After...)
		out.Matrix[i] = s
	}
	out.Incomplete = append([]Uncovered{}, d.Incomplete...)
	return marshal(struct {
		plain
		Complete bool `json:"complete"`
	}{out, d.Complete()})
}

// WriteJSON writes the difference as one line of JSON.
func (d *Difference) WriteJSON(w io.Writer) error {
	text, err := marshal(d)
	if err != nil {
		return err
	}
	_, err = w.Write(append(text, '\n'))
	return err
}
