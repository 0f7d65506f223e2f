package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/ledger"
	"github.com/opa-gate/opa-gate/wire"
)

func newAdmit() *cobra.Command {
	engines := newEngineFlags()
	format := newFormat()
	var (
		ledgers  ledgerFlags
		exitCode bool
		wait     time.Duration
	)
	cmd := &cobra.Command{
		Use:   "admit [FILE|-]",
		Short: "Decide tool calls, and put what needs a person into the ledger",
		Long: `Admit decides calls as decide does, and settles each one that needs a person
with the ledger. If a person approved exactly this call, or this tool for this
session, the call goes ahead, and an approval for once is used up by that. If a
person rejected it, it is denied. Otherwise it waits in the ledger until somebody
decides it; see opa-gate approvals.

The input takes the same forms as that of decide. Each document holds a call and
what it is about:

  {"call": CALL, "arguments": {…}, "session": "…", "approval": "…", "expires_in": 600}

Only the call must be there. Approval is a signed approval that came with the
call; expires_in is how many seconds the call waits for a person.

The answer of a ledger that cannot be asked is to ask a person, with an error
beside it; the exit code is 2 then. A call that needs nobody does not touch the
ledger.`,
		Example: `  echo '{"call": {"tool": {"name": "mail", "origin": "registered-connector"}, "taint": "tainted"}, "arguments": {"to": "a@example.org"}, "session": "s1"}' | opa-gate admit
  opa-gate admit --wait 10m --exit-code --format json call.json
  opa-gate admit --ledger postgres://gate@db/gate --trust approvers.pem calls.ndjson`,
		Args: oneInput,
		RunE: func(cmd *cobra.Command, args []string) error {
			if wait < 0 || wait > ledger.MaxLifetime {
				return fmt.Errorf("--wait: expected a time from 0s to %v, got %v", ledger.MaxLifetime, wait)
			}
			engine, revision, err := engines.openRevised(cmd.Context(), engines.engine.value)
			if err != nil {
				return err
			}
			if err := ledgers.check(); err != nil {
				return err
			}
			l := &lateLedger{flags: &ledgers}
			defer l.close()
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
			defer stop()
			a := admission{engine: engine, revision: revision, ledger: l, wait: wait}
			err = answerInput(cmd, args, format.value, exitCode, a.work(ctx))
			if ctx.Err() != nil {
				return exit(exitInterrupted)
			}
			return err
		},
	}
	engines.add(cmd, "who decides; as in decide")
	engines.addSystem(cmd)
	ledgers.add(cmd)
	format.add(cmd, "format", "how answers are written")
	cmd.Flags().DurationVar(&wait, "wait", 0, "wait so `LONG`, such as 90s or 10m, for a person to decide")
	cmd.Flags().BoolVar(&exitCode, "exit-code", false, "exit with 1 unless there are answers and every one is allow")
	return cmd
}

// An admission settles calls.
type admission struct {
	engine   evaluator.Engine
	revision func() (string, error)
	ledger   *lateLedger
	wait     time.Duration
}

func (a *admission) work(ctx context.Context) work[*wire.Admission, ledger.Answer] {
	return work[*wire.Admission, ledger.Answer]{
		parse:  wire.ParseAdmission,
		decide: func(q *wire.Admission) (ledger.Answer, error) { return a.settle(ctx, q) },
		show:   showAdmission,
		passes: func(a ledger.Answer) bool { return a.Admission.Outcome.Kind == capability.Allow },
		failed: func(a ledger.Answer) error { return a.Err },
	}
}

func (a *admission) settle(ctx context.Context, q *wire.Admission) (ledger.Answer, error) {
	outcome, err := a.engine.Decide(ctx, q.Call)
	if err != nil {
		return ledger.Answer{}, err
	}
	unsettled := ledger.Admission{Outcome: outcome}
	if outcome.Kind != capability.Escalate {
		return ledger.Answer{Admission: unsettled}, nil
	}
	e := &ledger.Escalation{Outcome: outcome, Lifetime: q.Lifetime, Token: q.Approval}
	if e.Call, err = callOf(q, a.revision); err != nil {
		return ledger.Answer{Admission: unsettled, Err: err}, nil
	}
	l, err := a.ledger.get(ctx)
	if err != nil {
		return ledger.Answer{Admission: unsettled, Err: err}, nil
	}
	admitted, err := l.AdmitWithin(ctx, e, a.wait)
	if errors.Is(err, context.Canceled) {
		err = errors.New("interrupted while a person was waited for")
	}
	return ledger.Answer{Admission: admitted, Err: err}, nil
}

// callOf is what an approval is bound to.
func callOf(q *wire.Admission, revision func() (string, error)) (ledger.Call, error) {
	policies, err := revision()
	return ledger.Call{Tool: q.Call.Tool, Arguments: q.Arguments, Transform: q.Call.Policy.Transform,
		Session: q.Session, Revision: policies}, err
}

func showAdmission(p *printer, q *wire.Admission, a ledger.Answer) {
	showOutcome(p, q.Call, a.Admission.Outcome)
	if approval := a.Admission.Approval; approval != nil {
		how := "for this call"
		if approval.Scope == ledger.ForSession {
			how = "for this tool in this session"
		}
		p.detail("approved", how+", by "+approval.Reviewer)
	}
	if a.Admission.Refused != nil {
		p.detail("refused", a.Admission.Refused.Error())
	}
	if pending := a.Admission.Pending; pending != nil {
		p.detail(pending.State.String(), pending.ID)
	}
}
