package ledger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
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
	file, err := c.keyFile()
	if err != nil {
		return nil, err
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

func (c *Config) keyFile() (string, error) {
	if c.KeyFile == "" && len(c.Trust) == 0 {
		return DefaultKeyFile()
	}
	return c.KeyFile, nil
}

// Files are those that Open reads: that of the ledger, "" if it is none, and those
// of the keys. What is in the first is asked for each time, what is in the others is
// read once.
func (c *Config) Files() (ledger string, keys []string) {
	ledger, _, _ = sqliteFile(c.Name) // Open says what is wrong
	key, _ := c.keyFile()
	return ledger, slices.DeleteFunc(append([]string{key}, c.Trust...), func(file string) bool { return file == "" })
}

// DefaultKeyFile is the file of the user's key: $XDG_CONFIG_HOME/opa-gate/approvals.key,
// where XDG_CONFIG_HOME is ~/.config unless it is set.
func DefaultKeyFile() (string, error) {
	dir, err := ownFolder("XDG_CONFIG_HOME", ".config")
	if err != nil {
		return "", fmt.Errorf("%w: there is no home directory for the user's key: %w", ErrKey, err)
	}
	return filepath.Join(dir, "approvals.key"), nil
}

// ownFolder is the user's folder for this program below the one that a variable of
// the XDG specification names, or else below a folder of their home.
func ownFolder(variable, inHome string) (string, error) {
	dir := os.Getenv(variable)
	if !filepath.IsAbs(dir) { // to be ignored then, says the specification
		home, err := os.UserHomeDir()
		if err == nil && !filepath.IsAbs(home) { // another folder for each working directory
			err = fmt.Errorf("expected an absolute path, got %q", home)
		}
		if err != nil {
			return "", err
		}
		dir = filepath.Join(home, inHome)
	}
	return filepath.Join(dir, "opa-gate"), nil
}
