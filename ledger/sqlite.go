package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// sqliteID is the application id of a ledger's file ("opag").
const sqliteID = 0x6f706167

// sqliteSchema makes each version of the schema out of the one before it. What
// has been released is never changed; a new version is a new element.
var sqliteSchema = []string{
	`CREATE TABLE entries (
		seq     INTEGER PRIMARY KEY,
		at      INTEGER NOT NULL,
		kind    TEXT NOT NULL,
		about   BLOB NOT NULL,
		subject BLOB NOT NULL,
		ref     TEXT NOT NULL,
		body    BLOB NOT NULL,
		prev    BLOB NOT NULL,
		hash    BLOB NOT NULL
	) STRICT;
	CREATE INDEX entries_about ON entries (about, seq);
	CREATE INDEX entries_kind ON entries (kind, seq);
	CREATE INDEX entries_ref ON entries (ref, seq) WHERE ref <> '';
	CREATE TRIGGER entries_stay BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'entries of a ledger are never changed'); END;
	CREATE TRIGGER entries_last BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'entries of a ledger are never removed'); END;
	CREATE TABLE head (id INTEGER PRIMARY KEY, seq INTEGER NOT NULL, hash BLOB NOT NULL, at INTEGER NOT NULL) STRICT;
	INSERT INTO head VALUES (1, 0, zeroblob(32), 0);
	CREATE TABLE waiting (ref TEXT PRIMARY KEY, seq INTEGER NOT NULL, expires INTEGER NOT NULL) STRICT;`,
}

// openSQLite opens the file, and makes it if there is none. The file and its
// directory are for the user alone when they are made here.
func openSQLite(ctx context.Context, path string, schema []string) (*database, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, unavailable(err)
	}
	if err := touch(path); err != nil {
		return nil, unavailable(err)
	}
	pool := func(mode string, connections int) (*sql.DB, error) {
		name := url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: "_txlock=immediate&" +
			"_pragma=synchronous(FULL)&_pragma=cache_size(-16000)&" + mode}
		db, err := sql.Open("sqlite", name.String())
		if err != nil {
			return nil, unavailable(err)
		}
		db.SetMaxOpenConns(connections)
		db.SetMaxIdleConns(connections)
		db.SetConnMaxIdleTime(0)
		return db, nil
	}
	writes, err := pool("mode=rw&_pragma=busy_timeout(0)", 1) // who writes waits in patiently
	if err != nil {
		return nil, err
	}
	if err := migrateSQLite(ctx, writes, schema); err != nil {
		_ = writes.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	reads, err := pool("mode=rw&_pragma=query_only(1)&_pragma=busy_timeout(10000)", max(4, runtime.GOMAXPROCS(0)))
	if err != nil {
		_ = writes.Close()
		return nil, err
	}
	return newDatabase(writes, reads), nil
}

// touch makes an empty file, which SQLite takes for an empty database. SQLite
// itself would make one that others may read.
func touch(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	switch {
	case errors.Is(err, os.ErrExist):
		return nil
	case err != nil:
		return err
	}
	return f.Close()
}

// migrateSQLite brings the schema up to date. Several processes may try at once.
func migrateSQLite(ctx context.Context, db *sql.DB, schema []string) error {
	read := func(on interface {
		QueryRowContext(context.Context, string, ...any) *sql.Row
	}) (id, version, tables int, err error) {
		// One statement, so that it is one moment of a file that others make.
		if err := on.QueryRowContext(ctx, `SELECT (SELECT application_id FROM pragma_application_id),
			(SELECT user_version FROM pragma_user_version), (SELECT count(*) FROM sqlite_schema)`).Scan(&id, &version, &tables); err != nil {
			return 0, 0, 0, opened(err)
		}
		switch {
		case id != sqliteID && (id != 0 || version != 0 || tables > 0):
			err = fmt.Errorf("%w: it is another program's SQLite database", ErrForeign)
		case version > len(schema):
			err = fmt.Errorf("%w: its schema has version %d, and this program knows %d; use a newer opa-gate", ErrNewer, version, len(schema))
		}
		return id, version, tables, err
	}
	version := 0
	if err := patiently(ctx, func() (err error) { // while others make it
		_, version, _, err = read(db)
		return err
	}); err != nil {
		return err
	}
	if err := patiently(ctx, func() error {
		_, err := db.ExecContext(ctx, "PRAGMA journal_mode = WAL") // does not wait for others by itself
		return err
	}); err != nil {
		return opened(err)
	}
	if version == len(schema) {
		return nil
	}
	var tx *sql.Tx
	err := patiently(ctx, func() (err error) {
		tx, err = db.BeginTx(ctx, nil) // nobody else from here on
		return err
	})
	if err != nil {
		return unavailable(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, version, _, err = read(tx); err != nil {
		return err
	}
	for ; version < len(schema); version++ {
		if _, err := tx.ExecContext(ctx, schema[version]); err != nil {
			return unavailable(fmt.Errorf("make version %d of the schema: %w", version+1, err))
		}
	}
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d", sqliteID, version)); err != nil {
		return unavailable(err)
	}
	return unavailable(tx.Commit())
}

// opened tells a file that is no database from one that cannot be asked.
func opened(err error) error {
	var e *sqlite.Error
	if errors.As(err, &e) && e.Code()&0xff == sqlite3.SQLITE_NOTADB {
		return fmt.Errorf("%w: it is no SQLite database: %w", ErrForeign, err)
	}
	return unavailable(err)
}

// corrupt tells whether SQLite found its file damaged.
func corrupt(err error) bool {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return false
	}
	code := e.Code() & 0xff
	return code == sqlite3.SQLITE_CORRUPT || code == sqlite3.SQLITE_NOTADB
}

// patiently tries again while others have the database. SQLite's own wait grows to
// a tenth of a second, in which a hundred others could have had it; and it has
// those that came together try together.
func patiently(ctx context.Context, f func() error) error {
	const first, longest = 250 * time.Microsecond, 4 * time.Millisecond
	for wait := first; ; wait = min(2*wait, longest) {
		err := f()
		var e *sqlite.Error
		if err == nil || !errors.As(err, &e) || e.Code()&0xff != sqlite3.SQLITE_BUSY {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait/2 + rand.N(wait)):
		}
	}
}

// full tells a failed write, of which a full disk is the usual cause.
func full(err error) bool {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code() {
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_TRUNCATE:
		return true
	}
	return false
}
