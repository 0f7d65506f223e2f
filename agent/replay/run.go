package replay

import (
	"context"
	"fmt"

	"github.com/opa-gate/opa-gate/agent/steering"
	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/evaluator"
)

// A Policy decides calls, and tells what taints.
type Policy interface {
	evaluator.Engine
	evaluator.Tainter
}

// A Report is what a policy answers to the calls of a trace.
type Report struct {
	Calls    []Answer  `json:"calls"`
	Tasks    []Task    `json:"tasks"`
	Sessions []Session `json:"sessions"`
	Totals   Totals    `json:"totals"`
}

// An Answer is what is decided about one call.
type Answer struct {
	Line    int                 `json:"line"`
	Session string              `json:"session"`
	Task    string              `json:"task"`
	Tool    string              `json:"tool"`
	Before  string              `json:"session_taint"` // clean or tainted: the session, before this call
	Seen    string              `json:"taint"`         // the same: what this call is decided under
	Outcome *capability.Outcome `json:"decision,omitempty"`
	Error   string              `json:"error,omitempty"` // why there is no decision; the call would not run
}

// Asks reports whether a person is asked.
func (a *Answer) Asks() bool { return a.Outcome != nil && a.Outcome.Kind == capability.Escalate }

// Refused reports whether the call would not run, whatever a person says.
func (a *Answer) Refused() bool { return a.Outcome == nil || a.Outcome.Kind == capability.Deny }

// Label is the outcome's name, or error.
func (a *Answer) Label() string {
	if a.Outcome == nil {
		return "error"
	}
	return a.Outcome.Kind.String()
}

// A Task is what one task of a session needs of a person.
type Task struct {
	Session string `json:"session"`
	Task    string `json:"task"`
	Calls   int    `json:"calls"`
	Asked   int    `json:"asked"`  // approvals that a person is asked for
	Denied  int    `json:"denied"` // calls that would not run, those without a decision among them
}

// A Session tells when outside content entered a session.
type Session struct {
	Session string `json:"session"`
	Tainted bool   `json:"tainted"`
	Line    int    `json:"line,omitempty"` // of the result that tainted it
	Tool    string `json:"tool,omitempty"` // whose result it was; "" if the trace has no such call
}

// Totals are the sums of a report.
type Totals struct {
	Calls       int `json:"calls"`
	Asked       int `json:"asked"`
	Denied      int `json:"denied"`
	Tasks       int `json:"tasks"`
	TasksAsking int `json:"tasks_asking"`
	Sessions    int `json:"sessions"`
	Tainted     int `json:"sessions_tainted"`
}

// Run puts the calls of a trace to a policy. The operator tells what is granted, and of
// tools of which the trace says nothing; nil if nobody does, and everything is granted.
// The error is that of ctx: a call that cannot be decided is an Answer with an Error.
func Run(ctx context.Context, p Policy, t *Trace, o *Operator) (*Report, error) {
	r := &runner{policy: p, operator: o, sessions: map[string]*session{}, ends: map[[2]string]bool{}, tasks: map[[2]string]int{},
		report: &Report{Calls: []Answer{}, Tasks: []Task{}, Sessions: []Session{}}}
	for i := range t.Events {
		if e := &t.Events[i]; e.Kind == Result {
			r.ends[[2]string{e.Session, e.ID}] = true
		}
	}
	for i := range t.Events {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		r.event(ctx, &t.Events[i])
	}
	out := r.report
	out.Totals = Totals{Calls: len(out.Calls), Tasks: len(out.Tasks), Sessions: len(r.order)}
	for i := range out.Tasks {
		task := &out.Tasks[i]
		out.Totals.Asked += task.Asked
		out.Totals.Denied += task.Denied
		if task.Asked > 0 {
			out.Totals.TasksAsking++
		}
	}
	for _, s := range r.order {
		if s.Tainted {
			out.Totals.Tainted++
		}
		out.Sessions = append(out.Sessions, s.Session)
	}
	return out, ctx.Err()
}

type runner struct {
	policy   Policy
	operator *Operator
	sessions map[string]*session
	order    []*session
	ends     map[[2]string]bool // the calls whose results the trace tells of, by session and id
	tasks    map[[2]string]int  // the index of a task among those of the report
	report   *Report
}

// A session is what is known of one as its events pass.
type session struct {
	Session
	typed   steering.Typed
	prompts int
	calls   map[string]*called // by id
}

// called is a call whose result may come.
type called struct {
	tool   string
	stated Tool
	runs   bool
}

