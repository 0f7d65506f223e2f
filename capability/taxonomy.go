package capability

import (
	"math/bits"
	"slices"
	"strconv"
)

// A Capability is one thing a tool call may do: a single bit of a [Set]
// (specification, section 1). A value that is not exactly one known bit is not
// a capability; [Capability.Known] tells.
type Capability uint16

// The capabilities. Their bits are wire values and never change meaning: a
// mask written under an older, shorter taxonomy stays valid.
const (
	LocalRead          Capability = 1 << iota // read inside the conversation's sandbox
	LocalWrite                                // write inside the sandbox, destructive or not
	FixedConnectorRead                        // call an endpoint the operator vouched for
	ArbitraryEgress                           // send bytes to a destination the model chose
	MutateExternal                            // a side effect outside the sandbox
	GrantAccess                               // let a third party into the system
	RevokeAccess                              // remove a third party from the system
	ManageAdmin                               // take an admin role away
	GrantAdmin                                // give an admin role
)

// A Definition is one row of the taxonomy. A capability that is not grantable
// is a marker: it can be required, and no configuration can grant it.
type Definition struct {
	Capability Capability
	Name       string // the wire name
	Grantable  bool   // false for a marker
}

// taxonomy lists the capabilities in bit order, which is also the order of
// both name listings. A new capability is one more row here and a requirement
// that some origin gains in profile.go; Decide does not change.
var taxonomy = []Definition{
	{LocalRead, "local-read", true},
	{LocalWrite, "local-write", true},
	{FixedConnectorRead, "fixed-connector-read", true},
	{ArbitraryEgress, "arbitrary-egress", true},
	{MutateExternal, "mutate-external", true},
	{GrantAccess, "grant-access", false},
	{RevokeAccess, "revoke-access", false},
	{ManageAdmin, "manage-admin", false},
	{GrantAdmin, "grant-admin", false},
}

// grantableBits is the grantable part of the taxonomy, computed once.
var grantableBits = grantableOf(taxonomy)

func grantableOf(defs []Definition) Set {
	var s Set
	for _, d := range defs {
		if d.Grantable {
			s |= Set(d.Capability)
		}
	}
	return s
}

// All is every grantable capability (mask 31): the default operator policy.
const All = Set(LocalRead) | Set(LocalWrite) | Set(FixedConnectorRead) | Set(ArbitraryEgress) | Set(MutateExternal)

// Markers is every capability that can be required but never granted.
const Markers = Set(GrantAccess) | Set(RevokeAccess) | Set(ManageAdmin) | Set(GrantAdmin)

// Taxonomy returns the capabilities in bit order. The caller owns the slice.
func Taxonomy() []Definition { return slices.Clone(taxonomy) }

// Known reports whether c is exactly one capability of the taxonomy.
func (c Capability) Known() bool {
	_, ok := lookup(c)
	return ok
}

// Grantable reports whether an operator can grant c. Markers and unknown bits
// are not grantable.
func (c Capability) Grantable() bool {
	d, ok := lookup(c)
	return ok && d.Grantable
}

// String returns the wire name of c, or Capability(N) if c is not known.
func (c Capability) String() string {
	if d, ok := lookup(c); ok {
		return d.Name
	}
	return "Capability(" + strconv.Itoa(int(c)) + ")"
}

func lookup(c Capability) (Definition, bool) {
	if bits.OnesCount16(uint16(c)) == 1 {
		if i := bits.TrailingZeros16(uint16(c)); i < len(taxonomy) {
			return taxonomy[i], true
		}
	}
	return Definition{}, false
}

// Parse reads a list of capability names as a grant: the set of the grantable
// ones, and, in the order given, every name that grants nothing. A marker's
// name is among the latter, like a typo: no list of grants can contain one
// (specification, section 1).
//
// Parse is the inverse of [Set.CoverageNames] on sets of grantable
// capabilities.
func Parse(names []string) (Set, []string) {
	var set Set
	var unknown []string
next:
	for _, name := range names {
		for _, d := range taxonomy {
			if d.Grantable && d.Name == name {
				set |= Set(d.Capability)
				continue next
			}
		}
		unknown = append(unknown, name)
	}
	return set, unknown
}
