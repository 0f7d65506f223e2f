package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// postgresSchema makes each version of the schema out of the one before it. What
// has been released is never changed; a new version is a new element.
var postgresSchema = []string{
	`CREATE TABLE entries (
		seq     BIGINT PRIMARY KEY,
		at      BIGINT NOT NULL,
		kind    TEXT NOT NULL,
		about   BYTEA NOT NULL,
		subject BYTEA NOT NULL,
		ref     TEXT NOT NULL,
		body    BYTEA NOT NULL,
		prev    BYTEA NOT NULL,
		hash    BYTEA NOT NULL
	);
	CREATE INDEX entries_about ON entries (about, seq);
	CREATE INDEX entries_kind ON entries (kind, seq);
	CREATE INDEX entries_ref ON entries (ref, seq) WHERE ref <> '';
	CREATE FUNCTION entries_stay() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN RAISE EXCEPTION 'entries of a ledger are never changed or removed'; END $$;
	CREATE TRIGGER entries_stay BEFORE UPDATE OR DELETE OR TRUNCATE ON entries EXECUTE FUNCTION entries_stay();
	CREATE TABLE head (id INTEGER PRIMARY KEY, seq BIGINT NOT NULL, hash BYTEA NOT NULL, at BIGINT NOT NULL);
	INSERT INTO head VALUES (1, 0, decode(repeat('00', 32), 'hex'), 0);
	CREATE TABLE waiting (ref TEXT PRIMARY KEY, seq BIGINT NOT NULL, expires BIGINT NOT NULL);`,
}

// postgresNamespace is the schema, in PostgreSQL's sense, that a ledger lives in.
const postgresNamespace = "opa_gate"

// migrationLock is a number for pg_advisory_xact_lock that no other program is
// likely to use.
const migrationLock = 0x6f70612d67617465

func openPostgres(ctx context.Context, rawURL string, schema []string) (*database, error) {
	config, err := pgx.ParseConfig(rawURL)
	if err != nil {
		return nil, askedf("the URL of the PostgreSQL cannot be read; expected postgres://USER@HOST:PORT/DATABASE")
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = 5 * time.Second
	}
	config.RuntimeParams["search_path"] = postgresNamespace
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "opa-gate"
	}
	db := stdlib.OpenDB(*config)
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(4)
	db.SetConnMaxIdleTime(5 * time.Minute)
	if err := migratePostgres(ctx, db, schema); err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("PostgreSQL at %s:%d, database %s: %w", config.Host, config.Port, config.Database, err)
	}
	return newDatabase(db, db), nil
}

// hasTable looks into the catalog as it is now. The function to_regclass may go by
// what it remembers from before somebody else made the table.
func hasTable(ctx context.Context, tx *sql.Tx, name string) (there bool, err error) {
	err = tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n
		ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2)`, postgresNamespace, name).Scan(&there)
	return there, unavailable(err)
}

// migratePostgres brings the schema up to date. Several processes may try at once.
func migratePostgres(ctx context.Context, db *sql.DB, schema []string) error {
	read := func(tx *sql.Tx) (version int, err error) {
		if there, err := hasTable(ctx, tx, "version"); err != nil || !there {
			return 0, err
		}
		err = tx.QueryRowContext(ctx, "SELECT version FROM version").Scan(&version)
		if errors.Is(err, sql.ErrNoRows) {
			return 0, fmt.Errorf("%w: it has a schema %s without a version", ErrForeign, postgresNamespace)
		}
		if err == nil && version > len(schema) {
			return 0, fmt.Errorf("%w: its schema has version %d, and this program knows %d; use a newer opa-gate", ErrNewer, version, len(schema))
		}
		return version, unavailable(err)
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return unavailable(err)
	}
	defer func() { _ = tx.Rollback() }()
	version, err := read(tx)
	if err != nil || version == len(schema) {
		return err
	}
	if _, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock($1)", int64(migrationLock)); err != nil {
		return unavailable(err)
	}
	if version, err = read(tx); err != nil || version == len(schema) { // somebody else may have been first
		return err
	}
	if version == 0 {
		if there, err := hasTable(ctx, tx, "entries"); err != nil {
			return err
		} else if there {
			return fmt.Errorf("%w: it has a schema %s that another program made", ErrForeign, postgresNamespace)
		}
		for _, text := range []string{"CREATE SCHEMA IF NOT EXISTS " + postgresNamespace,
			"CREATE TABLE version (version INTEGER NOT NULL)", "INSERT INTO version VALUES (0)"} {
			if _, err := tx.ExecContext(ctx, text); err != nil {
				return unavailable(fmt.Errorf("make the schema %s: %w", postgresNamespace, err))
			}
		}
	}
	for ; version < len(schema); version++ {
		if _, err := tx.ExecContext(ctx, schema[version]); err != nil {
			return unavailable(fmt.Errorf("make version %d of the schema: %w", version+1, err))
		}
	}
	if _, err := tx.ExecContext(ctx, "UPDATE version SET version = $1", version); err != nil {
		return unavailable(err)
	}
	return unavailable(tx.Commit())
}
