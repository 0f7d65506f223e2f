package agent_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opa-gate/opa-gate/agent"
	"github.com/opa-gate/opa-gate/capability"
)

func TestShippedCatalogue(t *testing.T) {
	c, err := agent.LoadCatalogue("")
	if err != nil {
		t.Fatal(err)
	}
	if c.Grant.Base != capability.All || len(c.Grant.Unknown) > 0 {
		t.Errorf("grant %v, want all", c.Grant)
	}
	for _, tt := range []struct {
		tool     string
		required capability.Set
		taints   bool
	}{
		{"Read", 1, false},
		{"Grep", 1, false},
		{"Write", 3, false},
		{"Edit", 3, false},
		{"WebFetch", 8, true},
		{"WebSearch", 8, true},
		{"Bash", 31, true},
		{"Agent", 31, true},
		{"Task", 31, true},
		{"Skill", 31, true},
		{"ReadMcpResourceTool", 4, true},
		{"mcp__github__create_issue", 31, true},
		{"read", 31, true}, // names are what they are
		{"SomethingNew", 31, true},
	} {
		p := c.Lookup(tt.tool).Profile
		if got := p.Required(); got != tt.required {
			t.Errorf("%s requires %d, want %d", tt.tool, got, tt.required)
		}
		if got := (&capability.Result{Profile: p}).Taints(); got != tt.taints {
			t.Errorf("%s taints: %v, want %v", tt.tool, got, tt.taints)
		}
	}
	if n := len(c.Tools()); n < 40 {
		t.Errorf("the catalogue that ships has %d tools", n)
	}
}

const tomlCatalogue = `base = ["local-read"]
sandbox = ["/tmp/x"]

[tools.Read]
origin = "registered-connector"
destructive = false

[tools."mcp__github__*"]
origin = "registered-connector"
[tools."mcp__github__get_*"]
origin = "first-party"
read_only = true
taints = true
[tools.Bash]
origin = "local-sandbox"
veto = ""
set = { timeout = 9007199254740993, deep = { a = [1, "x"] } }
`

const yamlCatalogue = `base: [local-read]
sandbox: [/tmp/x]
tools:
  Read: {origin: registered-connector, destructive: false}
  mcp__github__*: {origin: registered-connector}
  mcp__github__get_*: {origin: first-party, read_only: true, taints: true}
  Bash:
    origin: local-sandbox
    veto: ""
    set: {timeout: 9007199254740993, deep: {a: [1, x]}}
`

func TestCatalogueForms(t *testing.T) {
	for file, text := range map[string]string{"c.toml": tomlCatalogue, "c.yaml": yamlCatalogue, "c.yml": yamlCatalogue} {
		t.Run(file, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), file)
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			c, err := agent.LoadCatalogue(path)
			if err != nil {
				t.Fatal(err)
			}
			if c.Grant.Base != capability.SetOf(capability.LocalRead) {
				t.Errorf("base %v", c.Grant.Base)
			}
			if !slices.Equal(c.Sandbox, []string{"/tmp/x"}) {
				t.Errorf("sandbox %v", c.Sandbox)
			}
			if !slices.Contains(c.Protect, ".claude") {
				t.Errorf("protect %v: what the file leaves out is what ships", c.Protect)
			}
			read := c.Lookup("Read")
			if want := (capability.Profile{Origin: capability.RegisteredConnector, Destructive: capability.No}); read.Profile != want || len(read.Paths) > 0 {
				t.Errorf("Read is %+v: an entry takes the whole place of the one that ships", read)
			}
			if got := c.Lookup("mcp__github__get_issue"); got.Pattern != "mcp__github__get_*" || !got.Taints {
				t.Errorf("the longest beginning counts, got %+v", got)
			}
			if got := c.Lookup("mcp__github__close").Profile.Origin; got != capability.RegisteredConnector {
				t.Errorf("origin %v", got)
			}
			if got := c.Lookup("mcp__git").Profile.Origin; got != capability.Unknown {
				t.Errorf("origin %v", got)
			}
			bash := c.Lookup("Bash")
			if !bash.Vetoed || bash.Veto != "" {
				t.Errorf("an empty veto is one, got %+v", bash)
			}
			if got := string(bash.Set["timeout"]); got != "9007199254740993" {
				t.Errorf("timeout is set to %s", got)
			}
			if got := c.Lookup("WebFetch").Profile.Origin; got != capability.Fetcher {
				t.Errorf("WebFetch, which the file does not name, is %v", got)
			}
		})
	}
}

