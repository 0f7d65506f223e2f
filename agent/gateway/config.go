package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"
	jsonv2 "github.com/go-json-experiment/json"
	"go.yaml.in/yaml/v3"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/internal/plain"
)

// ErrConfig is wrapped by every error about what a configuration says.
var ErrConfig = errors.New("the gateway's configuration cannot be used")

// The bounds that hold where a configuration states none.
const (
	DefaultTimeout    = 10 * time.Minute
	DefaultInFlight   = 1024
	DefaultMaxMessage = 16 << 20 // bytes
)

// A Config says which servers stand behind a gateway, and its bounds.
type Config struct {
	Servers    []ServerConfig        // in the order of their names; one or more
	Catalogue  string                // file of the tool catalogue; "" is the one that ships
	Deployment capability.Deployment // what tools can need; the zero one has nothing
	Needs      capability.Needs      // what tools need; nil means the default
	Timeout    time.Duration         // of one request; 0 is [DefaultTimeout]
	Wait       time.Duration         // how long a call waits for a person where the client cannot ask; 0 is not at all
	InFlight   int                   // requests at once, of each side; 0 is [DefaultInFlight]
	MaxMessage int                   // bytes of one message; 0 is [DefaultMaxMessage]
}

// A ServerConfig is one server behind a gateway: a command, or a URL.
type ServerConfig struct {
	Name    string   // letters, digits, - and _, without __
	Command string   // a program that speaks MCP on its standard streams
	Args    []string // of the program
	Dir     string   // the program's working directory; "" is this one's
	Env     map[string]string
	URL     string // of a server that speaks streamable HTTP
	Headers map[string]string
	Origin  capability.Origin // of the tools that the catalogue does not name
	Owned   []string          // the tools that the client may see; nil means all
}

// owns reports whether the operator owns a tool of this server.
func (c *ServerConfig) owns(tool string) bool {
	return c.Owned == nil || slices.Contains(c.Owned, tool)
}

func (c *Config) viable(tool string) bool { return c.Needs.Viable(tool, c.Deployment) }

// configDocument is a configuration as it is written.
type configDocument struct {
	Catalogue  string                    `json:"catalogue" toml:"catalogue" yaml:"catalogue"`
	Deployment []string                  `json:"deployment" toml:"deployment" yaml:"deployment"`
	Timeout    string                    `json:"timeout" toml:"timeout" yaml:"timeout"`
	Wait       string                    `json:"wait" toml:"wait" yaml:"wait"`
	InFlight   int                       `json:"in_flight" toml:"in_flight" yaml:"in_flight"`
	MaxMessage int                       `json:"max_message" toml:"max_message" yaml:"max_message"`
	Needs      map[string][]string       `json:"needs" toml:"needs" yaml:"needs"`
	Servers    map[string]serverDocument `json:"mcpServers" toml:"mcpServers" yaml:"mcpServers"`
}

type serverDocument struct {
	Type    string            `json:"type" toml:"type" yaml:"type"`
	Command string            `json:"command" toml:"command" yaml:"command"`
	Args    []string          `json:"args" toml:"args" yaml:"args"`
	Dir     string            `json:"cwd" toml:"cwd" yaml:"cwd"`
	Env     map[string]string `json:"env" toml:"env" yaml:"env"`
	URL     string            `json:"url" toml:"url" yaml:"url"`
	Headers map[string]string `json:"headers" toml:"headers" yaml:"headers"`
	Origin  string            `json:"origin" toml:"origin" yaml:"origin"`
	Owned   *[]string         `json:"owned" toml:"owned" yaml:"owned"`
}

// maxConfig is the length of a configuration file, in bytes.
const maxConfig = 4 << 20

