package capability

import "testing"

var hints = []Hint{Unset, No, Yes}

func TestOrigins(t *testing.T) {
	want := []string{
		"unknown", "local-sandbox", "fetcher", "first-party", "registered-connector",
		"access-grant", "access-revoke", "admin-manage", "admin-grant",
	}
	got := Origins()
	if len(got) != len(want) {
		t.Fatalf("%d origins", len(got))
	}
	for i, o := range got {
		back, ok := ParseOrigin(want[i])
		if o.String() != want[i] || back != o || !ok || !o.Valid() {
			t.Errorf("%d: %v, parsed %v", i, o, back)
		}
	}
	if o, ok := ParseOrigin("Fetcher"); ok || o != Unknown {
		t.Errorf("got %v", o)
	}
	if o := Origin(9); o.Valid() || o.String() != "Origin(9)" {
		t.Errorf("%v is valid", o)
	}
}

// What each origin requires with read_only and destructive given, by hand.
func TestRequired(t *testing.T) {
	type row struct{ neither, destructive, readOnly, both Set }
	wants := map[Origin]row{
		Unknown:             {31, 31, 31, 31},
		LocalSandbox:        {3, 3, 1, 1},
		Fetcher:             {8, 24, 8, 24},
		FirstParty:          {20, 20, 4, 20},
		RegisteredConnector: {20, 20, 4, 20},
		AccessGrant:         {32, 32, 32, 32},
		AccessRevoke:        {64, 64, 64, 64},
		AdminManage:         {128, 128, 128, 128},
		AdminGrant:          {256, 256, 256, 256},
		Origin(9):           {31, 31, 31, 31},
		Origin(255):         {31, 31, 31, 31},
	}
	for origin, want := range wants {
		for _, open := range hints {
			got := row{
				Profile{origin, No, No, open}.Required(),
				Profile{origin, No, Yes, open}.Required(),
				Profile{origin, Yes, No, open}.Required(),
				Profile{origin, Yes, Yes, open}.Required(),
			}
			if got != want {
				t.Errorf("%v, open_world %v: got %v, want %v", origin, open, got, want)
			}
		}
	}
}

// The 27 combinations of hints: what each means, by hand for the nine that
// matter to each other.
func TestHintDefaults(t *testing.T) {
	type meaning struct{ readOnly, destructive, contradicts bool }
	wants := map[[2]Hint]meaning{
		{Unset, Unset}: {false, true, false},
		{Unset, No}:    {false, false, false},
		{Unset, Yes}:   {false, true, false},
		{No, Unset}:    {false, true, false},
		{No, No}:       {false, false, false},
		{No, Yes}:      {false, true, false},
		{Yes, Unset}:   {true, false, false},
		{Yes, No}:      {true, false, false},
		{Yes, Yes}:     {true, true, true},
	}
	for pair, want := range wants {
		for open, wantOpen := range map[Hint]bool{Unset: true, No: false, Yes: true} {
			p := Profile{Fetcher, pair[0], pair[1], open}
			got := meaning{p.IsReadOnly(), p.IsDestructive(), p.Contradicts()}
			if got != want || p.IsOpenWorld() != wantOpen {
				t.Errorf("%v: got %v, open_world %v", p, got, p.IsOpenWorld())
			}
			r := p.Resolved()
			if r != (Profile{Fetcher, HintOf(want.readOnly), HintOf(want.destructive), HintOf(wantOpen)}) {
				t.Errorf("%v resolves to %v", p, r)
			}
		}
	}
	if Hint(3).Valid() || !Yes.Valid() {
		t.Error("Hint.Valid")
	}
}

func profiles() []Profile {
	var all []Profile
	for _, o := range Origins() {
		for _, r := range hints {
			for _, d := range hints {
				for _, w := range hints {
					all = append(all, Profile{o, r, d, w})
				}
			}
		}
	}
	return all
}

func TestRedeclareOnlyTightens(t *testing.T) {
	all := profiles()
	if len(all) != 9*27 {
		t.Fatalf("%d profiles", len(all))
	}
	for _, old := range all {
		for _, next := range all {
			got := old.Redeclare(next)
			if !old.Required().SubsetOf(got.Required()) {
				t.Fatalf("%v then %v: %v requires %v", old, next, got, got.Required())
			}
			want := Profile{
				old.Origin,
				HintOf(old.IsReadOnly() && next.IsReadOnly()),
				HintOf(old.IsDestructive() || next.IsDestructive()),
				HintOf(old.IsOpenWorld() || next.IsOpenWorld()),
			}
			if got != want {
				t.Fatalf("%v then %v: got %v, want %v", old, next, got, want)
			}
		}
	}
}

func TestGrounding(t *testing.T) {
	if got := Grounding().Required(); got != 8 || WebSearchGrounding != "web_search_grounding" {
		t.Errorf("%s requires %v", WebSearchGrounding, got)
	}
	c := Call{Tool: WebSearchGrounding, Profile: Grounding(), Grant: DefaultGrant(), Taint: Clean}
	if got := c.Decide("").Kind; got != Allow {
		t.Errorf("clean: %v", got)
	}
	c.Taint = Tainted
	if got := c.Decide(""); got.Kind != Escalate || got.Missing != 8 {
		t.Errorf("tainted: %v, missing %v", got.Kind, got.Missing)
	}
}

func TestGrantUnder(t *testing.T) {
	for base := range 1 << 16 {
		g := Grant{Base: Set(base)}
		clean, tainted := g.Under(Clean), g.Under(Tainted)
		if clean != Set(base&31) || tainted != Set(base&7) {
			t.Fatalf("%d: clean %d, tainted %d", base, clean, tainted)
		}
		if !tainted.SubsetOf(clean) || !clean.SubsetOf(g.Base) {
			t.Fatalf("%d: not monotone", base)
		}
		for _, invalid := range []Taint{0, 3, 255} {
			if got := g.Under(invalid); !got.Empty() {
				t.Fatalf("%d: %v grants %v", base, invalid, got)
			}
		}
	}
	if got := DefaultGrant().Under(Clean); got != 31 {
		t.Errorf("the default grants %d", got)
	}
	if got := (Grant{}).Under(Clean); !got.Empty() {
		t.Errorf("the zero grant grants %d", got)
	}
}

func TestTaintNames(t *testing.T) {
	for taint, name := range map[Taint]string{Clean: "clean", Tainted: "tainted"} {
		got, ok := ParseTaint(name)
		if got != taint || !ok || taint.String() != name || !taint.Valid() {
			t.Errorf("%v: parsed %v", taint, got)
		}
	}
	for _, name := range []string{"", "Clean", "unknown"} {
		if got, ok := ParseTaint(name); ok || got.Valid() {
			t.Errorf("%q is %v", name, got)
		}
	}
	if got := Taint(0).String(); got != "Taint(0)" {
		t.Errorf("got %q", got)
	}
}
