package evaluator

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/evaluator/internal/symbolic"
)

// Cells is the number of kinds of call: everything in a call but its texts,
// and the names in its grant that grant nothing.
const Cells = pageCount * pageCells

// CellCall returns a call of kind n, 0 to Cells-1, with texts that stand for
// nothing.
func CellCall(n int) *capability.Call { return callAt(place{n / pageCells, n % pageCells}) }

// CellOf returns the kind of a valid call; ok is false if its grant has names
// that grant nothing, which no kind has.
func CellOf(c *capability.Call) (n int, ok bool) {
	at, ok := placeOf(c)
	return at.page*pageCells + at.cell, ok
}

// A Survey is the policies' decision on every kind of call: exact for all texts
// as long as the policies only copy them or compare them, as a whole, with
// constants. It is safe for use by several goroutines.
type Survey struct {
	// The texts that the policies compare with, sorted. Where other uses
	// of a text stand in the way of an exact answer, texts taken from there.
	Tools, Vetoes, Notes []string
	// Incomplete lists the uses of texts for which the survey is not exact,
	// most kinds of call first, and what can give another answer each time.
	Incomplete []Blocker

	evaluator *Evaluator
	cells     []*class                  // by number
	named     map[string]map[int]*class // of calls of a tool that cells except, by its name and the number
	said      []string                  // what answers say of their own: no unknown text is in it, or it would look copied
	memo      sync.Map                  // of OPA's answers, by memoKey
	asked     atomic.Int64
}

// A class is what the policies answer to the calls of some cells.
type class struct {
	*cell                     // not decided: OPA answers
	vetoes, notes []string    // for which OPA answers
	confirmed     atomic.Bool // OPA has answered one of its calls so
}

// Survey goes through all kinds of call. It calls progress, if that is not nil,
// now and then with the number of kinds done and of all. The errors are that
// of ctx, and ErrPolicy for policies that OPA cannot plan.
func (e *Evaluator) Survey(ctx context.Context, progress func(done, total int)) (*Survey, error) {
	m := e.compiled
	program, err := m.wholePlan(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPolicy, err)
	}
	w := &surveyor{compilation: m, program: program, classes: map[string]*class{}, named: map[string]map[int]*class{}, blockers: map[Blocker]int{},
		constants: map[symbolic.Hole]map[string]bool{symbolic.Tool: {}, symbolic.Veto: {}, symbolic.Note: {}}}
	s := &Survey{evaluator: e, cells: make([]*class, Cells), named: w.named}
	if err := overPages(ctx, progress, func(page int) error { return w.page(ctx, s, page) }); err != nil {
		return nil, err
	}
	s.Incomplete = sortBlockers(w.blockers)
	for _, b := range s.Incomplete {
		w.literals(b.Expression)
	}
	s.Tools = slices.Sorted(maps.Keys(w.constants[symbolic.Tool]))
	s.Vetoes = slices.Sorted(maps.Keys(w.constants[symbolic.Veto]))
	s.Notes = slices.Sorted(maps.Keys(w.constants[symbolic.Note]))
	for _, c := range w.classes {
		s.said = append(s.said, c.literals(m.texts)...)
	}
	slices.Sort(s.said)
	s.said = slices.Compact(s.said)
	return s, s.confirm(ctx)
}

// Join has two surveys look at the same calls: with the texts that either of the
// policies compares with, and with unknown texts that are in no answer of
// either.
func (s *Survey) Join(other *Survey) {
	for _, lists := range [][2]*[]string{{&s.Tools, &other.Tools}, {&s.Vetoes, &other.Vetoes}, {&s.Notes, &other.Notes}, {&s.said, &other.said}} {
		all := slices.Concat(*lists[0], *lists[1])
		slices.Sort(all)
		all = slices.Compact(all)
		*lists[0], *lists[1] = all, all
	}
}

