package wire_test

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/skill"
	"github.com/opa-gate/opa-gate/wire"
)

const minimal = `{"tool":{"name":"t"},"taint":"clean"}`

// with puts a member beside those of the minimal document.
func with(member string) string { return strings.TrimSuffix(minimal, "}") + "," + member + "}" }

func transform(text string) string { return with(`"policy":{"transform":` + text + `}`) }

func TestParseCall(t *testing.T) {
	base := capability.Call{Tool: "t", Grant: capability.DefaultGrant(), Taint: capability.Clean,
		LeftOut: capability.OriginMember | capability.GrantMember}
	with1 := func(edit func(*capability.Call)) capability.Call {
		c := base
		edit(&c)
		return c
	}
	tests := []struct {
		name, in string
		want     capability.Call
	}{
		{"minimal", minimal, base},
		{"white space around", " \t\r\n" + minimal + "\n", base},
		{"null for every optional member",
			`{"tool":{"name":"t","origin":null,"read_only":null,"destructive":null,"open_world":null},` +
				`"grant":null,"taint":"clean","policy":null}`, base},
		{"null base", with(`"grant":{"base":null}`), base},
		{"grant without a base", with(`"grant":{}`), base},
		{"null for every verdict",
			with(`"policy":{"veto":null,"requires_human":null,"sandbox_escalation":null,"transform":null}`), base},
		{"kind none", transform(`{"kind":"none"}`), base},
		{"everything",
			`{"tool":{"name":"web_fetch","origin":"fetcher","read_only":false,"destructive":true,"open_world":true},` +
				`"grant":{"base":["local-read","x","grant-admin"]},"taint":"tainted",` +
				`"policy":{"veto":"no","requires_human":true,"sandbox_escalation":true,` +
				`"transform":{"kind":"inject_context","note":"n"}}}`,
			capability.Call{
				Tool: "web_fetch",
				Profile: capability.Profile{
					Origin: capability.Fetcher, ReadOnly: capability.No,
					Destructive: capability.Yes, OpenWorld: capability.Yes,
				},
				Grant: capability.Grant{Base: 1, Unknown: []string{"x", "grant-admin"}},
				Taint: capability.Tainted,
				Policy: capability.CallPolicy{
					Vetoed: true, Veto: "no", RequiresHuman: true, SandboxEscalation: true,
					Transform: capability.Transform{Kind: capability.InjectContext, Note: "n"},
				},
			}},
		{"empty base", with(`"grant":{"base":[]}`), with1(func(c *capability.Call) {
			c.Grant, c.LeftOut = capability.Grant{}, capability.OriginMember
		})},
		{"everything granted", with(`"grant":{"base":["local-read","local-write","fixed-connector-read","arbitrary-egress","mutate-external"]}`),
			with1(func(c *capability.Call) { c.LeftOut = capability.OriginMember })},
		{"an unknown origin", `{"tool":{"name":"t","origin":"unknown"},"taint":"clean"}`,
			with1(func(c *capability.Call) { c.LeftOut = capability.GrantMember })},
		{"empty veto", with(`"policy":{"veto":""}`), with1(func(c *capability.Call) { c.Policy.Vetoed = true })},
		{"rewrite", transform(`{"kind":"rewrite", "arguments" : {"z": 9007199254740993, "a":[1e3, 2.0]} }`),
			with1(func(c *capability.Call) {
				c.Policy.Transform = capability.Transform{
					Kind: capability.Rewrite, Arguments: []byte(`{"z": 9007199254740993, "a":[1e3, 2.0]}`),
				}
			})},
		{"rewrite, arguments first", transform(`{"arguments":{"kind":{"arguments":1}},"kind":"rewrite"}`),
			with1(func(c *capability.Call) {
				c.Policy.Transform = capability.Transform{Kind: capability.Rewrite, Arguments: []byte(`{"kind":{"arguments":1}}`)}
			})},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			data := []byte(tt.in)
			got, err := wire.ParseCall(data)
			if err != nil {
				t.Fatal(err)
			}
			if err := got.Validate(); err != nil {
				t.Error(err)
			}
			clear(data) // the call shares no memory with it
			if !equalCalls(*got, tt.want) {
				t.Errorf("got %+v, want %+v", *got, tt.want)
			}
		})
	}
	for _, o := range capability.Origins() {
		got, err := wire.ParseCall([]byte(`{"tool":{"name":"t","origin":"` + o.String() + `"},"taint":"clean"}`))
		if err != nil || got.Profile.Origin != o {
			t.Errorf("%v: got %+v, %v", o, got, err)
		}
	}
}

