package analysis

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/internal/race"
	"github.com/opa-gate/opa-gate/wire"
)

// judged says how an answer changed, from the specification's words alone: the
// test's own judgement, which the differences are held against. Ok is false if it
// did not.
func judged(c *capability.Call, before, after answered) (ch change, ok bool) {
	switch {
	case before.err != nil && after.err != nil:
		return change{}, false
	case before.err == nil && after.err == nil && string(answerOf(before.outcome, nil)) == string(answerOf(after.outcome, nil)):
		return change{}, false
	}
	asked := map[capability.TransformKind]string{capability.NoTransform: "allow", capability.Rewrite: "modify", capability.InjectContext: "inject_context"}
	name := func(a answered) string {
		switch {
		case a.err != nil:
			return "error"
		case a.outcome.Kind.String() == asked[c.Policy.Transform.Kind]:
			return "allow"
		default:
			return a.outcome.Kind.String()
		}
	}
	rank := map[string]int{"error": 0, "deny": 0, "escalate": 1, "modify": 2, "inject_context": 2, "allow": 3}
	ch = change{from: name(before), to: name(after), direction: Rewording}
	less := func(a, b answered) bool { // a person is asked about less
		return a.outcome.Missing != b.outcome.Missing && a.outcome.Missing&^b.outcome.Missing == 0
	}
	switch from, to := rank[ch.from], rank[ch.to]; {
	case to > from, ch.from == ch.to && less(after, before):
		ch.direction = Widening
	case to < from, ch.from == ch.to && less(before, after):
		ch.direction = Narrowing
	}
	return ch, true
}

// bruteForce asks both policies about each call of some kinds with each of the
// texts, and counts the calls and the changes by their class.
func bruteForce(kinds []int, s *evaluator.Survey, before, after func(*capability.Call) answered, visit func(c *capability.Call, ch change, changed bool)) (calls int, counts map[change]int) {
	counts = map[change]int{}
	for _, n := range kinds {
		c := evaluator.CellCall(n)
		vetoes, notes := 1, 1
		if c.Policy.Vetoed {
			vetoes += len(s.Vetoes)
		}
		if c.Policy.Transform.Kind == capability.InjectContext {
			notes += len(s.Notes)
		}
		for tool := range 1 + len(s.Tools) {
			for veto := range vetoes {
				for note := range notes {
					c := s.WithTexts(c, tool, veto, note)
					calls++
					ch, changed := judged(c, before(c), after(c))
					if changed {
						counts[ch]++
					}
					if visit != nil {
						visit(c, ch, changed)
					}
				}
			}
		}
	}
	return calls, counts
}

// holdAgainst fails the test unless the rows of a difference add up to the counts,
// and each is shown by an example of its class, with the answers that it states.
func holdAgainst(t *testing.T, d *differ, got *Difference, counts map[change]int, before, after func(*capability.Call) answered) {
	t.Helper()
	sums, total := map[change]int{}, 0
	space := newCallSpace(d.old)
	for _, ch := range got.Changes {
		if ch.Kind != "call" {
			continue
		}
		class := change{ch.From, ch.To, ch.Direction}
		sums[class] += ch.Inputs
		total += ch.Inputs
		c, err := wire.ParseCall(ch.Example)
		if err != nil {
			t.Fatal(err)
		}
		old, new := before(c), after(c)
		if is, changed := judged(c, old, new); !changed || is != class {
			t.Errorf("the example %s is %v, %v, in a row of %v", ch.Example, is, changed, class)
		}
		states := func(a answered, text json.RawMessage) bool {
			if a.err != nil { // in words of its own
				return strings.HasPrefix(string(text), `{"error":`)
			}
			return string(answerOf(a.outcome, nil)) == string(text)
		}
		if !states(old, ch.Before) || !states(new, ch.After) {
			t.Errorf("the example %s is answered\n%s\n%s\nthe row says\n%s\n%s", ch.Example, answerOf(old.outcome, old.err), answerOf(new.outcome, new.err), ch.Before, ch.After)
		}
		if !within(space, pointOf(d.old, space, c), ch.Conditions) {
			t.Errorf("the example %s is not in its row: %v", ch.Example, ch.Conditions)
		}
	}
	want := 0
	for class, n := range counts {
		want += n
		if sums[class] != n {
			t.Errorf("%v: the rows have %d inputs, brute force %d", class, sums[class], n)
		}
	}
	if total != want {
		t.Errorf("the rows have %d inputs, brute force %d", total, want)
	}
}

