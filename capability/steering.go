package capability

import "strconv"

// Steering is what is known of one call beyond its tool, in a session that outside
// content may be in: what a finer policy on taint decides over. Every member has a
// closed set of values, the zero one of which says that nothing is known.
//
// The facts are computed from the call's arguments and what the person typed, by
// package agent/steering; the policy is optional (package optional).
type Steering struct {
	Session Taint   // of the session, before this call
	Tool    string  // the tool's name
	Profile Profile // of the tool
	Effect  Effect  // what the call changes, by the operator's word
	Aim     Aim     // where it goes, and how much: who wrote that
	Payload Payload // everything else in its arguments: who wrote that
}

// An Effect says what a call changes. It is the operator's statement of a tool;
// a tool can never assert it.
type Effect uint8

// The effects. The zero Effect is UnknownEffect, which nothing is relaxed for.
const (
	UnknownEffect Effect = iota
	OwnUndoable          // changes only what is the person's own, and a person can undo it
	OwnLasting           // changes only what is the person's own, and nobody can undo it
	Outside              // reaches others, at the places that its arguments name
	Access               // changes who gets in, or with which secret
)

// An Aim says who wrote the arguments that tell where a call goes, and how much
// goes there: addresses, accounts, amounts.
type Aim uint8

// The aims. The zero Aim is UnknownAim.
const (
	UnknownAim Aim = iota
	NoAim          // the call has no such argument
	UntypedAim     // at least one was not typed by the person
	TypedAim       // there is one, and the person typed each of them, verbatim
)

// A Payload says who wrote the rest of a call's arguments. Each value is
// stricter than the one before.
type Payload uint8

// The payloads. The zero Payload is UnknownPayload.
const (
	UnknownPayload Payload = iota
	UntypedPayload         // some text was not typed, and may hold an address
	PlainPayload           // some text was not typed, and none of that holds an address
	InertPayload           // whatever was not typed is a date, a time, true or false
	TypedPayload           // the person typed all of it, verbatim, or there is nothing
)

var (
	effectNames  = [...]string{"unknown", "own-undoable", "own-lasting", "outside", "access"}
	aimNames     = [...]string{"unknown", "none", "untyped", "typed"}
	payloadNames = [...]string{"unknown", "untyped", "plain", "inert", "typed"}
)

// Effects returns the effects in the order of their values.
func Effects() []Effect { return allOf[Effect](len(effectNames)) }

// Aims returns the aims in the order of their values.
func Aims() []Aim { return allOf[Aim](len(aimNames)) }

// Payloads returns the payloads in the order of their values.
func Payloads() []Payload { return allOf[Payload](len(payloadNames)) }

func allOf[T ~uint8](n int) []T {
	all := make([]T, n)
	for i := range all {
		all[i] = T(i)
	}
	return all
}

// ParseEffect returns the effect with that wire name, and whether there is one.
func ParseEffect(name string) (Effect, bool) { return parseName[Effect](effectNames[:], name) }

// ParseAim returns the aim with that wire name, and whether there is one.
func ParseAim(name string) (Aim, bool) { return parseName[Aim](aimNames[:], name) }

// ParsePayload returns the payload with that wire name, and whether there is one.
func ParsePayload(name string) (Payload, bool) { return parseName[Payload](payloadNames[:], name) }

func parseName[T ~uint8](names []string, name string) (T, bool) {
	for i, n := range names {
		if n == name {
			return T(i), true
		}
	}
	return 0, false
}

// Valid reports whether e is one of the five effects.
func (e Effect) Valid() bool { return int(e) < len(effectNames) }

// Valid reports whether a is one of the four aims.
func (a Aim) Valid() bool { return int(a) < len(aimNames) }

// Valid reports whether p is one of the five payloads.
func (p Payload) Valid() bool { return int(p) < len(payloadNames) }

// String returns the wire name of e, or Effect(N) if e is not valid.
func (e Effect) String() string { return nameOf("Effect", effectNames[:], uint8(e)) }

// String returns the wire name of a, or Aim(N) if a is not valid.
func (a Aim) String() string { return nameOf("Aim", aimNames[:], uint8(a)) }

// String returns the wire name of p, or Payload(N) if p is not valid.
func (p Payload) String() string { return nameOf("Payload", payloadNames[:], uint8(p)) }

func nameOf(kind string, names []string, v uint8) string {
	if int(v) < len(names) {
		return names[v]
	}
	return kind + "(" + strconv.Itoa(int(v)) + ")"
}

// Relaxations are the exceptions that a finer policy makes from the taint of a
// session. The zero value makes none.
type Relaxations uint8

// The relaxations; what each gives up stands beside it.
const (
	// RelaxOwnUndoable: a change of the person's own things that a person can undo
	// is not revoked. Outside content can then make such changes, which the person
	// finds later, and undoes.
	RelaxOwnUndoable Relaxations = 1 << iota

	// RelaxTypedCall: a call that reaches others is not revoked if the person typed
	// where it goes and every text in it. Outside content can then still choose
	// whether such a call is made, when, how often, with which dates, and which of the
	// typed texts goes into which argument.
	RelaxTypedCall

	// RelaxTypedAim: the same if the person typed where it goes, and no address that
	// the person did not type is in the rest. Outside content can then word what is
	// sent to those whom the person named, and put into it what the agent knows.
	RelaxTypedAim
)

// AllRelaxations makes every exception.
const AllRelaxations = RelaxOwnUndoable | RelaxTypedCall | RelaxTypedAim

var relaxationNames = [...]string{"own-undoable", "typed-call", "typed-aim"}

// Names returns the wire names of the relaxations in r, in their order.
func (r Relaxations) Names() []string {
	names := []string{}
	for i, name := range relaxationNames {
		if r&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// Has reports whether every relaxation of other is in r.
func (r Relaxations) Has(other Relaxations) bool { return r&other == other }

// Seen is the native reference of the optional policy: the taint under which the
// call is decided. Without relaxations it is that of the session. The result is
// Tainted for a session that is neither clean nor tainted.
//
// Nothing is relaxed for a tool of unknown origin, for one that changes who has
// access, by its origin or by its effect, and for a fact that is not known. What is
// seen as Clean is still decided like any call of a clean session: no relaxation
// grants anything that the operator does not.
func (s *Steering) Seen(r Relaxations) Taint {
	if s.Session == Clean {
		return Clean
	}
	if s.Session != Tainted {
		return Tainted
	}
	switch s.Profile.Origin {
	case LocalSandbox, Fetcher, FirstParty, RegisteredConnector:
	default:
		return Tainted
	}
	own := s.Effect == OwnUndoable && s.Profile.Origin != Fetcher
	aimed := s.Effect == Outside && s.Aim == TypedAim
	switch {
	case r.Has(RelaxOwnUndoable) && own,
		r.Has(RelaxTypedCall) && aimed && (s.Payload == InertPayload || s.Payload == TypedPayload),
		r.Has(RelaxTypedAim) && aimed && (s.Payload == PlainPayload || s.Payload == InertPayload || s.Payload == TypedPayload):
		return Clean
	}
	return Tainted
}