func equalCalls(a, b capability.Call) bool {
	x, y := a.Policy.Transform.Arguments, b.Policy.Transform.Arguments
	a.Policy.Transform.Arguments, b.Policy.Transform.Arguments = nil, nil
	return bytes.Equal(x, y) && reflect.DeepEqual(a, b)
}

func TestParseSkill(t *testing.T) {
	tests := []struct {
		name, in string
		want     skill.Request
	}{
		{"minimal", `{"skill":"s","requested":"read_only"}`, skill.Request{Skill: "s", Requested: skill.ReadOnly}},
		{"nulls", `{"skill":"s","requested":"read_only","provenance":null,"approval":null}`,
			skill.Request{Skill: "s", Requested: skill.ReadOnly}},
		{"nulls within",
			`{"skill":"s","requested":"read_only","provenance":{"signed":null,"signer_trusted":null,"scanned":null,` +
				`"vulnerabilities":null,"success_count":null,"fail_count":null,"source":null}}`,
			skill.Request{Skill: "s", Requested: skill.ReadOnly}},
		{"everything",
			`{"skill":"a:b","requested":"full_access","approval":"rejected","provenance":{"signed":true,"signer_trusted":true,` +
				`"scanned":true,"vulnerabilities":1,"success_count":18446744073709551615,"fail_count":9007199254740993,` +
				`"source":"first_party"}}`,
			skill.Request{Skill: "a:b", Requested: skill.FullAccess, Approval: skill.Rejected, Provenance: skill.Provenance{
				Signed: true, SignerTrusted: true, Scanned: true, Vulnerabilities: 1,
				SuccessCount: math.MaxUint64, FailCount: 9007199254740993, Source: skill.FirstParty,
			}}},
		{"integers written otherwise",
			`{"skill":"s","requested":"sandbox_edit","approval":"approved",` +
				`"provenance":{"vulnerabilities":-0.0,"success_count":1e3,"fail_count":2.0}}`,
			skill.Request{Skill: "s", Requested: skill.SandboxEdit, Approval: skill.Approved,
				Provenance: skill.Provenance{SuccessCount: 1000, FailCount: 2}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := wire.ParseSkill([]byte(tt.in))
			if err != nil {
				t.Fatal(err)
			}
			if err := got.Validate(); err != nil || *got != tt.want {
				t.Errorf("got %+v (%v), want %+v", *got, err, tt.want)
			}
		})
	}
}

type bad struct {
	in      string
	kind    wire.ErrorKind
	line    int
	pointer string
	nearest string
}

func check(t *testing.T, tests []bad, parse func([]byte) error) {
	t.Helper()
	for _, tt := range tests {
		err := parse([]byte(tt.in))
		var e *wire.Error
		if !errors.As(err, &e) {
			t.Errorf("%.80s: got %v", tt.in, err)
			continue
		}
		if e.Kind != tt.kind || e.Line != tt.line || e.Pointer != tt.pointer || e.Nearest != tt.nearest {
			t.Errorf("%.80s: got kind %d, line %d, at %q, nearest %q (%v)", tt.in, e.Kind, e.Line, e.Pointer, e.Nearest, e)
		}
		if e.Message() == "" || !strings.HasPrefix(e.Error(), "line "+strconv.Itoa(tt.line)+": ") {
			t.Errorf("%.80s: says %q", tt.in, e.Error())
		}
		for kind, target := range map[wire.ErrorKind]error{
			wire.Syntax: wire.ErrSyntax, wire.Invalid: wire.ErrSchema, wire.TooLarge: wire.ErrTooLarge,
		} {
			if errors.Is(err, target) != (kind == tt.kind) {
				t.Errorf("%.80s: is %v", tt.in, target)
			}
		}
	}
}

