package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/wire"
)

// A Request is one call that an agent is about to make.
type Request struct {
	Session   string              // the conversation's ID
	Tool      string              // the tool's name, as the agent knows it
	CallID    string              // the call's ID, as the agent names it; "" if it has none
	Agent     string              // the sub-agent's ID, if one makes the call
	Arguments json.RawMessage     // one JSON object; nil means an empty one
	Declared  *capability.Profile // what the tool's server declares; its origin counts for nothing
	Root      string              // the folder that is the sandbox; relative paths start at Dir
	Dir       string              // the working directory; "" is Root
	// Asks: the surface itself puts an escalation to a person and makes the call
	// if the person agrees, without asking the gate again.
	Asks bool
}

// A Verdict is what the gate says of a call. The zero Verdict refuses it.
type Verdict struct {
	Outcome  capability.Outcome // with people's approvals taken into account
	Tool     Tool               // what the catalogue states
	Profile  capability.Profile // what was decided on
	State    State              // of the conversation, as the decision saw it
	Seen     capability.Taint   // under which the call was decided; finer policies make exceptions from State's
	Tainting bool               // the call's result taints the conversation
	Sandbox  bool               // a path that it names is outside the sandbox, or protected
	// Transform is what a person who agrees to an escalation agrees to: with it
	// the call has to be made.
	Transform capability.Transform
	Pending   string // the ID under which the escalation waits for a person; "" if it does not
	Approved  string // the ID of the approval that let the call go; "" if none was needed
}

// Runs reports whether the call may be made, with the outcome's arguments or
// note.
func (v *Verdict) Runs() bool {
	switch v.Outcome.Kind {
	case capability.Allow, capability.Modify, capability.Inject:
		return true
	}
	return false
}

// Asks reports whether a person may still allow the call.
func (v *Verdict) Asks() bool { return v.Outcome.Kind == capability.Escalate }

// Approvals keeps escalations until people decide on them.
type Approvals interface {
	// Admit returns the outcome of a call once people's decisions are taken into
	// account. An outcome that is no escalation comes back as it is.
	Admit(ctx context.Context, c Case, o capability.Outcome) (Admission, error)
	// Wait returns once an escalation no longer waits: somebody decided it, or
	// its time is over. An error is that of ctx, or means that this is not known.
	Wait(ctx context.Context, id string) error
	// Withdraw ends an escalation that nobody needs to decide any longer.
	Withdraw(ctx context.Context, id, why string) error
}

// A Case is a call with what an approval of it is bound to.
type Case struct {
	Tool      string
	Arguments json.RawMessage
	Policy    capability.CallPolicy
	Session   string
	Revision  string // of the policies
}

// An Admission is what people's decisions make of an outcome.
type Admission struct {
	Outcome  capability.Outcome
	Pending  string // what waits now; "" if nothing does
	Approved string // what let the call go; "" if nothing did
}

// A Gate decides an agent's calls. Its fields are set before its first use.
type Gate struct {
	Engine evaluator.Engine
	// Tainter says which results taint, and which calls see that; nil is the native
	// reference. If it cannot tell, the result taints, and the call is refused.
	Tainter evaluator.Tainter
	// Steers: the Tainter looks at who wrote a call's arguments, so that prompts are kept.
	Steers    bool
	Catalogue *Catalogue
	Sessions  *Sessions
	Approvals Approvals // nil: escalations wait nowhere
	Revision  string    // of the policies
}

// Bounds of a request.
const (
	MaxTool      = 1024          // bytes of a tool's name
	MaxCallID    = 1024          // bytes of a call's ID
	MaxArguments = wire.MaxBytes // bytes of the arguments
	maxShown     = 300           // bytes of what a source shows
)

// Errors of a Gate, to be told apart with errors.Is.
var (
	// ErrRequest: the call itself is malformed.
	ErrRequest = errors.New("the call is malformed")
	// ErrPanic: the gate has a fault.
	ErrPanic = errors.New("the gate failed")
)

// Decide answers one call. If the call may run, and its result taints the
// conversation, the conversation is tainted when Decide returns. An error means
// that nothing was decided: the call must not be made. The Verdict is then the zero
// one.
func (g *Gate) Decide(ctx context.Context, r Request) (v Verdict, err error) {
	// The one place where what goes wrong becomes a refusal.
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", ErrPanic, p)
		}
		if err != nil {
			v = Verdict{}
		}
	}()
	if v, err = g.decide(ctx, r); err != nil {
		return v, err
	}
	if err := ctx.Err(); err != nil { // whoever asked has gone, or has no time left
		return v, err
	}
	return v, nil
}

