package ledger

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// A Config says which ledger is opened, and whose approvals count in it.
type Config struct {
	Name    string   // see [Open]
	KeyFile string   // the private key that signs approvals; made if there is none
	Trust   []string // files of public keys whose approvals count as well
	Limits  Limits
}

// Open opens the ledger with its keys. Without a KeyFile it is [DefaultKeyFile],
// unless there are keys to trust: who trusts others need not have a key. Errors
// are those of the function [Open], or match ErrKey.
func (c *Config) Open(ctx context.Context) (*Ledger, error) {
	keys := &Keyring{}
	for _, file := range c.Trust {
		public, err := LoadPublic(file)
		if err != nil {
			return nil, err
		}
		for _, key := range public {
			keys.Trust(key)
		}
	}
	file := c.KeyFile
	if file == "" && len(c.Trust) == 0 {
		var err error
		if file, err = DefaultKeyFile(); err != nil {
			return nil, err
		}
	}
	if file != "" {
		key, err := LoadOrMakeKey(file)
		if err != nil {
			return nil, err
		}
		keys.Sign(key)
	}
	return Open(ctx, c.Name, &Options{Keys: keys, Limits: c.Limits})
}

// DefaultKeyFile is the file of the user's key: $XDG_CONFIG_HOME/opa-gate/approvals.key,
// where XDG_CONFIG_HOME is ~/.config unless it is set.
func DefaultKeyFile() (string, error) {
	dir := os.Getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(dir) { // to be ignored then, says the XDG specification
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("%w: there is no home directory for the user's key: %w", ErrKey, err)
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "opa-gate", "approvals.key"), nil
}