// pointOf returns where a call is in a space.
func pointOf(s *evaluator.Survey, space *callSpace, c *capability.Call) []int {
	return space.point(c, 1+slices.Index(s.Tools, c.Tool), 1+slices.Index(s.Vetoes, c.Policy.Veto), 1+slices.Index(s.Notes, c.Policy.Transform.Note))
}

// within reports whether a point fulfils the conditions of a row, as a reader
// takes them: the names in a base are one member with a condition each.
func within(s *callSpace, at []int, conditions []Condition) bool {
	for _, c := range conditions {
		i := slices.IndexFunc(s.dims, func(d dimension) bool { return d.member == c.Member && slices.Contains(d.values, c.Values[0]) })
		if i < 0 || !slices.Contains(c.Values, s.dims[i].values[at[i]]) {
			return false
		}
	}
	return true
}

func everyKind() []int {
	all := make([]int, evaluator.Cells)
	for n := range all {
		all[n] = n
	}
	return all
}

// Random small policies and what became of them, over the whole domain: each has
// a twin in Go, which is asked about every call, and held against OPA here and
// there.
func TestDiffEqualsBruteForce(t *testing.T) {
	exhaustive(t)
	random := rand.New(rand.NewPCG(11, 12))
	for round := range 2 {
		p := randomPolicy(random, true)
		q := mutated(random, p)
		if round == 1 { // nothing in common
			q = randomPolicy(random, true)
		}
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			old, new := minimal(t, p.rego()), minimal(t, q.rego())
			d := surveyedPair(t, old, new)
			got, err := d.diff(t.Context(), old, new)
			if err != nil {
				t.Fatal(err)
			}
			calls, counts := bruteForce(everyKind(), d.old, p.ask, q.ask, func(c *capability.Call, _ change, changed bool) {
				if changed && random.IntN(500) == 0 || random.IntN(2000) == 0 {
					agrees(t, old, p, c)
					agrees(t, new, q, c)
				}
			})
			if len(got.Incomplete) > 0 || got.Calls != calls {
				t.Errorf("%d calls, want %d; incomplete %v", got.Calls, calls, got.Incomplete)
			}
			holdAgainst(t, d, got, counts, p.ask, q.ask)
			if t.Failed() {
				t.Logf("\n%s\n%s", p.rego(), q.rego())
			}
			t.Logf("%d calls, %v", calls, counts)
		})
	}
}

// More of them, and such that leave calls without an answer, on random parts of the
// domain: OPA is asked about each call with each text.
func TestDiffOfRandomPolicies(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 9))
	rounds, size := 8, 1500
	if testing.Short() {
		rounds, size = 2, 100
	}
	for round := range rounds {
		p := randomPolicy(random, false)
		q := mutated(random, mutated(random, p))
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			old, new := minimal(t, p.rego()), minimal(t, q.rego())
			some := everyKind()
			random.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
			some = some[:size]
			d := &differ{old: &evaluator.Survey{Tools: []string{"a"}, Vetoes: []string{"x"}}, new: &evaluator.Survey{Tools: []string{"a", "b"}, Notes: []string{"n"}},
				before: asked(old), after: asked(new), kinds: some, opts: &DiffOptions{}, callsAlone: true}
			got, err := d.diff(t.Context(), old, new)
			if err != nil {
				t.Fatal(err)
			}
			counts := eachInItsRow(t, d, got, p.ask, q.ask)
			holdAgainst(t, d, got, counts, p.ask, q.ask)
			if t.Failed() {
				t.Logf("\n%s\n%s", p.rego(), q.rego())
			}
		})
	}
}

