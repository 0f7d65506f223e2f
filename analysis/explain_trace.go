package analysis

import (
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// An explainFrame is one evaluation of a rule's branch, or of a body within it:
// that of a not, an every or a comprehension.
type explainFrame struct {
	rule   *ast.Rule     // nil for a body
	parent *explainFrame // in which it was entered; nil for the query
	at     *ast.Expr     // of the parent, for which it was
	args   []*ast.Term   // that a function was called with, once they are known
	exits  []explainExit
	fails  []explainFail
	now    *ast.Expr // that is being evaluated
}

// An explainExit is a success: the rule's value, and what its variables were.
type explainExit struct {
	value  ast.Value // nil for a body
	locals *ast.ValueMap
}

// An explainFail is a failure of one expression.
type explainFail struct {
	expr   *ast.Expr
	locals *ast.ValueMap
}

// An explainRecorder makes frames of OPA's events. It implements
// topdown.QueryTracer.
type explainRecorder struct {
	frames map[uint64]*explainFrame
	all    []*explainFrame            // in the order in which they were entered
	rules  map[string][]*explainFrame // by name, in the order in which they were entered
}

func newExplainRecorder() *explainRecorder {
	return &explainRecorder{frames: map[uint64]*explainFrame{}, rules: map[string][]*explainFrame{}}
}

// Enabled implements topdown.QueryTracer.
func (*explainRecorder) Enabled() bool { return true }

// Config implements topdown.QueryTracer.
func (*explainRecorder) Config() topdown.TraceConfig { return topdown.TraceConfig{PlugLocalVars: true} }

// TraceEvent implements topdown.QueryTracer. Bindings change after it has
// returned, so what is needed of them is taken now.
func (r *explainRecorder) TraceEvent(e topdown.Event) {
	f := r.frames[e.QueryID]
	switch e.Op {
	case topdown.EnterOp:
		if f != nil {
			return
		}
		f = &explainFrame{}
		if e.QueryID != e.ParentID {
			f.parent = r.frames[e.ParentID]
		}
		if f.parent != nil {
			f.at = f.parent.now
		}
		r.frames[e.QueryID] = f
		r.all = append(r.all, f)
		if rule, ok := e.Node.(*ast.Rule); ok {
			f.rule = rule
			name := explainRuleName(rule)
			r.rules[name] = append(r.rules[name], f)
		}
	case topdown.EvalOp:
		if f == nil {
			return
		}
		f.now, _ = e.Node.(*ast.Expr)
		if f.rule != nil && f.args == nil {
			for _, arg := range f.rule.Head.Args {
				f.args = append(f.args, e.Plug(arg))
			}
		}
	case topdown.FailOp:
		if expr, ok := e.Node.(*ast.Expr); ok && f != nil {
			f.fails = append(f.fails, explainFail{expr, e.Locals})
		}
	case topdown.ExitOp:
		if f == nil {
			return
		}
		exit := explainExit{locals: e.Locals}
		if f.rule != nil && f.rule.Head.Value != nil {
			exit.value = e.Plug(f.rule.Head.Value).Value
		}
		f.exits = append(f.exits, exit)
	}
}

// explainRuleName is the name that all branches of a rule share.
func explainRuleName(rule *ast.Rule) string { return rule.Ref().GroundPrefix().String() }

// group returns the branches of the rule that ref, which has no variables,
// leads to, as far as they were tried with those arguments, and the rest of ref
// behind the rule's name. There are none if ref leads to no rule.
func (r *explainRecorder) group(ref ast.Ref, args []*ast.Term) (branches []*explainFrame, rest ast.Ref) {
	for n := len(ref); n > 1; n-- {
		all := r.rules[ref[:n].String()]
		if len(all) == 0 {
			continue
		}
		seen := map[*ast.Rule]bool{}
		for _, f := range all {
			if !seen[f.rule] && f.calledWith(args) {
				seen[f.rule] = true
				branches = append(branches, f)
			}
		}
		return branches, ref[n:]
	}
	return nil, nil
}

// within tells whether a frame is of a body that stands in an expression of
// another one.
func (f *explainFrame) within(other *explainFrame, e *ast.Expr) bool {
	for ; f.parent != nil && f.rule == nil; f = f.parent {
		if f.parent == other {
			return f.at == e
		}
	}
	return false
}

// calledWith tells whether a function's arguments were these. A branch whose
// patterns did not match them was never begun, and does not know them.
func (f *explainFrame) calledWith(args []*ast.Term) bool {
	for i, arg := range f.args {
		if i < len(args) && arg.IsGround() && args[i].IsGround() && !arg.Equal(args[i]) {
			return false
		}
	}
	return true
}

// explainApplied returns the first of some branches that gave a value.
func explainApplied(branches []*explainFrame) *explainFrame {
	for _, f := range branches {
		if len(f.exits) > 0 {
			return f
		}
	}
	return nil
}
