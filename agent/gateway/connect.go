package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/opa-gate/opa-gate/wire"
)

// passed are the variables of this program's environment that a server gets
// without being named for it: those that programs need to run at all. No
// secret is in them.
var passed = []string{
	"HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER",
	// Windows
	"APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATHEXT", "PROGRAMDATA", "PROGRAMFILES",
	"SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE", "WINDIR",
}

// environment is what a server's process gets: the variables of the list, and
// those that the operator names for this very server.
func (c *ServerConfig) environment(environ []string) []string {
	var out []string
	for _, pair := range environ {
		if name, _, ok := strings.Cut(pair, "="); ok && slices.Contains(passed, strings.ToUpper(name)) {
			out = append(out, pair)
		}
	}
	for name, value := range c.Env {
		out = append(out, name+"="+value) // the later one counts
	}
	return out
}

// connect starts a server, or prepares to talk to it.
func (g *Gateway) connect(ctx context.Context, c *ServerConfig, log *slog.Logger) (mcp.Connection, error) {
	if c.URL != "" {
		return g.dial(c, log)
	}
	return g.spawn(c)
}

// The times that a server has to end in: after its input has ended, after it was
// told to, and after it was killed.
const grace = 2 * time.Second

// spawn starts a server as a process.
func (g *Gateway) spawn(c *ServerConfig) (mcp.Connection, error) {
	if info, err := os.Stat(c.Dir); c.Dir != "" && (err != nil || !info.IsDir()) {
		return nil, fmt.Errorf("cwd: expected a folder, got %q", c.Dir) // the system would say that the command is not there
	}
	cmd := exec.Command(c.Command, c.Args...)
	cmd.Dir = c.Dir
	cmd.Env = c.environment(os.Environ())
	cmd.Stderr = &prefixed{name: c.Name, out: g.serverLog}
	ownGroup(cmd)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	// Not StdoutPipe: Wait would close it under a reader that is not done.
	stdout, child, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout = child
	cmd.WaitDelay = grace
	started, exited := make(chan error), make(chan error, 1)
	go func() {
		endWithThis(cmd)
		err := cmd.Start()
		started <- err
		if err == nil {
			exited <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		_ = stdin.Close() // starting may have closed it
		return nil, errors.Join(fmt.Errorf("starting %s: %w", c.Command, err), stdout.Close(), child.Close())
	}
	_ = child.Close() // the process has it
	stop := func() error {
		_ = stdin.Close()
		defer func() { _ = stdout.Close() }()
		for _, end := range []func(*exec.Cmd) error{func(*exec.Cmd) error { return nil }, terminate, kill} {
			_ = end(cmd) // it may have ended in between
			select {
			case err := <-exited:
				_ = kill(cmd) // what it started and left behind
				if err != nil {
					return fmt.Errorf("the process ended: %w", err)
				}
				return nil
			case <-time.After(grace):
			}
		}
		return errors.New("the process does not end")
	}
	return newLineConn(stdout, stdin, g.config.MaxMessage, stop), nil
}

// A prefixed writer passes on what a server says of itself, each line with the
// server's name before it, which nothing in the line can take off a terminal again.
type prefixed struct {
	name string
	out  io.Writer

	mu   sync.Mutex
	rest []byte
}

// maxLogLine is the length at which a line of a server's log is cut, in bytes.
const maxLogLine = 8 << 10

// Write implements io.Writer. It never fails: a log that cannot be written must
// not end a server.
func (p *prefixed) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rest = append(p.rest, text...)
	for {
		n := bytes.IndexByte(p.rest, '\n')
		if n < 0 && len(p.rest) < maxLogLine {
			return len(text), nil
		}
		line, skip := p.rest, len(p.rest)
		if n >= 0 {
			line, skip = p.rest[:n], n+1
		}
		text := string(bytes.TrimRight(line[:min(len(line), maxLogLine)], "\r"))
		_, _ = fmt.Fprintf(p.out, "%s: %s\n", p.name, wire.Printable(strings.ReplaceAll(text, "\t", "    ")))
		p.rest = append(p.rest[:0], p.rest[skip:]...)
	}
}
