package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/opa-gate/opa-gate/ledger"
	"github.com/opa-gate/opa-gate/skill"
)

// A ledgerFlags is the flags that say which ledger is asked, and whose approvals
// count in it.
type ledgerFlags struct {
	name    string
	keyFile string
	trust   []string

	existing bool // a ledger that is named has to be there
	noNewKey bool // nothing is signed
	given    func(flag string) bool
}

// ledgerVariable names the ledger where --ledger does not.
const ledgerVariable = "OPA_GATE_LEDGER"

// add makes them flags of cmd and of the commands under it.
func (f *ledgerFlags) add(cmd *cobra.Command) { f.addTo(cmd.PersistentFlags()) }

// addTo makes them flags of one command alone, or of it and those under it.
func (f *ledgerFlags) addTo(flags *pflag.FlagSet) {
	f.addName(flags, "the user's own")
	flags.StringVar(&f.keyFile, "key", "", "the `FILE` of the private key that signs approvals; it is made if there is none (default the user's own)")
	flags.StringArrayVar(&f.trust, "trust", nil, "a `FILE` of public keys whose approvals count, too; may be given several times")
	_ = cobra.MarkFlagFilename(flags, "key")
	_ = cobra.MarkFlagFilename(flags, "trust")
}

// addName adds the flag that names the ledger. Without is what is asked where no
// ledger is named.
func (f *ledgerFlags) addName(flags *pflag.FlagSet, without string) {
	flags.StringVar(&f.name, "ledger", "", "the `LEDGER`: a file of SQLite, a postgres:// URL, or memory: for one "+
		"that ends with the command (default $"+ledgerVariable+", or else "+without+")")
	f.given = flags.Changed
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
	return f.named(func(name string) (*ledger.Ledger, error) { return f.config(name).Open(ctx) })
}

// files are those that the ledger is opened from: its own, "" if it has none, and
// those of its keys.
func (f *ledgerFlags) files() (ledger string, keys []string) { return f.config(f.called()).Files() }

// called is the name that the flag or the environment gives the ledger.
func (f *ledgerFlags) called() string {
	if f.name == "" {
		return os.Getenv(ledgerVariable)
	}
	return f.name
}

// named opens the ledger that the flag or the environment names.
func (f *ledgerFlags) named(open func(name string) (*ledger.Ledger, error)) (*ledger.Ledger, error) {
	name := f.called()
	l, err := open(name)
	if err != nil && !errors.Is(err, ledger.ErrKey) && !errors.Is(err, ledger.ErrAbsent) && name != "" { // those two say which file
		return nil, fmt.Errorf("%s: %w", ledger.Redacted(name), err)
	}
	return l, err
}

func (f *ledgerFlags) config(name string) *ledger.Config {
	return &ledger.Config{Name: name, KeyFile: f.keyFile, Trust: f.trust, Existing: f.existing && name != "", NoNewKey: f.noNewKey}
}

// keys reads the keys without the ledger.
func (f *ledgerFlags) keys() (*ledger.Keyring, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	return f.config("").Keys()
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

// openSkills opens the ledger for decisions about skills, which are not signed,
// and returns what closes it. Without a ledger's name it is nil.
func (f *ledgerFlags) openSkills(ctx context.Context) (skill.Ledger, func() error, error) {
	if err := f.check(); err != nil {
		return nil, nil, err
	}
	if !f.configured() {
		return nil, func() error { return nil }, nil
	}
	l, err := f.named(func(name string) (*ledger.Ledger, error) { return ledger.Open(ctx, name, nil) })
	if err != nil {
		return nil, nil, err
	}
	return l, l.Close, nil
}
