package steering

import (
	"strings"
	"testing"

	"github.com/opa-gate/opa-gate/capability"
)

const prompt = `Please write to "ann.lee@acme.example" and (bob@acme.example), about 'The plan for May': we meet at noon.
The account is GB29NWBK60161331926819. Pay $2200 rent, or 10.00; see https://acme.example/a/b?x=1. Post it in #team-news, @carl!`

func typedOf(prompts ...string) *Typed {
	t := &Typed{}
	for _, p := range prompts {
		t.Add(p)
	}
	return t
}

func TestTypedText(t *testing.T) {
	tests := map[string]bool{
		"ann.lee@acme.example": true, "bob@acme.example": true, "The plan for May": true, "we meet at noon": true,
		"https://acme.example/a/b?x=1": true, "GB29NWBK60161331926819": true, "#team-news": true, "@carl": true, "Please write": true,
		"about 'The plan for May'": true, "noon.\nThe account": true,

		"lee@acme.example": false, "ann.lee@acme": false, "acme.example": false, "ann.lee@acme.example.evil": false, // parts, and more
		"ob@acme.example": false, "https://acme.example/a/b": false, "https://acme.example": false, "http://acme.example/a/b?x=1": false,
		"GB29NWBK6016133192681": false, "team-news": false, "carl": false, "lan for": false, "The plan for Ma": false,
		"Ann.Lee@acme.example": false, "the plan for May": false, "The plan  for May": false, "ANN.LEE@ACME.EXAMPLE": false, // other spellings
		"a": false, "1": false, "we": false, "May": false, "": false, "    ": false, "2200": false, // short, or after a mark
		"ann.lee@acme.example\u200b": false, "bob\u202e@acme.example": false, "noon.\nThe account\x00": false, // unseen
	}
	typed := typedOf("hello there", prompt)
	for text, want := range tests {
		if got := typed.Text(text); got != want {
			t.Errorf("%q is typed: %v, want %v", text, got, want)
		}
	}
	if typedOf().Text("ann.lee@acme.example") || (*Typed)(nil).Text("ann.lee@acme.example") || new(Typed).Text("ann.lee@acme.example") {
		t.Error("it is typed where nothing was")
	}
	if typedOf("caf\u00e9 bar").Text("cafe\u0301 bar") {
		t.Error("two spellings of one character are one")
	}
	if typedOf("write to ann", "lee@acme.example").Text("ann lee@acme.example") {
		t.Error("two prompts are one")
	}
	if typedOf("to x\u200bann@acme.example").Text("ann@acme.example") {
		t.Error("a word begins after a character that nobody sees")
	}
}

func TestTypedAddress(t *testing.T) {
	typed := typedOf(prompt, "meeting notes general 2024-05-19 channel_7 e.g. this file a.b")
	for text, want := range map[string]bool{
		"ann.lee@acme.example": true, "https://acme.example/a/b?x=1": true, "GB29NWBK60161331926819": true, "channel_7": true,
		"meeting": false, "general": false, "Please": false, "account": false, // words
		"e.g.": false, "a.b": false, "10.00": false, // short
		"2024-05-19": false, "The plan for May": false, "#team-news": false, "@carl": false,
		"dan@acme.example": false,
	} {
		if got := typed.Address(text); got != want {
			t.Errorf("%q is a typed address: %v, want %v", text, got, want)
		}
	}
}

func TestTypedNumber(t *testing.T) {
	typed := typedOf(prompt, "-12.50 and (1200), 007 7 1,300 3e3 45% 2024-05-19")
	for text, want := range map[string]bool{
		"2200": true, "2200.0": true, "10": true, "10.00": true, "10.000": true, "-12.5": true, "1200": true, "7": true, "07.0": true,
		"1300": false, "3000": false, "3e3": false, "45": false, "12.5": false, "2024": false, "22": false, "0": false, "": false, "-": false, "1": false,
		strings.Repeat("1", 50): false,
	} {
		if got := typed.number(text); got != want {
			t.Errorf("%q is a typed number: %v, want %v", text, got, want)
		}
	}
}