func TestParseCallRefuses(t *testing.T) {
	const syntax, schema = wire.Syntax, wire.Invalid
	check(t, []bad{
		{"", syntax, 1, "", ""},
		{"\n\n", syntax, 1, "", ""},
		{"{", syntax, 1, "", ""},
		{"{\n\"tool\": tru}", syntax, 2, "/tool", ""},
		{minimal + "\nx", syntax, 2, "", ""},
		{minimal + minimal, syntax, 1, "", ""},
		{"{\"taint\":\"tainted\",\n\"taint\":\"clean\"}", syntax, 2, "/taint", ""},
		{"{\"tool\":{\"name\":\"\xff\"},\"taint\":\"clean\"}", syntax, 1, "/tool/name", ""},
		{"[]", schema, 1, "", ""},
		{"null", schema, 1, "", ""},
		{"{}", schema, 1, "/taint", ""},
		{"{\"taint\":\"clean\"}", schema, 1, "/tool", ""},
		{"{\"tool\":{\"name\":\"t\"},\n\"taint\":\"cleam\"}", schema, 2, "/taint", "clean"},
		{"{\"tool\":{\"name\":\"t\"},\n\n\"taint\":null}", schema, 3, "/taint", ""},
		{"{\"tool\":{\"name\":\"t\",\n\"orgin\":\"fetcher\"},\"taint\":\"clean\"}", schema, 2, "/tool/orgin", "origin"},
		{"{\"tool\":{\n\"name\":\"\"},\"taint\":\"clean\"}", schema, 2, "/tool/name", ""},
		{"{\"tool\":{\n},\"taint\":\"clean\"}", schema, 1, "/tool/name", ""},
		{`{"tool":{"name":"t","origin":"fecher"},"taint":"clean"}`, schema, 1, "/tool/origin", "fetcher"},
		{`{"tool":{"name":"t","read_only":"true"},"taint":"clean"}`, schema, 1, "/tool/read_only", ""},
		{`{"tool":null,"taint":"clean"}`, schema, 1, "/tool", ""},
		{with(`"polcy":{}`), schema, 1, "/polcy", "policy"},
		{with(`"a/b~c":1`), schema, 1, "/a~1b~0c", ""},
		{with(`"grant":[]`), schema, 1, "/grant", ""},
		{with(`"grant":{"base":"all"}`), schema, 1, "/grant/base", ""},
		{with(`"grant":{"base":["local-read",null]}`), schema, 1, "/grant/base/1", ""},
		{with(`"policy":{"veto":false}`), schema, 1, "/policy/veto", ""},
		{with(`"policy":{"veto":[]}`), schema, 1, "/policy/veto", ""},
		{with(`"policy":{"requires_human":1}`), schema, 1, "/policy/requires_human", ""},
		{transform(`{}`), schema, 1, "/policy/transform/kind", ""},
		{transform(`{"kind":null}`), schema, 1, "/policy/transform/kind", ""},
		{transform(`{"kind":"rewrit"}`), schema, 1, "/policy/transform/kind", "rewrite"},
		{transform(`{"kind":"rewrite"}`), schema, 1, "/policy/transform/arguments", ""},
		{transform(`{"kind":"rewrite","arguments":null}`), schema, 1, "/policy/transform/arguments", ""},
		{transform(`{"kind":"rewrite","arguments":[]}`), schema, 1, "/policy/transform/arguments", ""},
		{transform(`{"kind":"rewrite","arguments":{},"note":""}`), schema, 1, "/policy/transform/note", ""},
		{transform(`{"kind":"inject_context"}`), schema, 1, "/policy/transform/note", ""},
		{transform(`{"kind":"inject_context","note":null}`), schema, 1, "/policy/transform/note", ""},
		{transform(`{"kind":"none","note":""}`), schema, 1, "/policy/transform/note", ""},
		{transform(`{"kind":"none","arguments":{}}`), schema, 1, "/policy/transform/arguments", ""},
		{transform(`{"kind":"rewrite","arguments":{"a":1,"a":2}}`), syntax, 1, "/policy/transform/arguments/a", ""},
	}, func(data []byte) error { _, err := wire.ParseCall(data); return err })
}

