package ledger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// Open opens the ledger that a name names, and makes it if there is none:
//
//	""                     the user's own: see [DefaultPath]
//	PATH, sqlite:PATH      a file of SQLite
//	postgres://…           a PostgreSQL, for several machines
//	memory:                one that ends with the process
//
// Its errors match ErrUnavailable, ErrNewer, ErrForeign or ErrInvalid. No error
// has the password of a URL in it.
func Open(ctx context.Context, name string, opts *Options) (*Ledger, error) {
	s, err := openStore(ctx, name)
	if err != nil {
		return nil, err
	}
	return newLedger(s, opts), nil
}

// exists reports that a ledger in a file is not there.
func exists(name string) error {
	path, isFile, err := sqliteFile(name)
	if err != nil || !isFile {
		return err
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s", ErrAbsent, path)
	}
	return nil // opening says what else is wrong
}

// sqliteFile is the file that a name means, if it means one.
func sqliteFile(name string) (path string, isFile bool, err error) {
	if name == "" {
		path, err = DefaultPath()
		return path, true, err
	}
	scheme, rest, ok := strings.Cut(name, ":")
	switch {
	case !ok || strings.ContainsAny(scheme, `/\`) || len(scheme) == 1: // one letter is a drive
		return name, true, nil
	case scheme == "sqlite" && rest != "":
		return rest, true, nil
	}
	return "", false, nil
}

func openStore(ctx context.Context, name string) (store, error) {
	path, isFile, err := sqliteFile(name)
	if err != nil {
		return nil, err
	}
	if isFile {
		return openSQLite(ctx, path, sqliteSchema)
	}
	scheme, rest, _ := strings.Cut(name, ":")
	switch {
	case scheme == "memory" && rest == "":
		return newMemory(), nil
	case scheme == "postgres" || scheme == "postgresql":
		return openPostgres(ctx, name, postgresSchema)
	}
	return nil, askedf("expected a file, sqlite:FILE, postgres://…, or memory: as the name of a ledger, got one with the scheme %q", scheme)
}

// DefaultPath is the file of the user's own ledger:
// $XDG_STATE_HOME/opa-gate/ledger.db, where XDG_STATE_HOME is ~/.local/state
// unless it is set.
func DefaultPath() (string, error) {
	dir := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(dir) { // to be ignored then, says the XDG specification
		home, err := homeDir()
		if err != nil {
			return "", fmt.Errorf("%w: there is no home directory for the user's ledger: %w", ErrUnavailable, err)
		}
		dir = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(dir, "opa-gate", "ledger.db"), nil
}

// homeDir is the user's home. A relative one would be another folder for each
// working directory, and what was recorded in one would be unknown in the next.
func homeDir() (string, error) {
	home, err := os.UserHomeDir()
	if err == nil && !filepath.IsAbs(home) {
		err = fmt.Errorf("expected an absolute path, got %q", home)
	}
	return home, err
}

// Redacted is a name for [Open] as it may be shown: without a password.
func Redacted(name string) string {
	if !strings.HasPrefix(name, "postgres") {
		return name
	}
	u, err := url.Parse(name)
	if err != nil {
		return "a PostgreSQL"
	}
	u.RawQuery = "" // may have a password, too
	return u.Redacted()
}