func (g *Gate) decide(ctx context.Context, r Request) (Verdict, error) {
	arguments, err := r.check()
	if err != nil {
		return Verdict{}, err
	}
	var v Verdict
	if v.Tool, v.Profile, v.Tainting, err = g.tool(ctx, &r); err != nil {
		return Verdict{}, err
	}
	if v.State, err = g.Sessions.State(ctx, r.Session); err != nil {
		return Verdict{}, err
	}
	if v.State.First.IsZero() {
		if v.State, err = g.Sessions.Continue(ctx, r.Session); err != nil {
			return Verdict{}, err
		}
	}
	call := &capability.Call{Tool: r.Tool, Profile: v.Profile, Grant: g.Catalogue.Grant}
	if call.Policy, err = g.policy(&r, v.Tool, v.Profile, arguments); err != nil {
		return Verdict{}, err
	}
	v.Transform, v.Sandbox = call.Policy.Transform, call.Policy.SandboxEscalation
	if v.Seen, err = g.seen(ctx, &r, &v); err != nil {
		return Verdict{}, err
	}
	call.Taint = v.Seen
	if v.Outcome, err = g.Engine.Decide(ctx, call); err != nil {
		return Verdict{}, err
	}
	if v.Asks() && g.Approvals != nil {
		c := Case{Tool: r.Tool, Arguments: r.Arguments, Policy: call.Policy, Session: r.Session, Revision: g.Revision}
		if len(c.Arguments) == 0 {
			c.Arguments = json.RawMessage("{}")
		}
		admission, err := g.Approvals.Admit(ctx, c, v.Outcome)
		if err != nil {
			return Verdict{}, err
		}
		v.Outcome, v.Pending, v.Approved = admission.Outcome, admission.Pending, admission.Approved
	}
	if !v.Outcome.Kind.Valid() {
		return Verdict{}, fmt.Errorf("%w: the outcome %v is none", ErrPanic, v.Outcome.Kind)
	}
	if v.Runs() || v.Asks() && r.Asks {
		var src *Source
		if v.Tainting {
			started := r.source(Started, v.Tool, arguments)
			src = &started
		}
		var about Draft
		if v.Asks() && v.Pending != "" && r.CallID != "" {
			body, err := json.Marshal(v.Pending)
			if err != nil {
				return Verdict{}, err
			}
			about = Draft{Kind: KindAsked, Subject: r.askedSubject(), Body: body}
		}
		if src == nil && about.Kind == "" {
			return v, nil
		}
		if _, err := g.Sessions.letGo(ctx, r.Session, src, about); err != nil {
			return Verdict{}, err
		}
	}
	return v, nil
}

// KindAsked is the kind of entry that says which escalation waits for a call that
// the surface asks a person about, under a subject of the call's own.
const KindAsked = "session.asked"

func (r *Request) askedSubject() string {
	text, _ := json.Marshal([2]string{r.Session, r.CallID}) // texts are always written
	return "asked:" + string(text)
}

// settle ends the escalation of a call that a person agreed to at the surface:
// it need not wait elsewhere.
func (g *Gate) settle(ctx context.Context, r *Request) error {
	if r.CallID == "" || g.Approvals == nil {
		return nil
	}
	history, err := g.Sessions.Log.Subject(ctx, r.askedSubject())
	if err != nil || len(history) == 0 {
		return err
	}
	var id string
	if err := json.Unmarshal(history[len(history)-1].Body, &id); err != nil {
		return fmt.Errorf("%w: %w", ErrHistory, err)
	}
	// Somebody else may have decided it by now; then there is nothing to end.
	_ = g.Approvals.Withdraw(ctx, id, "the person at the agent decided")
	return nil
}

// A Result is the end of a call, however it ended.
type Result struct {
	Request
	Failed bool
}

// Result takes note of the end of a call. If the call's result taints the
// conversation, the conversation is tainted when Result returns, even if nobody has
// asked the gate about the call. An error means that this is not known; a result
// that is malformed taints as well.
func (g *Gate) Result(ctx context.Context, r Result) (st State, err error) {
	defer func() {
		if p := recover(); p != nil {
			st, err = State{}, fmt.Errorf("%w: %v", ErrPanic, p)
		}
	}()
	why := Ended
	if r.Failed {
		why = Failed
	}
	arguments, err := r.check()
	if err != nil { // it has come in all the same, and may be anything
		_, tainted := g.Sessions.Taint(ctx, r.Session, Source{Why: why, Tool: shown(r.Tool)})
		if errors.Is(tainted, ErrSession) {
			return State{}, err
		}
		return State{}, errors.Join(err, tainted)
	}
	tool, _, tainting, err := g.tool(ctx, &r.Request)
	if err != nil {
		return State{}, err
	}
	if tainting { // before anything else can go wrong
		st, err = g.Sessions.Taint(ctx, r.Session, r.source(why, tool, arguments))
	} else {
		st, err = g.Sessions.State(ctx, r.Session)
	}
	if err == nil {
		err = g.settle(ctx, &r.Request)
	}
	if err != nil {
		return State{}, err
	}
	return st, nil
}

