// Command hookbench measures hook calls as an agent makes them: from the start of
// the process to its answer. It builds the two programs, has each of them
// answer, and prints medians and 99th percentiles. It fails if a call after
// outside content came in was not asked about.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

func main() {
	calls := flag.Int("calls", 200, "calls one after the other")
	whole := flag.Int("whole", 40, "calls of opa-gate hook, which loads everything each time")
	rounds := flag.Int("rounds", 10, "rounds of 64 calls at once")
	flag.Parse()
	if err := run(*calls, *whole, *rounds); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "hookbench:", err)
		os.Exit(1)
	}
}

const atOnce = 64

func run(calls, whole, rounds int) error {
	dir, err := os.MkdirTemp("", "hookbench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	b := &bench{dir: dir}
	if err := os.Mkdir(filepath.Join(dir, "run"), 0o700); err != nil {
		return err
	}
	build := exec.Command("go", "build", "-o", dir, "./cmd/opa-gate", "./cmd/opa-gate-hook")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w: %s", err, out)
	}
	light, full := []string{filepath.Join(dir, "opa-gate-hook"), "--idle=5s"}, []string{filepath.Join(dir, "opa-gate"), "hook"}
	fmt.Printf("%-44s %6s %9s %9s\n", "", "calls", "median", "p99")
	if err := b.one(full, "warm", "SessionStart", ""); err != nil {
		return err
	}
	for _, m := range []struct {
		name    string
		command []string
		n       int
		tool    string
	}{
		{"opa-gate-hook, a call that is allowed", light, calls, "TaskList"},
		{"opa-gate-hook, a call that is asked about", light, calls, "WebFetch"},
		{"opa-gate hook, a call that is allowed", full, whole, "TaskList"},
	} {
		session := strings.ReplaceAll(m.name, " ", "-")
		if err := errors.Join(b.one(m.command, session, "SessionStart", ""), b.one(m.command, session, "PreToolUse", m.tool)); err != nil {
			return err
		}
		var took []time.Duration
		for range m.n {
			start := time.Now()
			if err := b.one(m.command, session, "PreToolUse", m.tool); err != nil {
				return err
			}
			took = append(took, time.Since(start))
		}
		report(m.name, took)
	}
	return b.rounds(light, rounds)
}

// rounds has 64 fetches at once in a clean session, and then 64 more, each of
// which has to be asked about.
func (b *bench) rounds(command []string, rounds int) error {
	var clean, tainted []time.Duration
	for round := range rounds {
		session := fmt.Sprint("round ", round)
		if err := b.one(command, session, "SessionStart", ""); err != nil {
			return err
		}
		for _, into := range []*[]time.Duration{&clean, &tainted} {
			took, asked := make([]time.Duration, atOnce), make([]bool, atOnce)
			errs := make([]error, atOnce)
			var wg sync.WaitGroup
			for i := range atOnce {
				wg.Go(func() {
					start := time.Now()
					var out []byte
					out, errs[i] = b.call(command, session, "PreToolUse", "WebFetch", fmt.Sprint(i))
					took[i] = time.Since(start)
					asked[i] = bytes.Contains(out, []byte(`"ask"`))
				})
			}
			wg.Wait()
			if err := errors.Join(errs...); err != nil {
				return err
			}
			if into == &tainted && slices.Contains(asked, false) {
				return errors.New("a call after outside content came in was let go")
			}
			*into = append(*into, took...)
		}
	}
	report("opa-gate-hook, 64 at once, clean session", clean)
	report("opa-gate-hook, 64 at once, tainted session", tainted)
	return nil
}

func report(name string, took []time.Duration) {
	slices.Sort(took)
	ms := func(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000) }
	fmt.Printf("%-44s %6d %9s %9s\n", name, len(took), ms(took[len(took)/2]), ms(took[len(took)*99/100]))
}

type bench struct{ dir string }

func (b *bench) one(command []string, session, event, tool string) error {
	_, err := b.call(command, session, event, tool, "1")
	return err
}

func (b *bench) call(command []string, session, event, tool, id string) ([]byte, error) {
	text, err := json.Marshal(map[string]any{
		"hook_event_name": event, "session_id": session, "source": "startup", "cwd": b.dir,
		"tool_name": tool, "tool_use_id": id, "tool_input": map[string]string{"url": "https://example.org/" + id},
	})
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = []string{"HOME=" + b.dir, "XDG_RUNTIME_DIR=" + filepath.Join(b.dir, "run"), "PATH=" + os.Getenv("PATH")}
	cmd.Stdin = bytes.NewReader(text)
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, problems.String())
	}
	return out, nil
}
