package ledger

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"
)

// database is a store in SQL. SQLite and PostgreSQL differ in how they are opened
// and in their schemas; both number parameters as $N. Subjects are looked up by
// their SHA-256, so that they may be of any length.
type database struct {
	rows
	writes   *sql.DB
	prepared *prepared
}

// newDatabase makes a store of two pools of connections, which may be the same one.
func newDatabase(writes, reads *sql.DB) *database {
	p := &prepared{db: reads}
	return &database{rows: rows{p}, writes: writes, prepared: p}
}

func (db *database) close() error {
	err := db.prepared.close()
	if db.prepared.db != db.writes {
		err = errors.Join(err, db.prepared.db.Close())
	}
	return errors.Join(err, db.writes.Close())
}

// update locks the head, which is one row that every writer takes first.
func (db *database) update(ctx context.Context, f func(w writer) error) (err error) {
	tx, err := db.writes.BeginTx(ctx, nil)
	if err != nil {
		return unavailable(err)
	}
	defer func() {
		if err != nil {
			_ = tx.Rollback() // what is not committed is gone in any case
		}
	}()
	w := &transaction{rows{tx}, tx}
	if _, err := tx.ExecContext(ctx, "UPDATE head SET id = id"); err != nil {
		return unavailable(err)
	}
	if err := f(w); err != nil {
		return err
	}
	return unavailable(tx.Commit())
}

// prepared runs queries as statements, each prepared once.
type prepared struct {
	db *sql.DB

	mu    sync.RWMutex
	stmts map[string]*sql.Stmt
}

func (p *prepared) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	p.mu.RLock()
	stmt := p.stmts[query]
	p.mu.RUnlock()
	if stmt == nil {
		made, err := p.db.PrepareContext(ctx, query)
		if err != nil {
			return nil, err
		}
		p.mu.Lock()
		if p.stmts == nil {
			p.stmts = map[string]*sql.Stmt{}
		}
		if stmt = p.stmts[query]; stmt == nil {
			stmt, p.stmts[query] = made, made
			made = nil
		}
		p.mu.Unlock()
		if made != nil { // somebody else was faster
			_ = made.Close()
		}
	}
	return stmt.QueryContext(ctx, args...)
}

func (p *prepared) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, stmt := range p.stmts {
		errs = append(errs, stmt.Close())
	}
	p.stmts = nil
	return errors.Join(errs...)
}

// rows reads, on the whole database or in a transaction.
type rows struct {
	on interface {
		QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	}
}

const selectEntries = "SELECT seq, at, kind, subject, ref, body, prev, hash FROM entries "

func (r rows) entries(ctx context.Context, query string, args ...any) ([]Entry, error) {
	var es []Entry
	err := r.each(ctx, selectEntries+query, args, func(scan func(...any) error) error {
		var e Entry
		var at int64
		var subject, prev, hash sql.RawBytes
		if err := scan(&e.Seq, &at, &e.Kind, &subject, &e.Ref, (*[]byte)(&e.Body), &prev, &hash); err != nil {
			return err
		}
		if len(prev) != len(e.Prev) || len(hash) != len(e.Hash) {
			return fmt.Errorf("%w: entry %d has no hashes", ErrDamaged, e.Seq)
		}
		e.At, e.Subject = time.Unix(0, at).UTC(), string(subject)
		copy(e.Prev[:], prev)
		copy(e.Hash[:], hash)
		es = append(es, e)
		return nil
	})
	return es, err
}

func (r rows) each(ctx context.Context, query string, args []any, f func(scan func(...any) error) error) (err error) {
	found, err := r.on.QueryContext(ctx, query, args...)
	if err != nil {
		return unavailable(err)
	}
	defer func() {
		if closing := found.Close(); err == nil {
			err = unavailable(closing)
		}
	}()
	for found.Next() {
		if err := f(found.Scan); errors.Is(err, ErrDamaged) {
			return err
		} else if err != nil {
			return unavailable(err)
		}
	}
	return unavailable(found.Err())
}

