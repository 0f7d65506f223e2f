package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/ledger"
	"github.com/opa-gate/opa-gate/skill"
	"github.com/opa-gate/opa-gate/wire"
)

// withLedger has the gate's APIs ask a ledger.
func (s *Server) withLedger(l *ledger.Ledger, e *events) {
	admit := route{
		decide: func(p *policies, ctx context.Context, doc []byte) ([]byte, error) {
			return s.gate.admit(ctx, l, p, doc)
		},
		entry:  callRoute.entry,
		counts: func(c *counts) map[string]prometheus.Counter { return c.admissions },
		logged: callOfAdmission,
	}
	s.runtime.Manager.ExtraRoute("POST /v1/gate/admit", "v1/gate/admit", sameSite(s.gate.handler(admit, e)))
}

// sameSite refuses what a page of another site has a browser send: nothing but
// programs, and no page, files calls.
func sameSite(next http.HandlerFunc) http.HandlerFunc {
	origins := http.NewCrossOriginProtection()
	return func(w http.ResponseWriter, req *http.Request) {
		if err := origins.Check(req); err != nil {
			refuse(w, http.StatusForbidden, problem{Message: "the request comes from another site"})
			return
		}
		if kind, _, err := mime.ParseMediaType(req.Header.Get("Content-Type")); err != nil || kind != "application/json" {
			refuse(w, http.StatusUnsupportedMediaType, problem{Message: "expected the header Content-Type: application/json"})
			return
		}
		next(w, req)
	}
}

// An unsettled is an escalation that the ledger could not be asked about. It is
// answered as such, beside the escalation.
type unsettled struct {
	answer []byte
	err    error
}

// Error implements error.
func (u *unsettled) Error() string { return u.err.Error() }

// Unwrap lets the ledger's errors be told apart.
func (u *unsettled) Unwrap() error { return u.err }

func (u *unsettled) status() int {
	if errors.Is(u.err, ledger.ErrInvalid) {
		return http.StatusBadRequest
	}
	return http.StatusServiceUnavailable
}

// errLedger is what callers are told of a ledger that fails; the log says why.
var errLedger = fmt.Errorf("%w now; the server's log says why", ledger.ErrUnavailable)

// admit decides one admission document, and settles an escalation with the ledger.
// The error is an *unsettled where the ledger failed.
func (g *gate) admit(ctx context.Context, l *ledger.Ledger, p *policies, doc []byte) ([]byte, error) {
	q, err := wire.ParseAdmission(doc)
	if err != nil {
		return nil, err
	}
	outcome, err := p.documents.Engine.Decide(ctx, q.Call)
	if err != nil {
		return nil, err
	}
	answer := ledger.Answer{Admission: ledger.Admission{Outcome: outcome}}
	if outcome.Kind == capability.Escalate {
		answer.Admission, answer.Err = settle(ctx, l, p, q, outcome)
	}
	failed := answer.Err
	if failed != nil && !errors.Is(failed, ledger.ErrInvalid) && !errors.Is(failed, ledger.ErrTooMany) {
		g.complain("A call that needs a person could not be settled: %v", failed)
		answer.Err = errLedger
	}
	text, err := answer.MarshalJSON()
	if err == nil && failed != nil {
		err = &unsettled{text, answer.Err}
	}
	return text, err
}

func settle(ctx context.Context, l *ledger.Ledger, p *policies, q *wire.Admission, outcome capability.Outcome) (ledger.Admission, error) {
	revision, err := p.digest()
	if err != nil {
		return ledger.Admission{Outcome: outcome}, err
	}
	return l.Admit(ctx, &ledger.Escalation{
		Call: ledger.Call{Tool: q.Call.Tool, Arguments: q.Arguments, Transform: q.Call.Policy.Transform,
			Session: q.Session, Revision: revision},
		Outcome: outcome, Lifetime: q.Lifetime, Token: q.Approval,
	})
}

// callOfAdmission is what decision logs get: the call and its decision, and not
// the signed approval that came with it.
func callOfAdmission(doc, answer []byte) (call, decision []byte) {
	var in struct {
		Call json.RawMessage `json:"call"`
	}
	var out struct {
		Decision json.RawMessage `json:"decision"`
	}
	if json.Unmarshal(doc, &in) != nil {
		return nil, nil
	}
	if answer != nil && json.Unmarshal(answer, &out) != nil {
		return in.Call, nil
	}
	return in.Call, out.Decision
}

// skillWith is the skill route over a ledger: where the gate denies, what a person
// decided is looked up, and a document that says it itself is refused.
func (g *gate) skillWith(l skill.Ledger) route {
	r := skillRoute
	r.decide = func(p *policies, ctx context.Context, doc []byte) ([]byte, error) {
		q, err := wire.ParseUndecidedSkill(doc)
		if err != nil {
			return nil, err
		}
		a, err := evaluator.DecideSkill(ctx, p.documents.Engine, l, q)
		if errors.Is(err, evaluator.ErrLedger) {
			g.complain("A skill that was denied could not be looked up: %v", err)
			return nil, &unsettled{problem{Message: errLedger.Error()}.text(), errLedger}
		}
		if err != nil {
			return nil, err
		}
		return a.MarshalJSON()
	}
	return r
}

// untilStopped calls stop when ctx ends or the process is told to end, so that
// streams do not hold OPA up, which waits for requests.
func untilStopped(ctx context.Context, stop func()) {
	ctx, cancel := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer cancel()
	<-ctx.Done()
	stop()
}