// overPages calls visit for each page of a table, on all processors, until one
// fails.
func overPages(ctx context.Context, progress func(done, total int), visit func(page int) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var mu sync.Mutex // of done and progress
	done := 0
	var next atomic.Int64
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for ctx.Err() == nil {
				page := int(next.Add(1)) - 1
				if page >= pageCount {
					return
				}
				if err := visit(page); err != nil {
					stop(err)
					return
				}
				mu.Lock()
				if done++; progress != nil {
					progress(done*pageCells, Cells)
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	return context.Cause(ctx)
}

// A surveyor fills a survey.
type surveyor struct {
	*compilation
	program *symbolic.Program

	mu        sync.Mutex
	classes   map[string]*class
	named     map[string]map[int]*class
	blockers  map[Blocker]int
	constants map[symbolic.Hole]map[string]bool
}

func (w *surveyor) page(ctx context.Context, s *Survey, page int) error {
	by := newFollower(w.program)
	for i := range pageCells {
		c := callAt(place{page, i})
		f, err := w.followWith(ctx, by, c, nil, textual...)
		if err != nil {
			return err
		}
		s.cells[page*pageCells+i] = w.class(f)
		if len(f.except) > 0 {
			rest := maxCombinations
			if err := w.explore(ctx, by, c, fixed{}, f, &rest); err != nil {
				return err
			}
		}
	}
	return nil
}

// textual are the holes whose texts a survey tells apart.
var textual = []symbolic.Hole{symbolic.Tool, symbolic.Veto, symbolic.Note}

// maxCombinations bounds the combinations of constants that are looked at for
// one kind of call.
const maxCombinations = 1000

// explore finds the constants that texts are compared with once others of the
// call are constants themselves.
func (w *surveyor) explore(ctx context.Context, by follower, c *capability.Call, given fixed, f followed, rest *int) error {
	for h, texts := range f.except {
		for _, text := range texts {
			if *rest--; *rest < 0 {
				w.note(followed{cell: interpreted, blocker: &Blocker{Why: "the policies compare texts in too many combinations"}})
				return nil
			}
			more := maps.Clone(given)
			more[h] = text
			inner, err := w.followWith(ctx, by, c, more, textual...)
			if err != nil {
				return err
			}
			w.note(inner)
			if h == symbolic.Tool && len(given) == 0 && inner.blocker == nil {
				w.putNamed(text, c, inner)
			}
			if err := w.explore(ctx, by, c, more, inner, rest); err != nil {
				return err
			}
		}
	}
	return nil
}

// putNamed keeps the answer to calls like c of one tool.
func (w *surveyor) putNamed(tool string, c *capability.Call, f followed) {
	n, ok := CellOf(c)
	if !ok {
		return
	}
	found := w.shared(f)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.named[tool] == nil {
		w.named[tool] = map[int]*class{}
	}
	w.named[tool][n] = found
}

// note keeps what stands in the way, and the constants.
func (w *surveyor) note(f followed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if f.blocker != nil {
		w.blockers[*f.blocker]++
	}
	for h, texts := range f.except {
		for _, text := range texts {
			w.constants[h][text] = true
		}
	}
}

// class returns the class of a cell: the same one for cells that answer the
// same.
func (w *surveyor) class(f followed) *class {
	w.note(f)
	if f.blocker != nil {
		return &class{cell: interpreted}
	}
	return w.shared(f)
}

// shared returns the class of what was followed to its end.
func (w *surveyor) shared(f followed) *class {
	w.mu.Lock()
	defer w.mu.Unlock()
	found := &class{cell: f.cell, vetoes: f.except[symbolic.Veto], notes: f.except[symbolic.Note]}
	key := fmt.Sprintf("%s\x00%q%q", found.key(), found.vetoes, found.notes)
	if shared, ok := w.classes[key]; ok {
		return shared
	}
	w.classes[key] = found
	return found
}

// literal is a string in Rego's source.
var literal = regexp.MustCompile("\"(?:[^\"\\\\]|\\\\.)*\"|`[^`]*`")

// literals takes texts from an expression that does more than to compare: the
// strings in it, and longer ones, so that a prefix has a text that it is one of.
func (w *surveyor) literals(expression string) {
	for _, quoted := range literal.FindAllString(expression, 8) {
		text, err := strconv.Unquote(quoted)
		if err != nil || text == "" || len(text) > 64 {
			continue
		}
		for _, constants := range w.constants {
			constants[text], constants[text+"x"], constants["x"+text] = true, true, true
		}
	}
}

// confirm asks OPA about one call of each class. If OPA says another thing about
// one, the plan is not what OPA does, and all calls are left to it.
func (s *Survey) confirm(ctx context.Context) error {
	var unlike atomic.Bool
	confirm := func(n int, c *class, tool string) error {
		if !c.decided || c.confirmed.Swap(true) || unlike.Load() {
			return nil
		}
		call := s.fresh(n)
		if tool != "" {
			call.Tool = tool
		}
		want, err := s.evaluator.interpreter.decide(ctx, call)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if got := c.outcome(call); err != nil || !got.Equal(want) {
			unlike.Store(true)
		}
		return nil
	}
	tools := slices.Sorted(maps.Keys(s.named))
	err := overPages(ctx, nil, func(page int) error {
		for n := page * pageCells; n < (page+1)*pageCells && !unlike.Load(); n++ {
			if err := confirm(n, s.cells[n], ""); err != nil {
				return err
			}
			for _, tool := range tools {
				if c := s.named[tool][n]; c != nil {
					if err := confirm(n, c, tool); err != nil {
						return err
					}
				}
			}
		}
		return nil
	})
	if unlike.Load() {
		left := &class{cell: interpreted}
		for n := range s.cells {
			s.cells[n] = left
		}
		s.named = nil
		s.Incomplete = append(s.Incomplete, Blocker{Cells: Cells,
			Why: "the plan of the policies says another thing than OPA, which was asked about each call"})
	}
	return err
}

// fresh returns a call of kind n with texts that the policies do not know.
func (s *Survey) fresh(n int) *capability.Call { return s.WithTexts(CellCall(n), 0, 0, 0) }

// WithTexts returns c with texts that the policies compare with, by their place
// in Tools, Vetoes and Notes counted from 1; 0 is a text that they do not know.
// Texts that a call like c does not have are left out.
func (s *Survey) WithTexts(c *capability.Call, tool, veto, note int) *capability.Call {
	choose := func(known []string, i int, other string) string {
		if i == 0 {
			return unlike(other, known, s.said)
		}
		return known[i-1]
	}
	out := *c
	out.Tool = choose(s.Tools, tool, "tool")
	if c.Policy.Vetoed {
		out.Policy.Veto = choose(s.Vetoes, veto, "stop")
	}
	switch t := &out.Policy.Transform; t.Kind {
	case capability.InjectContext:
		t.Note = choose(s.Notes, note, "note")
	case capability.Rewrite:
		t.Arguments = json.RawMessage(`{"key":"value"}`)
	}
	return &out
}

// unlike returns a text that is none of the known ones, and in nothing that is
// said.
func unlike(text string, known, said []string) string {
	within := func(s string) bool { return strings.Contains(s, text) }
	for slices.Contains(known, text) || slices.ContainsFunc(said, within) {
		text += "_"
	}
	return text
}

// Exact reports whether one answer stands for all texts of the calls of kind
// n, but for the texts that it copies.
func (s *Survey) Exact(n int) bool {
	c := s.cells[n]
	return c.decided && len(c.except) == 0 && len(c.vetoes) == 0 && len(c.notes) == 0
}

// Calls returns the calls of kind n to look at: one with texts that the
// policies do not know, and unless the kind is exact, one for each combination
// of these with the texts that the policies know. The call is valid until the
// next one.
func (s *Survey) Calls(n int) iter.Seq[*capability.Call] { return s.CallsAmong(n, s.Exact(n)) }

// CallsAmong is [Survey.Calls] for a kind that counts as exact or not.
func (s *Survey) CallsAmong(n int, exact bool) iter.Seq[*capability.Call] {
	return func(yield func(*capability.Call) bool) {
		c := s.fresh(n)
		if exact {
			yield(c)
			return
		}
		p := &c.Policy
		vetoes, notes := []string{p.Veto}, []string{p.Transform.Note}
		if p.Vetoed {
			vetoes = append(vetoes, s.Vetoes...)
		}
		if p.Transform.Kind == capability.InjectContext {
			notes = append(notes, s.Notes...)
		}
		for _, tool := range append([]string{c.Tool}, s.Tools...) {
			for _, veto := range vetoes {
				for _, note := range notes {
					c.Tool, p.Veto, p.Transform.Note = tool, veto, note
					if !yield(c) {
						return
					}
				}
			}
		}
	}
}

// Decide answers a call as OPA does, which it asks where the survey is not
// exact. Its errors are those of the interpreter.
func (s *Survey) Decide(ctx context.Context, c *capability.Call) (capability.Outcome, error) {
	n, ok := CellOf(c)
	if !ok {
		return s.evaluator.interpreter.Decide(ctx, c)
	}
	found := s.cells[n]
	if found.decided && found.delegates(c.Tool) {
		if own := s.named[c.Tool][n]; own != nil {
			found = own
		}
	}
	if found.decided && !found.delegates(c.Tool) &&
		!(c.Policy.Vetoed && among(found.vetoes, c.Policy.Veto)) &&
		!(c.Policy.Transform.Kind == capability.InjectContext && among(found.notes, c.Policy.Transform.Note)) {
		return found.outcome(c), nil
	}
	key := memoKey{n, c.Tool, c.Policy.Veto, c.Policy.Transform.Note, string(c.Policy.Transform.Arguments)}
	if known, ok := s.memo.Load(key); ok {
		m := known.(memo)
		return m.outcome, m.err
	}
	o, err := s.evaluator.interpreter.decide(ctx, c)
	if ctx.Err() != nil {
		return capability.Outcome{}, ctx.Err()
	}
	s.asked.Add(1)
	s.memo.Store(key, memo{o, err})
	return o, err
}

type memoKey struct {
	cell                        int
	tool, veto, note, arguments string
}

type memo struct {
	outcome capability.Outcome
	err     error
}

func among(sorted []string, text string) bool {
	_, found := slices.BinarySearch(sorted, text)
	return found
}

// sortBlockers lists blockers with their counts, most cells first.
func sortBlockers(counts map[Blocker]int) []Blocker {
	var list []Blocker
	for b, cells := range counts {
		b.Cells = cells
		list = append(list, b)
	}
	slices.SortFunc(list, func(a, b Blocker) int {
		return cmp.Or(cmp.Compare(b.Cells, a.Cells), cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column), cmp.Compare(a.Why, b.Why))
	})
	return list
}