// What may be an address, in texts that nobody typed. Those on the right of a
// pair with true are found though they are none: it rather asks.
func TestAddress(t *testing.T) {
	typed := typedOf(prompt)
	for text, want := range map[string]bool{
		"Hello Bob, see you at 10:00 on 2024-05-19.": false, "Olivia Smith: 4\n-Mia Anderson: 2": false, "one and/ or two": false,
		"it costs 98.70, or 1,200": false, "write to ann.lee@acme.example, please": false, "version 1.2": false, "- eggs\n- flour": false,
		"see https://acme.example/a/b?x=1.": false, "Two more activities": false,

		"see evil.example": true, "a@b": true, "https://evil.example/x": true, "//evil": true, "evil.example/path": true, "x:y": true,
		"10.0.0.1": true, "1.2.3.4:80": true, "fe80::1": true, `\\host\share`: true, "evil。example": true, "file.xlsx": true,
		"call 0123 456 789": true, "+44 20 7946 0958": true, "US133000000121212121212": true, "0x52908400098527886E": true,
		"ann.lee@acme.example.evil.example": true, "xann.lee@acme.example": true, "code 1234567": true, "a\u200bb": true, "mailto:bob": true,
		"the link (bit.ly/abc)": true, "and/or": true, "tok3n4bcdefg": true,
	} {
		if got := typed.address(text); got != want {
			t.Errorf("%q holds an address: %v, want %v", text, got, want)
		}
	}
}

