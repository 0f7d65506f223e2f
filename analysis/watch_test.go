package analysis_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opa-gate/opa-gate/analysis"
)

func newWatcher(t testing.TB, dir string) *analysis.Watcher {
	t.Helper()
	// Time enough for everything: what a round looks at does not depend on how busy
	// the machine is.
	w, err := analysis.NewWatcher(dir, &analysis.WatchOptions{Budget: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func watchRound(t testing.TB, w *analysis.Watcher) *analysis.WatchRound {
	t.Helper()
	r, err := w.Round(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func brokenNames(v *analysis.Verification) []string {
	var names []string
	for _, in := range v.Invariants {
		if in.Breach != nil {
			names = append(names, in.Name)
		}
	}
	return names
}

// watchTold is a round in short.
func watchTold(r *analysis.WatchRound) string {
	text := fmt.Sprintf("ok %v, problem %q, changed %q, %d tests", r.OK, r.Problem, r.Changed, len(r.Tests))
	text += checkListed(&analysis.CheckResult{Findings: r.Findings})
	for _, t := range r.Tests {
		if t.Outcome != analysis.TestPassed {
			text += "\n\t" + t.Name + ": " + string(t.Outcome)
		}
	}
	q := r.Quick
	if q == nil {
		return text
	}
	text += fmt.Sprintf("\n\t%d calls, %d skills, %d kinds, %d compared, rules %q, left %q, same %v %v, since %v, broken %q",
		q.Calls, q.Skills, q.Kinds, q.Compared, q.Rules, q.Left, q.SameCalls, q.SameSkills, q.Since, brokenNames(q.Verification))
	for _, c := range q.Changes {
		text += fmt.Sprintf("\n\t%s: %s → %s, %d, %s", c.Direction, c.From, c.To, c.Inputs, c.Example)
	}
	return text
}

func TestWatchRounds(t *testing.T) {
	if testing.Short() {
		t.Skip("it puts every document of its rounds to the policies; TestWatchRun has rounds that are cut short")
	}
	dir := initCopy(t)
	w := newWatcher(t, dir)
	first := watchRound(t, w)
	if !first.OK || len(first.Changed) > 0 || first.Quick.Since != nil || first.Quick.Left != "" || len(first.Tests) == 0 {
		t.Fatalf("the first round: %s", watchTold(first))
	}
	if q := first.Quick; q.Calls < 4000 || q.Skills == 0 || q.Kinds < 3000 || q.Kinds > q.Calls || q.Calls > 6000 || q.OfKinds != 427680 || len(q.Invariants) != 14 {
		t.Errorf("it looked at %d calls of %d of %d kinds, %d skills, %d invariants", q.Calls, q.Kinds, q.OfKinds, q.Skills, len(q.Invariants))
	}
	saved := func(changed ...string) *analysis.WatchRound {
		t.Helper()
		r := watchRound(t, w)
		if !slices.Equal(r.Changed, changed) {
			t.Errorf("changed: %q, want %q", r.Changed, changed)
		}
		return r
	}
	whole, err := os.ReadFile(filepath.Join(dir, callRego))
	if err != nil {
		t.Fatal(err)
	}

	// A good edit: fewer calls are allowed.
	checkWrite(t, dir, "gate/call/payments.rego", "package gate.call\n\n# Payments always need a person.\nasks_for_person if startswith(input.tool.name, \"pay_\")\n")
	good := saved("gate/call/payments.rego")
	if !good.OK || !slices.Equal(good.Quick.Rules, []string{"data.gate.call.asks_for_person"}) || good.Quick.SameCalls || !good.Quick.SameSkills || good.Quick.Skills > 0 {
		t.Fatalf("a good edit: %s", watchTold(good))
	}
	if q := good.Quick; len(q.Changes) == 0 || q.Compared < 4000 || q.Compared > q.Calls || !q.Since.Equal(first.Time) {
		t.Fatalf("a good edit: %s", watchTold(good))
	}
	for _, c := range good.Quick.Changes {
		if c.Direction != analysis.Narrowing || c.To != "escalate" || !strings.Contains(string(c.Example), `"pay_`) {
			t.Errorf("a good edit: %+v", c)
		}
	}

	// Without an effect: a comment, and a test.
	checkWrite(t, dir, "gate/call/payments.rego", "package gate.call\n\n# As ever.\nasks_for_person if startswith(input.tool.name, \"pay_\")\n")
	checkWrite(t, dir, "gate/call/more_test.rego", "package gate.call_test\n\ntest_more if 1 + 1 == 2\n")
	same := saved("gate/call/more_test.rego", "gate/call/payments.rego")
	if q := same.Quick; !same.OK || !q.SameCalls || !q.SameSkills || q.Calls+q.Skills+q.Compared > 0 || len(q.Rules) > 0 || len(same.Tests) != len(good.Tests)+1 {
		t.Errorf("an edit without effect: %s", watchTold(same))
	}

	// A broken one, and one whose test fails: the good state stays.
	checkEdit(t, dir, callRego, "input.policy.requires_human", "input.policy.requires_humans")
	broken := saved(callRego)
	if broken.OK || broken.Quick != nil || len(broken.Findings) == 0 || broken.Findings[0].Code != analysis.CodeUnknownInput ||
		broken.Findings[0].File != callRego || broken.Findings[0].Line == 0 || broken.Problem != "" {
		t.Errorf("a broken edit: %s", watchTold(broken))
	}
	checkWrite(t, dir, callRego, string(whole))
	checkWrite(t, dir, "gate/call/more_test.rego", "package gate.call_test\n\ntest_more if 1 + 1 == 3\n")
	failing := saved(callRego, "gate/call/more_test.rego")
	if failing.OK || !failing.Quick.OK() || !failing.Quick.Since.Equal(same.Time) {
		t.Errorf("a failing test: %s", watchTold(failing))
	}
	checkWrite(t, dir, "gate/call/more_test.rego", "package gate.call_test\n\ntest_more if 1 + 1 == 2\n")
	if r := saved("gate/call/more_test.rego"); !r.OK {
		t.Errorf("mended: %s", watchTold(r))
	}

	// A weakening one: the invariants tell, and the difference does.
	const asks = "asks_for_person if input.policy.sandbox_escalation == true"
	checkEdit(t, dir, callRego, asks, "asks_for_person if {\n\tinput.policy.sandbox_escalation == true\n\tinput.tool.name != \"trusted_tool\"\n}")
	weak := saved(callRego)
	if weak.OK || !slices.Contains(brokenNames(weak.Quick.Verification), "person-asked") ||
		len(weak.Quick.Changes) == 0 || weak.Quick.Changes[0].Direction != analysis.Widening || weak.Quick.Changes[0].From != "escalate" {
		t.Errorf("a weakening edit: %s", watchTold(weak))
	}
	for _, in := range weak.Quick.Invariants {
		if b := in.Breach; b != nil && (b.Test == "" || len(b.Rules) == 0 || b.Rules[0].File != callRego) {
			t.Errorf("a weakening edit: %+v", b)
		}
	}

	// The state before it is good still, and what is removed is noticed.
	checkWrite(t, dir, callRego, string(whole))
	if err := os.Remove(filepath.Join(dir, "gate", "call", "payments.rego")); err != nil {
		t.Fatal(err)
	}
	back := saved(callRego, "gate/call/payments.rego")
	if q := back.Quick; !back.OK || len(q.Changes) == 0 || q.Changes[0].Direction != analysis.Widening || q.Changes[0].From != "escalate" {
		t.Errorf("a rule removed: %s", watchTold(back))
	}

	// An invariant of the author's own is held against the answers there are.
	checkWrite(t, dir, "gate/invariants/more.rego", "package gate.invariants\n\n# METADATA\n# schemas:\n#   - input: schema.invariant\n"+
		"breach contains \"nothing is modified\" if input.decision.outcome == \"modify\"\n")
	invariant := saved("gate/invariants/more.rego")
	if q := invariant.Quick; q == nil || invariant.OK || !q.SameCalls || !slices.Equal(brokenNames(q.Verification), []string{"gate.invariants"}) ||
		!slices.Equal(q.Rules, []string{"data.gate.invariants.breach"}) {
		t.Errorf("an invariant: %s", watchTold(invariant))
	}

	// Data can change anything.
	if err := os.Remove(filepath.Join(dir, "gate", "invariants", "more.rego")); err != nil {
		t.Fatal(err)
	}
	checkWrite(t, dir, "gate/settings/data.json", `{"system": "the vault"}`)
	data := saved("gate/invariants/more.rego", "gate/settings/data.json")
	if q := data.Quick; data.Problem != "" || q.Rules != nil || q.SameCalls || len(q.Changes) == 0 || q.Changes[0].Direction != analysis.Rewording {
		t.Errorf("data: %s", watchTold(data))
	}
}

// A round with no time says so, and finds nothing out.
func TestWatchBudget(t *testing.T) {
	w, err := analysis.NewWatcher(initCopy(t), &analysis.WatchOptions{Budget: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	r := watchRound(t, w)
	if r.Quick.Calls > 0 || !strings.HasPrefix(r.Quick.Left, "there was time for 0 of 4,") {
		t.Errorf("%+v", r.Quick)
	}
}

func TestWatchRefuses(t *testing.T) {
	for _, opts := range []analysis.WatchOptions{{Budget: -1}, {Budget: -time.Hour, Quick: true}, {Allow: []string{"time.now"}}} {
		if w, err := analysis.NewWatcher(t.TempDir(), &opts); err == nil || w != nil {
			t.Errorf("%+v: a watcher %v, error %v", opts, w != nil, err)
		}
	}
	if _, err := analysis.NewWatcher(t.TempDir(), &analysis.WatchOptions{Allow: []string{"time.now"}}); err == nil {
		t.Error("a built-in that there is not was allowed")
	}
	w := newWatcher(t, filepath.Join(t.TempDir(), "nowhere"))
	if err := w.Run(t.Context(), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory that is not there: %v", err)
	}
	empty := watchRound(t, newWatcher(t, t.TempDir()))
	if empty.OK || !strings.Contains(empty.Problem, "there is no .rego file") {
		t.Errorf("an empty directory: %s", watchTold(empty))
	}
}

// A decision that asks others is not asked thousands of times.
func TestWatchLeavesTheNetworkAlone(t *testing.T) {
	dir := initCopy(t)
	checkWrite(t, dir, "gate/call/ask.rego", "package gate.call\n\nasks_for_person if http.send({\"method\": \"get\", \"url\": \"http://127.0.0.1:1/\"}).status_code == 200\n")
	w, err := analysis.NewWatcher(dir, &analysis.WatchOptions{Allow: []string{"http.send"}})
	if err != nil {
		t.Fatal(err)
	}
	if q := watchRound(t, w).Quick; q.Calls+q.Skills > 0 || !strings.Contains(q.Left, "network") {
		t.Errorf("%+v", q)
	}
}
