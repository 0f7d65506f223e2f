package ledger

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/internal/testpostgres"
	"github.com/opa-gate/opa-gate/skill"
)

// closed expects that a ledger that fails answers with an error of a kind and
// decides nothing: what was escalated stays so, and no skill is deployed.
func closed(t testing.TB, l *Ledger, want error, write bool) {
	t.Helper()
	if err := stillClosed(l, want, write); err != nil {
		t.Error(err)
	}
}

func stillClosed(l *Ledger, want error, write bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	a, err := l.Admit(ctx, escalation("t", `{"new":"call"}`, egress))
	if !errors.Is(err, want) || a.Outcome.Kind != capability.Escalate || a.Pending != nil || a.Approval != nil {
		return fmt.Errorf("expected %w, got %+v, %w", want, a, err)
	}
	if _, err := l.Record(ctx, "me", ruling1("x", "")); !errors.Is(err, want) {
		return fmt.Errorf("recorded: %w", err)
	}
	if write { // only writing fails
		return nil
	}
	answer, err := skill.Deploy(ctx, l, "x", skill.FullAccess, skill.Provenance{})
	if !errors.Is(err, want) || answer.Enforcement.Deploy {
		return fmt.Errorf("deployed: %+v, %w", answer, err)
	}
	return nil
}

// works expects that a ledger goes on.
func works(l *Ledger) error {
	ctx := context.Background()
	e := escalation("t", `{"a":1}`, egress)
	a, err := l.Admit(ctx, e)
	if err != nil || a.Pending == nil {
		return fmt.Errorf("filed: %+v, %w", a, err)
	}
	if _, err := l.Decide(ctx, "ann", a.Pending.ID, Decision{Approve: true}); err != nil {
		return err
	}
	if a, err := l.Admit(ctx, e); err != nil || a.Outcome.Kind != capability.Allow {
		return fmt.Errorf("approved: %+v, %w", a, err)
	}
	if au, err := l.Audit(ctx, nil, nil); err != nil || !au.Sound() {
		return fmt.Errorf("audit: %+v, %w", au, err)
	}
	return nil
}

func goesOn(t testing.TB, l *Ledger) {
	t.Helper()
	if err := works(l); err != nil {
		t.Error(err)
	}
}

// A disk that is full: SQLite is told that there are no more pages, and the
// process that its files may not grow.
func TestFullDisk(t *testing.T) {
	name := kinds[1].place(t)
	l := open(t, name, &Options{Keys: ring(1)})
	goesOn(t, l)
	db := l.store.(*database).writes
	run(t, db, "PRAGMA max_page_count = 1") // which is no less than there are
	var err error
	for i := 0; i < 100 && err == nil; i++ {
		_, err = l.Record(context.Background(), "me", ruling1(fmt.Sprint("fill", i), strings.Repeat("x", 10_000)))
	}
	if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "full") {
		t.Errorf("got %v", err)
	}
	sound(t, l)
	run(t, db, "PRAGMA max_page_count = 1000000")
	goesOn(t, l)
}

