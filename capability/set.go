package capability

import (
	"iter"
	"math/bits"
	"strings"
)

// A Set is a set of capabilities as a 16-bit mask (specification, section 1).
// The zero Set is empty. A Set may hold bits that this taxonomy does not know:
// the algebra keeps them, so they can be missing but are never named.
type Set uint16

// SetOf returns the set of the given capabilities.
func SetOf(capabilities ...Capability) Set {
	var s Set
	for _, c := range capabilities {
		s |= Set(c)
	}
	return s
}

// Mask returns the wire form of s.
func (s Set) Mask() uint16 { return uint16(s) }

// Empty reports whether s has no member.
func (s Set) Empty() bool { return s == 0 }

// Len returns the number of members.
func (s Set) Len() int { return bits.OnesCount16(uint16(s)) }

// Has reports whether c is a member of s. No set has the zero Capability.
func (s Set) Has(c Capability) bool { return c != 0 && s&Set(c) == Set(c) }

// Union returns the capabilities in s, in t or in both.
func (s Set) Union(t Set) Set { return s | t }

// Intersect returns the capabilities in both s and t.
func (s Set) Intersect(t Set) Set { return s & t }

// Minus returns the capabilities in s that are not in t.
func (s Set) Minus(t Set) Set { return s &^ t }

// SubsetOf reports whether every member of s is in t.
func (s Set) SubsetOf(t Set) bool { return s&^t == 0 }

// All yields the members of s in bit order.
func (s Set) All() iter.Seq[Capability] {
	return func(yield func(Capability) bool) {
		for rest := uint16(s); rest != 0; rest &= rest - 1 {
			if !yield(Capability(rest & -rest)) {
				return
			}
		}
	}
}

// CoverageNames lists the grantable members of s in the order of [All]: what
// an approval covers. [Parse] is its inverse.
func (s Set) CoverageNames() []string {
	return s.names(func(d Definition) bool { return d.Grantable })
}

// DisplayNames lists every known member of s in bit order, markers included:
// what a person is shown. It is never nil.
func (s Set) DisplayNames() []string {
	return s.names(func(Definition) bool { return true })
}

func (s Set) names(keep func(Definition) bool) []string {
	names := make([]string, 0, s.Len())
	for _, d := range taxonomy {
		if s.Has(d.Capability) && keep(d) {
			names = append(names, d.Name)
		}
	}
	return names
}

// String lists the display names, separated by commas; "none" if there are none.
func (s Set) String() string {
	if names := s.DisplayNames(); len(names) > 0 {
		return strings.Join(names, ", ")
	}
	return "none"
}
