package symbolic

import (
	"errors"
	"fmt"

	"github.com/open-policy-agent/opa/v1/ir"
)

// A Dependence is why one answer cannot serve for all texts: the expression
// that does more with a text than to copy it, or that no table may answer.
type Dependence struct {
	File       string // "" if it is known to stand nowhere
	Row, Col   int    // counted from 1
	Expression string // as it stands in the policy
	Why        string // what it does, to follow the expression
	OnTool     bool   // the tool's name is all that it depends on
}

// Error implements error: where, the expression, and what it does.
func (d *Dependence) Error() string {
	if d.File == "" {
		return d.Why
	}
	return fmt.Sprintf("%s:%d:%d: %s %s", d.File, d.Row, d.Col, d.Expression, d.Why)
}

// Errors of [Program.Eval] that are no dependence: there is no answer to
// generalise.
var (
	ErrUndefined = errors.New("the plan has no answer")
	ErrAmbiguous = errors.New("the plan has several answers")
)

// because returns a dependence without a place; run gives it that of the
// statement. It is on the tool alone if onTool.
func because(onTool bool, why string) error { return &Dependence{Why: why, OnTool: onTool} }

// locate gives a dependence that has no place yet the place of stmt.
func (p *Program) locate(err error, stmt ir.Stmt) error {
	var d *Dependence
	if !errors.As(err, &d) || d.File != "" {
		return err
	}
	l := stmt.GetLocation()
	if l.Row == 0 || l.File < 0 || l.File >= len(p.files) {
		return err
	}
	at := *d
	at.File, at.Row, at.Col, at.Expression = p.files[l.File], l.Row, l.Col, string(l.Text)
	return &at
}
