package gateway

import (
	"errors"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/opa-gate/opa-gate/capability"
)

var environment = map[string]string{"TOKEN": "the-secret", "EMPTY": ""}

func lookupTest(name string) (string, bool) {
	value, ok := environment[name]
	return value, ok
}

func TestConfig(t *testing.T) {
	want := &Config{
		Catalogue: "agent.toml", Deployment: capability.ParseDeployment([]string{"mail-relay"}), Needs: capability.DefaultNeeds(),
		Timeout: 90 * time.Second, Wait: time.Minute, InFlight: 7, MaxMessage: DefaultMaxMessage,
		Servers: []ServerConfig{
			{
				Name: "files", Command: "npx", Args: []string{"-y", "server"}, Dir: "/work", Env: map[string]string{"KEY": "x-the-secret-", "PLAIN": "$TOKEN"},
				Headers: map[string]string{}, Origin: capability.LocalSandbox, Owned: []string{"read"},
			},
			{Name: "far", URL: "https://far.example/mcp", Env: map[string]string{}, Headers: map[string]string{"Authorization": "Bearer the-secret"}},
		},
	}
	want.Servers[0], want.Servers[1] = want.Servers[1], want.Servers[0] // far comes before files
	for name, text := range map[string]string{
		"c.json": `{"catalogue": "agent.toml", "deployment": ["mail-relay"], "timeout": "90s", "wait": "1m", "in_flight": 7, "mcpServers": {
			"files": {"type": "stdio", "command": "npx", "args": ["-y", "server"], "cwd": "/work", "env": {"KEY": "x-${TOKEN}-${EMPTY}", "PLAIN": "$TOKEN"}, "origin": "local-sandbox", "owned": ["read"]},
			"far": {"type": "http", "url": "https://far.example/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}}}}`,
		"c.yaml": `
catalogue: agent.toml
deployment: [mail-relay]
timeout: 90s
wait: 1m
in_flight: 7
mcpServers:
  files: {command: npx, args: ["-y", server], cwd: /work, env: {KEY: "x-${TOKEN}-${EMPTY}", PLAIN: $TOKEN}, origin: local-sandbox, owned: [read]}
  far: {url: "https://far.example/mcp", headers: {Authorization: "Bearer ${TOKEN}"}}
`,
		"c.toml": `
catalogue = "agent.toml"
deployment = ["mail-relay"]
timeout = "90s"
wait = "1m"
in_flight = 7
[mcpServers.files]
command = "npx"
args = ["-y", "server"]
cwd = "/work"
env = { KEY = "x-${TOKEN}-${EMPTY}", PLAIN = "$TOKEN" }
origin = "local-sandbox"
owned = ["read"]
[mcpServers.far]
url = "https://far.example/mcp"
headers = { Authorization = "Bearer ${TOKEN}" }
`,
	} {
		got, err := ParseConfig(name, []byte(text), lookupTest)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v\nwant %+v", name, got, want)
		}
	}
}

