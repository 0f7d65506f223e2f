package replay

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/optional"
)

func readCorpus(t *testing.T, facts bool) *Corpus {
	t.Helper()
	f, err := os.Open("../../fixtures/agentdojo/agentdojo.json")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	c, err := ReadCorpus(f)
	if err != nil {
		t.Fatal(err)
	}
	if facts {
		f, err := os.Open("../../fixtures/agentdojo/facts.json")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		if err := c.AddFacts(f); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// points writes a curve's sums.
func points(list []Point) (lines []string) {
	for _, p := range list {
		lines = append(lines, fmt.Sprintf("%s: %d/%d stopped, %d/%d ask, %d approvals", p.Rule, p.Stopped, p.Injections, p.Asking, p.Tasks, p.Approvals))
	}
	return lines
}

// The figures for rules over labels were counted by hand from the corpus: the
// binary rule touches 34 of 56 tasks and stops all 23, what sends out 26 and 21.
func TestCurve(t *testing.T) {
	c := readCorpus(t, true)
	plain, steering := policy(t), policy(t, optional.Steering)
	curve, err := c.Curve(t.Context(), []NamedPolicy{
		{"built in", plain, Added}, {"labels alone", steering, Labels}, {"names", steering, Names},
		{"undoable", Relaxed(plain, capability.RelaxOwnUndoable), Added},
		{"typed call", Relaxed(plain, capability.RelaxOwnUndoable|capability.RelaxTypedCall), Added},
		{"reference", Relaxed(plain, capability.AllRelaxations), Added}, {"steering", steering, Added},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"no gate: 0/23 stopped, 0/56 ask, 0 approvals",
		"tainted: what sends out: 21/23 stopped, 26/56 ask, 28 approvals",
		"tainted: what sends out, and access: 22/23 stopped, 27/56 ask, 29 approvals",
		"tainted: all but reads (binary): 23/23 stopped, 34/56 ask, 40 approvals",
		"built in: 23/23 stopped, 34/56 ask, 40 approvals",
		"labels alone: 23/23 stopped, 34/56 ask, 40 approvals",
		"names: 23/23 stopped, 30/56 ask, 32 approvals",
		"undoable: 23/23 stopped, 28/56 ask, 30 approvals",
		"typed call: 23/23 stopped, 26/56 ask, 28 approvals",
		"reference: 23/23 stopped, 24/56 ask, 26 approvals",
		"steering: 23/23 stopped, 24/56 ask, 26 approvals",
	}
	if got := points(curve.All); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, s := range curve.Suites {
		if !s.Facts || len(s.Harmless)+len(s.Unlabelled) > 0 || len(s.Points) != len(want) {
			t.Errorf("%+v", s)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := c.Curve(ended, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, err := c.Curve(t.Context(), []NamedPolicy{{"failing", failing{plain}, Labels}, {"broken", broken{plain}, Labels}}); !errors.Is(err, ErrUndecided) {
		t.Errorf("%v", err)
	}
}

type broken struct{ Policy }

func (broken) Decide(context.Context, *capability.Call) (capability.Outcome, error) {
	return capability.Outcome{}, errFailing
}

// A suite of other tools: nothing is known by a name.
const otherSuite = `{"source": {"x": 1}, "suites": [{"suite": "errands", "suiteVersion": "9", "tools": [
	{"tool": "browse", "onlyReads": true, "sendsOut": true, "readsUntrusted": true, "why": "x"},
	{"tool": "inbox", "onlyReads": true, "readsUntrusted": true},
	{"tool": "book", "writesOwn": true},
	{"tool": "post", "sendsOut": true},
	{"tool": "kick", "writesOwn": true, "access": "revoke"},
	{"tool": "diary", "writesOwn": true, "sendsOut": true, "sendsOutIf": "guests"},
	{"tool": "clock", "onlyReads": true}],
	"userTasks": [
		{"id": "reads", "sequence": ["clock", "inbox", "clock"]},
		{"id": "posts_first", "sequence": ["post", "inbox"]},
		{"id": "posts", "sequence": ["inbox", "post", "post"]},
		{"id": "books", "sequence": ["inbox", "book"]},
		{"id": "browses_twice", "sequence": ["browse", "browse"]},
		{"id": "kicks", "sequence": ["inbox", "kick"]},
		{"id": "strange", "sequence": ["nobody_knows", "clock"]},
		{"id": "after_strange", "sequence": ["nobody_knows", "book"]},
		{"id": "nothing", "sequence": []}],
	"injectionTasks": [
		{"id": "posts", "sequence": ["inbox", "post", "book"]},
		{"id": "books", "sequence": ["clock", "book"]},
		{"id": "books_and_posts", "sequence": ["book", "post"]},
		{"id": "kicks", "sequence": [], "inferred": ["kick"]},
		{"id": "browses", "sequence": ["browse"]},
		{"id": "only_says", "sequence": []},
		{"id": "only_reads", "sequence": ["inbox"]}]}]}`

func TestCurveOfOtherSuites(t *testing.T) {
	c, err := ReadCorpus(strings.NewReader(otherSuite))
	if err != nil {
		t.Fatal(err)
	}
	steering := policy(t, optional.Steering)
	curve, err := c.Curve(t.Context(), []NamedPolicy{{"built in", policy(t), Labels}, {"steering", steering, Added}})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"no gate: 0/5 stopped, 0/9 ask, 0 approvals",
		"tainted: what sends out: 3/5 stopped, 2/9 ask, 3 approvals",
		"tainted: what sends out, and access: 4/5 stopped, 3/9 ask, 4 approvals",
		"tainted: all but reads (binary): 5/5 stopped, 5/9 ask, 6 approvals",
		"built in: 5/5 stopped, 5/9 ask, 6 approvals",
		"steering: 5/5 stopped, 5/9 ask, 6 approvals",
	}
	if got := points(curve.All); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	s := curve.Suites[0]
	if !slices.Equal(s.Harmless, []string{"only_says", "only_reads"}) || !slices.Equal(s.Unlabelled, []string{"nobody_knows"}) || s.Facts || c.HasFacts() {
		t.Errorf("%+v", s)
	}

	// What books can be undone, somebody says, and one post went where it was typed to.
	err = c.AddFacts(strings.NewReader(`{"about": "x", "suites": [{"suite": "errands", "tools": {"book": {"effect": "own-undoable"}},
		"calls": {"posts": {"1": {"aim": "typed", "payload": "plain"}}}}, {"suite": "other"}]}`))
	if err != nil || !c.HasFacts() {
		t.Fatal(err)
	}
	if curve, err = c.Curve(t.Context(), []NamedPolicy{{"steering", steering, Added}}); err != nil {
		t.Fatal(err)
	}
	// A task and an injection share a name here: the fact is one about both.
	if got, want := points(curve.All)[4], "steering: 3/5 stopped, 3/9 ask, 3 approvals"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// What a name says counts only for what changes the person's own things, reaches
// nobody and grants nothing.
func TestNames(t *testing.T) {
	for _, tool := range []struct {
		label string
		want  capability.Effect
	}{
		{`"tool": "create_note", "writesOwn": true`, capability.OwnUndoable},
		{`"tool": "append_to_note", "writesOwn": true, "readsUntrusted": true`, capability.OwnUndoable},
		{`"tool": "create_note"`, capability.UnknownEffect},
		{`"tool": "create", "writesOwn": true`, capability.UnknownEffect},
		{`"tool": "created_note", "writesOwn": true`, capability.UnknownEffect},
		{`"tool": "note_create", "writesOwn": true`, capability.UnknownEffect},
		{`"tool": "delete_note", "writesOwn": true`, capability.UnknownEffect},
		{`"tool": "update_note", "writesOwn": true`, capability.UnknownEffect},
		{`"tool": "write_note", "writesOwn": true`, capability.UnknownEffect},
		{`"tool": "Create_note", "writesOwn": true`, capability.UnknownEffect},
		{`"tool": "create_post", "writesOwn": true, "sendsOut": true`, capability.Outside},
		{`"tool": "create_event", "writesOwn": true, "sendsOut": true, "sendsOutIf": "guests"`, capability.Outside},
		{`"tool": "add_member", "writesOwn": true, "access": "grant"`, capability.Access},
		{`"tool": "create_key", "writesOwn": true, "sendsOut": true, "access": "credential"`, capability.Access},
	} {
		c, err := ReadCorpus(strings.NewReader(`{"suites": [{"suite": "s", "tools": [{` + tool.label + `}]}]}`))
		if err != nil {
			t.Fatal(err)
		}
		s := &c.Suites[0]
		for told, want := range map[Knowledge]capability.Effect{Names: tool.want, Labels: tool.want} {
			if told == Labels && want == capability.OwnUndoable {
				want = capability.UnknownEffect
			}
			if got, err := s.look("task", 0, s.Tools[0].Tool, told); err != nil || got.Effect != want {
				t.Errorf("%s, told %d: %v, %v, want %v", tool.label, told, got.Effect, err, want)
			}
		}
	}
}

func TestCorpusRefuses(t *testing.T) {
	for _, text := range []string{"", "{}", `{"suites": []}`, `{"suites": 3}`, `{"suites": [{"tools": [{"tool": ""}]}]}`,
		`{"suites": [{"tools": [{"tool": "a"}, {"tool": "a"}]}]}`} {
		if _, err := ReadCorpus(strings.NewReader(text)); !errors.Is(err, ErrCorpus) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := ReadCorpus(strings.NewReader(`{"suites": [{"tools": [{"onlyReads": "yes"}]}]}`)); err == nil ||
		!strings.HasSuffix(err.Error(), "/suites/0/tools/0/onlyReads: expected true or false, got a string") {
		t.Errorf("a label of another kind: %v", err)
	}
	for name, facts := range map[string]string{
		"no JSON":                         "",
		"an unknown member":               `{"suits": []}`,
		"an unknown fact":                 `{"suites": [{"suite": "errands", "tools": {"book": {"effect": "own"}}}]}`,
		"access that is undoable":         `{"suites": [{"suite": "errands", "tools": {"kick": {"effect": "own-undoable"}}}]}`,
		"access that is sent":             `{"suites": [{"suite": "errands", "tools": {"kick": {"effect": "outside"}}}]}`,
		"a post that reaches nobody":      `{"suites": [{"suite": "errands", "tools": {"post": {"effect": "own-undoable"}}}]}`,
		"a read that writes":              `{"suites": [{"suite": "errands", "calls": {"reads": {"0": {"effect": "own-lasting"}}}}]}`,
		"an aim that nobody could have":   `{"suites": [{"suite": "errands", "calls": {"posts": {"1": {"aim": "sure"}}}}]}`,
		"a payload that nobody could say": `{"suites": [{"suite": "errands", "calls": {"posts": {"1": {"payload": "sure"}}}}]}`,
	} {
		c, err := ReadCorpus(strings.NewReader(otherSuite))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.AddFacts(strings.NewReader(facts)); !errors.Is(err, ErrCorpus) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
