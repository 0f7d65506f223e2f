package analysis

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/opa-gate/opa-gate/evaluator"
)

func TestConditionInWords(t *testing.T) {
	tests := []struct {
		member string
		values []string
		want   string
	}{
		{"taint", []string{"tainted"}, "tainted"},
		{"taint", []string{"clean"}, "clean"},
		{"tool.origin", []string{"fetcher"}, "fetcher"},
		{"tool.origin", []string{"fetcher", "unknown"}, "fetcher or unknown origin"},
		{"tool.origin", []string{"not given"}, "no origin"},
		{"tool.origin", []string{"not given", "fetcher"}, "no origin or fetcher"},
		{"tool.origin", []string{"not given", "unknown"}, "unknown or no origin"},
		{"tool.origin", []string{"not given", "unknown", "fetcher"}, "unknown or no origin or fetcher"},
		{"tool.origin", []string{"not given", "unknown", "local-sandbox", "first-party", "registered-connector", "access-grant", "access-revoke", "admin-manage", "admin-grant"}, "any origin but fetcher"},
		{"tool.origin", []string{"not given", "local-sandbox", "fetcher", "first-party", "registered-connector", "access-grant", "access-revoke", "admin-manage"}, "any origin but unknown origin and admin-grant"},
		{"tool.origin", []string{"local-sandbox", "fetcher", "first-party", "registered-connector", "access-grant", "access-revoke", "admin-manage", "admin-grant"}, "any stated origin but unknown origin"},
		{"tool.origin", []string{"unknown", "local-sandbox", "fetcher", "first-party", "registered-connector", "access-grant", "access-revoke", "admin-manage", "admin-grant"}, "any stated origin"},
		{"grant", []string{"not given"}, "no grant"},
		{"grant", []string{"stated"}, "a stated grant"},
		{"grant", []string{"not given", "of everything"}, "no grant or grant of everything"},
		{"tool.destructive", []string{"yes"}, "destructive"},
		{"tool.destructive", []string{"no"}, "not destructive"},
		{"tool.destructive", []string{"not given"}, "destructive not given"},
		{"tool.destructive", []string{"yes", "not given"}, "destructive or not given"},
		{"tool.read_only", []string{"no", "not given"}, "not read-only or not given"},
		{"tool.open_world", []string{"no"}, "not open world"},
		{"grant.base", []string{"with arbitrary-egress"}, "grant with arbitrary-egress"},
		{"grant.base", []string{"without mutate-external"}, "grant without mutate-external"},
		{"policy.veto", []string{"not given"}, "no veto"},
		{"policy.veto", []string{`other than "no"`}, `veto other than "no"`},
		{"policy.requires_human", []string{"yes"}, "a person required"},
		{"policy.sandbox_escalation", []string{"no"}, "no sandbox escalation"},
		{"policy.veto", []string{"given"}, "a veto"},
		{"policy.transform.kind", []string{"none", "rewrite"}, "no transform or rewritten arguments"},
		{"policy.transform.kind", []string{`an injected note other than "foo"`}, `an injected note other than "foo"`},
		{"policy.transform.kind", []string{"none", `an injected note "foo"`}, `no transform or an injected note "foo"`},
		{"policy.transform.kind", []string{"inject_context"}, "an injected note"},
		{"tool.name", []string{`"pay"`, `"refund"`}, `tool "pay" or "refund"`},
		{"tool.name", []string{`other than "pay"`}, `tool other than "pay"`},
		{"requested", []string{"sandbox_edit", "full_access"}, "sandbox_edit or full_access requested"},
		{"provenance.signed", []string{"no"}, "not signed"},
		{"provenance.source", []string{"official"}, "source official"},
		{"provenance.vulnerabilities", []string{"0"}, "no vulnerabilities"},
		{"provenance.fail_count", []string{"8"}, "fail count 8"},
		{"approval", []string{"not given"}, "nobody has ruled on it"},
		{"approval", []string{"rejected"}, "a person rejected it"},
		{"approval", []string{"approved", "rejected"}, "a person approved it or a person rejected it"},
		{"approval", []string{"not given", "approved"}, "nobody has ruled on it or a person approved it"},
		{"session.kind", []string{"a", "b"}, "session.kind a or b"},
		{"session.kind", nil, "session.kind"},
	}
	for _, test := range tests {
		if got := (Condition{test.member, test.values}).String(); got != test.want {
			t.Errorf("%s %q: %q, want %q", test.member, test.values, got, test.want)
		}
	}
}

// Every value of every space has words, and there are none for what no space has.
func TestWordsOfTheSpaces(t *testing.T) {
	known := &evaluator.Survey{Tools: []string{"pay"}, Vetoes: []string{""}, Notes: []string{"foo", "bar"}}
	spoken := map[string]map[string]bool{}
	for _, s := range []*space{newCallSpace(&evaluator.Survey{}).space, newCallSpace(known).space, newSkillSpace(), namedSpace()} {
		for _, d := range s.dims {
			if spoken[d.member] == nil {
				spoken[d.member] = map[string]bool{}
			}
			for _, value := range d.values {
				spoken[d.member][value] = true
				text := Condition{d.member, []string{value}}.String()
				if strings.Contains(text, d.member+" ") || strings.Contains(text, " an ") || strings.Contains(text, "approval") {
					t.Errorf("%s %q is put as %q", d.member, value, text)
				}
			}
			if memberRank(d.member) == len(memberOrder) {
				t.Errorf("%s has no place among the members", d.member)
			}
		}
	}
	for member := range flags {
		if !spoken[member]["yes"] || !spoken[member]["no"] {
			t.Errorf("no space has the flag %s", member)
		}
	}
	for member, v := range vocabularies {
		for value := range v.words {
			if !spoken[member][value] {
				t.Errorf("no space has the value %q of %s", value, member)
			}
		}
		if spoken[member] == nil {
			t.Errorf("no space has the member %s", member)
		}
	}
	for _, member := range memberOrder {
		if spoken[member] == nil {
			t.Errorf("no space has the member %s, which has a place", member)
		}
	}
}