func TestConfigErrors(t *testing.T) {
	const one = `{"mcpServers": {"a": `
	for _, tt := range []struct{ name, text, want string }{
		{"c.json", `{}`, "expected one server at least"},
		{"c.json", `{"mcpServers": {}, "mcpservers": {}}`, "mcpservers"},
		{"c.json", `{"mcpServers": {}, "mcpServers": {}}`, "duplicate"},
		{"c.json", one + `{"command": "x", "comand": "y"}}}`, "comand"},
		{"c.json", one + `{}}}`, "a command or a url"},
		{"c.json", one + `{"command": "x", "url": "http://x"}}}`, "a command or a url"},
		{"c.json", one + `{"command": "x", "headers": {"A": "b"}}}}`, "headers go with a url"},
		{"c.json", one + `{"url": "http://x", "args": ["b"]}}}`, "go with a command"},
		{"c.json", one + `{"url": "file:///etc/passwd"}}}`, "url: expected http"},
		{"c.json", one + `{"url": "https://user:pass@x/"}}}`, "put what is secret into headers"},
		{"c.json", one + `{"command": "x", "type": "sse"}}}`, `expected stdio or http, got "sse"`},
		{"c.json", one + `{"command": "x", "origin": "local"}}}`, `there is no origin "local"`},
		{"c.json", one + `{"command": "x", "env": {"A": "${ABSENT}"}}}}`, "the variable ABSENT is not set"},
		{"c.json", one + `{"command": "x"}}, "timeout": "5"}`, "expected a time"},
		{"c.json", one + `{"command": "x"}}, "in_flight": -1}`, "expected a number from 1"},
		{"c.json", one + `{"command": "x"}}, "needs": {"t": ["x"]}}`, "no deployment requirement"},
		{"c.json", `{"mcpServers": {"a__b": {"command": "x"}}}`, "expected a name"},
		{"c.json", `{"mcpServers": {"a b": {"command": "x"}}}`, "expected a name"},
		{"c.toml", "[mcpServers.a]\ncommand = \"x\"\nowner = 1", "owner"},
		{"c.toml", "timeout = 5\nx = ?", "line 2"},
		{"c.yaml", "mcpServers: {a: {command: x, owner: y}}", "owner"},
		{"c.yaml", "mcpServers: {a: {command: x}, a: {command: y}}", "already"},
		{"c.yaml", "servers: {}", "line 1: there is no member servers"},
		{"c.yaml", "[]", "expected a mapping, got a list"},
		{"c.json", "[]", "expected an object, got an array"},
		{"c.json", one + `{"command": ["x"]}}}`, "/mcpServers/a/command: expected a string, got an array"},
		{"c.json", one + `{"command": "x", "env": 3}}}`, "/mcpServers/a/env: expected an object, got a number"},
		{"c.toml", "mcpServers.a = 3", "/mcpServers/a: expected an object, got a number"},
		{"c.toml", "mcpServers = 3", "/mcpServers: expected an object, got a number"},
		{"c.toml", "[mcpServers.a]\ncommand = \"x\"\nenv = 3", "/mcpServers/a/env: expected an object, got a number"},
		{"c.toml", "[mcpServers.a]\ncommand = \"x\"\ncommand = \"y\"", "line 3"},
		{"c.toml", "in_flight = nan", "finite"},
		{"c.json", `{"in_flight": 1e99}`, "/in_flight: expected a whole number of 64 bits, got 1e99"},
		{"c.json", `{"in_flight": 1.5}`, "/in_flight: expected a whole number of 64 bits, got 1.5"},
		{"c.json", one + `{"url": "http://x", "headers": {"Au th": "b"}}}}`, `"Au th" is no name of a header`},
		{"c.json", one + `{"url": "http://x", "headers": {"": "b"}}}}`, `"" is no name of a header`},
		{"c.json", one + `{"url": "http://x", "headers": {"A:": "b"}}}}`, `"A:" is no name of a header`},
		{"c.json", one + `{"url": "http://x", "headers": {"Ä": "b"}}}}`, `"Ä" is no name of a header`},
		{"c.json", one + `{"url": "http://x", "headers": {"Authorization": "${TOKEN}\nX: y"}}}}`, "headers.Authorization: the value has a line break"},
		{"c.txt", "", "expected it to end in"},
	} {
		_, err := ParseConfig(tt.name, []byte(tt.text), lookupTest)
		if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), tt.name) {
			t.Errorf("%s: got %v, want %q", tt.text, err, tt.want)
		}
		if err != nil && regexp.MustCompile(`gateway\.\w|\bGo\b|map\[|\[\]string`).MatchString(err.Error()) {
			t.Errorf("the words of Go are in the error %v", err)
		}
		if err != nil && (strings.Contains(err.Error(), "the-secret") || strings.Contains(err.Error(), "user:pass")) {
			t.Errorf("a secret is in the error %v", err)
		}
	}
}