// eachInItsRow fails the test unless each call that changed is in one row of its
// class, and each other one in none. It returns what brute force counts.
func eachInItsRow(t *testing.T, d *differ, got *Difference, before, after func(*capability.Call) answered) map[change]int {
	t.Helper()
	space := newCallSpace(d.old)
	_, counts := bruteForce(d.kinds, d.old, before, after, func(c *capability.Call, ch change, changed bool) {
		at, rows := pointOf(d.old, space, c), 0
		for _, row := range got.Changes {
			if within(space, at, row.Conditions) {
				if rows++; (change{row.From, row.To, row.Direction}) != ch {
					t.Errorf("%s is %v, and in a row of %v to %v", callDocument(c, false), ch, row.From, row.To)
				}
			}
		}
		if changed && rows != 1 || !changed && rows != 0 {
			t.Errorf("%s changed %v, and is in %d rows", callDocument(c, false), changed, rows)
		}
	})
	return counts
}

func surveyedPair(t *testing.T, old, new *evaluator.Evaluator) *differ {
	t.Helper()
	var surveys [2]*evaluator.Survey
	for i, e := range []*evaluator.Evaluator{old, new} {
		s, err := e.Survey(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		surveys[i] = s
	}
	return &differ{old: surveys[0], new: surveys[1], before: surveys[0], after: surveys[1], opts: &DiffOptions{}, callsAlone: true}
}

// agrees holds a policy's twin against OPA.
func agrees(t *testing.T, e *evaluator.Evaluator, p minimalPolicy, c *capability.Call) {
	t.Helper()
	o, err := e.Interpreter().Decide(t.Context(), c)
	if want := p.ask(c); (err != nil) != (want.err != nil) || err == nil && !o.Equal(want.outcome) {
		t.Fatalf("OPA answers %s with %s, error %v; the twin with %s, %v", callDocument(c, false), answerOf(o, err), err, answerOf(want.outcome, want.err), want.err)
	}
}

// Rows tell a member that is left out from others only where the answers do.
func TestRowsOfLeftOutMembers(t *testing.T) {
	race.SkipSlow(t)
	leaves := func(m capability.Members) func(c *capability.Call) bool {
		return func(c *capability.Call) bool { return c.LeftOut.Has(m) }
	}
	const all = 427680 // of 10 origins and 33 bases
	tests := map[string]struct {
		changed func(c *capability.Call) bool
		rows    []string
	}{
		"every call":       {func(*capability.Call) bool { return true }, []string{fmt.Sprint("every call: ", all)}},
		"no grant":         {leaves(capability.GrantMember), []string{fmt.Sprint("no grant: ", all/33)}},
		"any stated grant": {func(c *capability.Call) bool { return c.LeftOut&capability.GrantMember == 0 }, []string{fmt.Sprint("a stated grant: ", all/33*32)}},
		"what a grant has, or the default": {func(c *capability.Call) bool { return c.Grant.Base.Has(capability.LocalRead) },
			[]string{fmt.Sprint("grant with local-read: ", all/33*17)}},
		"what a grant lacks": {func(c *capability.Call) bool { return !c.Grant.Base.Has(capability.LocalRead) },
			[]string{fmt.Sprint("grant without local-read: ", all/33*16)}},
		"what a stated grant has": {func(c *capability.Call) bool {
			return !leaves(capability.GrantMember)(c) && c.Grant.Base.Has(capability.LocalRead)
		},
			[]string{fmt.Sprint("a stated grant, grant with local-read: ", all/33*16)}},
		"no grant, and what one lacks": {func(c *capability.Call) bool {
			return leaves(capability.GrantMember)(c) || !c.Grant.Base.Has(capability.LocalRead)
		},
			[]string{fmt.Sprint("grant without local-read: ", all/33*16), fmt.Sprint("no grant: ", all/33)}},
		"no origin":             {leaves(capability.OriginMember), []string{fmt.Sprint("no origin: ", all/10)}},
		"no origin, or unknown": {func(c *capability.Call) bool { return c.Profile.Origin == capability.Unknown }, []string{fmt.Sprint("unknown or no origin: ", all/10*2)}},
		"any stated origin":     {func(c *capability.Call) bool { return !leaves(capability.OriginMember)(c) }, []string{fmt.Sprint("any stated origin: ", all/10*9)}},
		"neither, tainted": {func(c *capability.Call) bool {
			return c.Taint == capability.Tainted && c.LeftOut == capability.OriginMember|capability.GrantMember
		},
			[]string{fmt.Sprint("tainted, no origin, no grant: ", all/10/33/2)}},
	}
	space := newCallSpace(&evaluator.Survey{})
	if space.all() != all {
		t.Errorf("%d calls, want %d", space.all(), all)
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRegion(space.space)
			for n := range evaluator.Cells {
				if tt.changed(evaluator.CellCall(n)) {
					space.each(n, true, func(_, point int) { r.set(point) })
				}
			}
			var rows []string
			for _, c := range r.cubes() {
				row := Change{Kind: "call", Conditions: space.conditions(c)}
				rows = append(rows, fmt.Sprint(row.subject(), ": ", space.calls(c)))
				if !tt.changed(space.example(c)) {
					t.Errorf("the example of %s is %s", rows[len(rows)-1], callDocument(space.example(c), false))
				}
			}
			if !slices.Equal(rows, tt.rows) {
				t.Errorf("got  %q\nwant %q", rows, tt.rows)
			}
		})
	}
}