func TestHeadline(t *testing.T) {
	widen, narrow, word := Change{Kind: "call", Direction: Widening, Inputs: 256}, Change{Kind: "call", Direction: Narrowing, Inputs: 96}, Change{Kind: "call", Direction: Rewording, Inputs: 1}
	skill := Change{Kind: "skill", Direction: Narrowing, Inputs: 2_000}
	tests := []struct {
		changes []Change
		want    string
	}{
		{nil, "The two policies answer every one of 427,680 calls and 8,640 skills alike."},
		{[]Change{widen}, "1 class of calls is answered differently: it permits more (256 inputs)."},
		{[]Change{skill}, "1 class of skills is answered differently: it permits less (2,000 inputs)."},
		{[]Change{word, word}, "2 classes of calls are answered differently: all of them are reworded (2 inputs)."},
		{[]Change{widen, widen, narrow}, "3 classes of calls are answered differently: 2 permit more (512 inputs), 1 permits less (96 inputs)."},
		{[]Change{widen, skill, word}, "2 classes of calls and 1 class of skills are answered differently: 1 permits more (256 inputs), 1 permits less (2,000 inputs), 1 is reworded (1 input)."},
		{[]Change{{Kind: "call", Direction: "sideways", Inputs: 3}}, "1 class of calls is answered differently: it permits more (3 inputs)."},
	}
	for _, test := range tests {
		d := Difference{Calls: 427_680, Skills: 8_640, Changes: test.changes}
		if got := d.headline(); got != test.want {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
	}
}

func TestContrasts(t *testing.T) {
	tests := []struct {
		before, after string
		want          []contrast
	}{
		{`{"outcome":"allow"}`, `{"outcome":"deny"}`, nil},
		{`{"outcome":"escalate","reason":"Check \"x\"."}`, `{"outcome":"escalate","reason":"Ask."}`, []contrast{{"reason", `Check "x".`, "Ask."}}},
		{`{"missing":["a"],"missing_mask":1,"reason":"b"}`, `{"missing":[],"missing_mask":0,"reason":"c"}`, []contrast{{"reason", "b", "c"}, {"missing", "a", "none"}}},
		{`{"granted_mask":1}`, `{"granted_mask":3}`, []contrast{{"granted_mask", "1", "3"}}},
		{`{"missing":[]}`, `{}`, []contrast{{"missing", "[]", "none"}}},
		{`{"n":9007199254740993}`, `{"n":9007199254740992}`, []contrast{{"n", "9007199254740993", "9007199254740992"}}},
		{`{"enforcement":{"deploy":true,"pending":null}}`, `{"enforcement":{"deploy":false,"pending":{"fingerprint":"f"}}}`,
			[]contrast{{"enforcement.deploy", "true", "false"}, {"enforcement.pending.fingerprint", "none", "f"}}},
		{`{"arguments":{"b":1,"a":2}}`, `{"arguments":{"b":1}}`, []contrast{{"arguments", `{"b":1,"a":2}`, `{"b":1}`}}},
		{"", `{"error":"e"}`, []contrast{{"error", "none", "e"}}},
	}
	for _, test := range tests {
		c := Change{Before: json.RawMessage(test.before), After: json.RawMessage(test.after)}
		got := c.contrasts()
		if len(got) != len(test.want) {
			t.Errorf("%s, %s: %q, want %q", test.before, test.after, got, test.want)
			continue
		}
		for i := range got {
			if got[i] != test.want[i] {
				t.Errorf("%s, %s: %q, want %q", test.before, test.after, got[i], test.want[i])
			}
		}
	}
}

func TestDocumentLineMeansTheSame(t *testing.T) {
	for _, text := range []string{"plain", "\u202ebidi\u2066", "\u007f\u0085\u2028", "\U000e0001tag", "\ufffd", "a\nb\x1b", `"\/`, "日本", strings.Repeat("x", 10_000)} {
		var spaced strings.Builder
		enc := json.NewEncoder(&spaced)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(map[string]string{"tool": text}); err != nil {
			t.Fatal(err)
		}
		line := documentLine(json.RawMessage(strings.Replace(spaced.String(), ":", " :\n\t", 1)))
		if strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q: %q could act on a terminal", text, line)
		}
		var back map[string]string
		if err := json.Unmarshal([]byte(line), &back); err != nil || back["tool"] != text {
			t.Errorf("%q: %q means %q, %v", text, line, back["tool"], err)
		}
	}
	if got := documentLine(json.RawMessage("{broken\x1b")); got != `{broken\x1b` {
		t.Errorf("a broken document: %q", got)
	}
}

func TestExcerptsShowWhereTextsPart(t *testing.T) {
	same := strings.Repeat("é", 5_000)
	a, b := excerpts(same+"old"+same, same+"new")
	if !strings.HasPrefix(a, "…é") || !strings.Contains(a, "old") || !strings.HasSuffix(a, "é…") || !strings.HasSuffix(b, "énew") {
		t.Errorf("%q\n%q", a, b)
	}
	if n := len([]rune(a)); n > 410 {
		t.Errorf("%d characters", n)
	}
}