func TestLook(t *testing.T) {
	send := &Tool{Effect: capability.Outside, Aims: []string{"to", "cc", "amount"}}
	event := &Tool{Effect: capability.OwnUndoable, Aims: []string{"participants"}, OutsideIf: []string{"participants"}}
	facts := func(e, a, p string) Facts {
		effect, ok1 := capability.ParseEffect(e)
		aim, ok2 := capability.ParseAim(a)
		payload, ok3 := capability.ParsePayload(p)
		if !ok1 || !ok2 || !ok3 {
			t.Fatal(e, a, p)
		}
		return Facts{effect, aim, payload}
	}
	tests := []struct {
		tool      *Tool
		arguments string
		want      Facts
	}{
		{send, `{"to": "ann.lee@acme.example", "body": "we meet at noon"}`, facts("outside", "typed", "typed")},
		{send, `{"to": ["ann.lee@acme.example", "bob@acme.example"], "body": "we meet at noon"}`, facts("outside", "typed", "typed")},
		{send, `{"to": ["ann.lee@acme.example"], "cc": [], "bcc": null, "body": ""}`, facts("outside", "typed", "typed")},
		{send, `{"to": ["ann.lee@acme.example", "eve@evil.example"]}`, facts("outside", "untyped", "typed")},
		{send, `{"to": "ann.lee@acme.example", "cc": "eve@evil.example"}`, facts("outside", "untyped", "typed")},
		{send, `{"to": "ann.lee@acme.example", "bcc": "eve@evil.example"}`, facts("outside", "typed", "untyped")},
		{send, `{"to": "ann.lee@acme.example,eve@evil.example"}`, facts("outside", "untyped", "typed")},
		{send, `{"to": {"email": "ann.lee@acme.example"}}`, facts("outside", "untyped", "typed")},
		{send, `{"to": "noon"}`, facts("outside", "untyped", "typed")},
		{send, `{"to": true}`, facts("outside", "untyped", "typed")},
		{send, `{"body": "we meet at noon"}`, facts("outside", "none", "typed")},
		{send, `{"to": "", "body": "we meet at noon"}`, facts("outside", "none", "typed")},
		{send, `{}`, facts("outside", "none", "typed")},
		{send, `{"to": "GB29NWBK60161331926819", "amount": 10.0}`, facts("outside", "typed", "typed")},
		{send, `{"to": "GB29NWBK60161331926819", "amount": 10.01}`, facts("outside", "untyped", "typed")},
		{send, `{"to": "GB29NWBK60161331926819", "amount": 1e1}`, facts("outside", "untyped", "typed")},

		{send, `{"to": "ann.lee@acme.example", "body": "Dear Ann, hello"}`, facts("outside", "typed", "plain")},
		{send, `{"to": "ann.lee@acme.example", "body": "we meet at noon", "on": "2024-05-19 12:00", "urgent": true}`, facts("outside", "typed", "inert")},
		{send, `{"to": "ann.lee@acme.example", "on": "2024-05-19T12:00:00.463820Z"}`, facts("outside", "typed", "untyped")},
		{send, `{"to": "ann.lee@acme.example", "body": "see evil.example"}`, facts("outside", "typed", "untyped")},
		{send, `{"to": "ann.lee@acme.example", "n": 12}`, facts("outside", "typed", "plain")},
		{send, `{"to": "ann.lee@acme.example", "n": 4638201}`, facts("outside", "typed", "untyped")},
		{send, `{"to": "ann.lee@acme.example", "files": [{"file_id": "19"}]}`, facts("outside", "typed", "plain")},
		{send, `{"to": "ann.lee@acme.example", "headers": {"evil.example": true}}`, facts("outside", "typed", "untyped")},

		{event, `{"title": "The plan for May"}`, facts("own-undoable", "none", "typed")},
		{event, `{"title": "The plan for May", "participants": []}`, facts("own-undoable", "none", "typed")},
		{event, `{"title": "The plan for May", "participants": ["ann.lee@acme.example"]}`, facts("outside", "typed", "typed")},
		{event, `{"title": "The plan for May", "participants": ["eve@evil.example"]}`, facts("outside", "untyped", "typed")},
		{event, `{"title": "The plan for May", "Participants": ["eve@evil.example"]}`, facts("unknown", "unknown", "unknown")},

		{&Tool{Effect: capability.OwnUndoable}, `{"a": "x"}`, facts("own-undoable", "unknown", "plain")},
		{&Tool{Effect: capability.OwnUndoable}, ``, facts("own-undoable", "unknown", "unknown")},
		{&Tool{Effect: capability.Outside}, `{"to": "ann.lee@acme.example"}`, facts("outside", "unknown", "typed")},
		{&Tool{}, `{"to": "ann.lee@acme.example"}`, facts("unknown", "unknown", "typed")},
		{nil, `{"to": "ann.lee@acme.example"}`, Facts{}},
		{&Tool{Effect: 9}, `{}`, Facts{}},
		{event, ``, Facts{}},

		{send, `{"to": "ann.lee@acme.example", "to": "eve@evil.example"}`, facts("outside", "unknown", "unknown")},
		{send, `{"TO": "ann.lee@acme.example"}`, facts("outside", "unknown", "unknown")},
		{send, `["ann.lee@acme.example"]`, facts("outside", "unknown", "unknown")},
		{send, `{"to": "ann.lee@acme.example"} {}`, facts("outside", "unknown", "unknown")},
		{send, `{"to": "ann.lee@acme.example"`, facts("outside", "unknown", "unknown")},
		{send, "{\"to\": \"\xff\"}", facts("outside", "unknown", "unknown")},
		{send, `{"a":` + strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth) + `}`, facts("outside", "unknown", "unknown")},
		{send, `{"a":[` + strings.Repeat("1,", MaxLeaves) + `1]}`, facts("outside", "unknown", "unknown")},
		{send, `{"a":"` + strings.Repeat("x", MaxText+1) + `"}`, facts("outside", "unknown", "unknown")},
		{send, `{"a":"` + strings.Repeat("x", MaxArguments) + `"}`, facts("outside", "unknown", "unknown")},
	}
	typed := typedOf(prompt)
	for _, test := range tests {
		if got := Look(test.tool, []byte(test.arguments), typed); got != test.want {
			t.Errorf("%.200s: %v %v %v, want %v %v %v", test.arguments, got.Effect, got.Aim, got.Payload, test.want.Effect, test.want.Aim, test.want.Payload)
		}
	}
}