// Where a ledger knows what people decided, a document that says it is refused,
// whatever it says; one that does not is read as ever.
func TestParseUndecidedSkill(t *testing.T) {
	for in, refused := range map[string]bool{
		`{"skill":"s","requested":"read_only"}`:                          false,
		`{"skill":"s","requested":"read_only","approval":null}`:          false,
		`{"skill":"s","requested":"read_only","approval":"approved"}`:    true,
		`{"skill":"s","requested":"read_only","approval":"rejected"}`:    true,
		`{"skill":"s","requested":"read_only","approval":"rejected","x"`: true,
	} {
		r, err := wire.ParseUndecidedSkill([]byte(in))
		if (err != nil) != refused || (r == nil) != refused {
			t.Errorf("%s: got %v, %v", in, r, err)
		}
		if want, wantErr := wire.ParseSkill([]byte(in)); !refused && (wantErr != nil || !reflect.DeepEqual(r, want)) {
			t.Errorf("%s: got %v, as a plain document %v, %v", in, r, want, wantErr)
		}
	}
	_, err := wire.ParseUndecidedSkill([]byte(`{"skill":"s","requested":"read_only","approval":"approved"}`))
	if e := (*wire.Error)(nil); !errors.As(err, &e) || e.Kind != wire.Invalid || e.Pointer != "/approval" {
		t.Errorf("got %v, want an error at /approval", err)
	}
}

func TestParseSkillRefuses(t *testing.T) {
	const schema = wire.Invalid
	provenance := func(text string) string { return `{"skill":"s","requested":"read_only","provenance":{` + text + `}}` }
	check(t, []bad{
		{"{}", schema, 1, "/requested", ""},
		{`{"requested":"read_only"}`, schema, 1, "/skill", ""},
		{`{"skill":"","requested":"read_only"}`, schema, 1, "/skill", ""},
		{"{\"skill\":\"s\",\n\"requested\":\"readonly\"}", schema, 2, "/requested", "read_only"},
		{`{"skill":"s","requested":"read_only","approval":"aproved"}`, schema, 1, "/approval", "approved"},
		{`{"skill":"s","requested":"read_only","approval":true}`, schema, 1, "/approval", ""},
		{`{"skill":"s","requested":"read_only","reviewer":"me"}`, schema, 1, "/reviewer", ""},
		{provenance(`"signd":true`), schema, 1, "/provenance/signd", "signed"},
		{provenance(`"source":"oficial"`), schema, 1, "/provenance/source", "official"},
		{provenance(`"scanned":1`), schema, 1, "/provenance/scanned", ""},
		{provenance(`"fail_count":-1`), schema, 1, "/provenance/fail_count", ""},
		{provenance(`"fail_count":1.5`), schema, 1, "/provenance/fail_count", ""},
		{provenance(`"fail_count":9223372036854775808.25`), schema, 1, "/provenance/fail_count", ""},
		{provenance(`"fail_count":"1"`), schema, 1, "/provenance/fail_count", ""},
		{provenance(`"success_count":18446744073709551616`), schema, 1, "/provenance/success_count", ""},
		{provenance(`"vulnerabilities":1e9999`), schema, 1, "/provenance/vulnerabilities", ""},
		{provenance(`"vulnerabilities":1e99999`), wire.TooLarge, 1, "/provenance/vulnerabilities", ""},
	}, func(data []byte) error { _, err := wire.ParseSkill(data); return err })
}

func TestBounds(t *testing.T) {
	nested := func(levels int) string { // in all, with the four around it
		n := levels - 4
		return transform(`{"kind":"rewrite","arguments":{"a":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}}`)
	}
	number := func(text string) string { return transform(`{"kind":"rewrite","arguments":{"a":` + text + `}}`) }
	tests := []struct {
		name, in string
		ok       bool
	}{
		{"depth", nested(wire.MaxDepth), true},
		{"too deep", nested(wire.MaxDepth + 1), false},
		{"far too deep", strings.Repeat("[", 1<<20), false},
		{"digits", number(strings.Repeat("9", 1000)), true},
		{"too many digits", number(strings.Repeat("9", 1001)), false},
		{"exponent", number("1e9999"), true},
		{"negative exponent", number("1E-9999"), true},
		{"exponent too large", number("1e10000"), false},
		{"exponent too small", number("1e-10000"), false},
		{"exponent beyond an int", number("1e+99999999999999999999"), false},
		{"size", minimal + strings.Repeat(" ", wire.MaxBytes-len(minimal)), true},
		{"too long", minimal + strings.Repeat(" ", wire.MaxBytes-len(minimal)+1), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := wire.ParseCall([]byte(tt.in))
			if tt.ok && err != nil || !tt.ok && !errors.Is(err, wire.ErrTooLarge) {
				t.Errorf("got %v", err)
			}
		})
	}
}
