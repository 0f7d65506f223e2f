package ledger

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/internal/race"
	"github.com/opa-gate/opa-gate/skill"
)

// childTasks are what this program does as another process. Each writes a line for
// what has happened, and has to be told to begin by the end of its input.
var childTasks = map[string]func(args []string) error{
	"record": taskRecord, "admit": taskAdmit, "decide": taskDecide, "open": taskOpen, "faults": taskFaults,
}

func begin() {
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// taskRecord: NAME WHO N records n rulings (0: for ever), and says each that is
// recorded.
func taskRecord(args []string) error {
	n, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	begin()
	l, err := Open(context.Background(), args[0], nil)
	if err != nil {
		return err
	}
	for i := 0; n == 0 || i < n; i++ {
		r := ruling1(fmt.Sprintf("%s/%d", args[1], i), "")
		if _, err := l.Record(context.Background(), args[1], r); err != nil {
			return err
		}
		fmt.Println(r.Fingerprint)
	}
	return l.Close()
}

// taskAdmit: NAME TOKEN N puts one call to a ledger n times.
func taskAdmit(args []string) error {
	n, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	l, err := Open(context.Background(), args[0], &Options{Keys: ring(1)})
	if err != nil {
		return err
	}
	begin()
	for range n {
		e := escalation("t", `{"a":1}`, egress)
		e.Token = args[1]
		a, err := l.Admit(context.Background(), e)
		if err != nil {
			return err
		}
		fmt.Println(a.Outcome.Kind)
	}
	return l.Close()
}

// taskDecide: NAME ID WHO approves an escalation.
func taskDecide(args []string) error {
	l, err := Open(context.Background(), args[0], &Options{Keys: ring(1)})
	if err != nil {
		return err
	}
	begin()
	_, err = l.Decide(context.Background(), args[2], args[1], Decision{Approve: true})
	var late *DecidedError
	switch {
	case err == nil:
		fmt.Println("won")
	case errors.As(err, &late):
		fmt.Println("lost to", late.Reviewer, late.State)
	default:
		return err
	}
	return l.Close()
}

// taskOpen: NAME KEYFILE opens a ledger with a key that is made if need be.
func taskOpen(args []string) error {
	begin()
	l, err := (&Config{Name: args[0], KeyFile: args[1]}).Open(context.Background())
	if err != nil {
		return err
	}
	if _, err := l.Record(context.Background(), "me", ruling1("x", "")); err != nil {
		return err
	}
	fmt.Println(KeyID(l.keys.Signer()))
	return l.Close()
}

// A child is this program as another process.
type child struct {
	cmd    *exec.Cmd
	in     io.Closer
	out    *bufio.Scanner
	stderr strings.Builder
}

// start starts a task, which waits to be told to go.
func start(t testing.TB, task string, args ...string) *child {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{cmd: exec.Command(self, args...)}
	c.cmd.Env = append(os.Environ(), childTask+"="+task)
	c.cmd.Stderr = &c.stderr
	in, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.in, c.out = in, bufio.NewScanner(out)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if !c.out.Scan() || c.out.Text() != "ready" {
		_ = c.cmd.Process.Kill()
		t.Fatalf("%s is not ready: %v, %s", task, c.cmd.Wait(), &c.stderr)
	}
	return c
}

func (c *child) lines() (lines []string) {
	for c.out.Scan() {
		lines = append(lines, c.out.Text())
	}
	return lines
}

// together starts a task n times, has all begin at once, and returns their lines.
func together(t *testing.T, n int, task string, args func(i int) []string) [][]string {
	t.Helper()
	children := make([]*child, n)
	for i := range children {
		children[i] = start(t, task, args(i)...)
	}
	for _, c := range children {
		_ = c.in.Close()
	}
	lines := make([][]string, n)
	var wg sync.WaitGroup
	for i, c := range children {
		wg.Go(func() {
			lines[i] = c.lines()
			if err := c.cmd.Wait(); err != nil {
				t.Errorf("process %d: %v: %s", i, err, &c.stderr)
			}
		})
	}
	wg.Wait()
	return lines
}

// processes is how many record at once.
const processes = 16

func TestProcessesRecord(t *testing.T) {
	each := 25
	if testing.Short() || race.Enabled {
		each = 5
	}
	shared(t, func(t *testing.T, k kind) {
		name := k.place(t)
		lines := together(t, processes, "record", func(i int) []string { return []string{name, fmt.Sprint("p", i), fmt.Sprint(each)} })
		l := open(t, name, nil)
		there(t, l, lines)
		if n := sound(t, l); n != int64(processes*each) {
			t.Errorf("%d entries", n)
		}
	})
}

// there expects that everything that was acknowledged is in a ledger.
func there(t *testing.T, l *Ledger, lines [][]string) (n int) {
	t.Helper()
	for _, fingerprints := range lines {
		for _, f := range fingerprints {
			n++
			if rs, err := l.History(context.Background(), f); err != nil || len(rs) != 1 || rs[0].Decision != skill.Approved {
				t.Fatalf("%s was acknowledged: %v, %v", f, rs, err)
			}
		}
	}
	return n
}

// What was acknowledged before a kill -9 at any moment is there, and the chain is
// whole; four processes record at a time.
func TestKilled(t *testing.T) {
	shared(t, func(t *testing.T, k kind) {
		kills, longest := 160, 100*time.Millisecond
		if k.name == "postgres" { // which takes longer to open
			kills, longest = 40, 400*time.Millisecond
		}
		if testing.Short() || race.Enabled {
			kills, longest = 12, 4*longest
		}
		name := k.place(t)
		l := open(t, name, nil)
		var mu sync.Mutex
		var lines [][]string
		var next atomic.Int64
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for {
					i := next.Add(1)
					if i > int64(kills) {
						return
					}
					c := start(t, "record", name, fmt.Sprint("k", i), "0")
					_ = c.in.Close()
					timer := time.AfterFunc(time.Duration(rand.Int64N(int64(longest))), func() { _ = c.cmd.Process.Kill() })
					got := c.lines()
					if err := c.cmd.Wait(); timer.Stop() || c.stderr.Len() > 0 {
						t.Errorf("it ended by itself: %v: %s", err, &c.stderr)
					}
					mu.Lock()
					lines = append(lines, got)
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		n, entries := there(t, l, lines), sound(t, l)
		if entries < int64(n) || n == 0 {
			t.Errorf("%d acknowledged, %d entries", n, entries)
		}
		t.Logf("%d processes killed: %d records acknowledged, %d in the ledger", kills, n, entries)
		if _, err := l.Record(context.Background(), "me", ruling1("after", "")); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

// Of two who approve at the same moment one wins, and the other is told who did.
func TestTwoApprovers(t *testing.T) {
	everywhere(t, func(t *testing.T, k kind) {
		name := k.place(t)
		l := open(t, name, &Options{Keys: ring(1)})
		for round := range 10 {
			a, err := l.Admit(context.Background(), escalation("t", fmt.Sprintf(`{"round":%d}`, round), egress))
			if err != nil {
				t.Fatal(err)
			}
			who := []string{"ann", "bob"}
			errs := make([]error, len(who))
			var wg sync.WaitGroup
			for i := range who {
				wg.Go(func() {
					_, errs[i] = l.Decide(context.Background(), who[i], a.Pending.ID, Decision{Approve: i == 0})
				})
			}
			wg.Wait()
			winner := 0
			if errs[0] != nil {
				winner = 1
			}
			var late *DecidedError
			if errs[winner] != nil || !errors.As(errs[1-winner], &late) || late.Reviewer != who[winner] || late.State != []State{Approved, Rejected}[winner] {
				t.Fatalf("got %v", errs)
			}
		}
		if !k.shared {
			return
		}
		a, err := l.Admit(context.Background(), escalation("t", `{}`, egress))
		if err != nil {
			t.Fatal(err)
		}
		lines := together(t, 2, "decide", func(i int) []string { return []string{name, a.Pending.ID, []string{"ann", "bob"}[i]} })
		got := lines[0][0] + ", " + lines[1][0]
		if got != "won, lost to ann approved" && got != "lost to bob approved, won" {
			t.Errorf("two processes: %s", got)
		}
		sound(t, l)
	})
}

// One approval lets exactly one of 32 racing calls pass: one that the ledger has,
// and one that is handed; by goroutines, and by processes with several calls each.
func TestConsumedOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, k kind) {
		for _, handed := range []bool{false, true} {
			name, token := k.place(t), ""
			l := open(t, name, &Options{Keys: ring(1)})
			give := func() {
				a, err := l.Admit(context.Background(), escalation("t", `{"a":1}`, egress))
				if err != nil || a.Pending == nil {
					t.Fatalf("%+v, %v", a, err)
				}
				p, err := l.Decide(context.Background(), "ann", a.Pending.ID, Decision{Approve: true})
				if err != nil {
					t.Fatal(err)
				}
				if token = ""; handed {
					token = p.Decision.Token
				}
			}
			give()
			var passed, waited atomic.Int64
			var wg sync.WaitGroup
			for range 32 {
				wg.Go(func() {
					e := escalation("t", `{"a":1}`, egress)
					e.Token = token
					switch a, err := l.Admit(context.Background(), e); {
					case err != nil:
						t.Error(err)
					case a.Outcome.Kind == capability.Allow:
						passed.Add(1)
					case a.Outcome.Kind == capability.Escalate && a.Pending != nil:
						waited.Add(1)
					}
				})
			}
			wg.Wait()
			if passed.Load() != 1 || waited.Load() != 31 {
				t.Errorf("handed %v: %d passed, %d waited", handed, passed.Load(), waited.Load())
			}
			if !k.shared || handed && (testing.Short() || race.Enabled) {
				continue
			}
			give()
			counts := map[string]int{}
			for _, lines := range together(t, 8, "admit", func(int) []string { return []string{name, token, "4"} }) {
				for _, line := range lines {
					counts[line]++
				}
			}
			if counts["allow"] != 1 || counts["escalate"] != 31 {
				t.Errorf("processes, handed %v: %v", handed, counts)
			}
			sound(t, l)
		}
	})
}

// Sixteen processes open a ledger that is not there at once, with a key that is
// not there: one schema, one key, and both for the user alone.
func TestOpenedAtOnce(t *testing.T) {
	shared(t, func(t *testing.T, k kind) {
		name, key := k.place(t), filepath.Join(t.TempDir(), "new", "approvals.key")
		ids := map[string]int{}
		for _, lines := range together(t, processes, "open", func(int) []string { return []string{name, key} }) {
			if len(lines) == 1 {
				ids[lines[0]]++
			}
		}
		if len(ids) != 1 {
			t.Errorf("keys: %v", ids)
		}
		if n := sound(t, open(t, name, nil)); n != processes {
			t.Errorf("%d entries", n)
		}
		files := []string{key}
		if k.name == "sqlite" {
			files = append(files, name)
		}
		for _, file := range files {
			if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v, %v", file, info.Mode(), err)
			}
		}
		public, err := LoadPublic(key + ".pub")
		if err != nil || len(public) != 1 || ids[KeyID(public[0])] != processes {
			t.Errorf("the public half: %v", err)
		}
		if left, _ := filepath.Glob(filepath.Join(filepath.Dir(key), ".new-*")); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	})
}