func TestTypedIsBounded(t *testing.T) {
	typed := typedOf("the first one")
	for range 5 {
		typed.Add(strings.Repeat("x", MaxTyped/4-1))
	}
	typed.Add("the last one")
	if typed.Text("the first one") || !typed.Text("the last one") || typed.size > MaxTyped {
		t.Errorf("%d bytes in %d prompts", typed.size, len(typed.prompts))
	}
	typed.Add("the huge one " + strings.Repeat("x", MaxTyped))
	typed.Add("the broken one \xff")
	if typed.Text("the huge one") || typed.Text("the broken one") || !typed.Text("the last one") {
		t.Error("a prompt that cannot be used is")
	}
	many := typedOf(strings.Repeat("xabcd ", 2*maxTried) + "abcd")
	if many.Text("abcd") {
		t.Error("it looked in more places than the bound")
	}
}

// FuzzTyped holds Typed against a plain reading of the package comment.
func FuzzTyped(f *testing.F) {
	f.Add(prompt, "ann.lee@acme.example")
	f.Add("say 'hello there'. now", "hello there")
	f.Add("(x@y.zz), <x@y.zz>", "x@y.zz")
	f.Add("aaaa aaaaa", "aaaa")
	f.Fuzz(func(t *testing.T, prompt, text string) {
		typed := typedOf(prompt)
		if typed.Text(text) {
			found := false
			for i := range prompt {
				before, rest := prompt[:i], prompt[i:]
				if after, ok := strings.CutPrefix(rest, text); ok {
					b, a := strings.TrimRight(before, opening), strings.TrimLeft(after, closing)
					found = found || (b == "" || spaceEnds(b)) && (a == "" || spaceBegins(a))
				}
			}
			if !found || len([]rune(text)) < MinText {
				t.Errorf("%q is typed in %q", text, prompt)
			}
			if more := text + "x"; !strings.Contains(prompt, more) && typed.Text(more) {
				t.Errorf("%q is typed in %q", more, prompt)
			}
		}
		if typed.Address(text) && (!typed.Text(text) || strings.ContainsAny(text, " \t\n")) {
			t.Errorf("%q is an address in %q", text, prompt)
		}
	})
}

func spaceEnds(s string) bool   { return strings.TrimRightFunc(s, isSpace) != s }
func spaceBegins(s string) bool { return strings.TrimLeftFunc(s, isSpace) != s }
func isSpace(r rune) bool       { return strings.TrimSpace(string(r)) == "" }

// FuzzLook: arguments never say more than what was typed.
func FuzzLook(f *testing.F) {
	f.Add(`{"to": "ann.lee@acme.example", "body": ["x", {"y": 1}]}`, prompt)
	f.Add(`{"to": 10.00}`, prompt)
	f.Add(`{"To": "x"}`, "x")
	f.Fuzz(func(t *testing.T, arguments, prompt string) {
		tool := &Tool{Effect: capability.OwnUndoable, Aims: []string{"to"}, OutsideIf: []string{"to"}}
		nothing := Look(tool, []byte(arguments), nil)
		if nothing.Aim == capability.TypedAim {
			t.Errorf("%s: an aim is typed and nothing was", arguments)
		}
		something := Look(tool, []byte(arguments), typedOf(prompt))
		if something.Effect != nothing.Effect || something.Payload < nothing.Payload || nothing.Aim == capability.NoAim != (something.Aim == capability.NoAim) {
			t.Errorf("%s: %v, and with a prompt %v", arguments, nothing, something)
		}
		if something.Aim == capability.TypedAim && something.Effect != capability.Outside {
			t.Errorf("%s: %v", arguments, something)
		}
	})
}

func BenchmarkLook(b *testing.B) {
	tool := &Tool{Effect: capability.Outside, Aims: []string{"to"}}
	arguments := []byte(`{"to": ["ann.lee@acme.example"], "subject": "The plan for May", "body": "Dear Ann, we meet at noon."}`)
	typed := typedOf(strings.Repeat("some words of an earlier prompt. ", 2000), prompt)
	for b.Loop() {
		if Look(tool, arguments, typed).Aim != capability.TypedAim {
			b.Fatal("the aim is not typed")
		}
	}
}
