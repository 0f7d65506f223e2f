package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/opa-gate/opa-gate/ledger"
)

// A ledgerFlags is the flags that say which ledger is asked, and whose approvals
// count in it.
type ledgerFlags struct {
	name    string
	keyFile string
	trust   []string
	given   func(flag string) bool
}

// ledgerVariable names the ledger where --ledger does not.
const ledgerVariable = "OPA_GATE_LEDGER"

// add makes them flags of cmd and of the commands under it.
func (f *ledgerFlags) add(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	flags.StringVar(&f.name, "ledger", "", "the `LEDGER`: a file of SQLite, a postgres:// URL, or memory: "+
		"(default $"+ledgerVariable+", or else the user's own)")
	flags.StringVar(&f.keyFile, "key", "", "the `FILE` of the private key that signs approvals; it is made if there is none (default the user's own)")
	flags.StringArrayVar(&f.trust, "trust", nil, "a `FILE` of public keys whose approvals count, too; may be given several times")
	f.given = flags.Changed
	_ = cmd.MarkPersistentFlagFilename("key")
	_ = cmd.MarkPersistentFlagFilename("trust")
}

// configured tells whether somebody said which ledger to ask.
func (f *ledgerFlags) configured() bool {
	return f.given("ledger") || os.Getenv(ledgerVariable) != ""
}

// check refuses the flag of an unset variable, which must not mean the user's own.
func (f *ledgerFlags) check() error {
	if f.given("ledger") && f.name == "" {
		return errors.New("--ledger: expected the name of a ledger, got an empty one")
	}
	if f.given("key") && f.keyFile == "" {
		return errors.New("--key: expected a file, got an empty name")
	}
	return nil
}

// open opens the ledger; its caller closes it.
func (f *ledgerFlags) open(ctx context.Context) (*ledger.Ledger, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	name := f.name
	if name == "" {
		name = os.Getenv(ledgerVariable)
	}
	l, err := (&ledger.Config{Name: name, KeyFile: f.keyFile, Trust: f.trust}).Open(ctx)
	if err != nil && !errors.Is(err, ledger.ErrKey) && name != "" {
		return nil, fmt.Errorf("%s: %w", ledger.Redacted(name), err)
	}
	return l, err
}

// A lateLedger is opened when it is first asked for: what needs no ledger does
// not touch one, and one that is away is tried again.
type lateLedger struct {
	flags  *ledgerFlags
	opened *ledger.Ledger
}

func (l *lateLedger) get(ctx context.Context) (*ledger.Ledger, error) {
	if l.opened != nil {
		return l.opened, nil
	}
	var err error
	l.opened, err = l.flags.open(ctx)
	return l.opened, err
}

func (l *lateLedger) close() {
	if l.opened != nil {
		_ = l.opened.Close() // what was recorded is there
	}
}
