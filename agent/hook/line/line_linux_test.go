package line

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// program writes a shell script that stands for opa-gate: it answers alone with
// what is given, and as a resident gate ends at once.
func program(t *testing.T, alone string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "opa-gate")
	script := "#!/bin/sh\nif [ \"$2\" = serve ]; then exit 1; fi\n" + alone + "\n"
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func run(t *testing.T, program string, args ...string) (out, problems string, code int) {
	t.Helper()
	var o, p bytes.Buffer
	code = Run(program, args, strings.NewReader("{}"), &o, &p, func(int) { t.Error("the time was over") })
	return o.String(), p.String(), code
}

const answers = `cat >/dev/null; echo '{"alone":true}'`

// A resident gate that answers with whatever a test says.
func residentOf(t *testing.T, program string, args []string, answer func(net.Conn)) {
	t.Helper()
	l, err := Listen(program, args)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.AcceptOwn()
			if err != nil {
				return
			}
			go func() { defer func() { _ = conn.Close() }(); answer(conn) }()
		}
	}()
}

func TestRunAsksTheResident(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	t.Setenv("CLAUDE_PROJECT_DIR", "/work/project")
	p := program(t, "exit 9")
	residentOf(t, p, []string{"--agent=codex"}, func(conn net.Conn) {
		if err := Answer(conn, func(q Request) Reply {
			if q.Project != "/work/project" || string(q.Input) != "{}" {
				return Reply{Stderr: []byte("no\n"), Exit: 2}
			}
			return Reply{Stdout: []byte("{\"resident\":true}\n")}
		}); err != nil {
			t.Error(err)
		}
	})
	if out, problems, code := run(t, p, "--agent=codex"); out != "{\"resident\":true}\n" || problems != "" || code != 0 {
		t.Errorf("%q %q %d", out, problems, code)
	}
}

// Whatever the resident gate does, the whole gate answers; and if that fails
// too, the call is refused.
func TestRunFallsBack(t *testing.T) {
	text := func(s string) func(net.Conn) {
		return func(c net.Conn) {
			// The request is read, so that closing does not look like a reset.
			_ = Answer(struct {
				io.Reader
				io.Writer
			}{c, io.Discard}, func(Request) Reply { return Reply{} })
			_, _ = io.WriteString(c, s)
		}
	}
	head := `{"version":1,"exit":0,"stdout":3,"stderr":0}` + "\n"
	for name, answer := range map[string]func(net.Conn){
		"says nothing":   text(""),
		"garbage":        text("allow\n"),
		"an empty one":   text("{}\n"),
		"no line end":    text("{}"),
		"cut":            text(head + "{}"),
		"too much":       text(head + "{}\n{}"),
		"no object":      text(head + "[]\n"),
		"no JSON":        text(head + "{x\n"),
		"another exit":   text(`{"version":1,"exit":1,"stdout":3,"stderr":0}` + "\n{}\n"),
		"no exit":        text(`{"version":1,"stdout":3,"stderr":0}` + "\n{}\n"),
		"negative":       text(`{"version":1,"exit":0,"stdout":-3,"stderr":0}` + "\n{}\n"),
		"huge":           text(`{"version":1,"exit":0,"stdout":99999999999,"stderr":0}` + "\n{}\n"),
		"another member": text(`{"version":1,"exit":0,"stdout":3,"stderr":0,"x":1}` + "\n{}\n"),
		"newer":          text(`{"version":2,"exit":0,"stdout":3,"stderr":0}` + "\n{}\n"),
		"a long line":    text(strings.Repeat("x", 100_000)),
		"hangs":          func(net.Conn) { time.Sleep(3 * time.Second) },
		"hangs half way": func(c net.Conn) { _, _ = io.WriteString(c, head); time.Sleep(3 * time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
			p := program(t, answers)
			args := []string{"--deadline=2s"}
			residentOf(t, p, args, answer)
			if out, problems, code := run(t, p, args...); out != "{\"alone\":true}\n" || code != 0 {
				t.Errorf("%q %q %d", out, problems, code)
			}
		})
	}
}

func TestRunAlone(t *testing.T) {
	for name, tt := range map[string]struct {
		script string
		out    string
		code   int
	}{
		"an answer":      {answers, "{\"alone\":true}\n", 0},
		"refuses":        {"echo why >&2; exit 2", "", 2},
		"refuses aloud":  {"echo '{}'; exit 2", "", 2},
		"exit 1":         {"echo '{}'; exit 1", "", 2},
		"exit 130":       {"exit 130", "", 2},
		"killed":         {"kill -9 $$", "", 2},
		"says nothing":   {"exit 0", "", 2},
		"half an answer": {"printf '{\"a\":'", "", 2},
		"no object":      {"echo true", "", 2},
		"two objects":    {"echo '{}{}'", "", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
			// A path that depends on the working directory: no resident gate.
			out, problems, code := run(t, program(t, tt.script), "--policies", "relative")
			if out != tt.out || code != tt.code || code == 2 && problems == "" {
				t.Errorf("%q %q %d, want %q %d", out, problems, code, tt.out, tt.code)
			}
		})
	}
	t.Run("no program", func(t *testing.T) {
		if out, problems, code := run(t, filepath.Join(t.TempDir(), "opa-gate")); out != "" || code != 2 || problems == "" {
			t.Errorf("%q %q %d", out, problems, code)
		}
	})
}

