package skill

import "strconv"

// A Source says who publishes a skill. The zero Source is UnknownSource.
type Source uint8

// The sources.
const (
	UnknownSource Source = iota
	Community
	FirstParty
	Official
)

var sourceNames = [...]string{
	UnknownSource: "unknown",
	Community:     "community",
	FirstParty:    "first_party",
	Official:      "official",
}

// ParseSource returns the source with that wire name, and whether there is one.
func ParseSource(name string) (Source, bool) {
	i, ok := index(sourceNames[:], name)
	return Source(i), ok
}

// String returns the wire name of s, or Source(N) if s is not valid.
func (s Source) String() string { return nameOf(sourceNames[:], uint8(s), "Source") }

// Provenance is what is known of a skill (specification, section 6). It must
// come from verifying, scanning and counting, never from what the skill says
// about itself.
type Provenance struct {
	Signed          bool   // the skill carries a valid signature
	SignerTrusted   bool   // the operator trusts the signer
	Scanned         bool   // a scanner has looked at it
	Vulnerabilities uint64 // what the scanner found
	SuccessCount    uint64
	FailCount       uint64
	Source          Source
}

// Degraded reports whether the skill failed clearly more often than it
// succeeded: fail_count > success_count + 2, exact over the whole 64-bit range.
func (p Provenance) Degraded() bool {
	return p.FailCount > p.SuccessCount && p.FailCount-p.SuccessCount > 2
}

// Trust is how far a skill is trusted. Values are ordered; the zero Trust is
// Untrusted.
type Trust uint8

// The trust tiers, lowest first.
const (
	Untrusted Trust = iota
	CommunityTrust
	Verified
	OfficialTrust
)

var trustNames = [...]string{
	Untrusted:      "untrusted",
	CommunityTrust: "community",
	Verified:       "verified",
	OfficialTrust:  "official",
}

// ParseTrust returns the trust tier with that wire name, and whether there is
// one.
func ParseTrust(name string) (Trust, bool) {
	i, ok := index(trustNames[:], name)
	return Trust(i), ok
}

// String returns the wire name of t, or Trust(N) if t is not valid.
func (t Trust) String() string { return nameOf(trustNames[:], uint8(t), "Trust") }

// Trust derives the trust tier; the first match of specification, section 6,
// wins.
func (p Provenance) Trust() Trust {
	switch {
	case p.Degraded(), p.Vulnerabilities > 0:
		return Untrusted
	case p.Signed && p.SignerTrusted && p.Scanned && p.Source == Official:
		return OfficialTrust
	case p.Signed && p.Scanned:
		return Verified
	case p.Scanned:
		return CommunityTrust
	default:
		return Untrusted
	}
}

// A Tier is how much a deployed skill may do. Values are ordered; the zero
// Tier is NoTier, which travels as null.
type Tier uint8

// The tiers, lowest first.
const (
	NoTier Tier = iota
	ReadOnly
	SandboxEdit
	FullAccess
)

var tierNames = [...]string{
	ReadOnly:    "read_only",
	SandboxEdit: "sandbox_edit",
	FullAccess:  "full_access",
}

// ParseTier returns the tier with that wire name, and whether there is one.
// NoTier has no name.
func ParseTier(name string) (Tier, bool) {
	i, ok := index(tierNames[ReadOnly:], name)
	if !ok {
		return NoTier, false
	}
	return ReadOnly + Tier(i), true
}

// Valid reports whether t is a tier that a skill can be deployed at.
func (t Tier) Valid() bool { return t >= ReadOnly && t <= FullAccess }

// String returns the wire name of t, or Tier(N) if t is not valid.
func (t Tier) String() string {
	if !t.Valid() {
		return "Tier(" + strconv.Itoa(int(t)) + ")"
	}
	return tierNames[t]
}

// MarshalJSON writes the wire name, and null for NoTier.
func (t Tier) MarshalJSON() ([]byte, error) {
	if !t.Valid() {
		return []byte("null"), nil
	}
	return strconv.AppendQuote(nil, t.String()), nil
}

// Ceiling returns the highest tier that a skill of this trust may run at, and
// NoTier where there is none.
func (t Trust) Ceiling() Tier {
	switch t {
	case OfficialTrust:
		return FullAccess
	case Verified:
		return SandboxEdit
	case CommunityTrust:
		return ReadOnly
	default:
		return NoTier
	}
}

func index(names []string, name string) (int, bool) {
	for i, n := range names {
		if n == name {
			return i, true
		}
	}
	return 0, false
}

func nameOf(names []string, i uint8, kind string) string {
	if int(i) < len(names) {
		return names[i]
	}
	return kind + "(" + strconv.Itoa(int(i)) + ")"
}
