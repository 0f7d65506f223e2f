package main

import (
	"bufio"
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/opa-gate/opa-gate/ledger"
)

// A deciding is the flags of the commands by which a person decides.
type deciding struct {
	decision   ledger.Decision
	forSession bool
	yes        bool
	format     choice
}

func (d *deciding) add(cmd *cobra.Command, comment string) {
	cmd.Flags().StringVar(&d.decision.Comment, "comment", "", comment)
	d.format.add(cmd, "format", "how the answer is written")
}

func (d *deciding) addLifetime(cmd *cobra.Command, usage string) {
	cmd.Flags().DurationVar(&d.decision.Lifetime, "lifetime", time.Hour, usage)
}

func newApprove(ledgers *ledgerFlags) *cobra.Command {
	d := deciding{format: newFormat(), decision: ledger.Decision{Approve: true, Scope: ledger.Once}}
	cmd := &cobra.Command{
		Use:   "approve ID",
		Short: "Let a call pass",
		Long: `Approve lets one call pass: exactly the one that waits, once, until the approval's
lifetime is over. With --for-session it lets every call of that tool in that
session pass, whatever its arguments.

On a terminal it shows the call first and asks. Of two who decide at the same
moment the first one wins, and the other is told who that was (exit code 1).`,
		Example: `  opa-gate approvals approve wcle
  opa-gate approvals approve wcle --for-session --lifetime 30m --comment "for the release"`,
		Args: oneID,
		RunE: func(cmd *cobra.Command, args []string) error {
			if d.forSession {
				d.decision.Scope = ledger.ForSession
			}
			return d.run(cmd, ledgers, args[0])
		},
	}
	cmd.Flags().BoolVar(&d.forSession, "for-session", false, "every call of the tool in the session, with any arguments")
	cmd.Flags().BoolVarP(&d.yes, "yes", "y", false, "do not ask")
	d.addLifetime(cmd, "how `LONG` the approval counts, such as 30m")
	d.add(cmd, "a `TEXT` to record with it")
	return cmd
}

func newReject(ledgers *ledgerFlags) *cobra.Command {
	d := deciding{format: newFormat()}
	cmd := &cobra.Command{
		Use:   "reject ID",
		Short: "Deny a call",
		Long: `Reject denies a call: exactly the one that waits, each time it is tried, until the
lifetime is over. Whoever called is told the comment.`,
		Example: `  opa-gate approvals reject wcle --comment "not to this address"`,
		Args:    oneID,
		RunE: func(cmd *cobra.Command, args []string) error {
			d.yes = true
			return d.run(cmd, ledgers, args[0])
		},
	}
	d.addLifetime(cmd, "how `LONG` the rejection counts, such as 30m")
	d.add(cmd, "a `TEXT` for whoever called")
	return cmd
}

func (d *deciding) run(cmd *cobra.Command, ledgers *ledgerFlags, prefix string) error {
	reviewer := localUser()
	if d.decision.Lifetime == 0 { // which would mean the default
		return errors.New("--lifetime: expected a time such as 30m, got 0")
	}
	ledgers.existing = true
	return withLedger(cmd, ledgers, func(ctx context.Context, l *ledger.Ledger) error {
		id, err := l.Find(ctx, prefix)
		if err != nil {
			return err
		}
		if !d.yes && asks(cmd) {
			e, err := l.Pending(ctx, id)
			if err != nil {
				return err
			}
			if e.State == ledger.Waiting { // otherwise Decide tells who was faster
				if ok, err := d.ask(ctx, cmd, e); err != nil || !ok {
					return err
				}
			}
		}
		e, err := l.Decide(ctx, reviewer, id, d.decision)
		if err != nil {
			return err
		}
		return d.answer(cmd, e)
	})
}

// ask shows the call and asks whether it may pass. The error is exitCheck's if it
// may not.
func (d *deciding) ask(ctx context.Context, cmd *cobra.Command, e *ledger.Pending) (bool, error) {
	stderr := cmd.ErrOrStderr()
	p := &printer{Writer: bufio.NewWriter(stderr), colour: wantsColour(stderr)}
	showEscalation(p, e, time.Now(), false)
	question := "Let exactly this call pass, once?"
	if d.forSession {
		question = "Let every call of this tool in this session pass, with any arguments?"
	}
	_, _ = p.WriteString("\n" + question + " [y/N] ")
	if err := p.Flush(); err != nil {
		return false, err
	}
	if yes, err := agreed(ctx, cmd); err != nil || yes {
		return yes, err
	}
	complain(stderr, "not approved; it still waits")
	return false, exit(exitCheck)
}

// answer tells what became of an escalation.
func (d *deciding) answer(cmd *cobra.Command, e *ledger.Pending) error {
	out := cmd.OutOrStdout()
	p := &printer{Writer: bufio.NewWriter(out), colour: wantsColour(out)}
	if d.format.value == "json" {
		if err := writeLine(p, e); err != nil {
			return err
		}
		return p.Flush()
	}
	what := ""
	if v := e.Decision; v != nil && e.State != ledger.Withdrawn {
		switch {
		case v.Scope == ledger.ForSession:
			what = "every call of it in session " + e.Session
		case v.Approved:
			what = "this call, once"
		default:
			what = "exactly this call"
		}
		what += ", for " + lasting(v.Expires.Sub(v.At.Truncate(time.Second))) + ", as " + v.Reviewer
	}
	p.head(stateColour(e.State), e.State.String(), e.Tool, what)
	p.detail("id", e.ID)
	return p.Flush()
}

func newWithdraw(ledgers *ledgerFlags) *cobra.Command {
	d := deciding{format: newFormat()}
	cmd := &cobra.Command{
		Use:   "withdraw ID",
		Short: "Take back an approval, or what waits",
		Long: `Withdraw ends an escalation that waits, or takes back an approval: from then on it
lets no call pass. What has passed has passed.`,
		Example: `  opa-gate approvals withdraw wcle --comment "the release is out"`,
		Args:    oneID,
		RunE: func(cmd *cobra.Command, args []string) error {
			by := localUser()
			ledgers.existing = true
			return withLedger(cmd, ledgers, func(ctx context.Context, l *ledger.Ledger) error {
				id, err := l.Find(ctx, args[0])
				if err != nil {
					return err
				}
				e, err := l.Withdraw(ctx, by, id, d.decision.Comment)
				if err != nil {
					return err
				}
				return d.answer(cmd, e)
			})
		},
	}
	d.add(cmd, "a `TEXT` to record with it")
	return cmd
}
