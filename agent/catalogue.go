package agent

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/opa-gate/opa-gate/agent/steering"
	"github.com/opa-gate/opa-gate/capability"
)

//go:embed catalogue.toml
var shipped []byte

//go:embed catalogue.schema.json
var catalogueSchema []byte

// A Tool is what the operator states about one tool, or about all tools whose
// names begin alike. The zero Tool is of unknown origin.
type Tool struct {
	Pattern string             // the name under which it stands; "" if nobody names the tool
	Profile capability.Profile // an annotation that is left out is Unset
	Taints  bool               // its results taint whatever the profile says
	Paths   []string           // arguments that name files or folders
	Shows   string             // the argument that names the content; "" if none does

	Steering steering.Tool // what a finer policy on taint needs to know; by default nothing is

	Vetoed        bool
	Veto          string
	RequiresHuman bool
	Note          string                     // for the model; "" if there is none
	Set           map[string]json.RawMessage // arguments with fixed values
}

// Declared completes what the operator states of a tool with the annotations
// that its server declares. The origin is the operator's alone, and so is each
// annotation that the operator gives.
func (t Tool) Declared(p capability.Profile) capability.Profile {
	out := t.Profile
	for _, h := range []struct{ own, declared *capability.Hint }{
		{&out.ReadOnly, &p.ReadOnly}, {&out.Destructive, &p.Destructive}, {&out.OpenWorld, &p.OpenWorld},
	} {
		if *h.own == capability.Unset {
			*h.own = *h.declared
		}
	}
	return out
}

// A Catalogue is what the operator states about an agent's tools. It is
// immutable and safe for use by several goroutines.
type Catalogue struct {
	Grant   capability.Grant // what the operator grants
	Sandbox []string         // folders beside the project's in which file tools may work
	Protect []string         // paths that file tools do not change without a person

	tools    map[string]Tool // exact names
	prefixes []Tool          // names that end in *, longest first
}

// Lookup returns what is stated about the tool: under its own name, or under
// the longest beginning that fits. For a tool that nobody names it is the zero
// Tool, whose origin is unknown.
func (c *Catalogue) Lookup(tool string) Tool {
	if t, ok := c.tools[tool]; ok {
		return t
	}
	for _, t := range c.prefixes {
		if strings.HasPrefix(tool, strings.TrimSuffix(t.Pattern, "*")) {
			return t
		}
	}
	return Tool{}
}

// Tools returns every entry, in the order of the names.
func (c *Catalogue) Tools() []Tool {
	out := append(slices.Collect(maps.Values(c.tools)), c.prefixes...)
	slices.SortFunc(out, func(a, b Tool) int { return strings.Compare(a.Pattern, b.Pattern) })
	return out
}

// MaxCatalogue is the length of a catalogue file, in bytes.
const MaxCatalogue = 4 << 20

// ErrCatalogue is matched by every error about what stands in a catalogue.
var ErrCatalogue = errors.New("the tool catalogue cannot be used")

// LoadCatalogue reads a catalogue file, TOML, YAML or JSON by its name, over the one
// that ships: an entry of the file takes the place of the entry with the same
// name, and a list the place of the list. An empty name is the one that ships.
// Errors about the content match [ErrCatalogue] and say file and line.
func LoadCatalogue(file string) (*Catalogue, error) {
	if file == "" {
		return shippedCatalogue()
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("the tool catalogue: %w", err)
	}
	defer func() { _ = f.Close() }() // nothing was written to it
	text, err := io.ReadAll(io.LimitReader(f, MaxCatalogue+1))
	if err != nil {
		return nil, fmt.Errorf("the tool catalogue: %w", err)
	}
	return ParseCatalogue(file, text)
}

// ParseCatalogue is [LoadCatalogue] of a text; file is its name in errors.
func ParseCatalogue(file string, text []byte) (*Catalogue, error) {
	base, err := shippedCatalogue()
	if err != nil {
		return nil, err
	}
	doc, err := readCatalogue(file, text)
	if err != nil {
		return nil, err
	}
	return base.with(doc), nil
}

var shippedCatalogue = sync.OnceValues(func() (*Catalogue, error) {
	doc, err := readCatalogue("catalogue.toml", shipped)
	if err != nil {
		return nil, err
	}
	return (&Catalogue{Grant: capability.DefaultGrant()}).with(doc), nil
})

// with returns c with what doc states in the place of what c does.
func (c *Catalogue) with(doc *catalogueDocument) *Catalogue {
	out := &Catalogue{Grant: c.Grant, Sandbox: c.Sandbox, Protect: c.Protect}
	if doc.Base != nil {
		out.Grant = capability.ParseGrant(*doc.Base)
	}
	if doc.Sandbox != nil {
		out.Sandbox = *doc.Sandbox
	}
	if doc.Protect != nil {
		out.Protect = *doc.Protect
	}
	all := c.entries()
	for pattern, entry := range doc.Tools {
		all[pattern] = entry.tool(pattern)
	}
	out.setEntries(all)
	return out
}

// Over returns c with one entry more, which what c states of the same pattern
// goes over. The pattern is a name, or a beginning of names with * at its end.
func (c *Catalogue) Over(t Tool) *Catalogue {
	out, all := *c, c.entries()
	if _, stated := all[t.Pattern]; !stated {
		all[t.Pattern] = t
	}
	out.setEntries(all)
	return &out
}

// entries returns every entry by its pattern, in a map of the caller's own.
func (c *Catalogue) entries() map[string]Tool {
	all := make(map[string]Tool, len(c.tools)+len(c.prefixes))
	maps.Copy(all, c.tools)
	for _, t := range c.prefixes {
		all[t.Pattern] = t
	}
	return all
}

func (c *Catalogue) setEntries(all map[string]Tool) {
	c.tools, c.prefixes = map[string]Tool{}, nil
	for pattern, t := range all {
		if strings.HasSuffix(pattern, "*") {
			c.prefixes = append(c.prefixes, t)
		} else {
			c.tools[pattern] = t
		}
	}
	slices.SortFunc(c.prefixes, func(a, b Tool) int {
		return cmp.Or(cmp.Compare(len(b.Pattern), len(a.Pattern)), strings.Compare(a.Pattern, b.Pattern))
	})
}
