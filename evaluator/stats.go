package evaluator

import "unsafe"

// Stats are counts of what an [Evaluator] has compiled so far.
type Stats struct {
	Compiled    int    `json:"compiled"`      // cells of calls that are answered without OPA
	Interpreted int    `json:"interpreted"`   // cells of calls that OPA decides each time
	Tools       int    `json:"tools"`         // tools with a table of their own
	Evaluations uint64 `json:"evaluations"`   // calls that were left to OPA and that it decided
	Bytes       int    `json:"bytes"`         // memory of tables and answers
	Full        bool   `json:"full"`          // a bound is reached: some calls stay with OPA for want of room
	Off         string `json:"off,omitempty"` // why nothing is compiled; "" if something may be
}

// Stats counts what was compiled so far. It goes through all tables.
func (e *Evaluator) Stats() Stats {
	m := e.compiled
	s := Stats{Evaluations: m.misses.Load()}
	if p := m.planned.Load(); p != nil && p.err != nil {
		s.Off = p.err.Error()
	}
	if m.off.Load() {
		s.Off = "the plan of the policies said of one call another thing than OPA"
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s.Full = m.full
	s.Bytes = m.bytes + m.pages*int(unsafe.Sizeof(page{})) + int(unsafe.Sizeof(*m))
	s.count(&m.all)
	if tools := m.tools.Load(); tools != nil {
		s.Tools = len(*tools)
		s.Bytes += len(*tools) * (int(unsafe.Sizeof(table{})) + 2*maxToolName)
		for _, t := range *tools {
			s.count(t)
		}
	}
	return s
}

func (s *Stats) count(t *table) {
	for i := range t.pages {
		p := t.pages[i].Load()
		if p == nil {
			continue
		}
		for j := range p {
			switch c := p[j].Load(); {
			case c == nil || c.byTool:
			case c.decided:
				s.Compiled++
			default:
				s.Interpreted++
			}
		}
	}
}