// tool is what is known of the tool of a request, and whether its results taint.
func (g *Gate) tool(ctx context.Context, r *Request) (t Tool, p capability.Profile, tainting bool, err error) {
	t = g.Catalogue.Lookup(r.Tool)
	p = t.Profile
	if r.Declared != nil {
		p = t.Declared(*r.Declared)
	}
	result := &capability.Result{Tool: r.Tool, Profile: p}
	if t.Taints {
		result.Untrusted = capability.Yes
	}
	tainting, err = g.tainter().ResultTaints(ctx, result)
	return t, p, tainting, err
}

func (g *Gate) tainter() evaluator.Tainter {
	if g.Tainter == nil {
		return evaluator.Native{}
	}
	return g.Tainter
}

// policy is the operator's verdict on the call.
func (g *Gate) policy(r *Request, t Tool, p capability.Profile, arguments map[string]json.RawMessage) (capability.CallPolicy, error) {
	out := capability.CallPolicy{Vetoed: t.Vetoed, Veto: t.Veto, RequiresHuman: t.RequiresHuman}
	out.SandboxEscalation = len(t.Paths) > 0 && !g.inSandbox(r, t.Paths, arguments, p.IsReadOnly())
	switch {
	case len(t.Set) > 0:
		changed := maps.Clone(arguments)
		fixed := slices.Collect(maps.Keys(t.Set))
		maps.DeleteFunc(changed, func(name string, _ json.RawMessage) bool { return isVariant(name, fixed) })
		maps.Copy(changed, t.Set)
		text, err := json.Marshal(changed)
		if err != nil {
			return out, fmt.Errorf("%w: %w", ErrRequest, err)
		}
		out.Transform = capability.Transform{Kind: capability.Rewrite, Arguments: text}
	case t.Note != "":
		out.Transform = capability.Transform{Kind: capability.InjectContext, Note: t.Note}
	}
	return out, nil
}

// isVariant reports whether a name is one of some names but for its case. A server
// that reads arguments without regard to case takes the one for the other.
func isVariant(name string, of []string) bool {
	return !slices.Contains(of, name) && slices.ContainsFunc(of, func(n string) bool { return strings.EqualFold(n, name) })
}

// check bounds a request and takes its arguments apart. It is as strict as the
// reader of call documents: a member that is given twice is read in one way
// here and perhaps in another one there.
func (r *Request) check() (map[string]json.RawMessage, error) {
	switch {
	case r.Tool == "":
		return nil, fmt.Errorf("%w: the tool has no name", ErrRequest)
	case len(r.Tool) > MaxTool:
		return nil, fmt.Errorf("%w: the tool's name has more than %d bytes", ErrRequest, MaxTool)
	case len(r.CallID) > MaxCallID || len(r.Agent) > MaxCallID:
		return nil, fmt.Errorf("%w: the call's ID has more than %d bytes", ErrRequest, MaxCallID)
	case len(r.Arguments) > MaxArguments:
		return nil, fmt.Errorf("%w: the arguments have more than %d bytes", ErrRequest, MaxArguments)
	}
	if err := checkID(r.Session); err != nil {
		return nil, err
	}
	out := map[string]json.RawMessage{}
	if len(r.Arguments) == 0 {
		return out, nil
	}
	if v := jsontext.Value(r.Arguments); !v.IsValid() || v.Kind() != '{' {
		return nil, fmt.Errorf("%w: the arguments are not one plain JSON object", ErrRequest)
	}
	if err := json.Unmarshal(r.Arguments, &out); err != nil {
		return nil, fmt.Errorf("%w: the arguments: %w", ErrRequest, err)
	}
	return out, nil
}

func (r *Request) source(why Why, t Tool, arguments map[string]json.RawMessage) Source {
	src := Source{Why: why, Tool: r.Tool, Call: r.CallID, Agent: r.Agent}
	var text string
	if raw, ok := arguments[t.Shows]; t.Shows != "" && ok && json.Unmarshal(raw, &text) == nil {
		src.Shows = shown(text)
	}
	return src
}

// shown is what may be kept of an argument that names content: of an address,
// not what is often a secret in it.
func shown(text string) string {
	if u, err := url.Parse(text); err == nil && u.Scheme != "" && u.Host != "" {
		text = (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
	}
	if len(text) > maxShown {
		text = strings.ToValidUTF8(text[:maxShown], "") + "…"
	}
	return text
}
