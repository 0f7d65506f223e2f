package capability

import (
	"math/bits"
	"slices"
	"testing"
)

var wantTaxonomy = []Definition{
	{1, "local-read", true},
	{2, "local-write", true},
	{4, "fixed-connector-read", true},
	{8, "arbitrary-egress", true},
	{16, "mutate-external", true},
	{32, "grant-access", false},
	{64, "revoke-access", false},
	{128, "manage-admin", false},
	{256, "grant-admin", false},
}

func TestTaxonomy(t *testing.T) {
	if got := Taxonomy(); !slices.Equal(got, wantTaxonomy) {
		t.Errorf("got %v, want %v", got, wantTaxonomy)
	}
	for _, d := range wantTaxonomy {
		c := d.Capability
		if !c.Known() || c.Grantable() != d.Grantable || c.String() != d.Name {
			t.Errorf("%v: known %v, grantable %v", c, c.Known(), c.Grantable())
		}
	}
	for _, c := range []Capability{0, 3, 31, 512, 1 << 15} {
		if c.Known() || c.Grantable() {
			t.Errorf("%d is a capability", uint16(c))
		}
	}
	if got := Capability(512).String(); got != "Capability(512)" {
		t.Errorf("got %s", got)
	}
	if All != 31 || Markers != 480 || grantableBits != All {
		t.Errorf("All %d, Markers %d, grantable %d", All, Markers, grantableBits)
	}
	Taxonomy()[0].Name = "mine"
	if LocalRead.String() != "local-read" {
		t.Error("the caller's slice is the taxonomy itself")
	}
}

func TestParse(t *testing.T) {
	tests := []struct {
		name    string
		in      []string
		want    Set
		unknown []string
	}{
		{"nil", nil, 0, nil},
		{"all", []string{"local-read", "local-write", "fixed-connector-read", "arbitrary-egress", "mutate-external"}, 31, nil},
		{"any order", []string{"mutate-external", "local-read"}, 17, nil},
		{"duplicates", []string{"local-read", "local-read"}, 1, nil},
		{"unknown, in order, each time", []string{"z", "local-read", "", "z"}, 1, []string{"z", "", "z"}},
		{"case and space matter", []string{"Local-Read", " local-read"}, 0, []string{"Local-Read", " local-read"}},
		{"markers", []string{"grant-access", "revoke-access", "manage-admin", "grant-admin"}, 0,
			[]string{"grant-access", "revoke-access", "manage-admin", "grant-admin"}},
		{"all is no name", []string{"all", "31"}, 0, []string{"all", "31"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, unknown := Parse(tt.in)
			if got != tt.want || !slices.Equal(unknown, tt.unknown) {
				t.Errorf("got %d %q, want %d %q", got, unknown, tt.want, tt.unknown)
			}
		})
	}
}

func TestParseIsTheInverseOfCoverageNames(t *testing.T) {
	for s := range All + 1 {
		got, unknown := Parse(s.CoverageNames())
		if got != s || len(unknown) > 0 {
			t.Errorf("%d: got %d %q", s, got, unknown)
		}
	}
	for s := range Set(512) {
		if got, _ := Parse(s.CoverageNames()); got != s&All {
			t.Errorf("%d: coverage %d", s, got)
		}
	}
}

func TestDisplayNames(t *testing.T) {
	for s := range Set(1024) {
		want := []string{}
		for i, d := range wantTaxonomy {
			if s>>i&1 == 1 {
				want = append(want, d.Name)
			}
		}
		if got := s.DisplayNames(); got == nil || !slices.Equal(got, want) {
			t.Fatalf("%d: got %q, want %q", s, got, want)
		}
	}
	if got := Set(0).String(); got != "none" {
		t.Errorf("got %q", got)
	}
	if got := Set(33).String(); got != "local-read, grant-access" {
		t.Errorf("got %q", got)
	}
}

// Masks written under the first eight capabilities keep their meaning.
func TestMasksOfTheOlderTaxonomy(t *testing.T) {
	fixtures := map[Set]string{
		0:   "none",
		7:   "local-read, local-write, fixed-connector-read",
		24:  "arbitrary-egress, mutate-external",
		96:  "grant-access, revoke-access",
		128: "manage-admin",
		255: "local-read, local-write, fixed-connector-read, arbitrary-egress, mutate-external, " +
			"grant-access, revoke-access, manage-admin",
	}
	for mask, want := range fixtures {
		if got := mask.String(); got != want {
			t.Errorf("%d: got %q, want %q", mask, got, want)
		}
	}
}

