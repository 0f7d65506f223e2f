package gateway

import (
	"strings"
	"testing"

	"github.com/opa-gate/opa-gate/capability"
)

const connector = capability.RegisteredConnector

// What passes keeps its bytes: numbers that no float holds, members that
// nobody knows, methods that nobody knows, errors with their data.
func TestPassesBytes(t *testing.T) {
	b := newBench(t, "", fake("fake", "good", connector))
	c := b.start()
	m := c.request("initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`)
	const want = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"resources":{},"prompts":{}},"serverInfo":{"name":"fake","version":"1"},"xUnknown":{"n":9007199254740993}}`
	if string(m.Result) != want {
		t.Errorf("initialize: got %s\nwant %s", m.Result, want)
	}
	c.write(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)

	const params = `{"_meta":{"progressToken":"p"},"name":"look","arguments":{"n":9007199254740993,"s":"\u00e9<&>","f":1.0},"xMore":[1e2]}`
	m = c.request("tools/call", params)
	if want := `{"content":[{"type":"text","text":"done"}],"structuredContent":{"n":12345678901234567890,"echo":` + params + `},"_x":1e400}`; string(m.Result) != want {
		t.Errorf("tools/call: got %s\nwant %s", m.Result, want)
	}
	m = c.request("x/unknown", `{"a":1.10}`)
	if want := `{"big":123456789012345678901234567890,"params":{"a":1.10}}`; string(m.Result) != want {
		t.Errorf("unknown method: got %s\nwant %s", m.Result, want)
	}
	m = c.request("y/unknown", `{}`)
	if m.Error == nil || m.Error.Code != -32601 || string(m.Error.Data) != `{"n":9007199254740993}` {
		t.Errorf("an error of the server came as %s", m.line)
	}
	if got := b.calls(); len(got) != 1 || got[0] != params {
		t.Errorf("the server saw %q, want %q", got, params)
	}
}

func TestList(t *testing.T) {
	for _, tt := range []struct {
		name, behaviour string
		owned           []string
		want            string // names in order
	}{
		{"all but what is not viable", "good", nil, "look fetch send secret"},
		{"owned alone", "good", []string{"look", "paid_fetch"}, "look"},
		{"none owned", "good", []string{}, ""},
		{"what reads in two ways is hidden", "twofaced", nil, "look fetch send secret"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := fake("fake", tt.behaviour, connector)
			server.Owned = tt.owned
			c := newBench(t, "", server).start()
			c.hello(`{}`)
			if got := toolNames(t, c.request("tools/list", `{}`)); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if m := c.call("paid_fetch"); m.Error == nil || m.Error.Code != -32602 {
				t.Errorf("a tool that is hidden was called: %s", m.line)
			}
		})
	}
}

func toolNames(t *testing.T, m wireMessage) string {
	t.Helper()
	members, err := readObject(m.Result)
	if err != nil {
		t.Fatalf("%v: %s", err, m.line)
	}
	tools, err := readArray(lookup(members, "tools"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range tools {
		_, name, err := textMember(tool, "name")
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// The rules of the decision, as the client sees them.
func TestDecides(t *testing.T) {
	const catalogue = `
[tools.mcp__fake__secret]
origin = "registered-connector"
veto = "Nobody looks there."

[tools.mcp__fake__look]
origin = "registered-connector"
note = "Mind the gap."

