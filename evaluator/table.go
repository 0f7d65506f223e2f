package evaluator

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/opa-gate/opa-gate/capability"
)

// The extent of a table. Origin and annotations choose a page; base, taint and
// verdict choose a cell on it.
const (
	origins   = 9
	hints     = 3 // unset, no, yes
	bases     = 1 << 5
	pageCount = origins * hints * hints * hints
	pageCells = bases * 2 * 2 * 2 * 2 * 3
)

// Bounds on what one evaluator compiles. They keep it below 16 MiB.
const (
	maxToolPages = 750
	maxCellBytes = 2 << 20
	maxToolName  = 256 // bytes in the name of a tool that has a table of its own
)

// A table holds cells by the finite part of their calls: all that is in a call
// besides its texts. A page of it is made when the first cell on it is.
type table struct {
	pages [pageCount]atomic.Pointer[page]
}

type page [pageCells]atomic.Pointer[cell]

// A place is where the cell of a call is, in any table.
type place struct{ page, cell int }

// baseRank numbers the sets that a grant can name, by their mask.
var baseRank = func() []uint16 {
	rank := make([]uint16, int(capability.All)+1)
	next := uint16(0)
	for mask := range rank {
		if capability.Set(mask).SubsetOf(capability.All) {
			rank[mask] = next
			next++
		}
	}
	return rank
}()

// placeOf returns the place of a valid call. Names that grant nothing are
// texts of a number that has no bound: calls with any have no place.
func placeOf(c *capability.Call) (at place, ok bool) {
	p, v := &c.Profile, &c.Policy
	at.page = ((int(p.Origin)*hints+int(p.ReadOnly))*hints+int(p.Destructive))*hints + int(p.OpenWorld)
	at.cell = int(baseRank[c.Grant.Base&capability.All])*2 + int(c.Taint-capability.Clean)
	at.cell = ((at.cell*2+bit(v.Vetoed))*2+bit(v.RequiresHuman))*2 + bit(v.SandboxEscalation)
	at.cell = at.cell*3 + int(v.Transform.Kind)
	return at, len(c.Grant.Unknown) == 0 && at.page < pageCount && at.cell < pageCells
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// callAt returns the call at a place, with texts that stand for nothing. It is
// the inverse of placeOf.
func callAt(at place) *capability.Call {
	c := &capability.Call{Tool: "tool"}
	next := func(n *int, size int) int {
		digit := *n % size
		*n /= size
		return digit
	}
	page, cell := at.page, at.cell
	c.Profile.OpenWorld = capability.Hint(next(&page, hints))
	c.Profile.Destructive = capability.Hint(next(&page, hints))
	c.Profile.ReadOnly = capability.Hint(next(&page, hints))
	c.Profile.Origin = capability.Origin(page)
	c.Policy.Transform.Kind = capability.TransformKind(next(&cell, 3))
	if c.Policy.Transform.Kind == capability.Rewrite {
		c.Policy.Transform.Arguments = []byte("{}")
	}
	c.Policy.SandboxEscalation = next(&cell, 2) == 1
	c.Policy.RequiresHuman = next(&cell, 2) == 1
	c.Policy.Vetoed = next(&cell, 2) == 1
	c.Taint = capability.Clean + capability.Taint(next(&cell, 2))
	c.Grant.Base = capability.Set(slices.Index(baseRank, uint16(cell)))
	return c
}

// get returns the cell at a place; nil is none yet.
func (t *table) get(at place) *cell {
	if p := t.pages[at.page].Load(); p != nil {
		return p[at.cell].Load()
	}
	return nil
}

// Tables are those of one evaluator: one for all tools, and one for each tool
// whose name the policies look at.
type tables struct {
	all   table
	tools atomic.Pointer[map[string]*table] // replaced, never changed

	mu        sync.Mutex // of whoever adds to any of them
	answers   map[string]*cell
	bytes     int // of answers
	pages     int
	toolPages int
	full      bool // something found no room
}

// tool returns the table of a tool; nil is none yet.
func (s *tables) tool(name string) *table {
	if tools := s.tools.Load(); tools != nil {
		return (*tools)[name]
	}
	return nil
}

// find returns the cell that answers c, or nil.
func (s *tables) find(c *capability.Call) *cell {
	at, ok := placeOf(c)
	if !ok {
		return nil
	}
	found := s.all.get(at)
	if found != nil && found.leaves(c.Tool) {
		t := s.tool(c.Tool)
		if t == nil {
			return nil
		}
		found = t.get(at)
	}
	if found == nil || !found.decided {
		return nil
	}
	return found
}

// put publishes a cell: in the table of that tool, or with "" in the one for
// all. Without room for it nothing happens, and OPA goes on deciding.
func (s *tables) put(c *cell, at place, tool string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c = s.share(c); c == nil {
		s.full = true
		return
	}
	t := &s.all
	if tool != "" {
		if t = s.tool(tool); t == nil {
			t = s.addTool(tool)
		}
	}
	var p *page
	if t != nil {
		if p = t.pages[at.page].Load(); p == nil {
			p = s.addPage(t)
		}
	}
	if p == nil {
		s.full = true
		return
	}
	p[at.cell].Store(c)
	t.pages[at.page].Store(p)
}

// share returns the one cell with the answer of c; nil is no room for another.
func (s *tables) share(c *cell) *cell {
	if !c.decided {
		return c
	}
	key := c.key()
	if shared, ok := s.answers[key]; ok {
		return shared
	}
	size := 4*len(key) + int(unsafe.Sizeof(*c))
	if s.bytes+size > maxCellBytes {
		return nil
	}
	if s.answers == nil {
		s.answers = map[string]*cell{}
	}
	s.answers[key] = c
	s.bytes += size
	return c
}

// addTool returns a new table for a tool; nil is no room for one.
func (s *tables) addTool(name string) *table {
	if len(name) > maxToolName || s.toolPages >= maxToolPages {
		return nil
	}
	tools := map[string]*table{}
	if old := s.tools.Load(); old != nil {
		maps.Copy(tools, *old)
	}
	t := &table{}
	tools[name] = t
	s.tools.Store(&tools)
	return t
}

// addPage returns a new page for t; nil is no room for one. The table for all
// tools finds room always.
func (s *tables) addPage(t *table) *page {
	if t != &s.all {
		if s.toolPages >= maxToolPages {
			return nil
		}
		s.toolPages++
	}
	s.pages++
	return new(page)
}
