package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"os/user"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/opa-gate/opa-gate/ledger"
)

func newApprovals() *cobra.Command {
	var ledgers ledgerFlags
	cmd := &cobra.Command{
		Use:   "approvals",
		Short: "See what waits for a person, decide it, and prove what was decided",
		Long: `Approvals works on the ledger: what waits for a person, and what people decided
about calls and skills. The ledger only ever grows, and each of its entries
carries the hash of the one before it.

Who decides is the user of the operating system that runs the command. The
beginning of an id is enough where only one escalation begins so.`,
		Example: `  opa-gate approvals list
  opa-gate approvals show wcle
  opa-gate approvals approve wcle --comment "the address is ours"`,
		Args: knownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	ledgers.add(cmd)
	cmd.AddCommand(newApprovalsList(&ledgers), newApprovalsShow(&ledgers), newApprove(&ledgers), newReject(&ledgers), newWithdraw(&ledgers),
		newApprovalsWatch(&ledgers), newAudit(&ledgers), newApprovalsVerify(&ledgers), newExport(&ledgers), newImport(&ledgers),
		newApprovalsSkill(&ledgers), newApprovalsToken())
	return cmd
}

// readLedger does work that records nothing, and so makes neither the ledger that
// was named nor a key.
func readLedger(cmd *cobra.Command, flags *ledgerFlags, work func(ctx context.Context, l *ledger.Ledger) error) error {
	flags.existing, flags.noNewKey = true, true
	return withLedger(cmd, flags, work)
}

// withLedger does work with the ledger that the flags name, until Ctrl-C.
func withLedger(cmd *cobra.Command, flags *ledgerFlags, work func(ctx context.Context, l *ledger.Ledger) error) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
	defer stop()
	l, err := flags.open(ctx)
	if err == nil {
		err = work(ctx, l)
		_ = l.Close() // what was recorded is there
	}
	var decided *ledger.DecidedError
	switch {
	case ctx.Err() != nil && err != nil:
		return exit(exitInterrupted)
	case errors.As(err, &decided):
		complain(cmd.ErrOrStderr(), err.Error())
		return exit(exitCheck)
	}
	return err
}

// localUser names the user of the operating system whom this process belongs
// to. Nothing that the user can set has a say in it.
var localUser = sync.OnceValue(func() string {
	uid := strconv.Itoa(os.Getuid())
	if name, set := os.LookupEnv("USER"); set { // package user would believe it about a user that the system does not know
		_ = os.Unsetenv("USER")
		defer func() { _ = os.Setenv("USER", name) }() // for the processes that this one starts
	}
	if u, err := user.LookupId(uid); err == nil && u.Username != "" {
		return "local:" + u.Username
	}
	return "local:uid " + uid
})

// oneID is the arguments of a command about one escalation.
func oneID(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%s needs one id, as %q shows them; got %d", cmd.CommandPath(), "opa-gate approvals list", len(args))
	}
	return nil
}

// inWords says how long it takes from one time to another, or how long ago that was.
func inWords(from, to time.Time) string {
	d := to.Sub(from)
	switch {
	case d >= 0 && d < time.Second || d < 0 && d > -time.Second:
		return "now"
	case d < 0:
		return lasting(-d) + " ago"
	}
	return "in " + lasting(d)
}

func lasting(d time.Duration) string {
	for _, unit := range []struct {
		length time.Duration
		one    string
	}{{24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}, {time.Second, "second"}} {
		// Two of a unit at least, or else more of the next smaller one.
		if d >= 2*unit.length || unit.length == time.Second {
			return counted(int(d/unit.length), unit.one, unit.one+"s")
		}
	}
	return ""
}

// stamp writes a time for people: in words, and as it is.
func stamp(now, at time.Time) string {
	return inWords(now, at) + " (" + at.Local().Format("2006-01-02 15:04:05 -07:00") + ")"
}

// nothing is what a person reads who looks for something that is not there.
func nothing(state string, filtered bool) string {
	switch {
	case filtered:
		return "There is nothing like that."
	case state == ledger.Waiting.String():
		return "Nothing waits."
	}
	return "There is nothing " + strings.ReplaceAll(state, "all", "yet") + "."
}