[tools.mcp__fake__fetch]
origin = "registered-connector"
set = { limit = 12345678901234567890123, mode = "safe" }
`
	// TOML has no such integers.
	b := newBench(t, strings.ReplaceAll(catalogue, "12345678901234567890123", "7"), fake("fake", "good", connector))
	c := b.start()
	c.hello(`{}`)

	m := c.call("secret")
	if !strings.Contains(string(m.Result), `"isError":true`) || !strings.Contains(string(m.Result), "Nobody looks there.") ||
		!strings.Contains(string(m.Result), `"opa-gate/outcome":"deny"`) {
		t.Errorf("a veto came as %s", m.line)
	}
	m = c.call("look")
	if !strings.HasPrefix(string(m.Result), `{"content":[{"type":"text","text":"done"},{"type":"text","text":"Mind the gap."}],"structuredContent"`) {
		t.Errorf("a note came as %s", m.line)
	}
	if b.taint() != capability.Clean {
		t.Error("a tool of a closed world tainted")
	}
	if m = c.call("send"); m.Error != nil || strings.Contains(string(m.Result), "isError") {
		t.Errorf("a clean conversation may not send: %s", m.line)
	}
	m = c.request("tools/call", `{"name":"fetch","arguments":{"url":"u","limit":1}}`)
	if m.Error != nil || !strings.Contains(string(m.Result), `"arguments":{"limit":7,"mode":"safe","url":"u"}`) {
		t.Errorf("rewritten arguments came as %s", m.line)
	}
	if b.taint() != capability.Tainted {
		t.Error("a tool of an open world did not taint")
	}
	m = c.call("send")
	if !strings.Contains(string(m.Result), `"opa-gate/outcome":"escalate"`) || !strings.Contains(string(m.Result), "opa-gate approvals show") {
		t.Errorf("a tainted conversation got %s", m.line)
	}
	if got := len(b.calls()); got != 3 {
		t.Errorf("%d calls were made, want 3: %q", got, b.calls())
	}
}

// Content that comes by other ways taints as well, before it is handed on.
func TestTaintsByOtherWays(t *testing.T) {
	for method, params := range map[string]string{
		"resources/read": `{"uri":"fake://x"}`,
		"prompts/get":    `{"name":"hello"}`,
		"tasks/result":   `{"taskId":"unheard-of"}`,
		"x/unknown":      `{}`,
		"Resources/Read": `{"uri":"fake://x"}`, // a server may not mind the case
	} {
		t.Run(method, func(t *testing.T) {
			b := newBench(t, "", fake("fake", "good", connector))
			c := b.start()
			c.hello(`{}`)
			c.request(method, params)
			if b.taint() != capability.Tainted {
				t.Error("the conversation is clean")
			}
		})
	}
	b := newBench(t, "[tools.\"mcp__fake__resources/read\"]\norigin = \"registered-connector\"\nopen_world = false", fake("fake", "good", connector))
	c := b.start()
	c.hello(`{}`)
	c.request("resources/read", `{"uri":"fake://x"}`)
	if b.taint() != capability.Clean {
		t.Error("the operator's word on resources does not count")
	}
}

// Two parsers must not read one call differently.
func TestRefusesAmbiguousCalls(t *testing.T) {
	b := newBench(t, "", fake("fake", "good", connector))
	c := b.start()
	c.hello(`{}`)
	for _, params := range []string{
		`{"name":"look","name":"send"}`,
		`{"name":"look","Name":"send"}`,
		`{"name":"look","arguments":{},"Arguments":{"to":"x"}}`,
		`{"name":"look","argument\u017f":{"to":"x"}}`,
		`{"name":"look","arguments":{"to":"a","to":"b"}}`,
		`{"name":"look","arguments":{"to":"a","t\u006f":"b"}}`,
		`{"name":"look","arguments":{"deep":[{"x":1,"x":2}]}}`,
		`{"name":"look","arguments":"{}"}`,
		`{"name":"look","arguments":null}`,
		`{"name":"look","arguments":[]}`,
		`{"name":7}`, `{"name":""}`, `{"name":"look\ud800"}`, `{}`, `[]`, `7`, `null`,
		`{"name":"no-such-tool"}`,
	} {
		m := c.request("tools/call", params)
		if m.Error == nil || m.Error.Code != -32602 {
			t.Errorf("%s was answered with %s", params, m.line)
		}
	}
	for _, method := range []string{"tools/Call", "tools/call2", "tools/", "Tools/call", "TOOLS/CALL", " tools/call", "tools /call", "tool\u017f/call", "tools"} {
		if m := c.request(method, `{"name":"look"}`); m.Error == nil || m.Error.Code != -32601 {
			t.Errorf("%s was answered with %s", method, m.line)
		}
	}
	if got := b.calls(); got != nil {
		t.Errorf("the server executed %q", got)
	}
}

// Requests that are sent without an id are not passed on, by whatever method:
// nothing decides them, and a careless server would do what they say.
func TestRequestsWithoutID(t *testing.T) {
	for name, servers := range map[string][]ServerConfig{
		"one server": {fake("fake", "good", connector)},
		"several":    {fake("fake", "good", connector), fake("other", "good", connector)},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "", servers...)
			c := b.start()
			c.hello(`{}`)
			for _, method := range []string{"tools/call", "Tools/call", "tools/call2", "resources/read", "x/unknown", "", "notifications"} {
				c.write(`{"jsonrpc":"2.0","method":"` + method + `","params":{"name":"send","arguments":{},"uri":"fake://good"}}`)
			}
			c.request("resources/list", `{}`) // what was written before was read by the servers too
			if got := b.calls(); got != nil {
				t.Errorf("the server executed %q", got)
			}
			if log := b.logged(); strings.Count(log, "dropped a request without an id") != 7 {
				t.Errorf("the log does not tell of each:\n%s", log)
			}
		})
	}
}

// Lines that are no messages are answered with an error, and the rest goes on.
func TestBrokenClientLines(t *testing.T) {
	b := newBench(t, "", fake("fake", "good", connector))
	b.config.MaxMessage = 1 << 16
	c := b.start()
	c.hello(`{}`)
	lines := []string{
		`{"jsonrpc":"2.0","id":1`, `{"jsonrpc":"1.0","id":1,"method":"ping"}`, `{"jsonrpc":"2.0","id":1.5,"method":"ping"}`,
		`{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}`, `{"jsonrpc":"2.0","id":null,"method":"ping"}`,
		`{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/call","params":{"name":"send"}}`,
		`[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"look"}}]`,
		`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"look","arguments":{"x":"` + strings.Repeat("x", 1<<16) + `"}}}`,
	}
	for _, line := range lines {
		c.write(line)
		if m := <-c.other; m.Error == nil || m.Error.Code != -32700 {
			t.Errorf("%.80s was answered with %s", line, m.line)
		}
	}
	if m := c.call("look"); m.Error != nil {
		t.Errorf("after that: %s", m.line)
	}
	if got := len(b.calls()); got != 1 {
		t.Errorf("%d calls were made", got)
	}
}
