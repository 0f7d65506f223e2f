// Package testpostgres runs a real PostgreSQL for tests, on a loopback port of its
// own and in a directory that goes away with it.
package testpostgres

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
)

// required is the environment variable that makes a missing server a failure.
const required = "OPA_GATE_REQUIRE_SERVERS"

// startTime bounds how long a server takes to answer, on a machine that does much
// else.
const startTime = time.Minute

// A Server is a PostgreSQL of its own, whose only user is postgres, without a
// password.
type Server struct {
	programs string // the directory of initdb and postgres
	dir      string
	port     int
	hasty    bool                // what is committed outlasts its processes, but not the machine
	user     *syscall.Credential // nil: whoever runs the test

	process *exec.Cmd // nil: stopped
	ended   chan error
	log     bytes.Buffer // of the process that ran last; read once that has ended
}

var shared struct {
	mu     sync.Mutex
	server *Server
	made   atomic.Int64 // databases
}

// Database makes an empty database in the one server that a test process shares,
// starts that if need be, and returns the database's URL. Without a PostgreSQL the
// test is skipped, or fails if OPA_GATE_REQUIRE_SERVERS is set. Whoever calls it
// has a TestMain that ends with [Close].
func Database(t testing.TB) string {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server == nil {
		shared.server = newServer(t)
		shared.server.hasty = true
		shared.server.Start(t)
	}
	return shared.server.Database(t)
}

// Close ends the server that a test process shares, if it has started.
func Close() {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server != nil {
		shared.server.close()
		shared.server = nil
	}
}

// New makes a server for one test, which may stop and start it. It is stopped.
func New(t testing.TB) *Server {
	t.Helper()
	s := newServer(t)
	t.Cleanup(s.close)
	return s
}

func newServer(t testing.TB) *Server {
	t.Helper()
	programs, who, err := find()
	switch {
	case err != nil && os.Getenv(required) != "":
		t.Fatalf("there is no PostgreSQL, and %s is set: %v", required, err)
	case err != nil:
		t.Skipf("there is no PostgreSQL: %v", err)
	}
	dir, err := os.MkdirTemp("", "postgres")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{programs: programs, dir: dir, user: who}
	if who != nil {
		if err := os.Chown(dir, int(who.Uid), int(who.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	initdb := s.command("initdb", "--pgdata", filepath.Join(dir, "data"), "--username", "postgres", "--auth", "trust",
		"--encoding", "UTF8", "--no-locale", "--no-sync")
	if text, err := initdb.CombinedOutput(); err != nil {
		_ = os.RemoveAll(dir)
		t.Fatalf("initdb: %v\n%s", err, text)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") // free a moment ago; PostgreSQL cannot say which one it chose
	if err != nil {
		t.Fatal(err)
	}
	s.port = l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return s
}

// find returns where the programs of the newest PostgreSQL are, and as whom they
// run: it refuses to run as root.
func find() (string, *syscall.Credential, error) {
	initdb, err := exec.LookPath("initdb")
	if err != nil {
		found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // where Debian has it
		if len(found) == 0 {
			return "", nil, errors.New("no initdb in PATH or /usr/lib/postgresql")
		}
		slices.SortFunc(found, func(a, b string) int { return len(a) - len(b) })
		initdb = found[len(found)-1]
	}
	if initdb, err = filepath.EvalSymlinks(initdb); err != nil || os.Getuid() != 0 {
		return filepath.Dir(initdb), nil, err
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return "", nil, fmt.Errorf("root runs the tests, and there is nobody else to run a PostgreSQL as: %w", err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return "", nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	return filepath.Dir(initdb), &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, err
}

func (s *Server) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.programs, program), args...)
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.user}
	return cmd
}

// Start starts the server and waits until it answers.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	cmd := s.command("postgres", "-D", filepath.Join(s.dir, "data"), "-p", strconv.Itoa(s.port),
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "max_connections=400",
		"-c", "shared_buffers=64MB", "-c", "log_min_messages=fatal")
	if s.hasty {
		cmd.Args = append(cmd.Args, "-c", "fsync=off", "-c", "full_page_writes=off")
	}
	endWithTest(cmd.SysProcAttr)
	s.log.Reset()
	cmd.Stdout, cmd.Stderr = &s.log, &s.log
	started := make(chan error)
	s.ended = make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the signal comes when this thread ends
		err := cmd.Start()
		started <- err
		if err == nil {
			s.ended <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	s.process = cmd
	for until := time.Now().Add(startTime); ; time.Sleep(20 * time.Millisecond) {
		err := s.exec("SELECT 1")
		if err == nil {
			return
		}
		select {
		case ended := <-s.ended:
			s.process = nil
			t.Fatalf("PostgreSQL ended: %v\n%s", ended, s.log.Bytes())
		default:
		}
		if time.Now().After(until) {
			t.Fatalf("PostgreSQL does not answer after %v: %v", startTime, err)
		}
	}
}

// Stop ends the server at once, with whatever its clients are doing.
func (s *Server) Stop() {
	if s.process == nil {
		return
	}
	_ = s.process.Process.Signal(syscall.SIGQUIT)
	select {
	case <-s.ended:
	case <-time.After(startTime):
		_ = s.process.Process.Kill()
		<-s.ended
	}
	s.process = nil
}

func (s *Server) close() {
	s.Stop()
	_ = os.RemoveAll(s.dir)
}

// Database makes an empty database and returns its URL.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("test%d", shared.made.Add(1))
	if err := s.exec("CREATE DATABASE " + name); err != nil {
		t.Fatal(err)
	}
	return s.url(name)
}

func (s *Server) url(database string) string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/%s?sslmode=disable", s.port, database)
}

func (s *Server) exec(query string) error {
	db, err := sql.Open("pgx", s.url("postgres"))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	_, err = db.ExecContext(ctx, query)
	return err
}
