package capability

import (
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// reasons is the list of specification, section 5, in its order.
var reasons = []struct {
	missing Set
	words   []string
}{
	{32, []string{"would let someone in", "confirm exactly who"}},
	{64, []string{"would remove someone's access", "confirm exactly who"}},
	{256, []string{"would make someone an admin"}},
	{128, []string{"would take away someone's admin role"}},
	{24, []string{"utside content", "this conversation", "could send", "change something beyond it"}},
	{8, []string{"heck", "could reach an outside address"}},
	{16, []string{"heck", "could change something beyond"}},
	{0, []string{"needs more access than this conversation has"}},
}

var internalTerms = regexp.MustCompile(`(?i)taint|egress|mutat|capabilit|mask|bit\b|marker|required|granted|` +
	`grant-|revoke-|manage-|local-|connector|escalat|veto`)

func TestReason(t *testing.T) {
	seen := map[string]bool{}
	for missing := range Set(512) {
		got := Reason(missing, "send_it", DefaultSystem)
		seen[got] = true
		for _, r := range reasons {
			if missing&r.missing != r.missing {
				continue
			}
			for _, w := range r.words {
				if !strings.Contains(got, w) {
					t.Fatalf("%d: %q lacks %q", missing, got, w)
				}
			}
			break
		}
		switch {
		case !strings.Contains(got, `"send_it"`):
			t.Fatalf("%q does not name the tool", got)
		case strings.Count(got, ".") != 1 || !strings.HasSuffix(got, "."):
			t.Fatalf("%q is not one sentence", got)
		case internalTerms.MatchString(got):
			t.Fatalf("%q uses the term %q", got, internalTerms.FindString(got))
		case missing&Markers != 0 && strings.Contains(strings.ToLower(got), "content"):
			t.Fatalf("%q is not about the act", got)
		}
	}
	if len(seen) != len(reasons) {
		t.Errorf("%d sentences, want %d", len(seen), len(reasons))
	}
	if got := Reason(32, "t", "Acme"); !strings.Contains(got, "into Acme,") {
		t.Errorf("%q does not name the system", got)
	}
}

func TestDecidePrecedence(t *testing.T) {
	rewrite := Transform{Kind: Rewrite, Arguments: json.RawMessage(`{"n":9007199254740993}`)}
	inject := Transform{Kind: InjectContext, Note: "n"}
	tests := []struct {
		name              string
		required, granted Set
		policy            CallPolicy
		want              Outcome
	}{
		{"allow", 9, 31, CallPolicy{}, Outcome{Kind: Allow}},
		{"nothing required", 0, 0, CallPolicy{}, Outcome{Kind: Allow}},
		{"modify", 9, 31, CallPolicy{Transform: rewrite}, Outcome{Kind: Modify, Arguments: rewrite.Arguments}},
		{"inject", 9, 31, CallPolicy{Transform: inject}, Outcome{Kind: Inject, Note: "n"}},
		{"inject an empty note", 9, 31, CallPolicy{Transform: Transform{Kind: InjectContext}}, Outcome{Kind: Inject}},
		{"human", 9, 31, CallPolicy{RequiresHuman: true}, Outcome{Kind: Escalate}},
		{"sandbox", 9, 31, CallPolicy{SandboxEscalation: true}, Outcome{Kind: Escalate}},
		{"human before transform", 9, 31, CallPolicy{RequiresHuman: true, Transform: rewrite}, Outcome{Kind: Escalate}},
		{"sandbox before transform", 9, 31, CallPolicy{SandboxEscalation: true, Transform: inject}, Outcome{Kind: Escalate}},
		{"missing", 9, 1, CallPolicy{}, Outcome{Kind: Escalate, Missing: 8, Reason: Reason(8, "t", DefaultSystem)}},
		{"missing before human", 9, 1, CallPolicy{RequiresHuman: true, SandboxEscalation: true},
			Outcome{Kind: Escalate, Missing: 8, Reason: Reason(8, "t", DefaultSystem)}},
		{"missing before transform", 24, 7, CallPolicy{Transform: rewrite},
			Outcome{Kind: Escalate, Missing: 24, Reason: Reason(24, "t", DefaultSystem)}},
		{"missing unknown bit", 1 << 15, 511, CallPolicy{},
			Outcome{Kind: Escalate, Missing: 1 << 15, Reason: Reason(1<<15, "t", DefaultSystem)}},
		{"veto", 9, 31, CallPolicy{Vetoed: true, Veto: "no"}, Outcome{Kind: Deny, Reason: "no"}},
		{"empty veto", 9, 31, CallPolicy{Vetoed: true}, Outcome{Kind: Deny}},
		{"veto before everything", 9, 1,
			CallPolicy{Vetoed: true, Veto: "no", RequiresHuman: true, SandboxEscalation: true, Transform: rewrite},
			Outcome{Kind: Deny, Reason: "no"}},
		{"text that nobody flagged", 9, 31, CallPolicy{Veto: "no"}, Outcome{Kind: Deny, Reason: "no"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.want.Required, tt.want.Granted = tt.required, tt.granted
			if got := Decide(tt.required, tt.granted, tt.policy, "t"); !got.Equal(tt.want) {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestInvalidTransformKindDenies(t *testing.T) {
	for kind := TransformKind(3); kind != 0; kind++ {
		got := Decide(1, 31, CallPolicy{Transform: Transform{Kind: kind}}, "t")
		if got.Kind != Deny || got.Reason == "" || kind.Valid() || kind.String() != "" {
			t.Fatalf("kind %d: %+v", kind, got)
		}
	}
}

func TestNames(t *testing.T) {
	for k, name := range map[Kind]string{
		Allow: "allow", Modify: "modify", Inject: "inject_context", Escalate: "escalate", Deny: "deny",
	} {
		if got, ok := ParseKind(name); got != k || !ok || k.String() != name || !k.Valid() {
			t.Errorf("%s: %v", name, got)
		}
	}
	for k, name := range map[TransformKind]string{NoTransform: "none", Rewrite: "rewrite", InjectContext: "inject_context"} {
		if got, ok := ParseTransformKind(name); got != k || !ok || k.String() != name || !k.Valid() {
			t.Errorf("%s: %v", name, got)
		}
	}
	if k, ok := ParseKind(""); ok || k.Valid() || k.String() != "Kind(0)" {
		t.Errorf("the empty name is %v", k)
	}
	if _, ok := ParseTransformKind(""); ok {
		t.Error("the empty name is a transform")
	}
}

func TestCallDecide(t *testing.T) {
	c := Call{
		Tool: "invite", Profile: Profile{Origin: AccessGrant},
		Grant: ParseGrant([]string{"grant-access", "x"}), Taint: Clean,
	}
	got := c.Decide("Acme")
	want := Outcome{
		Kind: Escalate, Missing: 32, Required: 32, Reason: Reason(32, "invite", "Acme"),
		Warnings: []string{`unknown capability "grant-access"`, `unknown capability "x"`},
	}
	if !got.Equal(want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := c.Decide("").Reason; got != Reason(32, "invite", "this system") {
		t.Errorf("no system: %q", got)
	}
	if got := (&Call{Tool: "t", Grant: DefaultGrant()}).Decide(""); got.Kind != Escalate || got.Missing != 31 {
		t.Errorf("no taint: %+v", got)
	}
}

func TestCallValidate(t *testing.T) {
	good := Call{Tool: "t", Taint: Clean}
	tests := []struct {
		name string
		edit func(*Call)
		ok   bool
	}{
		{"good", func(*Call) {}, true},
		{"tainted", func(c *Call) { c.Taint = Tainted }, true},
		{"no name", func(c *Call) { c.Tool = "" }, false},
		{"origin", func(c *Call) { c.Profile.Origin = 9 }, false},
		{"read_only", func(c *Call) { c.Profile.ReadOnly = 3 }, false},
		{"destructive", func(c *Call) { c.Profile.Destructive = 3 }, false},
		{"open_world", func(c *Call) { c.Profile.OpenWorld = 3 }, false},
		{"no taint", func(c *Call) { c.Taint = 0 }, false},
		{"taint", func(c *Call) { c.Taint = 3 }, false},
		{"transform kind", func(c *Call) { c.Policy.Transform.Kind = 3 }, false},
		{"inject", func(c *Call) { c.Policy.Transform.Kind = InjectContext }, true},
		{"rewrite without arguments", func(c *Call) { c.Policy.Transform.Kind = Rewrite }, false},
		{"rewrite", func(c *Call) { c.Policy.Transform = Transform{Kind: Rewrite, Arguments: json.RawMessage(" {}")} }, true},
		{"rewrite to a list", func(c *Call) { c.Policy.Transform = Transform{Kind: Rewrite, Arguments: json.RawMessage("[]")} }, false},
		{"rewrite to half an object", func(c *Call) { c.Policy.Transform = Transform{Kind: Rewrite, Arguments: json.RawMessage("{")} }, false},
		{"rewrite to two objects", func(c *Call) { c.Policy.Transform = Transform{Kind: Rewrite, Arguments: json.RawMessage("{}{}")} }, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := good
			tt.edit(&c)
			if err := c.Validate(); (err == nil) != tt.ok || err != nil && !errors.Is(err, ErrInvalidCall) {
				t.Errorf("got %v", err)
			}
		})
	}
	if err := (&Call{}).Validate(); err == nil {
		t.Error("the zero call is valid")
	}
}

func TestOutcomeJSON(t *testing.T) {
	const none = `"missing":[],"missing_mask":0,"required":["arbitrary-egress"],"required_mask":8,` +
		`"granted":["local-read","arbitrary-egress"],"granted_mask":9`
	tests := []struct {
		in   Outcome
		want string
	}{
		{Outcome{Kind: Allow, Required: 8, Granted: 9}, `{"outcome":"allow","reason":"",` + none + `}`},
		{Outcome{Kind: Modify, Required: 8, Granted: 9, Arguments: json.RawMessage(`{"z":1e3,"a":9007199254740993}`)},
			`{"outcome":"modify","reason":"",` + none + `,"arguments":{"z":1e3,"a":9007199254740993}}`},
		{Outcome{Kind: Inject, Required: 8, Granted: 9, Note: "<n>"},
			`{"outcome":"inject_context","reason":"",` + none + `,"note":"<n>"}`},
		{Outcome{Kind: Inject, Required: 8, Granted: 9}, `{"outcome":"inject_context","reason":"",` + none + `,"note":""}`},
		{Outcome{Kind: Escalate, Reason: "r", Missing: 8, Required: 8, Granted: 7, Warnings: []string{`unknown capability "x"`}},
			`{"outcome":"escalate","reason":"r","missing":["arbitrary-egress"],"missing_mask":8,` +
				`"required":["arbitrary-egress"],"required_mask":8,` +
				`"granted":["local-read","local-write","fixed-connector-read"],"granted_mask":7,` +
				`"warnings":["unknown capability \"x\""]}`},
		{Outcome{Kind: Deny, Reason: "a & b", Note: "not said", Arguments: json.RawMessage(`{}`)},
			`{"outcome":"deny","reason":"a & b","missing":[],"missing_mask":0,"required":[],"required_mask":0,` +
				`"granted":[],"granted_mask":0}`},
	}
	for _, tt := range tests {
		got, err := tt.in.MarshalJSON()
		if err != nil || string(got) != tt.want {
			t.Errorf("got %s %v, want %s", got, err, tt.want)
		}
	}
	for _, o := range []Outcome{{}, {Kind: 6}} {
		if got, err := json.Marshal(o); err == nil {
			t.Errorf("%v marshals to %s", o.Kind, got)
		}
	}
}

func TestOutcomeEqual(t *testing.T) {
	a := Outcome{Kind: Modify, Arguments: json.RawMessage(`{"a": 1, "b": 9007199254740993}`)}
	b, c := a, a
	b.Arguments = json.RawMessage(`{"b":9007199254740993,"a":1}`)
	c.Arguments = json.RawMessage(`{"b":9007199254740992,"a":1}`)
	if !a.Equal(b) || a.Equal(c) {
		t.Error("arguments compare by order or by rounded numbers")
	}
	if (Outcome{Kind: Deny, Warnings: []string{"x"}}).Equal(Outcome{Kind: Deny}) {
		t.Error("warnings do not count")
	}
}

func TestAllowAllocatesNothing(t *testing.T) {
	p := Profile{Origin: Fetcher, ReadOnly: Yes}
	g := DefaultGrant()
	if n := testing.AllocsPerRun(100, func() {
		if Decide(p.Required(), g.Under(Clean), CallPolicy{}, "t").Kind != Allow {
			t.Fatal("not allowed")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkDecide(b *testing.B) {
	p, g := Profile{Origin: Fetcher, ReadOnly: Yes}, DefaultGrant()
	for _, bb := range []struct {
		taint Taint
		want  Kind
	}{{Clean, Allow}, {Tainted, Escalate}} {
		b.Run(bb.want.String(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if Decide(p.Required(), g.Under(bb.taint), CallPolicy{}, "t").Kind != bb.want {
					b.Fatal("another answer")
				}
			}
		})
	}
}

func TestKindsAreTheMetricLabels(t *testing.T) {
	var got []string
	for k := Allow; k.Valid(); k++ {
		got = append(got, k.String())
	}
	if !slices.Equal(got, []string{"allow", "modify", "inject_context", "escalate", "deny"}) {
		t.Errorf("got %q", got)
	}
}
