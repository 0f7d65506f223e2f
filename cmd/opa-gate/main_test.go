package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/opa-gate/opa-gate/internal/race"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"opa-gate": main, mcpServer: serveMCP})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                "testdata/script",
		RequireUniqueNames: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOSTILE", "no\x1b[31mfile")
			return nil
		},
		Condition: func(cond string) (bool, error) { // beside those of testscript
			if cond != "race" {
				return false, fmt.Errorf("there is no condition %q", cond)
			}
			return race.Enabled, nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits,
			"full":  full,
		},
	})
}

// asProgram puts the test's program at a path. It is what the path's last part is
// the name of, see TestMain.
func asProgram(t *testing.T, path string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if os.Link(self, path) == nil {
		return
	}
	text, err := os.ReadFile(self)
	if err == nil {
		err = os.WriteFile(path, text, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// exits runs opa-gate and compares its exit code: exits CODE ARGS...
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: exits CODE ARGS...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var failed *exec.ExitError
	switch err := ts.Exec("opa-gate", args[1:]...); {
	case errors.As(err, &failed):
		got = failed.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// full runs opa-gate with its output on a full disk, and expects exit code 2.
func full(ts *testscript.TestScript, _ bool, args []string) {
	disk, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	ts.Check(err)
	defer func() { _ = disk.Close() }()
	in, err := os.Open(ts.MkAbs(args[len(args)-1]))
	ts.Check(err)
	defer func() { _ = in.Close() }()
	if code := run(append(args[:len(args)-1:len(args)-1], "-"), in, disk, ts.Stderr()); code != exitInput {
		ts.Fatalf("exit code %d, want %d", code, exitInput)
	}
}
