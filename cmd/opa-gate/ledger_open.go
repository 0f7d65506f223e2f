package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/opa-gate/opa-gate/ledger"
)

// A ledgerFlags is the flags that say which ledger is used.
type ledgerFlags struct{ ledger.Config }

func (f *ledgerFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.Name, "ledger", "", "the ledger: a file of SQLite or a postgres:// `URL` (default the user's own file)")
	cmd.Flags().StringVar(&f.KeyFile, "key", "", "the key in `FILE` that signs approvals (default the user's own)")
	_ = cmd.MarkFlagFilename("key")
}

// files are those that the ledger is opened from.
func (f *ledgerFlags) files() []string {
	name, key := f.Name, f.KeyFile
	switch {
	case name == "":
		name, _ = ledger.DefaultPath() // opening says what is wrong
	case strings.Contains(name, "://") || name == "memory:":
		name = ""
	}
	if key == "" {
		key, _ = ledger.DefaultKeyFile()
	}
	return []string{strings.TrimPrefix(name, "sqlite:"), key}
}