func TestRunInTime(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	ended := make(chan int, 1)
	var out, problems bytes.Buffer
	go Run(program(t, "sleep 60"), []string{"--deadline", "300ms", "--log=x"}, strings.NewReader("{}"), &out, &problems, func(code int) { ended <- code })
	select {
	case code := <-ended:
		if code != 2 {
			t.Errorf("exit code %d", code)
		}
	case <-time.After(20 * time.Second):
		t.Error("it hangs")
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }

// Nobody reads what the hook writes, of which a pipe holds some: it ends in time
// all the same, and refuses.
func TestRunAnswerNotRead(t *testing.T) {
	for name, alone := range map[string]string{
		"an answer": answers,
		"a refusal": "cat >/dev/null; echo no >&2; exit 2",
		"too late":  "sleep 60",
	} {
		t.Run(name, func(t *testing.T) {
			r, stuck := io.Pipe() // a write waits for a reader
			t.Cleanup(func() { _ = r.Close() })
			ended := make(chan int, 1)
			go Run(program(t, alone), []string{"--deadline", "500ms", "--log=x"}, strings.NewReader("{}"), stuck, stuck, func(code int) { ended <- code })
			select {
			case code := <-ended:
				if code != 2 {
					t.Errorf("exit code %d", code)
				}
			case <-time.After(30 * time.Second):
				t.Fatal("it hangs")
			}
		})
	}
}

func TestRunAnswerNotWritten(t *testing.T) {
	if code := Run(program(t, answers), []string{"--log=x"}, strings.NewReader("{}"), full{}, io.Discard, nil); code != 2 {
		t.Errorf("exit code %d", code)
	}
}

func TestListen(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	p := program(t, answers)
	l, err := Listen(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(p, nil); !errors.Is(err, ErrRuns) {
		t.Errorf("two at once: %v", err)
	}
	other, err := Listen(p, []string{"--auto-allow"})
	if err != nil {
		t.Errorf("another command line: %v", err)
	} else {
		_ = other.Close()
	}
	before := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	// What one that was killed leaves behind.
	if err := os.WriteFile(before, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err = Listen(p, nil); err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	// A program that was replaced is another one.
	if err := os.WriteFile(p, []byte("#!/bin/sh\n# new\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if l, err = Listen(p, nil); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if l.Addr().String() == before {
		t.Error("a program that was replaced has the same socket")
	}
}

// Folders that others could have made.
func TestRuntimeDir(t *testing.T) {
	for name, make := range map[string]func(dir string) error{
		"a link":  func(dir string) error { return os.Symlink(t.TempDir(), dir) },
		"open":    func(dir string) error { return errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o755)) },
		"a file":  func(dir string) error { return os.WriteFile(dir, nil, 0o600) },
		"others'": func(dir string) error { return errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, 12345, 12345)) },
	} {
		if name == "others'" && os.Getuid() != 0 {
			continue
		}
		base := t.TempDir()
		t.Setenv("XDG_RUNTIME_DIR", base)
		if err := make(filepath.Join(base, "opa-gate")); err != nil {
			t.Fatal(err)
		}
		if dir, err := runtimeDir(); err == nil {
			t.Errorf("%s: %s was taken", name, dir)
		}
	}
}

func TestManyAtOnce(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	p := program(t, "exit 9")
	residentOf(t, p, nil, func(conn net.Conn) {
		_ = Answer(conn, func(q Request) Reply { return Reply{Stdout: fmt.Appendf(nil, "{%q:1}\n", q.Input)} })
	})
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			var o, problems bytes.Buffer
			code := Run(p, nil, strings.NewReader(fmt.Sprint(i)), &o, &problems, func(int) {})
			if want := fmt.Sprintf("{\"%d\":1}\n", i); code != 0 || o.String() != want {
				t.Errorf("%d: %q %q", code, o.String(), problems.String())
			}
		})
	}
	wg.Wait()
}

func TestRead(t *testing.T) {
	for _, tt := range []struct {
		args     string
		deadline time.Duration
		shared   bool
	}{
		{"", DefaultDeadline, true},
		{"--deadline 3s", 3 * time.Second, true},
		{"--deadline=3s --wait=1m", 63 * time.Second, true},
		{"--deadline x", DefaultDeadline, true},
		{"--wait -1s", DefaultDeadline, true},
		{"--policies /a --catalogue=/b --ledger=postgres://x/y", DefaultDeadline, true},
		{"--policies a", DefaultDeadline, false},
		{"--catalogue=b", DefaultDeadline, false},
		{"--trust keys.pub", DefaultDeadline, false},
		{"--trust=/keys.pub --key /key", DefaultDeadline, true},
		{"--ledger sqlite:x", DefaultDeadline, false},
		{"--ledger sqlite:/x", DefaultDeadline, true},
		{"--log", DefaultDeadline, false},
	} {
		deadline, shared := read(strings.Fields(tt.args))
		if deadline != tt.deadline || shared != tt.shared {
			t.Errorf("%s: %v %v", tt.args, deadline, shared)
		}
	}
}

func FuzzAsk(f *testing.F) {
	f.Add([]byte(`{"version":1,"exit":0,"stdout":3,"stderr":0}` + "\n{}\n"))
	f.Add([]byte(`{"version":1,"exit":2,"stdout":0,"stderr":2}` + "\nx\n"))
	f.Fuzz(func(t *testing.T, answer []byte) {
		r, err := ask(struct {
			io.Reader
			io.Writer
		}{bytes.NewReader(answer), io.Discard}, Request{})
		if err == nil && !r.sound() {
			t.Errorf("%q was taken: %+v", answer, r)
		}
	})
}
