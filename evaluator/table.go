package evaluator

import (
	"maps"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/opa-gate/opa-gate/capability"
)

// The extent of a table. Origin and annotations choose a page; base, taint and
// verdict choose a cell on it.
const (
	origins    = 9 + 1                   // and left out
	hints      = 3                       // unset, no, yes
	bases      = int(capability.All) + 2 // the grantable capabilities have the lowest bits; and left out
	taints     = 2
	flags      = 2 // of the verdict: vetoed, a person required, sandbox escalation
	transforms = 3
	pageCount  = origins * hints * hints * hints
	pageCells  = bases * taints * flags * flags * flags * transforms
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

// placeOf returns the place of a valid call. Names that grant nothing are
// texts of a number that has no bound: calls with any have no place.
func placeOf(c *capability.Call) (at place, ok bool) {
	p, v := &c.Profile, &c.Policy
	origin, base := int(p.Origin), int(c.Grant.Base&capability.All)
	if c.LeftOut.Has(capability.OriginMember) {
		origin = origins - 1
	}
	if c.LeftOut.Has(capability.GrantMember) {
		base = bases - 1
	}
	at.page = ((origin*hints+int(p.ReadOnly))*hints+int(p.Destructive))*hints + int(p.OpenWorld)
	at.cell = base*taints + int(c.Taint-capability.Clean)
	at.cell = ((at.cell*flags+bit(v.Vetoed))*flags+bit(v.RequiresHuman))*flags + bit(v.SandboxEscalation)
	at.cell = at.cell*transforms + int(v.Transform.Kind)
	return at, len(c.Grant.Unknown) == 0
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
	if c.Profile.Origin = capability.Origin(page); page == origins-1 {
		c.Profile.Origin, c.LeftOut = capability.Unknown, capability.OriginMember
	}
	c.Policy.Transform.Kind = capability.TransformKind(next(&cell, transforms))
	if c.Policy.Transform.Kind == capability.Rewrite {
		c.Policy.Transform.Arguments = []byte("{}")
	}
	c.Policy.SandboxEscalation = next(&cell, flags) == 1
	c.Policy.RequiresHuman = next(&cell, flags) == 1
	c.Policy.Vetoed = next(&cell, flags) == 1
	c.Taint = capability.Clean + capability.Taint(next(&cell, taints))
	if c.Grant.Base = capability.Set(cell); cell == bases-1 {
		c.Grant.Base = capability.All
		c.LeftOut |= capability.GrantMember
	}
	return c
}

// get returns the cell at a place; nil is none yet.
func (t *table) get(at place) *cell {
	if p := t.pages[at.page].Load(); p != nil {
		return p[at.cell].Load()
	}
	return nil
}

// The tables of one evaluator: one for all tools, and one for each tool
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
	if found != nil && found.delegates(c.Tool) {
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

// wants reports whether the table of a tool lacks the cell at a place and has
// room for it.
func (s *tables) wants(at place, tool string) bool {
	if len(tool) > maxToolName {
		return false
	}
	t := s.tool(tool)
	if t != nil && t.pages[at.page].Load() != nil {
		return t.get(at) == nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.toolPages >= maxToolPages {
		s.full = true
		return false
	}
	return true
}

// put publishes a cell, in the table of that tool, or with "" in the one for
// all, and returns what stands there now: without room for its answer it is
// the cell that leaves calls to OPA.
func (s *tables) put(c *cell, at place, tool string) *cell {
	s.mu.Lock()
	defer s.mu.Unlock()
	c = s.share(c)
	t := &s.all
	if tool != "" {
		if t = s.tool(tool); t == nil {
			if s.toolPages >= maxToolPages {
				return nil
			}
			t = s.addTool(tool)
		}
	}
	p := t.pages[at.page].Load()
	if p == nil {
		if tool != "" {
			if s.toolPages >= maxToolPages {
				return nil
			}
			s.toolPages++
		}
		s.pages++
		p = new(page)
	}
	p[at.cell].Store(c)
	t.pages[at.page].Store(p)
	return c
}

// share returns the one cell with the answer of c, or, without room for another
// answer, the cell that leaves its calls to OPA.
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
		s.full = true
		return interpreted
	}
	if s.answers == nil {
		s.answers = map[string]*cell{}
	}
	s.answers[key] = c
	s.bytes += size
	return c
}

// addTool adds a table for a tool.
func (s *tables) addTool(name string) *table {
	tools := map[string]*table{}
	if old := s.tools.Load(); old != nil {
		maps.Copy(tools, *old)
	}
	t := &table{}
	tools[name] = t
	s.tools.Store(&tools)
	return t
}
