package main

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/opa-gate/opa-gate/analysis"
	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/skill"
	"github.com/opa-gate/opa-gate/wire"
)

// explainInput explains every document of the input.
func explainInput(cmd *cobra.Command, args []string, dir, system, format string) error {
	e, err := loadPolicies(cmd.Context(), dir, cmd.Flags().Changed("policies"), system)
	if err != nil {
		return err
	}
	return answerInput(cmd, args, format, false, explainWork(cmd.Context(), e, dir))
}

// An anyDocument is a call or a skill.
type anyDocument struct {
	call  *capability.Call
	skill *skill.Request
}

// parseAny reads a document that is one of a skill if it has a skill's members
// and no tool, and otherwise one of a call.
func parseAny(data []byte) (anyDocument, error) {
	var members map[string]json.RawMessage
	_ = json.Unmarshal(data, &members) // whatever is wrong with it, the strict reader says
	_, isCall := members["tool"]
	_, named := members["skill"]
	_, requested := members["requested"]
	if (named || requested) && !isCall {
		q, err := wire.ParseSkill(data)
		return anyDocument{skill: q}, err
	}
	c, err := wire.ParseCall(data)
	return anyDocument{call: c}, err
}

// An explained is an explanation as it is written.
type explained struct{ *analysis.Explanation }

// MarshalJSON implements json.Marshaler.
func (x explained) MarshalJSON() ([]byte, error) {
	text, err := encode(x.Explanation)
	return []byte(strings.TrimRight(string(text), "\n")), err
}

func explainWork(ctx context.Context, e *evaluator.Evaluator, dir string) work[anyDocument, explained] {
	written := 0
	return work[anyDocument, explained]{
		parse: parseAny,
		decide: func(d anyDocument) (explained, error) {
			var (
				x   *analysis.Explanation
				err error
			)
			if d.skill != nil {
				x, err = analysis.ExplainSkill(ctx, e, d.skill)
			} else {
				x, err = analysis.Explain(ctx, e, d.call)
			}
			if err == nil {
				x.Relocate(func(file string) string { return inDirectory(dir, file) })
			}
			return explained{x}, err
		},
		show: func(p *printer, d anyDocument, x explained) {
			if written++; written > 1 {
				_ = p.WriteByte('\n')
			}
			showExplanation(p, d, x.Explanation)
		},
		passes: func(explained) bool { return true },
	}
}

func showExplanation(p *printer, d anyDocument, x *analysis.Explanation) {
	if d.skill != nil {
		showAnswer(p, d.skill, *x.Skill)
	} else {
		showOutcome(p, d.call, *x.Call)
	}
	p.title("decided by " + wire.Printable(x.Decided.Rule))
	p.branch(&x.Decided, 0)
	for i := range x.Also {
		p.branch(&x.Also[i], 0)
	}
	if len(x.Passed) > 0 {
		p.title("what did not apply, and the condition that failed")
		p.branches(x.Passed, 0)
	}
	p.title("it rests on")
	p.basis(x.Basis, 0)
	p.nearest(x)
}

// line writes a line that is indented by so many steps.
func (p *printer) line(indent int, text string) {
	_, _ = p.WriteString(strings.Repeat("    ", indent) + wire.Printable(text) + "\n")
}

func position(file string, line int) string { return file + ":" + strconv.Itoa(line) }

// maxBranches is how many branches of a rule that was undefined are shown to a
// person.
const maxBranches = 4

func (p *printer) branches(all []analysis.Branch, indent int) {
	for i := range all {
		if indent > 0 && i == maxBranches && len(all) > maxBranches+1 {
			p.line(indent, "and "+strconv.Itoa(len(all)-i)+" more")
			return
		}
		p.branch(&all[i], indent)
	}
}

func (p *printer) branch(b *analysis.Branch, indent int) {
	p.line(indent, position(b.File, b.Line)+": "+b.Source)
	for i := range b.Held {
		p.condition(&b.Held[i], indent+1)
	}
	switch {
	case b.Failed != nil:
		p.condition(b.Failed, indent+1)
	case len(b.Held) == 0 && b.Default:
		p.line(indent+1, "no other branch applied")
	}
}

func (p *printer) condition(c *analysis.Expression, indent int) {
	text := position(c.File, c.Line) + ": " + c.Source
	if c.Head {
		text += " (in its value)"
	}
	if c.Tried > 1 {
		text += " (failed for each of " + strconv.Itoa(c.Tried) + "; for the first)"
	}
	p.line(indent, text)
	for i := range c.Values {
		p.value(&c.Values[i], indent+1)
	}
}

// maxValue is the longest value that is shown to a person, in characters.
const maxValue = 80

func (p *printer) value(v *analysis.Operand, indent int) {
	text := v.Source + " is "
	switch {
	case v.Undefined && v.Absent != "":
		text += "undefined: there is no " + v.Absent
	case v.Undefined:
		text += "undefined"
	default:
		text += clip(string(v.Value), maxValue)
	}
	if v.From != nil {
		text += "  (" + position(v.From.File, v.From.Line) + ")"
	}
	p.line(indent, text)
	p.branches(v.Because, indent+1)
}

func (p *printer) basis(all []analysis.Basis, indent int) {
	for i := range all {
		b := &all[i]
		label, value := b.Member, clip(string(b.Value), maxValue)
		var text string
		switch {
		case len(b.Names) > 0:
			value = strings.Join(b.Names, ", ")
		case b.Names != nil:
			value = "nothing"
		case b.Member == "enforcement": // the lines above have said what it is
			label, value = "enforced", "by "+b.From.Rule
		case json.Unmarshal(b.Value, &text) == nil && b.Value[0] == '"':
			value = clip(text, maxValue)
		}
		value += "  (" + position(b.From.File, b.From.Line)
		where := b.Where
		if len(b.LeftOut) > 0 {
			where = append(slices.Clone(where), "there is no "+strings.Join(b.LeftOut, ", no "))
		}
		if len(where) > 0 {
			value += ": " + strings.Join(where, "; ")
		}
		value += ")"
		if indent > 0 {
			label, value = "", b.Member+" is "+value
		}
		p.detail(label, value)
		p.basis(b.Of, indent+1)
	}
}

func (p *printer) nearest(x *analysis.Explanation) {
	if len(x.Nearest) == 0 {
		if x.Search.Changes > 0 {
			p.title("what would let it go ahead")
			p.line(1, x.Search.None)
		}
		return
	}
	title := "it would go ahead with"
	if o := x.Call; o != nil && o.Kind != capability.Escalate && o.Kind != capability.Deny {
		title = "it would be allowed as it is with"
	}
	p.title(title)
	for i := range x.Nearest {
		var changes []string
		for _, c := range x.Nearest[i].Changes {
			changes = append(changes, c.Text)
		}
		text := strings.Join(changes, "  and  ")
		if i > 0 {
			text = "or  " + text
		}
		p.line(1, text)
	}
	p.line(1, "such as "+string(x.Nearest[0].Document))
}