// LoadConfig reads a configuration file, in TOML, YAML or JSON by its name. A
// value of env and headers may hold ${NAME}, which lookup gives a value;
// os.LookupEnv is meant. Errors about the content wrap [ErrConfig].
func LoadConfig(file string, lookup func(string) (string, bool)) (*Config, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxConfig {
		return nil, fmt.Errorf("%s: %w: it has more than %d bytes", file, ErrConfig, maxConfig)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	c, err := ParseConfig(file, text, lookup)
	if err != nil {
		return nil, err
	}
	if c.Catalogue != "" && !filepath.IsAbs(c.Catalogue) {
		c.Catalogue = filepath.Join(filepath.Dir(file), c.Catalogue)
	}
	return c, nil
}

// ParseConfig is [LoadConfig] of a text; file is its name in errors.
func ParseConfig(file string, text []byte, lookup func(string) (string, bool)) (*Config, error) {
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("%s: %w: %w", file, ErrConfig, fmt.Errorf(format, args...))
	}
	var doc configDocument
	if err := decodeConfig(file, text, &doc); err != nil {
		return nil, wrong("%w", err)
	}
	c := &Config{Catalogue: doc.Catalogue, InFlight: doc.InFlight, MaxMessage: doc.MaxMessage}
	c.Deployment = capability.ParseDeployment(doc.Deployment)
	var err error
	if doc.Needs != nil {
		if c.Needs, err = capability.ParseNeeds(doc.Needs); err != nil {
			return nil, wrong("needs: %w", err)
		}
	}
	for _, d := range []struct {
		name, text string
		into       *time.Duration
	}{{"timeout", doc.Timeout, &c.Timeout}, {"wait", doc.Wait, &c.Wait}} {
		if d.text == "" {
			continue
		}
		if *d.into, err = time.ParseDuration(d.text); err != nil {
			return nil, wrong("%s: expected a time such as 90s or 10m, got %q", d.name, d.text)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(doc.Servers)) {
		server, err := doc.Servers[name].config(name, lookup)
		if err != nil {
			return nil, wrong("mcpServers.%s: %w", name, err)
		}
		c.Servers = append(c.Servers, server)
	}
	if err := c.check(); err != nil {
		return nil, wrong("%w", err)
	}
	return c, nil
}

// decodeConfig reads text in the form that the file's name tells. A key that
// is not known, or stands twice, is an error.
func decodeConfig(file string, text []byte, doc *configDocument) error {
	switch ext := strings.ToLower(filepath.Ext(file)); ext {
	case ".toml":
		var tree map[string]any
		if _, err := toml.Decode(string(text), &tree); err != nil {
			if e, ok := errors.AsType[toml.ParseError](err); ok {
				return fmt.Errorf("line %d: %s", e.Position.Line, e.Message)
			}
			return err
		}
		// The decoder of TOML itself takes a number where a table has to be for nothing.
		text, err := jsonv2.Marshal(tree)
		if err != nil { // that is all that JSON cannot say
			return errors.New("expected numbers that are finite")
		}
		return decodeJSON(text, doc)
	case ".yaml", ".yml":
		dec := yaml.NewDecoder(bytes.NewReader(text))
		dec.KnownFields(true)
		return plain.YAML(dec.Decode(doc))
	case ".json":
		return decodeJSON(text, doc)
	default:
		return errors.New("the name tells no form; expected it to end in .toml, .yaml, .yml or .json")
	}
}

func decodeJSON(text []byte, doc *configDocument) error {
	return plain.JSON(jsonv2.Unmarshal(text, doc, jsonv2.RejectUnknownMembers(true)))
}

func (d serverDocument) config(name string, lookup func(string) (string, bool)) (ServerConfig, error) {
	c := ServerConfig{Name: name, Command: d.Command, Args: d.Args, Dir: d.Dir, URL: d.URL}
	switch d.Type {
	case "":
	case "stdio":
		if d.URL != "" {
			return c, errors.New("type is stdio, and there is a url")
		}
	case "http", "streamable-http":
		if d.Command != "" {
			return c, fmt.Errorf("type is %s, and there is a command", d.Type)
		}
	default:
		return c, fmt.Errorf("type: expected stdio or http, got %q", d.Type)
	}
	if d.Origin != "" {
		origin, ok := capability.ParseOrigin(d.Origin)
		if !ok {
			return c, fmt.Errorf("origin: there is no origin %q", d.Origin)
		}
		c.Origin = origin
	}
	if d.Owned != nil {
		c.Owned = append([]string{}, *d.Owned...)
	}
	var err error
	if c.Env, err = expand("env", d.Env, lookup); err != nil {
		return c, err
	}
	c.Headers, err = expand("headers", d.Headers, lookup)
	return c, err
}

var variable = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)