// Random pairs of faulty policies, on a part of the domain: OPA is asked about each
// call, and each call is in one row of its class if it changed, and in none if not.
func TestDiffOfFaultsEqualsBruteForce(t *testing.T) {
	exhaustive(t)
	random := rand.New(rand.NewPCG(3, 4))
	for range 5 {
		var pair [2]fault
		for i := range pair {
			for pair[i].edits == nil || pair[i].refused {
				pair[i] = callFaults[random.IntN(len(callFaults))]
			}
		}
		t.Run(pair[0].name+" and "+pair[1].name, func(t *testing.T) {
			old, new := opened(t, workingCopy(t, pair[0].edits...)), opened(t, workingCopy(t, pair[1].edits...))
			texts := func(f fault) *evaluator.Survey { return &evaluator.Survey{Tools: f.tools, Vetoes: f.vetoes} }
			d := &differ{old: texts(pair[0]), new: texts(pair[1]), before: asked(old), after: asked(new), kinds: spread(), opts: &DiffOptions{}, callsAlone: true}
			got, err := d.diff(t.Context(), old, new)
			if err != nil {
				t.Fatal(err)
			}
			ask := func(a answers) func(c *capability.Call) answered {
				return func(c *capability.Call) answered {
					o, err := a.Decide(t.Context(), c)
					return answered{c, o, err}
				}
			}
			counts := eachInItsRow(t, d, got, ask(d.before), ask(d.after))
			holdAgainst(t, d, got, counts, ask(d.before), ask(d.after))
			t.Logf("%d rows, %v", len(got.Changes), counts)
		})
	}
}

// A name in a grant that nobody can be granted begins to count.
func TestDiffOfNamesThatGrantNothing(t *testing.T) {
	race.SkipSlow(t)
	old := opened(t, workingCopy(t))
	new := opened(t, workingCopy(t, edit{inGrant, "sum({facts.grantable[name]", "sum({facts.bit[name]"}))
	none := &evaluator.Survey{}
	d := &differ{old: none, new: none, before: asked(old), after: asked(new), kinds: []int{}, named: true, opts: &DiffOptions{}, callsAlone: true}
	got, err := d.diff(t.Context(), old, new)
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	widened, total := 0, 0
	for _, ch := range got.Changes {
		total += ch.Inputs
		if ch.Direction == Widening {
			widened += ch.Inputs
			rows = append(rows, strings.Join(ch.phrases(), ", ")+": "+ch.From+" to "+ch.To)
		}
	}
	// Tools of the 4 origins that have a marker, each with that one.
	if want := 4 * 9 * 2 * 2; widened != want || got.Named != 1800 {
		t.Errorf("%d inputs are widened, want %d; %d compared; %v", widened, want, got.Named, rows)
	}
	if want := `access-grant, grant with "grant-access", which grants nothing: escalate to allow`; !slices.Contains(rows, want) {
		t.Errorf("%q is not among %q", want, rows)
	}
	// What is granted is told in every answer to a call that names a marker.
	if want := 4 * 10 * 9 * 2 * 2; total != want {
		t.Errorf("%d inputs changed, want %d", total, want)
	}
}

