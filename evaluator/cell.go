package evaluator

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/evaluator/internal/symbolic"
)

// A cell is what the policies answer to every call that differs in its texts
// alone. It is immutable.
type cell struct {
	decided      bool               // false: OPA decides these calls, or a table of the tool's own
	byTool       bool               // a table of the tool's own does
	answer       capability.Outcome // with the texts that never differ
	reason, note template
	warnings     []template
	arguments    bool     // the answer's arguments are the call's
	except       []string // the tools, sorted, for which another table answers
}

// The two cells that have no answer.
var (
	interpreted = &cell{}
	perTool     = &cell{byTool: true}
)

// A template is a text with holes; nil is one that never differs.
type template []symbolic.Piece

// errArguments is why a rewritten document that holds a text is not compiled.
var errArguments = errors.New("the answer's arguments hold a text of the call")

// newCell takes the answer for marks apart.
func newCell(texts *symbolic.Texts, answer *symbolic.Answer) (*cell, error) {
	value, err := ast.JSON(answer.Value)
	if err != nil {
		return nil, err
	}
	o, err := readOutcome(value)
	if err != nil {
		return nil, err
	}
	c := &cell{decided: true, answer: o, except: answer.Except[symbolic.Tool]}
	c.reason, c.note = templateOf(texts, o.Reason), templateOf(texts, o.Note)
	for _, warning := range o.Warnings {
		c.warnings = append(c.warnings, templateOf(texts, warning))
	}
	if !slices.ContainsFunc(c.warnings, func(t template) bool { return t != nil }) {
		c.warnings = nil
	}
	if texts.Holds(symbolic.Arguments, o.Reason+o.Note+strings.Join(o.Warnings, "")) {
		return nil, errArguments
	}
	switch marked := []byte(texts.Text(symbolic.Arguments)); {
	case bytes.Equal(o.Arguments, marked):
		c.arguments = true
	case texts.In(ast.String(o.Arguments)):
		return nil, errArguments
	}
	return c, nil
}

// delegates reports whether a table of the tool's own answers the calls of a
// tool, although c is at their place.
func (c *cell) delegates(tool string) bool {
	if len(c.except) == 0 {
		return c.byTool
	}
	_, found := slices.BinarySearch(c.except, tool)
	return found
}

// literals returns what the cell's answer says whatever the texts are.
func (c *cell) literals(texts *symbolic.Texts) []string {
	var literals []string
	for _, text := range append([]string{c.answer.Reason, c.answer.Note}, c.answer.Warnings...) {
		for _, p := range texts.Pieces(text) {
			if p.Hole == symbolic.Literal {
				literals = append(literals, p.Text)
			}
		}
	}
	return literals
}

// key is the same for cells that answer the same, and for no others.
func (c *cell) key() string {
	o := &c.answer
	return fmt.Sprintf("%d %d %d %d %q %q %q %q %q %v", o.Kind, o.Missing, o.Required, o.Granted,
		o.Reason, o.Note, o.Warnings, o.Arguments, c.except, o.Warnings == nil)
}

// templateOf takes a text apart.
func templateOf(texts *symbolic.Texts, text string) template {
	if pieces := texts.Pieces(text); slices.ContainsFunc(pieces, func(p symbolic.Piece) bool { return p.Hole != symbolic.Literal }) {
		return pieces
	}
	return nil
}

// outcome is the answer to one of the cell's calls. Whoever gets it may change
// it: it shares nothing with the cell.
func (c *cell) outcome(call *capability.Call) capability.Outcome {
	o := c.answer
	if c.reason != nil {
		o.Reason = c.reason.fill(call)
	}
	if c.note != nil {
		o.Note = c.note.fill(call)
	}
	if c.arguments {
		o.Arguments = call.Policy.Transform.Arguments
	} else {
		o.Arguments = bytes.Clone(o.Arguments)
	}
	if len(o.Warnings) > 0 {
		o.Warnings = slices.Clone(o.Warnings)
		for i, t := range c.warnings {
			if t != nil {
				o.Warnings[i] = t.fill(call)
			}
		}
	}
	return o
}

func (t template) fill(call *capability.Call) string {
	switch len(t) { // a text that is copied, and a sentence around one, without a Builder
	case 1:
		return hole(&t[0], call)
	case 3:
		return hole(&t[0], call) + hole(&t[1], call) + hole(&t[2], call)
	}
	size := 0
	for i := range t {
		size += len(hole(&t[i], call))
	}
	var b strings.Builder
	b.Grow(size)
	for i := range t {
		b.WriteString(hole(&t[i], call))
	}
	return b.String()
}

func hole(p *symbolic.Piece, call *capability.Call) string {
	switch p.Hole {
	case symbolic.Tool:
		return call.Tool
	case symbolic.Veto:
		return call.Policy.Veto
	case symbolic.Note:
		return call.Policy.Transform.Note
	default:
		return p.Text
	}
}
