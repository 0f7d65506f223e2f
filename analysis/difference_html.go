package analysis

import (
	"crypto/sha256"
	_ "embed" // the page and its style
	"encoding/base64"
	"html/template"
	"io"
	"slices"
	"strings"

	"github.com/opa-gate/opa-gate/skill"
	"github.com/opa-gate/opa-gate/wire"
)

//go:embed difference.html
var differencePage string

//go:embed difference.css
var differenceStyle string

var differenceTemplate = template.Must(template.New("difference").Parse(differencePage))

// pageView is a difference as the page shows it: words, in order, harmless
// where they stand. The template escapes them.
type pageView struct {
	Style      template.CSS
	StyleHash  string // what the page allows: its own style and nothing else
	Headline   string
	Detail     string
	Old, New   string
	Calls      string
	Skills     string
	Caveat     string
	Groups     []groupView
	Matrix     *matrixView
	Incomplete []blockerView
}

type groupView struct {
	ID, Title, Mark string
	Explained       string
	Classes, Inputs string
	Changes         []changeView
}

type changeView struct {
	Skill     bool
	Phrases   []string
	From, To  outcomeView
	Same      string // instead of To: the outcome stays, and this is what changed
	Inputs    string
	Example   string
	Contrasts []contrast
}

// An outcomeView is an outcome with the class of its colour.
type outcomeView struct{ Name, Class string }

type matrixView struct {
	Taints  []string
	Columns int
	Origins []originView
	Changed string // how many squares
	Total   string
	Any     bool
}

type originView struct {
	Name string
	Rows []rowView
}

type rowView struct {
	Capability string
	Squares    []squareView
}

type squareView struct {
	Title         string
	Changed       bool
	Same          string // instead of After: the outcomes that occur are the same, and this changed
	Before, After []outcomeView
}

type blockerView struct{ Of, Place, Expression, Why, Cells string }