// taskFaults: DIR meets files and directories that cannot be written, as somebody
// for whom modes count.
func taskFaults(args []string) error {
	if os.Getuid() == 0 {
		if err := errors.Join(syscall.Setgid(65534), syscall.Setuid(65534)); err != nil {
			return err
		}
	}
	begin()
	dir := args[0]
	name := filepath.Join(dir, "ledger.db")
	ctx, opts := context.Background(), &Options{Keys: ring(1)}
	l, err := Open(ctx, name, opts)
	if err != nil {
		return err
	}
	if err := errors.Join(works(l), l.Close(), os.Chmod(name, 0o400)); err != nil {
		return err
	}
	// A file that cannot be written: either it cannot be opened, or writing fails.
	if l, err = Open(ctx, name, opts); err == nil {
		err = errors.Join(stillClosed(l, ErrUnavailable, true), l.Close())
		if err != nil {
			return err
		}
	} else if !errors.Is(err, ErrUnavailable) {
		return fmt.Errorf("read-only file: %w", err)
	}
	// Nor a directory: nowhere for the log to go.
	files, err := filepath.Glob(name + "*") // and the log, which has the file's mode
	for _, file := range files {
		err = errors.Join(err, os.Chmod(file, 0o600))
	}
	if err != nil {
		return err
	}
	if l, err := Open(ctx, name, opts); err != nil { // removes the log when it is closed
		return err
	} else if err := errors.Join(works(l), l.Close(), os.Chmod(dir, 0o500)); err != nil {
		return err
	}
	if l, err = Open(ctx, name, opts); err == nil {
		err = errors.Join(stillClosed(l, ErrUnavailable, true), l.Close())
		if err != nil {
			return err
		}
	} else if !errors.Is(err, ErrUnavailable) {
		return fmt.Errorf("read-only directory: %w", err)
	}
	if _, err := Open(ctx, filepath.Join(dir, "new.db"), opts); !errors.Is(err, ErrUnavailable) {
		return fmt.Errorf("a new file in a read-only directory: %w", err)
	}
	if _, err := LoadOrMakeKey(filepath.Join(dir, "key")); !errors.Is(err, ErrKey) {
		return fmt.Errorf("a new key in a read-only directory: %w", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return err
	}
	if l, err = Open(ctx, name, opts); err != nil {
		return fmt.Errorf("afterwards: %w", err)
	}
	fmt.Println("done")
	return errors.Join(works(l), l.Close())
}

func TestReadOnly(t *testing.T) {
	dir, err := os.MkdirTemp("", "ledger") // t.TempDir is for one user
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if os.Getuid() == 0 {
		if err := os.Chown(dir, 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	if lines := together(t, 1, "faults", func(int) []string { return []string{dir} }); len(lines[0]) != 1 || lines[0][0] != "done" {
		t.Errorf("got %v", lines)
	}
}

// A PostgreSQL that goes away and comes back.
func TestPostgresGoes(t *testing.T) {
	server := testpostgres.New(t)
	server.Start(t)
	name := server.Database(t)
	l := open(t, name, &Options{Keys: ring(1)})
	goesOn(t, l)
	n := sound(t, l)
	server.Stop()
	closed(t, l, ErrUnavailable, false)
	if _, err := Open(context.Background(), name, nil); !errors.Is(err, ErrUnavailable) {
		t.Errorf("opened: %v", err)
	}
	server.Start(t)
	if after := sound(t, l); after != n {
		t.Errorf("%d entries, then %d", n, after)
	}
	goesOn(t, l)
	n = sound(t, l)
	// It goes in the middle of a transaction.
	err := l.Update(context.Background(), func(tx *Tx) error {
		if _, err := tx.Append(Draft{Kind: "k", Subject: "s"}); err != nil {
			return err
		}
		server.Stop()
		return nil
	})
	if !errors.Is(err, ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	server.Start(t)
	if after := sound(t, l); after != n {
		t.Errorf("%d entries, then %d", n, after)
	}
	goesOn(t, l)
}

// Somebody else has the database: a caller waits as long as its context says.
func TestLocked(t *testing.T) {
	shared(t, func(t *testing.T, k kind) {
		name := k.place(t)
		l := open(t, name, &Options{Keys: ring(1)})
		driver, begin := "sqlite", "BEGIN IMMEDIATE"
		dsn := name
		if k.name == "postgres" {
			driver, begin, dsn = "pgx", "BEGIN; LOCK TABLE opa_gate.head", name+"&default_query_exec_mode=simple_protocol"
		}
		db, err := sql.Open(driver, dsn)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		other, err := db.Conn(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = other.Close() }()
		if _, err := other.ExecContext(context.Background(), begin); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		started := time.Now()
		a, err := l.Admit(ctx, escalation("t", `{}`, egress))
		if !errors.Is(err, ErrUnavailable) || a.Outcome.Kind != capability.Escalate || a.Pending != nil {
			t.Errorf("got %+v, %v", a, err)
		}
		if took := time.Since(started); took > 5*time.Second {
			t.Errorf("it took %v to give up", took)
		}
		if _, err := other.ExecContext(context.Background(), "ROLLBACK"); err != nil {
			t.Fatal(err)
		}
		goesOn(t, l)
	})
}

// Files that are no ledgers are refused and stay as they are, byte for byte.
func TestForeignFiles(t *testing.T) {
	ctx := context.Background()
	make := func(queries ...string) string {
		name := kinds[1].place(t)
		db, err := sql.Open("sqlite", name)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range queries {
			run(t, db, q)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		return name
	}
	text := filepath.Join(t.TempDir(), "notes.txt")
	if err := os.WriteFile(text, []byte(strings.Repeat("no database\n", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	newer := kinds[1].place(t)
	if err := open(t, newer, nil).Close(); err != nil {
		t.Fatal(err)
	}
	db := raw(t, kinds[1], newer)
	run(t, db, "PRAGMA user_version = 99")
	_ = db.Close()
	for name, test := range map[string]struct {
		path string
		want error
	}{
		"text":                {text, ErrForeign},
		"another program's":   {make("CREATE TABLE t (x)", "INSERT INTO t VALUES (1)"), ErrForeign},
		"only a version":      {make("PRAGMA user_version = 1"), ErrForeign},
		"only another's name": {make("PRAGMA application_id = 7", "CREATE TABLE t (x)"), ErrForeign},
		"newer":               {newer, ErrNewer},
		"a directory":         {t.TempDir(), ErrUnavailable},
	} {
		before, _ := os.ReadFile(test.path)
		if _, err := Open(ctx, test.path, nil); !errors.Is(err, test.want) {
			t.Errorf("%s: expected %v, got %v", name, test.want, err)
		}
		if after, _ := os.ReadFile(test.path); !bytes.Equal(before, after) {
			t.Errorf("%s: the file was changed", name)
		}
	}
	cleared := make("VACUUM") // SQLite's, and empty
	goesOn(t, open(t, cleared, &Options{Keys: ring(1)}))
}

func TestForeignPostgres(t *testing.T) {
	for name, test := range map[string]struct {
		queries string
		want    error
	}{
		"another program's":  {"CREATE SCHEMA opa_gate; CREATE TABLE opa_gate.entries (x INTEGER)", ErrForeign},
		"without a version":  {"CREATE SCHEMA opa_gate; CREATE TABLE opa_gate.version (version INTEGER)", ErrForeign},
		"newer":              {"CREATE SCHEMA opa_gate; CREATE TABLE opa_gate.version (version INTEGER); INSERT INTO opa_gate.version VALUES (99)", ErrNewer},
		"a schema, no table": {"CREATE SCHEMA opa_gate; CREATE TABLE entries (x INTEGER)", nil},
	} {
		place := testpostgres.Database(t)
		db, err := sql.Open("pgx", place)
		if err != nil {
			t.Fatal(err)
		}
		run(t, db, test.queries)
		_ = db.Close()
		l, err := Open(context.Background(), place, &Options{Keys: ring(1)})
		if !errors.Is(err, test.want) || test.want == nil && err != nil {
			t.Errorf("%s: got %v", name, err)
		}
		if err == nil {
			goesOn(t, l)
			_ = l.Close()
		}
	}
}

// A ledger of an older version becomes one of a newer version with what it has;
// one whose migration fails stays what it was.
func TestMigration(t *testing.T) {
	shared(t, func(t *testing.T, k kind) {
		ctx, name := context.Background(), k.place(t)
		l := history(t, name, newClock())
		upTo := func(next ...string) (*Ledger, error) {
			var s store
			var err error
			if k.name == "sqlite" {
				s, err = openSQLite(ctx, name, append(sqliteSchema[:len(sqliteSchema):len(sqliteSchema)], next...))
			} else {
				s, err = openPostgres(ctx, name, append(postgresSchema[:len(postgresSchema):len(postgresSchema)], next...))
			}
			return newLedger(s, &Options{Keys: ring(1)}), err
		}
		if _, err := upTo("CREATE TABLE more (x INTEGER)", "nonsense"); !errors.Is(err, ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		goesOn(t, open(t, name, &Options{Keys: ring(1)})) // still what it was
		text := export(t, l)
		if strings.Count(text, "\n") != historyLength+3 {
			t.Errorf("%s", text)
		}
		newer, err := upTo("CREATE TABLE more (x INTEGER)", "INSERT INTO more VALUES (1)")
		if err != nil {
			t.Fatal(err)
		}
		if export(t, newer) != text {
			t.Error("entries were changed")
		}
		goesOn(t, newer)
		_ = newer.Close()
		if _, err := Open(ctx, name, nil); !errors.Is(err, ErrNewer) {
			t.Errorf("the older program: %v", err)
		}
	})
}

// Pages overwritten with nonsense: the ledger is damaged, is said to be, and
// nothing is allowed. Some damage lies where nobody looks; the audit finds it in
// the entries.
func TestDamagedPages(t *testing.T) {
	ctx, name := context.Background(), kinds[1].place(t)
	l := open(t, name, &Options{Keys: ring(1)})
	for i := range 200 {
		if _, err := l.Record(ctx, "me", ruling1(fmt.Sprint(i), strings.Repeat("x", 500))); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	const page = 4096
	found := 0
	for n := range len(whole) / page {
		damaged := bytes.Clone(whole)
		for i := range page {
			damaged[n*page+i] = byte(i*7 + n)
		}
		path := filepath.Join(t.TempDir(), "damaged.db")
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := Open(ctx, path, &Options{Keys: ring(1)})
		if err != nil {
			if !errors.Is(err, ErrForeign) && !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrUnavailable) {
				t.Errorf("page %d: %v", n, err)
			}
			found++
			continue
		}
		a, err := l.Admit(ctx, escalation("t", `{}`, egress))
		if a.Outcome.Kind != capability.Escalate || err != nil && !errors.Is(err, ErrDamaged) {
			t.Errorf("page %d: %+v, %v", n, a, err)
		}
		au, err := l.Audit(ctx, nil, nil)
		if err != nil && !errors.Is(err, ErrDamaged) {
			t.Errorf("page %d: the audit ends with %v", n, err)
		}
		if err != nil || !au.Sound() {
			found++
		}
		_ = l.Close()
	}
	if found < len(whole)/page/3 {
		t.Errorf("damage was found in %d of %d pages", found, len(whole)/page)
	}
	t.Logf("damage was found in %d of %d pages", found, len(whole)/page)
}