func (r *runner) event(ctx context.Context, e *Event) {
	s := r.sessions[e.Session]
	if s == nil {
		s = &session{Session: Session{Session: e.Session}, calls: map[string]*called{}}
		r.sessions[e.Session] = s
		r.order = append(r.order, s)
	}
	switch e.Kind {
	case Prompt:
		s.prompts++
		s.typed.Add(e.Text)
	case Call:
		if e.ID != "" && s.calls[e.ID] != nil {
			return // a transcript that was taken up again has its beginning once more
		}
		c := r.call(ctx, s, e)
		if e.ID != "" {
			s.calls[e.ID] = c
		}
		if e.ID == "" || !r.ends[[2]string{e.Session, e.ID}] {
			r.result(ctx, s, c, e.Line)
		}
	case Result:
		c := s.calls[e.ID]
		if c == nil {
			c = &called{runs: true} // of a call that nobody has seen
		}
		r.result(ctx, s, c, e.Line)
	}
}

// taint is the session's.
func (s *session) taint() capability.Taint {
	if s.Tainted {
		return capability.Tainted
	}
	return capability.Clean
}

func (r *runner) call(ctx context.Context, s *session, e *Event) *called {
	c := &called{tool: e.Tool}
	if e.Stated != nil {
		c.stated = *e.Stated
	} else if r.operator != nil {
		c.stated = r.operator.Tool(e.Tool)
	}
	grant := capability.DefaultGrant()
	if r.operator != nil {
		grant = r.operator.Grant
	}
	a := Answer{Line: e.Line, Session: e.Session, Task: e.Task, Tool: e.Tool}
	if a.Task == "" {
		a.Task = fmt.Sprint(s.prompts)
	}
	facts := steering.Look(&c.stated.Steering, e.Arguments, &s.typed)
	decide(ctx, r.policy, &a, s.taint(), &c.stated, grant, facts)
	c.runs = !a.Refused()

	key := [2]string{a.Session, a.Task}
	n, ok := r.tasks[key]
	if !ok {
		n = len(r.report.Tasks)
		r.tasks[key] = n
		r.report.Tasks = append(r.report.Tasks, Task{Session: a.Session, Task: a.Task})
	}
	task := &r.report.Tasks[n]
	task.Calls++
	if a.Asks() {
		task.Asked++
	}
	if a.Refused() {
		task.Denied++
	}
	r.report.Calls = append(r.report.Calls, a)
	return c
}

// decide answers a call in a session of that taint, of which those facts are known.
func decide(ctx context.Context, p Policy, a *Answer, before capability.Taint, stated *Tool, grant capability.Grant, facts steering.Facts) {
	a.Before = before.String()
	seen, err := p.CallTaint(ctx, &capability.Steering{Session: before, Tool: a.Tool, Profile: stated.Profile,
		Effect: facts.Effect, Aim: facts.Aim, Payload: facts.Payload})
	a.Seen = seen.String()
	if err != nil {
		a.Error = err.Error()
		return
	}
	o, err := p.Decide(ctx, &capability.Call{Tool: a.Tool, Profile: stated.Profile, Grant: grant, Taint: seen, Policy: stated.Policy})
	if err != nil {
		a.Error = err.Error()
		return
	}
	a.Outcome = &o
}

// result lets a result enter the session. One that the policy cannot tell of taints.
func (r *runner) result(ctx context.Context, s *session, c *called, line int) {
	if s.Tainted || !c.runs {
		return
	}
	if taints(ctx, r.policy, c.tool, &c.stated) {
		s.Tainted, s.Line, s.Tool = true, line, c.tool
	}
}

func taints(ctx context.Context, p Policy, tool string, stated *Tool) bool {
	untrusted := capability.Unset
	if stated.Taints {
		untrusted = capability.Yes
	}
	is, err := p.ResultTaints(ctx, &capability.Result{Tool: tool, Profile: stated.Profile, Untrusted: untrusted})
	return is || err != nil
}

// A Change is a call that two policies answer differently.
type Change struct {
	Line    int    `json:"line"`
	Session string `json:"session"`
	Task    string `json:"task"`
	Tool    string `json:"tool"`
	From    string `json:"from"` // an outcome, or error
	To      string `json:"to"`
}

// Diff lists the calls that two reports of one trace answer differently.
func Diff(before, after *Report) []Change {
	changes := []Change{}
	for i := range before.Calls {
		a, b := &before.Calls[i], &after.Calls[i]
		if a.Label() != b.Label() {
			changes = append(changes, Change{a.Line, a.Session, a.Task, a.Tool, a.Label(), b.Label()})
		}
	}
	return changes
}
