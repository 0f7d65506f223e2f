package ledger

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"
	"unicode/utf8"
)

// database is a store in SQL. SQLite and PostgreSQL differ in how they are opened
// and in their schemas; both number parameters as $N. Subjects are looked up by
// their SHA-256, so that they may be of any length.
type database struct {
	rows
	writes   *sql.DB
	prepared *prepared // of reads
	writing  *prepared // of writes
}

// newDatabase makes a store of two pools of connections, which may be the same one.
func newDatabase(writes, reads *sql.DB) *database {
	p := &prepared{db: reads}
	return &database{rows: rows{p}, writes: writes, prepared: p, writing: &prepared{db: writes}}
}

func (db *database) close() error {
	err := errors.Join(db.prepared.close(), db.writing.close())
	if db.prepared.db != db.writes {
		err = errors.Join(err, db.prepared.db.Close())
	}
	return errors.Join(err, db.writes.Close())
}

// What every transaction that records something does.
const (
	lockHead = "UPDATE head SET id = id RETURNING seq, hash, at"
	setHead  = "UPDATE head SET seq = $1, hash = $2, at = $3"
	putEntry = "INSERT INTO entries (seq, at, kind, about, subject, ref, body, prev, hash) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)"
)

// update locks the head, which is one row that every writer takes first.
func (db *database) update(ctx context.Context, f func(w writer) error) (err error) {
	var tx *sql.Tx
	if err := patiently(ctx, func() (err error) {
		for _, query := range []string{lockHead, setHead, putEntry} {
			if _, err := db.writing.stmt(ctx, query); err != nil {
				return err
			}
		}
		tx, err = db.writes.BeginTx(ctx, nil)
		return err
	}); err != nil {
		return unavailable(err)
	}
	defer func() {
		if err != nil {
			_ = tx.Rollback() // what is not committed is gone in any case
		}
	}()
	in := inside{tx, db.writing}
	w := &transaction{rows: rows{in}, tx: in}
	if w.end, err = w.readHead(ctx, lockHead); err != nil {
		return err
	}
	before := w.end
	if err := f(w); err != nil {
		return err
	}
	if w.end != before {
		if err := w.exec(ctx, setHead, w.end.seq, w.end.hash[:], w.end.at.UnixNano()); err != nil {
			return err
		}
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
	stmt, err := p.stmt(ctx, query)
	if err != nil {
		return nil, err
	}
	return stmt.QueryContext(ctx, args...)
}

// there returns the statement if it was prepared before, or nil.
func (p *prepared) there(query string) *sql.Stmt {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.stmts[query]
}

func (p *prepared) stmt(ctx context.Context, query string) (*sql.Stmt, error) {
	stmt := p.there(query)
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
	return stmt, nil
}

// inside runs queries in a transaction. It prepares nothing, for which it would
// need another connection than the transaction's.
type inside struct {
	tx       *sql.Tx
	prepared *prepared
}

func (in inside) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if stmt := in.prepared.there(query); stmt != nil {
		return in.tx.StmtContext(ctx, stmt).QueryContext(ctx, args...)
	}
	return in.tx.QueryContext(ctx, query, args...)
}

func (in inside) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if stmt := in.prepared.there(query); stmt != nil {
		return in.tx.StmtContext(ctx, stmt).ExecContext(ctx, args...)
	}
	return in.tx.ExecContext(ctx, query, args...)
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

const selectEntries = "SELECT seq, at, kind, about, subject, ref, body, prev, hash FROM entries "

func (r rows) entries(ctx context.Context, query string, args ...any) ([]Entry, error) {
	var es []Entry
	err := r.each(ctx, selectEntries+query, args, func(scan func(...any) error) error {
		var e Entry
		var at int64
		var sum, subject, prev, hash sql.RawBytes
		if err := scan(&e.Seq, &at, &e.Kind, &sum, &subject, &e.Ref, (*[]byte)(&e.Body), &prev, &hash); err != nil {
			return err
		}
		if len(prev) != len(e.Prev) || len(hash) != len(e.Hash) {
			return fmt.Errorf("%w: entry %d has no hashes", ErrDamaged, e.Seq)
		}
		e.At, e.Subject = time.Unix(0, at).UTC(), string(subject)
		if !bytes.Equal(sum, about(e.Subject)) { // the hash of the entry says nothing of it
			return fmt.Errorf("%w: entry %d is filed under another subject than its own", ErrDamaged, e.Seq)
		}
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
	return r.readHead(ctx, "SELECT seq, hash, at FROM head")
}

func (r rows) readHead(ctx context.Context, query string) (head, error) {
	var h head
	n := 0
	err := r.each(ctx, query, nil, func(scan func(...any) error) error {
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
	if !storable(ref) {
		return nil, nil // no entry has it, and PostgreSQL takes no such text
	}
	return r.entries(ctx, "WHERE ref = $1 AND ref <> '' ORDER BY seq", ref)
}

func (r rows) since(ctx context.Context, seq int64, limit int) ([]Entry, error) {
	return r.entries(ctx, "WHERE seq > $1 ORDER BY seq LIMIT $2", seq, limit)
}

func (r rows) kind(ctx context.Context, kind string, before int64, limit int) ([]Entry, error) {
	if !storable(kind) {
		return nil, nil
	}
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
	if !storable(prefix) {
		return nil, nil
	}
	var refs []string
	err := r.each(ctx, "SELECT ref FROM waiting WHERE substr(ref, 1, $1) = $2 ORDER BY ref LIMIT $3", []any{utf8.RuneCountInString(prefix), prefix, limit},
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
	tx  inside
	end head // as it will be
}

func (t *transaction) exec(ctx context.Context, query string, args ...any) error {
	_, err := t.tx.ExecContext(ctx, query, args...)
	return unavailable(err)
}

func (t *transaction) head(context.Context) (head, error) { return t.end, nil }

func (t *transaction) put(ctx context.Context, e Entry) error {
	if err := t.exec(ctx, putEntry, e.Seq, e.At.UnixNano(), e.Kind, about(e.Subject), []byte(e.Subject), e.Ref, []byte(e.Body),
		e.Prev[:], e.Hash[:]); err != nil {
		return err
	}
	t.end = head{e.Seq, e.Hash, e.At}
	return nil
}

func (t *transaction) open(ctx context.Context, ref string, seq int64, expires time.Time) error {
	return t.exec(ctx, "INSERT INTO waiting (ref, seq, expires) VALUES ($1, $2, $3) ON CONFLICT (ref) DO NOTHING", ref, seq, expires.UnixNano())
}

func (t *transaction) shut(ctx context.Context, ref string) error {
	return t.exec(ctx, "DELETE FROM waiting WHERE ref = $1", ref)
}

func (t *transaction) lapse(ctx context.Context, now time.Time) error {
	return t.exec(ctx, "DELETE FROM waiting WHERE expires <= $1", now.UnixNano())
}