// WriteHTML writes the difference as one page that needs nothing else: no
// script, no font, no picture, nothing from another address. It is made for
// a phone as well, for light and dark, and for paper.
func (d *Difference) WriteHTML(w io.Writer) error {
	var b strings.Builder // a page that fails half-way is not written
	if err := differenceTemplate.Execute(&b, d.page()); err != nil {
		return err
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (d *Difference) page() *pageView {
	sum := sha256.Sum256([]byte(differenceStyle))
	p := &pageView{
		Style:     template.CSS(differenceStyle),
		StyleHash: base64.StdEncoding.EncodeToString(sum[:]),
		Old:       show(d.Old), New: show(d.New),
		Calls: number(d.Calls, "call", "calls"), Skills: number(d.Skills, "skill", "skills"),
		Caveat: d.reservation(), Matrix: d.matrixView(),
	}
	p.Headline, p.Detail, _ = strings.Cut(d.headline(), ": ")
	p.Headline = strings.TrimSuffix(p.Headline, ".") + "."
	if p.Detail != "" {
		p.Detail = strings.ToUpper(p.Detail[:1]) + p.Detail[1:]
	}
	looks := map[Direction][3]string{
		Widening:  {"more-permissive", "▲", "What was refused or asked about before goes further now."},
		Narrowing: {"more-strict", "▼", "What went through before is asked about or refused now."},
		Rewording: {"reworded", "≈", "The same is permitted, and the answer says it in another way."},
	}
	for _, g := range d.groups() {
		look := looks[g.Direction]
		view := groupView{ID: look[0], Mark: look[1], Explained: look[2], Title: strings.ToUpper(g.Title[:1]) + g.Title[1:],
			Classes: number(len(g.Changes), "class", "classes"), Inputs: number(g.Inputs, "input", "inputs")}
		for _, c := range g.Changes {
			view.Changes = append(view.Changes, c.view())
		}
		p.Groups = append(p.Groups, view)
	}
	for i := range d.Incomplete {
		b := &d.Incomplete[i]
		p.Incomplete = append(p.Incomplete, blockerView{show(b.Of), show(blockerPlace(b)), show(b.Expression),
			show(b.Why), number(b.Cells, "kind of call", "kinds of call")})
	}
	return p
}

func (c *Change) view() changeView {
	v := changeView{Skill: c.Kind == "skill", From: outcomeOf(c.From), To: outcomeOf(c.To),
		Inputs: number(c.Inputs, "input", "inputs"), Example: documentLine(c.Example), Contrasts: c.contrasts()}
	if c.From == c.To {
		v.Same = strings.TrimPrefix(c.turn(), c.From+" ")
	}
	for _, phrase := range c.phrases() {
		v.Phrases = append(v.Phrases, show(phrase))
	}
	if len(v.Phrases) == 0 {
		v.Phrases = []string{c.subject()}
	}
	return v
}

// show makes a text fit the page: not too long, and nothing in it that hides or
// reorders what stands beside it. The template keeps it from being markup.
func show(text string) string { return wire.Printable(shorten(text)) }

// outcomeOf gives what becomes of a call or a skill one of four colours: what goes
// through, what goes through in another form or not as far, what waits for a person,
// what is refused.
func outcomeOf(name string) outcomeView {
	class := "other"
	switch name {
	case "allow", deployedAt + skill.FullAccess.String():
		class = "go"
	case "modify", "inject_context", deployedAt + skill.SandboxEdit.String(), deployedAt + skill.ReadOnly.String():
		class = "form"
	case "escalate", "pending":
		class = "ask"
	case "deny", "error", "blocked":
		class = "stop"
	}
	return outcomeView{show(name), class}
}

// matrixView lays the matrix out by origin, a row for each capability that some
// call of it requires and a column for each taint. The fields of the full cube
// that no call is in say nothing, and are most of it.
func (d *Difference) matrixView() *matrixView {
	m := &matrixView{}
	changed, total := 0, 0
	for i := range d.Matrix {
		s := &d.Matrix[i]
		if len(s.Before) == 0 && len(s.After) == 0 {
			continue
		}
		total++
		if s.Changed {
			changed++
		}
		taint := show(s.Taint)
		column := slices.Index(m.Taints, taint)
		if column < 0 {
			column = len(m.Taints)
			m.Taints = append(m.Taints, taint)
		}
		row := m.row(show(s.Origin), show(s.Capability))
		for len(row.Squares) <= column {
			row.Squares = append(row.Squares, squareView{})
		}
		row.Squares[column] = s.view()
	}
	if total == 0 {
		return nil
	}
	for _, o := range m.Origins { // a later row may have brought a column
		for i := range o.Rows {
			for len(o.Rows[i].Squares) < len(m.Taints) {
				o.Rows[i].Squares = append(o.Rows[i].Squares, squareView{})
			}
		}
	}
	m.Columns = 1 + len(m.Taints)
	m.Changed, m.Total, m.Any = thousands(changed), number(total, "square", "squares"), changed > 0
	return m
}

// row returns the row of a capability, which it adds where it is not there.
func (m *matrixView) row(origin, capability string) *rowView {
	i := slices.IndexFunc(m.Origins, func(o originView) bool { return o.Name == origin })
	if i < 0 {
		i = len(m.Origins)
		m.Origins = append(m.Origins, originView{Name: origin})
	}
	o := &m.Origins[i]
	j := slices.IndexFunc(o.Rows, func(r rowView) bool { return r.Capability == capability })
	if j < 0 {
		j = len(o.Rows)
		o.Rows = append(o.Rows, rowView{Capability: capability})
	}
	return &o.Rows[j]
}

func (s *Square) view() squareView {
	v := squareView{Changed: s.Changed}
	if s.Changed && slices.Equal(s.Before, s.After) {
		v.Same = "in other words" // all that one outcome leaves
		if len(s.Before) > 1 {
			v.Same = "for other calls or in other words"
		}
	}
	for _, name := range s.Before {
		v.Before = append(v.Before, outcomeOf(name))
	}
	for _, name := range s.After {
		v.After = append(v.After, outcomeOf(name))
	}
	before, after := show(orNone(either(s.Before))), show(orNone(either(s.After)))
	v.Title = show(s.Origin) + ", " + show(s.Capability) + ", " + show(s.Taint) + ": "
	switch {
	case !s.Changed:
		v.Title += before + ", unchanged"
	case v.Same != "":
		v.Title += "changed, " + before + " " + v.Same
	default:
		v.Title += "changed, before " + before + ", after " + after
	}
	return v
}