func TestSetAlgebra(t *testing.T) {
	for s := range Set(512) {
		if got := SetOf(slices.Collect(s.All())...); got != s {
			t.Fatalf("%d: its members are %d", s, got)
		}
		if s.Len() != bits.OnesCount16(s.Mask()) || s.Empty() != (s == 0) {
			t.Fatalf("%d: length %d, empty %v", s, s.Len(), s.Empty())
		}
		for u := range Set(512) {
			union, both, rest := s.Union(u), s.Intersect(u), s.Minus(u)
			switch {
			case union != u.Union(s), both != u.Intersect(s):
				t.Fatalf("%d %d: not commutative", s, u)
			case rest.Union(both) != s, !rest.Intersect(u).Empty():
				t.Fatalf("%d %d: minus and intersection do not part the set", s, u)
			case rest.Union(u) != union:
				t.Fatalf("%d %d: minus and union disagree", s, u)
			case s.SubsetOf(u) != rest.Empty(), s.SubsetOf(u) != (union == u):
				t.Fatalf("%d %d: subset", s, u)
			}
		}
	}
}

func TestHas(t *testing.T) {
	for s := range Set(512) {
		for i, d := range wantTaxonomy {
			if s.Has(d.Capability) != (s>>i&1 == 1) {
				t.Fatalf("%d has %v", s, d.Name)
			}
		}
		if s.Has(0) {
			t.Fatalf("%d has the zero capability", s)
		}
	}
	for range SetOf(LocalRead, LocalWrite).All() {
		break // a caller may stop early
	}
}

// A tenth capability is one row. It parses, has a name, is granted and
// decided without a change to Decide.
func TestTenthCapability(t *testing.T) {
	const tenth Capability = 512
	for _, grantable := range []bool{true, false} {
		name := map[bool]string{true: "grantable", false: "marker"}[grantable]
		t.Run(name, func(t *testing.T) {
			old, oldBits := taxonomy, grantableBits
			t.Cleanup(func() { taxonomy, grantableBits = old, oldBits })
			taxonomy = append(slices.Clone(taxonomy), Definition{tenth, "print", grantable})
			grantableBits = grantableOf(taxonomy)

			g := ParseGrant([]string{"arbitrary-egress", "print"})
			wantBase, wantUnknown := Set(520), []string(nil)
			if !grantable {
				wantBase, wantUnknown = 8, []string{"print"}
			}
			if g.Base != wantBase || !slices.Equal(g.Unknown, wantUnknown) {
				t.Errorf("parsed %d %q", g.Base, g.Unknown)
			}
			required := Set(tenth) | Set(LocalRead)
			if got := required.DisplayNames(); !slices.Equal(got, []string{"local-read", "print"}) {
				t.Errorf("display names %q", got)
			}
			if got := len(required.CoverageNames()) == 2; got != grantable {
				t.Errorf("coverage names %q", required.CoverageNames())
			}
			base := Grant{Base: All | Set(tenth)}
			for _, taint := range []Taint{Clean, Tainted} {
				granted := base.Under(taint)
				if granted.Has(tenth) != grantable {
					t.Errorf("%v: granted %v", taint, granted)
				}
				got := Decide(required, granted, CallPolicy{}, "t")
				if grantable && got.Kind != Allow {
					t.Errorf("%v: %v", taint, got.Kind)
				}
				if !grantable && (got.Kind != Escalate || got.Missing != Set(tenth)) {
					t.Errorf("%v: %v, missing %v", taint, got.Kind, got.Missing)
				}
			}
			got := Decide(required, All, CallPolicy{}, "t")
			if got.Kind != Escalate || got.Missing != 512 ||
				got.Reason != `"t" needs more access than this conversation has.` {
				t.Errorf("not granted: %+v", got)
			}
			veto := Decide(required, All, CallPolicy{Vetoed: true}, "t")
			if veto.Kind != Deny {
				t.Errorf("vetoed: %v", veto.Kind)
			}
		})
	}
	if tenth.Known() || grantableBits != All {
		t.Error("the taxonomy was not restored")
	}
}