func TestCatalogueErrors(t *testing.T) {
	for _, tt := range []struct{ name, file, text, at, says string }{
		{"unknown key", "c.toml", "\n[tools.Read]\norigin = \"fetcher\"\nread_olny = true\n", "c.toml:4: tools.Read.read_olny: ", "read_only"},
		{"unknown key at the top", "c.toml", "bass = []\n", "c.toml:1: bass: ", "base"},
		{"unknown origin", "c.toml", "[tools.Read]\norigin = \"locl-sandbox\"\n", "c.toml:2: tools.Read.origin: ", "local-sandbox"},
		{"origin of a quoted name", "c.toml", "[tools]\n\"mcp__a__*\" = { origin = 3 }\n", "c.toml:2: tools.mcp__a__*.origin: ", "3"},
		{"a marker in the base", "c.toml", "# x\nbase = [\"grant-access\"]\n", "c.toml:2: base.0: ", "grant-access"},
		{"not TOML", "c.toml", "a = 1\nb = = 2\n", "c.toml:2: ", "not TOML"},
		{"a list twice", "c.toml", "base = []\nbase = []\n", "c.toml:1: base: ", "twice"},
		{"a table twice", "c.toml", "[tools.A]\n[tools.A]\n", "c.toml:2: ", "not TOML"},
		{"a star inside", "c.toml", "[tools.\"a*b\"]\norigin = \"fetcher\"\n", "c.toml:1: tools.a*b: ", "a name without blanks, with a * at most at its end"},
		{"taints = false", "c.toml", "[tools.Bash]\ntaints = false\n", "c.toml:2: tools.Bash.taints: ", "true"},
		{"a note and fixed arguments", "c.toml", "[tools.Bash]\nnote = \"x\"\nset = {a = 1}\n", "c.toml:1: tools.Bash: ", "not both"},
		{"unknown key", "c.yaml", "tools:\n  Read:\n    origin: fetcher\n    read_olny: true\n", "c.yaml:4: tools.Read.read_olny: ", "read_only"},
		{"a key twice", "c.yaml", "tools:\n  Read: {origin: fetcher}\n  Read: {origin: unknown}\n", "c.yaml:3: ", "twice"},
		{"an alias", "c.yaml", "tools:\n  A: &x {origin: fetcher}\n  B: *x\n", "c.yaml:3: ", "alias"},
		{"two documents' worth", "c.yaml", "a\n---\nb\n", "c.yaml", ""},
		{"unknown key", "c.json", "{\n\"tols\": {}}", "c.json:2: tols: ", "tools"},
		{"no form", "c.txt", "", "c.txt: ", ".toml"},
		{"too large", "c.toml", strings.Repeat("#", agent.MaxCatalogue+1), "c.toml: ", "bytes"},
	} {
		t.Run(tt.name+" "+tt.file, func(t *testing.T) {
			_, err := agent.ParseCatalogue(tt.file, []byte(tt.text))
			if !errors.Is(err, agent.ErrCatalogue) {
				t.Fatalf("error %v, want one that matches ErrCatalogue", err)
			}
			if !strings.HasPrefix(err.Error(), tt.at) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error %q, want %q… with %q", err, tt.at, tt.says)
			}
		})
	}
	if _, err := agent.LoadCatalogue(filepath.Join(t.TempDir(), "none.toml")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

func FuzzCatalogue(f *testing.F) {
	f.Add("c.toml", tomlCatalogue)
	f.Add("c.yaml", yamlCatalogue)
	f.Add("c.json", `{"tools": {"a*": {"origin": "unknown"}}}`)
	f.Fuzz(func(t *testing.T, file, text string) {
		c, err := agent.ParseCatalogue(file, []byte(text))
		if err != nil {
			if !errors.Is(err, agent.ErrCatalogue) {
				t.Errorf("error %v does not match ErrCatalogue", err)
			}
			return
		}
		if !c.Grant.Base.SubsetOf(capability.All) {
			t.Errorf("base %v has what cannot be granted", c.Grant.Base)
		}
		for _, tool := range c.Tools() {
			if !tool.Profile.Origin.Valid() {
				t.Errorf("origin %v of %q", tool.Profile.Origin, tool.Pattern)
			}
		}
	})
}

func TestDeclared(t *testing.T) {
	stated := agent.Tool{Profile: capability.Profile{Origin: capability.RegisteredConnector, ReadOnly: capability.No}}
	got := stated.Declared(capability.Profile{Origin: capability.FirstParty, ReadOnly: capability.Yes, OpenWorld: capability.No})
	want := capability.Profile{Origin: capability.RegisteredConnector, ReadOnly: capability.No, OpenWorld: capability.No}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
