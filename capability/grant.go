package capability

import "strconv"

// Taint says whether untrusted content has entered the conversation
// (specification, section 4). The zero Taint is invalid and grants nothing.
type Taint uint8

// The two states of a conversation.
const (
	Clean Taint = iota + 1
	Tainted
)

// ParseTaint returns the taint with that wire name, and whether there is one.
func ParseTaint(name string) (Taint, bool) {
	switch name {
	case "clean":
		return Clean, true
	case "tainted":
		return Tainted, true
	}
	return 0, false
}

// Valid reports whether t is Clean or Tainted.
func (t Taint) Valid() bool { return t == Clean || t == Tainted }

// String returns the wire name of t, or Taint(N) if t is not valid.
func (t Taint) String() string {
	switch t {
	case Clean:
		return "clean"
	case Tainted:
		return "tainted"
	}
	return "Taint(" + strconv.Itoa(int(t)) + ")"
}

// A Grant is the operator's policy for a conversation. The zero Grant grants
// nothing; a wire document without one means [DefaultGrant].
type Grant struct {
	Base    Set      // what the operator grants; markers and unknown bits count for nothing
	Unknown []string // names of the operator's list that grant nothing, to be reported
}

// DefaultGrant is the operator policy of a document that states none: [All].
func DefaultGrant() Grant { return Grant{Base: All} }

// ParseGrant reads an operator's list of capability names; see [Parse].
func ParseGrant(names []string) Grant {
	base, unknown := Parse(names)
	return Grant{Base: base, Unknown: unknown}
}

// Under returns what is granted at the moment the conversation's taint is t
// (specification, section 4). Ask anew for each call: taint can enter in the
// middle of a turn. For every base, what is granted under Tainted is a subset
// of what is granted under Clean. An invalid taint grants nothing.
func (g Grant) Under(t Taint) Set {
	grantable := g.Base & grantableBits
	switch t {
	case Clean:
		return grantable
	case Tainted:
		return grantable &^ Set(ArbitraryEgress|MutateExternal)
	default:
		return 0
	}
}