func (r rows) head(ctx context.Context) (head, error) {
	var h head
	n := 0
	err := r.each(ctx, "SELECT seq, hash, at FROM head", nil, func(scan func(...any) error) error {
		var hash sql.RawBytes
		var at int64
		if err := scan(&h.seq, &hash, &at); err != nil {
			return err
		}
		if len(hash) != len(h.hash) {
			return fmt.Errorf("%w: the head has no hash", ErrDamaged)
		}
		if h.seq > 0 {
			h.at = time.Unix(0, at).UTC()
		}
		copy(h.hash[:], hash)
		n++
		return nil
	})
	if err == nil && n != 1 {
		err = fmt.Errorf("%w: expected one head, found %d", ErrDamaged, n)
	}
	return h, err
}

func about(subject string) []byte {
	sum := sha256.Sum256([]byte(subject))
	return sum[:]
}

func (r rows) last(ctx context.Context, subject string) (Entry, bool, error) {
	es, err := r.entries(ctx, "WHERE about = $1 ORDER BY seq DESC LIMIT 1", about(subject))
	if err != nil || len(es) == 0 {
		return Entry{}, false, err
	}
	return es[0], true, nil
}

func (r rows) subject(ctx context.Context, subject string) ([]Entry, error) {
	return r.entries(ctx, "WHERE about = $1 ORDER BY seq", about(subject))
}

func (r rows) ref(ctx context.Context, ref string) ([]Entry, error) {
	return r.entries(ctx, "WHERE ref = $1 AND ref <> '' ORDER BY seq", ref)
}

func (r rows) since(ctx context.Context, seq int64, limit int) ([]Entry, error) {
	return r.entries(ctx, "WHERE seq > $1 ORDER BY seq LIMIT $2", seq, limit)
}

func (r rows) kind(ctx context.Context, kind string, before int64, limit int) ([]Entry, error) {
	if before <= 0 {
		before = math.MaxInt64
	}
	return r.entries(ctx, "WHERE kind = $1 AND seq < $2 ORDER BY seq DESC LIMIT $3", kind, before, limit)
}

func (r rows) waiting(ctx context.Context, now time.Time, limit int) ([]Entry, int, error) {
	n := 0
	err := r.each(ctx, "SELECT count(*) FROM waiting WHERE expires > $1", []any{now.UnixNano()},
		func(scan func(...any) error) error { return scan(&n) })
	if err != nil || n == 0 || limit <= 0 {
		return nil, n, err
	}
	es, err := r.entries(ctx, `WHERE seq IN (SELECT seq FROM waiting WHERE expires > $1 ORDER BY seq DESC LIMIT $2)
		ORDER BY seq DESC`, now.UnixNano(), limit)
	return es, n, err
}

func (r rows) refs(ctx context.Context, prefix string, limit int) ([]string, error) {
	var refs []string
	err := r.each(ctx, "SELECT ref FROM waiting WHERE substr(ref, 1, $1) = $2 ORDER BY ref LIMIT $3", []any{len(prefix), prefix, limit},
		func(scan func(...any) error) error {
			var ref string
			err := scan(&ref)
			refs = append(refs, ref)
			return err
		})
	return refs, err
}

// transaction is a writer.
type transaction struct {
	rows
	tx *sql.Tx
}

func (t *transaction) exec(ctx context.Context, query string, args ...any) error {
	_, err := t.tx.ExecContext(ctx, query, args...)
	return unavailable(err)
}

func (t *transaction) put(ctx context.Context, e Entry) error {
	err := t.exec(ctx, `INSERT INTO entries (seq, at, kind, about, subject, ref, body, prev, hash)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
		e.Seq, e.At.UnixNano(), e.Kind, about(e.Subject), []byte(e.Subject), e.Ref, []byte(e.Body), e.Prev[:], e.Hash[:])
	if err != nil {
		return err
	}
	return t.exec(ctx, "UPDATE head SET seq = $1, hash = $2, at = $3", e.Seq, e.Hash[:], e.At.UnixNano())
}

func (t *transaction) open(ctx context.Context, ref string, seq int64, expires time.Time) error {
	return t.exec(ctx, "INSERT INTO waiting (ref, seq, expires) VALUES ($1, $2, $3)", ref, seq, expires.UnixNano())
}

func (t *transaction) shut(ctx context.Context, ref string) error {
	return t.exec(ctx, "DELETE FROM waiting WHERE ref = $1", ref)
}

func (t *transaction) lapse(ctx context.Context, now time.Time) error {
	return t.exec(ctx, "DELETE FROM waiting WHERE expires <= $1", now.UnixNano())
}