// Rules written in another way answer the same.
func TestDiffOfEqualPolicies(t *testing.T) {
	heavy(t)
	const text = `decision := object.union(ok, {"outcome": "deny", "reason": input.policy.veto}) if {
	is_string(input.policy.veto)
} else := object.union(ok, {"outcome": "escalate", "reason": "ask"}) if {
	input.taint == "tainted"
	input.tool.name in {"pay", "send"}
} else := ok
`
	const refactored = `decision := denied if vetoed

decision := asked if {
	not vetoed
	risky(input.tool.name)
}

decision := ok if {
	not vetoed
	not risky(input.tool.name)
}

denied := object.union(ok, {"outcome": "deny", "reason": input.policy.veto})

asked := object.union(ok, {"outcome": "escalate", "reason": concat("", ["a", "sk"])})

vetoed if is_string(input.policy.veto)

risky("pay") if input.taint != "clean"

risky("send") if input.taint == "tainted"
`
	for name, other := range map[string]string{"itself": text, "helpers and split rules": refactored} {
		t.Run(name, func(t *testing.T) {
			got, err := Diff(t.Context(), minimal(t, text), minimal(t, other), &DiffOptions{Old: "a", New: "b"})
			if err != nil {
				t.Fatal(err)
			}
			// Each call has one of 3 tools; all else is as always.
			if len(got.Changes) != 0 || len(got.Incomplete) != 0 || got.Calls != 427680*3 || got.Skills != 9504 || got.Old != "a" || got.New != "b" {
				t.Errorf("%d calls, %d skills, %q to %q, incomplete %v, changes %v", got.Calls, got.Skills, got.Old, got.New, got.Incomplete, got.Changes)
			}
		})
	}
}

// One row as it is meant to be read, over the whole domain.
func TestDiffRows(t *testing.T) {
	heavy(t)
	old := minimal(t, `decision := object.union(ok, {"outcome": "escalate"}) if {
	input.tool.origin == "fetcher"
	input.taint == "tainted"
} else := ok
`)
	new := minimal(t, `decision := object.union(ok, {"outcome": "escalate"}) if {
	input.tool.origin == "fetcher"
	input.taint == "tainted"
	input.tool.name != "news"
} else := object.union(ok, {"reason": "ok"}) if {
	input.tool.origin == "unknown"
	input.policy.veto
} else := ok
`)
	var progress steps
	got, err := Diff(context.Background(), old, new, &DiffOptions{Progress: progress.tell(t)})
	if err != nil {
		t.Fatal(err)
	}
	progress.ended(t, surveyWeight, surveyWeight, compareCallsWeight, rowsWeight, skillsWeight, matrixWeight)
	origin := 427680 / 10
	want := []Change{
		{Kind: "call", Direction: Widening, From: "escalate", To: "allow", Inputs: origin / 2,
			Conditions: []Condition{{"taint", []string{"tainted"}}, {"tool.origin", []string{"fetcher"}}, {"tool.name", []string{`"news"`}}},
			Example:    json.RawMessage(`{"tool": {"name": "news", "origin": "fetcher"}, "taint": "tainted"}`)},
	}
	if len(got.Changes) == 0 {
		t.Fatal("there is no change")
	}
	row := got.Changes[0]
	row.Before, row.After = nil, nil
	if string(encode(row)) != string(encode(want[0])) {
		t.Errorf("got  %s\nwant %s", encode(row), encode(want[0]))
	}
	total := 0
	for _, row := range got.Changes {
		if row.Direction == Rewording {
			total += row.Inputs
		}
	}
	// A reason appears for every call of an unknown tool with a veto, of either name.
	if want := origin / 2 * 2; total != want || got.Calls != 427680*2 {
		t.Errorf("%d of %d calls are said in another way, want %d of %d", total, got.Calls, want, 427680*2)
	}
}
