package ledger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// A Config says which ledger is opened, and whose approvals count in it.
type Config struct {
	Name    string   // see [Open]
	KeyFile string   // the private key that signs approvals; made if there is none
	Trust   []string // files of public keys whose approvals count as well
	Limits  Limits

	Existing bool // a file that is not there is an error that matches ErrAbsent
	NoNewKey bool // a KeyFile that is not there is left so: nothing is to be signed
}

// Open opens the ledger with its keys; see [Config.Keys]. Errors are those of the
// function [Open], or match ErrKey.
func (c *Config) Open(ctx context.Context) (*Ledger, error) {
	keys, err := c.Keys()
	if err != nil {
		return nil, err
	}
	if c.Existing {
		if err := exists(c.Name); err != nil {
			return nil, err
		}
	}
	return Open(ctx, c.Name, &Options{Keys: keys, Limits: c.Limits})
}

// Keys reads the keys alone. Without a KeyFile it is [DefaultKeyFile], unless
// there are keys to trust: who trusts others need not have a key. Errors match
// ErrKey.
func (c *Config) Keys() (*Keyring, error) {
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
		load := LoadOrMakeKey
		if c.NoNewKey {
			load = LoadKey
		}
		key, err := load(file)
		switch {
		case c.NoNewKey && c.KeyFile == "" && errors.Is(err, fs.ErrNotExist):
			return keys, nil
		case err != nil:
			return nil, err
		}
		keys.Sign(key)
	}
	return keys, nil
}

// DefaultKeyFile is the file of the user's key: $XDG_CONFIG_HOME/opa-gate/approvals.key,
// where XDG_CONFIG_HOME is ~/.config unless it is set.
func DefaultKeyFile() (string, error) {
	dir := os.Getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(dir) { // to be ignored then, says the XDG specification
		home, err := homeDir()
		if err != nil {
			return "", fmt.Errorf("%w: there is no home directory for the user's key: %w", ErrKey, err)
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "opa-gate", "approvals.key"), nil
}
