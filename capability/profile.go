package capability

import "strconv"

// An Origin says where a tool comes from (specification, section 2). It is the
// operator's statement; a tool or a connector can never assert it.
type Origin uint8

// The origins. The zero Origin is Unknown, which requires everything.
const (
	Unknown Origin = iota
	LocalSandbox
	Fetcher
	FirstParty
	RegisteredConnector
	AccessGrant
	AccessRevoke
	AdminManage
	AdminGrant
)

var originNames = [...]string{
	Unknown:             "unknown",
	LocalSandbox:        "local-sandbox",
	Fetcher:             "fetcher",
	FirstParty:          "first-party",
	RegisteredConnector: "registered-connector",
	AccessGrant:         "access-grant",
	AccessRevoke:        "access-revoke",
	AdminManage:         "admin-manage",
	AdminGrant:          "admin-grant",
}

// Origins returns the nine origins in the order of their values.
func Origins() []Origin {
	all := make([]Origin, len(originNames))
	for i := range all {
		all[i] = Origin(i)
	}
	return all
}

// ParseOrigin returns the origin with that wire name, and whether there is one.
func ParseOrigin(name string) (Origin, bool) {
	for i, n := range originNames {
		if n == name {
			return Origin(i), true
		}
	}
	return Unknown, false
}

// Valid reports whether o is one of the nine origins.
func (o Origin) Valid() bool { return int(o) < len(originNames) }

// String returns the wire name of o, or Origin(N) if o is not valid.
func (o Origin) String() string {
	if o.Valid() {
		return originNames[o]
	}
	return "Origin(" + strconv.Itoa(int(o)) + ")"
}

// A Hint is one MCP-style annotation: given as false, given as true, or left
// out. The zero Hint is Unset, which takes MCP's default for that annotation.
type Hint uint8

// The states of a Hint.
const (
	Unset Hint = iota
	No
	Yes
)

// HintOf returns the Hint that gives b.
func HintOf(b bool) Hint {
	if b {
		return Yes
	}
	return No
}

// Valid reports whether h is one of the three states.
func (h Hint) Valid() bool { return h <= Yes }

// or resolves h, with def standing in when it is left out.
func (h Hint) or(def bool) bool {
	switch h {
	case Yes:
		return true
	case No:
		return false
	default:
		return def
	}
}

// A Profile is what the gate knows of a tool: its origin, stated by the
// operator, and the three annotations, claimed by the tool.
type Profile struct {
	Origin      Origin
	ReadOnly    Hint
	Destructive Hint
	OpenWorld   Hint
}

// IsReadOnly resolves the read_only annotation; left out it is false.
func (p Profile) IsReadOnly() bool { return p.ReadOnly.or(false) }

// IsDestructive resolves the destructive annotation; left out it is true
// unless the tool is read-only. A value that is given is taken as given, even
// beside read_only (specification, section 2).
func (p Profile) IsDestructive() bool { return p.Destructive.or(!p.IsReadOnly()) }

// IsOpenWorld resolves the open_world annotation; left out it is true. It
// never changes what is required: it says that the tool's result may carry
// content of uncontrolled origin.
func (p Profile) IsOpenWorld() bool { return p.OpenWorld.or(true) }

// Contradicts reports whether the tool claims to be both read-only and
// destructive. Such a tool is treated as destructive.
func (p Profile) Contradicts() bool { return p.IsReadOnly() && p.IsDestructive() }

// Resolved returns p with every annotation given, MCP's defaults filled in.
func (p Profile) Resolved() Profile {
	return Profile{
		Origin:      p.Origin,
		ReadOnly:    HintOf(p.IsReadOnly()),
		Destructive: HintOf(p.IsDestructive()),
		OpenWorld:   HintOf(p.IsOpenWorld()),
	}
}

// Required returns the capabilities that a call of the tool needs
// (specification, section 2). An origin that is not valid requires what
// Unknown does.
func (p Profile) Required() Set {
	switch p.Origin {
	case LocalSandbox:
		if p.IsReadOnly() {
			return Set(LocalRead)
		}
		return Set(LocalRead) | Set(LocalWrite)
	case Fetcher:
		if p.IsDestructive() {
			return Set(ArbitraryEgress) | Set(MutateExternal)
		}
		return Set(ArbitraryEgress)
	case FirstParty, RegisteredConnector:
		if p.IsReadOnly() && !p.IsDestructive() {
			return Set(FixedConnectorRead)
		}
		return Set(FixedConnectorRead) | Set(MutateExternal)
	case AccessGrant:
		return Set(GrantAccess)
	case AccessRevoke:
		return Set(RevokeAccess)
	case AdminManage:
		return Set(ManageAdmin)
	case AdminGrant:
		return Set(GrantAdmin)
	default:
		return All
	}
}

// Redeclare returns what the gate believes of a tool whose server declares it
// anew as next in the middle of a conversation (specification, section 2). The
// origin stays, and the annotations only tighten, so the result requires
// everything that p did. All its annotations are given.
func (p Profile) Redeclare(next Profile) Profile {
	return Profile{
		Origin:      p.Origin,
		ReadOnly:    HintOf(p.IsReadOnly() && next.IsReadOnly()),
		Destructive: HintOf(p.IsDestructive() || next.IsDestructive()),
		OpenWorld:   HintOf(p.IsOpenWorld() || next.IsOpenWorld()),
	}
}

// WebSearchGrounding is the provider-side search's name in decisions. It never
// appears as a tool call.
const WebSearchGrounding = "web_search_grounding"

// Grounding returns the profile under which a provider-side search is decided:
// it requires arbitrary-egress alone (specification, section 1) and takes the
// same road as every call.
func Grounding() Profile {
	return Profile{Origin: Fetcher, ReadOnly: Yes, Destructive: No, OpenWorld: Yes}
}
