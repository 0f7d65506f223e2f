package line

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Times of starting a resident gate.
const (
	pause   = 2 * time.Millisecond // between looks for one that starts
	patient = 4 * time.Second      // how long one may take to start
)

// ErrRuns: another resident gate has the socket.
var ErrRuns = errors.New("a resident gate runs already")

// resident has q answered by a resident gate. Any error means that nothing came
// that can be used.
func resident(program string, args []string, q Request, until time.Time) (Reply, error) {
	s, err := newSocket(program, args)
	if err != nil {
		return Reply{}, err
	}
	ready := time.Now().Add(patient)
	if ready.After(until) {
		ready = until
	}
	for started := false; ; {
		conn, err := s.dial(until)
		if err == nil {
			defer func() { _ = conn.Close() }()
			return ask(conn, q)
		}
		if !errors.Is(err, syscall.ENOENT) && !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.EAGAIN) {
			return Reply{}, err
		}
		if !started {
			if started, err = s.start(program, args); err != nil {
				return Reply{}, err
			}
		}
		if time.Now().After(ready) {
			return Reply{}, errors.New("no resident gate came")
		}
		time.Sleep(pause)
	}
}

// A socket is where the resident gate of one command line listens.
type socket struct{ dir, path, lock string }

// newSocket names the socket of a command line. Everything that a resident gate
// would see differently goes into the name: the program's file, the arguments, and
// what of the environment says where things are. So a program that was replaced
// has another socket.
func newSocket(program string, args []string) (*socket, error) {
	program, err := filepath.EvalSymlinks(program)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(program)
	if err != nil {
		return nil, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil, errors.New("the program's file cannot be told from others")
	}
	dir, err := runtimeDir()
	if err != nil {
		return nil, err
	}
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%d %q %d %d %d %d %d %q", version, program, st.Dev, st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano(), args)
	for _, variable := range os.Environ() { // in its order, which is the agent's
		name, _, _ := strings.Cut(variable, "=")
		if name == "HOME" || strings.HasPrefix(name, "XDG_") || strings.HasPrefix(name, "PG") || strings.HasPrefix(name, "OPA_GATE_") {
			_, _ = fmt.Fprintf(h, " %q", variable)
		}
	}
	name := filepath.Join(dir, hex.EncodeToString(h.Sum(nil)[:12]))
	return &socket{dir: dir, path: name + ".sock", lock: name + ".lock"}, nil
}

// runtimeDir returns the user's own folder for sockets, made if there is none.
// A folder that is a link, or somebody else's, or open to others is an error.
func runtimeDir() (string, error) {
	dir := os.Getenv("XDG_RUNTIME_DIR")
	if filepath.IsAbs(dir) && len(dir) < 60 { // a socket's whole path has 107 bytes at most
		dir = filepath.Join(dir, "opa-gate")
	} else {
		dir = fmt.Sprintf("/tmp/opa-gate-%d", os.Getuid())
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	return dir, owned(dir)
}

func owned(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || info.Mode().Perm()&0o077 != 0 || int(st.Uid) != os.Getuid() {
		return fmt.Errorf("%s is not a folder of yours alone", dir)
	}
	return nil
}

func (s *socket) dial(until time.Time) (*net.UnixConn, error) {
	c, err := net.DialTimeout("unix", s.path, time.Until(until))
	if err != nil {
		return nil, err
	}
	conn := c.(*net.UnixConn)
	if err := errors.Join(samePerson(conn), conn.SetDeadline(until)); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// samePerson makes sure that who is at the other end runs as the same user.
func samePerson(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *syscall.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		peer, failed = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); err != nil {
		return err
	}
	if failed != nil {
		return failed
	}
	if int(peer.Uid) != os.Getuid() {
		return errors.New("somebody else is at the other end of the socket")
	}
	return nil
}

// start starts a resident gate, unless somebody else is about to. Whoever has
// the lock does, and hands it over: the gate keeps it for as long as it runs.
func (s *socket) start(program string, args []string) (bool, error) {
	lock, err := s.take()
	if err != nil {
		if errors.Is(err, ErrRuns) {
			return false, nil
		}
		return false, err
	}
	defer func() { _ = lock.Close() }()
	cmd := exec.Command(program, append([]string{"hook", "serve"}, args...)...)
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{lock}
	cmd.Env = append(os.Environ(), lockVariable+"=3")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return false, err
	}
	return true, cmd.Process.Release()
}

const lockVariable = "OPA_HOOK_LOCK"

// take takes the lock of the socket.
func (s *socket) take() (*os.File, error) {
	f, err := os.OpenFile(s.lock, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, ErrRuns
		}
		return nil, err
	}
	return f, nil
}

// A Listener is the socket of a resident gate. Nobody else listens there until
// it is closed or the process ends.
type Listener struct {
	*net.UnixListener
	lock *os.File
}

// Listen makes the socket of a command line and listens. The error is ErrRuns if
// another resident gate does.
func Listen(program string, args []string) (*Listener, error) {
	s, err := newSocket(program, args)
	if err != nil {
		return nil, err
	}
	lock, err := s.inherited()
	if err != nil {
		return nil, err
	}
	if lock == nil {
		if lock, err = s.take(); err != nil {
			return nil, err
		}
	}
	if err := os.Remove(s.path); err != nil && !errors.Is(err, os.ErrNotExist) { // of one that was killed
		_ = lock.Close()
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.path, Net: "unix"})
	if err != nil {
		_ = lock.Close()
		return nil, err
	}
	return &Listener{l, lock}, nil
}

// inherited returns the lock that whoever started this process holds, nil if
// there is none.
func (s *socket) inherited() (*os.File, error) {
	if os.Getenv(lockVariable) != "3" {
		return nil, nil
	}
	if err := os.Unsetenv(lockVariable); err != nil {
		return nil, err
	}
	f := os.NewFile(3, s.lock)
	given, err := f.Stat()
	if err != nil {
		return nil, err
	}
	named, err := os.Stat(s.lock)
	if err != nil || !os.SameFile(given, named) {
		_ = f.Close()
		return nil, errors.New("the lock is another socket's")
	}
	syscall.CloseOnExec(3)
	return f, nil
}

// AcceptOwn accepts the next connection of the same user.
func (l *Listener) AcceptOwn() (*net.UnixConn, error) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if samePerson(conn) == nil {
			return conn, nil
		}
		_ = conn.Close()
	}
}

// Close stops listening, and lets the next resident gate start.
func (l *Listener) Close() error {
	return errors.Join(l.UnixListener.Close(), l.lock.Close()) // the first removes the socket
}