// expand puts the values of variables into texts. The values appear in no error.
func expand(what string, texts map[string]string, lookup func(string) (string, bool)) (map[string]string, error) {
	out := make(map[string]string, len(texts))
	for key, text := range texts {
		var missing string
		out[key] = variable.ReplaceAllStringFunc(text, func(match string) string {
			name := match[2 : len(match)-1]
			value, ok := lookup(name)
			if !ok {
				missing = name
			}
			return value
		})
		if missing != "" {
			return nil, fmt.Errorf("%s.%s: the variable %s is not set", what, key, missing)
		}
	}
	return out, nil
}

// maxServerName is the longest name of a server, in bytes.
const maxServerName = 64

var serverName = regexp.MustCompile(`^[A-Za-z0-9-]+(_[A-Za-z0-9-]+)*$`)

// check fills in what a configuration leaves out and finds what is wrong.
func (c *Config) check() error {
	if len(c.Servers) == 0 {
		return errors.New("mcpServers: expected one server at least")
	}
	if c.Needs == nil {
		c.Needs = capability.DefaultNeeds()
	}
	for _, d := range []struct {
		name  string
		value *int
		def   int
		most  int
	}{{"in_flight", &c.InFlight, DefaultInFlight, 1 << 20}, {"max_message", &c.MaxMessage, DefaultMaxMessage, 1 << 30}} {
		if *d.value == 0 {
			*d.value = d.def
		}
		if *d.value < 0 || *d.value > d.most {
			return fmt.Errorf("%s: expected a number from 1 to %d, got %d", d.name, d.most, *d.value)
		}
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.Timeout < 0 || c.Wait < 0 {
		return errors.New("timeout, wait: expected times that are not negative")
	}
	for i := range c.Servers {
		if err := c.Servers[i].check(); err != nil {
			return fmt.Errorf("mcpServers.%s: %w", c.Servers[i].Name, err)
		}
		for _, other := range c.Servers[:i] {
			if other.Name == c.Servers[i].Name {
				return fmt.Errorf("mcpServers.%s stands twice", other.Name)
			}
		}
	}
	return nil
}

func (c *ServerConfig) check() error {
	if len(c.Name) > maxServerName || !serverName.MatchString(c.Name) {
		return errors.New("expected a name of up to 64 letters, digits, - and single _")
	}
	if !c.Origin.Valid() {
		return fmt.Errorf("origin: %v is none", c.Origin)
	}
	switch {
	case (c.Command == "") == (c.URL == ""):
		return errors.New("expected a command or a url, and one of the two")
	case c.URL == "" && len(c.Headers) > 0:
		return errors.New("headers go with a url")
	case c.URL != "" && (len(c.Args) > 0 || len(c.Env) > 0 || c.Dir != ""):
		return errors.New("args, env and cwd go with a command")
	}
	for name, value := range c.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) {
			return fmt.Errorf("env: %q cannot be set", name)
		}
	}
	if c.URL == "" {
		return nil
	}
	u, err := url.Parse(c.URL)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return errors.New("url: expected http://HOST/… or https://HOST/…")
	}
	if u.User != nil {
		return errors.New("url: put what is secret into headers, which no log shows")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		if !headerName.MatchString(name) {
			return fmt.Errorf("headers: %q is no name of a header", name)
		}
		if strings.ContainsFunc(c.Headers[name], func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			return fmt.Errorf("headers.%s: the value has a line break or another character that no header carries", name)
		}
	}
	return nil
}

// headerName is what HTTP calls a token.
var headerName = regexp.MustCompile("^[-!#$%&'*+.^_`|~0-9A-Za-z]+$")
