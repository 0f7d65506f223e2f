package agent

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Over returns c with one entry more, which what c states of the same pattern
// goes over. The pattern is a name, or a beginning of names with * at its end.
func (c *Catalogue) Over(t Tool) *Catalogue {
	out := *c
	if prefix := strings.HasSuffix(t.Pattern, "*"); !prefix {
		if _, stated := c.tools[t.Pattern]; !stated {
			out.tools = maps.Clone(c.tools)
			out.tools[t.Pattern] = t
		}
		return &out
	}
	if slices.ContainsFunc(c.prefixes, func(own Tool) bool { return own.Pattern == t.Pattern }) {
		return &out
	}
	out.prefixes = append(slices.Clone(c.prefixes), t)
	slices.SortStableFunc(out.prefixes, func(a, b Tool) int { return cmp.Compare(len(b.Pattern), len(a.Pattern)) })
	return &out
}
