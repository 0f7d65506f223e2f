package gateway

import (
	"strings"
	"testing"

	"github.com/opa-gate/opa-gate/capability"
)

// Two servers with the same tools, prompts and templates; resources of their own.
func TestSeveral(t *testing.T) {
	two := fake("two", "env", connector)
	two.Owned = []string{"look", "secret"}
	b := newBench(t, "", fake("one", "good", connector), two)
	c := b.start()
	m := c.request("initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`)
	if want := `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"resources":{},"prompts":{}},"serverInfo":{"name":"opa-gate","version":"1"}}`; string(m.Result) != want {
		t.Errorf("initialize: got %s\nwant %s", m.Result, want)
	}
	c.write(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	// Before any list is asked for, a name finds its owner.
	if m := c.call("fetch"); m.Error != nil || !strings.Contains(m.line, `"name":"fetch"`) {
		t.Errorf("fetch: %s", m.line)
	}
	list := c.request("tools/list", `{}`)
	if got, want := toolNames(t, list), "one__look fetch send one__secret two__look two__secret"; got != want {
		t.Errorf("tools: got %q, want %q", got, want)
	}
	if !strings.Contains(list.line, "12345678901234567890") {
		t.Errorf("a number of a schema was changed: %s", list.line)
	}
	for tool, want := range map[string]string{
		"one__look": `"echo":{"name":"look","arguments":{}}`, "two__look": "HOME=", "two__secret": "HOME=",
		"look": "there is no tool", "two__send": "there is no tool", "two__fetch": "there is no tool", "three__look": "there is no tool",
	} {
		if m := c.call(tool); !strings.Contains(m.line, want) {
			t.Errorf("%s: got %s, want %s", tool, m.line, want)
		}
	}
	for uri, want := range map[string]string{
		"fake://good": "outside content of good", "fake://env": "outside content of env", "fake://env/7": "outside content of env",
		"other://x": "no server has this resource",
	} {
		if m := c.request("resources/read", `{"uri":"`+uri+`"}`); !strings.Contains(m.line, want) {
			t.Errorf("%s: got %s", uri, m.line)
		}
	}
	for prompt, want := range map[string]string{"one__hello": `"description":"good"`, "two__hello": `"description":"env"`, "hello": "there is no prompt"} {
		if m := c.request("prompts/get", `{"name":"`+prompt+`"}`); !strings.Contains(m.line, want) {
			t.Errorf("%s: got %s", prompt, m.line)
		}
	}
	if m := c.request("ping", `{}`); string(m.Result) != `{}` {
		t.Errorf("ping: %s", m.line)
	}
	if m := c.request("x/unknown", `{}`); m.Error == nil || m.Error.Code != -32601 {
		t.Errorf("a method that names no server: %s", m.line)
	}
	if log := b.logged(); strings.Contains(log, "panic") {
		t.Error(log)
	}
}

// One of several servers fails: the others go on.
func TestSeveralWithoutOne(t *testing.T) {
	gone := ServerConfig{Name: "gone", Command: "/nonexistent/server", Env: map[string]string{}}
	b := newBench(t, "", fake("dies", "dies", connector), fake("good", "good", connector), gone)
	c := b.start()
	c.hello(`{}`)
	if m := c.call("dies__look"); m.Error == nil || !strings.Contains(m.Error.Message, `"dies" has ended`) {
		t.Errorf("got %s", m.line)
	}
	if m := c.call("good__look"); m.Error != nil {
		t.Errorf("got %s", m.line)
	}
}

// What comes later takes nobody's name.
func TestNames(t *testing.T) {
	one, two := &upstream{ServerConfig: &ServerConfig{Name: "one"}}, &upstream{ServerConfig: &ServerConfig{Name: "two"}}
	servers := []*upstream{one, two}
	var n names
	n.assign([]target{{one, "read"}, {one, "send"}, {two, "list"}}, servers)
	n.assign([]target{{one, "read"}, {two, "read"}, {two, "send"}, {one, "list"}, {two, "one__list"}, {two, "one__send"}}, servers)
	n.assign([]target{{two, "new"}, {one, "new"}}, servers)
	for name, want := range map[string]target{
		"read": {one, "read"}, "send": {one, "send"}, "list": {two, "list"},
		"two__read": {two, "read"}, "two__send": {two, "send"}, "one__list": {one, "list"},
		"two__one__list": {two, "one__list"}, "two__one__send": {two, "one__send"},
		"one__new": {one, "new"}, "two__new": {two, "new"},
	} {
		if got, ok := n.find(name); !ok || got != want {
			t.Errorf("%s is %v of %v", name, got.name, got.up)
		}
	}
	for _, name := range []string{"new", "one__send", "one__read"} {
		if got, ok := n.find(name); ok {
			t.Errorf("%s is %s of %s, want nothing", name, got.name, got.up.Name)
		}
	}
}

func TestOwners(t *testing.T) {
	one, two := &upstream{}, &upstream{}
	var o owners
	for _, claim := range []struct {
		up       *upstream
		uri      string
		template bool
		want     bool
	}{
		{one, "a://x", false, true}, {two, "a://x", false, false}, {one, "a://x", false, true},
		{one, "b://{id}", true, true}, {two, "b://long/{id}", true, true}, {two, "{anything}", true, true},
	} {
		if got := o.claim(claim.up, claim.uri, claim.template); got != claim.want {
			t.Errorf("claim of %s: %v", claim.uri, got)
		}
	}
	for uri, want := range map[string]*upstream{"a://x": one, "b://1": one, "b://long/1": two, "c://": nil, "b://{id}": one} {
		if got, ok := o.of(uri); got != want || ok != (want != nil) {
			t.Errorf("%s has the wrong owner", uri)
		}
	}
}

// What the second of two redeclarations says, and wrong annotations.
func TestAnnotations(t *testing.T) {
	for text, want := range map[string]capability.Profile{
		``:     {},
		`null`: {},
		`{}`:   {},
		`{"readOnlyHint":true,"destructiveHint":false,"openWorldHint":false}`: {ReadOnly: capability.Yes, Destructive: capability.No, OpenWorld: capability.No},
		`{"readOnlyHint":"true","destructiveHint":"false","openWorldHint":0}`: {ReadOnly: capability.No, Destructive: capability.Yes, OpenWorld: capability.Yes},
		`{"readOnlyHint":null,"destructiveHint":null,"openWorldHint":null}`:   {},
		`{"readOnlyHint":false,"readOnlyHint":true}`:                          {ReadOnly: capability.No, Destructive: capability.Yes, OpenWorld: capability.Yes},
		`[]`: {ReadOnly: capability.No, Destructive: capability.Yes, OpenWorld: capability.Yes},
	} {
		if got := readAnnotations([]byte(text)); got != want {
			t.Errorf("%s: got %+v, want %+v", text, got, want)
		}
	}
}
