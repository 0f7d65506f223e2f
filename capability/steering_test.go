package capability_test

import (
	"reflect"
	"slices"
	"testing"

	. "github.com/opa-gate/opa-gate/capability"
)

// overFacts visits every combination of facts, values that are not valid among
// them.
func overFacts(visit func(s Steering)) {
	for session := range Taint(4) {
		for origin := range Origin(10) {
			for effect := range Effect(6) {
				for aim := range Aim(5) {
					for payload := range Payload(6) {
						visit(Steering{session, "send", Profile{Origin: origin}, effect, aim, payload})
					}
				}
			}
		}
	}
}

// The conditions as they are documented, each stated on its own.
func TestSeen(t *testing.T) {
	n := 0
	overFacts(func(s Steering) {
		for r := range Relaxations(8) {
			n++
			placed := slices.Contains([]Origin{LocalSandbox, FirstParty, RegisteredConnector}, s.Profile.Origin)
			sent := (placed || s.Profile.Origin == Fetcher) && s.Effect == Outside && s.Aim == TypedAim
			relaxed := r&RelaxOwnUndoable != 0 && placed && s.Effect == OwnUndoable ||
				r&RelaxTypedCall != 0 && sent && (s.Payload == TypedPayload || s.Payload == InertPayload) ||
				r&RelaxTypedAim != 0 && sent && slices.Contains([]Payload{PlainPayload, InertPayload, TypedPayload}, s.Payload)
			want := Tainted
			if s.Session == Clean || s.Session == Tainted && relaxed {
				want = Clean
			}
			if got := s.Seen(r); got != want {
				t.Errorf("%+v with %v sees %v, want %v", s, r.Names(), got, want)
			}
		}
	})
	if n != 4*10*6*5*6*8 {
		t.Errorf("%d looked at", n)
	}
}

// What must hold of every relaxation, whatever its conditions are.
func TestSeenNeverExceeds(t *testing.T) {
	overFacts(func(s Steering) {
		for r := range Relaxations(8) {
			seen := s.Seen(r)
			call := Call{Tool: "send", Profile: s.Profile, Grant: DefaultGrant(), Taint: seen}
			if s.Session != Tainted {
				continue
			}
			if !call.Profile.Required().Intersect(Markers).Empty() && call.Decide("").Kind != Escalate {
				t.Errorf("%+v: a marker does not ask", s)
			}
			if seen != Clean {
				continue
			}
			switch {
			case r == 0:
				t.Errorf("%+v is relaxed by nothing", s)
			case s.Effect == Access || s.Effect == OwnLasting || s.Effect == UnknownEffect:
				t.Errorf("%+v is relaxed", s)
			case s.Effect == Outside && s.Aim != TypedAim:
				t.Errorf("%+v is relaxed, and nobody typed where it goes", s)
			case s.Profile.Origin == Unknown:
				t.Errorf("%+v is relaxed", s)
			}
		}
	})
}

func TestFactNames(t *testing.T) {
	names := func(n int, name func(i int) string) (all []string) {
		for i := range n {
			all = append(all, name(i))
		}
		return all
	}
	for _, test := range []struct{ got, want []string }{
		{names(6, func(i int) string { return Effect(i).String() }),
			[]string{"unknown", "own-undoable", "own-lasting", "outside", "access", "Effect(5)"}},
		{names(5, func(i int) string { return Aim(i).String() }),
			[]string{"unknown", "none", "untyped", "typed", "Aim(4)"}},
		{names(6, func(i int) string { return Payload(i).String() }),
			[]string{"unknown", "untyped", "plain", "inert", "typed", "Payload(5)"}},
		{AllRelaxations.Names(), []string{"own-undoable", "typed-call", "typed-aim"}},
		{Relaxations(0).Names(), []string{}},
	} {
		if !reflect.DeepEqual(test.got, test.want) {
			t.Errorf("%q, want %q", test.got, test.want)
		}
	}
	for _, e := range Effects() {
		if got, ok := ParseEffect(e.String()); got != e || !ok {
			t.Errorf("%v is read as %v, %v", e, got, ok)
		}
	}
	for _, a := range Aims() {
		if got, ok := ParseAim(a.String()); got != a || !ok {
			t.Errorf("%v is read as %v, %v", a, got, ok)
		}
	}
	for _, p := range Payloads() {
		if got, ok := ParsePayload(p.String()); got != p || !ok {
			t.Errorf("%v is read as %v, %v", p, got, ok)
		}
	}
	for _, name := range []string{"", "Typed", "unknown "} {
		if _, ok := ParseEffect(name); ok {
			t.Errorf("%q is an effect", name)
		}
		if _, ok := ParseAim(name); ok {
			t.Errorf("%q is an aim", name)
		}
		if _, ok := ParsePayload(name); ok {
			t.Errorf("%q is a payload", name)
		}
	}
}
