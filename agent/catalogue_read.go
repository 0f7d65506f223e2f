package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/BurntSushi/toml"
	"go.yaml.in/yaml/v3"

	"github.com/opa-gate/opa-gate/agent/steering"
	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/internal/plain"
	"github.com/opa-gate/opa-gate/wire"
)

// A CatalogueError says where a catalogue is wrong and what would be right. It
// matches [ErrCatalogue].
type CatalogueError struct {
	File    string
	Line    int    // counted from 1; 0 if it is not known
	Where   string // the path of keys, such as tools.Read.origin
	Problem string
}

// Error implements error.
func (e *CatalogueError) Error() string {
	at := e.File
	if e.Line > 0 {
		at += ":" + strconv.Itoa(e.Line)
	}
	if e.Where != "" {
		at += ": " + e.Where
	}
	return at + ": " + e.Problem
}

// Unwrap returns ErrCatalogue.
func (e *CatalogueError) Unwrap() error { return ErrCatalogue }

// A catalogueDocument is a catalogue as it is written.
type catalogueDocument struct {
	Base    *[]string                `json:"base"`
	Sandbox *[]string                `json:"sandbox"`
	Protect *[]string                `json:"protect"`
	Tools   map[string]catalogueTool `json:"tools"`
}

type catalogueTool struct {
	Origin        string                     `json:"origin"`
	ReadOnly      *bool                      `json:"read_only"`
	Destructive   *bool                      `json:"destructive"`
	OpenWorld     *bool                      `json:"open_world"`
	Taints        bool                       `json:"taints"`
	Paths         []string                   `json:"paths"`
	Shows         string                     `json:"shows"`
	Effect        string                     `json:"effect"`
	Aims          []string                   `json:"aims"`
	OutsideIf     []string                   `json:"outside_if"`
	Veto          *string                    `json:"veto"`
	RequiresHuman bool                       `json:"requires_human"`
	Note          string                     `json:"note"`
	Set           map[string]json.RawMessage `json:"set"`
}

func (e catalogueTool) tool(pattern string) Tool {
	origin, _ := capability.ParseOrigin(e.Origin) // the schema lets no other name through; left out is unknown
	effect, _ := capability.ParseEffect(e.Effect)
	t := Tool{
		Pattern: pattern,
		Profile: capability.Profile{
			Origin: origin, ReadOnly: hint(e.ReadOnly), Destructive: hint(e.Destructive), OpenWorld: hint(e.OpenWorld),
		},
		Taints: e.Taints, Paths: e.Paths, Shows: e.Shows,
		Steering:      steering.Tool{Effect: effect, Aims: e.Aims, OutsideIf: e.OutsideIf},
		RequiresHuman: e.RequiresHuman, Note: e.Note, Set: e.Set,
	}
	if e.Veto != nil {
		t.Vetoed, t.Veto = true, *e.Veto
	}
	return t
}

func hint(b *bool) capability.Hint {
	if b == nil {
		return capability.Unset
	}
	return capability.HintOf(*b)
}

var compiledSchema = sync.OnceValues(func() (*wire.Schema, error) {
	return wire.CompileSchema("catalogue.json", catalogueSchema)
})

// readCatalogue reads a text in the form that its file's name tells, and holds
// it against the schema.
func readCatalogue(file string, text []byte) (*catalogueDocument, error) {
	if len(text) > MaxCatalogue {
		return nil, &CatalogueError{File: file, Problem: fmt.Sprintf("the file has more than %d bytes", MaxCatalogue)}
	}
	asJSON, lineOf, err := toJSON(file, text)
	if err != nil {
		return nil, err
	}
	schema, err := compiledSchema()
	if err != nil {
		return nil, err
	}
	if _, err := schema.Decode(asJSON); err != nil {
		var e *wire.Error
		if !errors.As(err, &e) {
			return nil, &CatalogueError{File: file, Problem: err.Error()}
		}
		path := pointerPath(e.Pointer)
		return nil, &CatalogueError{File: file, Line: lineOf(path, e.Line), Where: strings.Join(path, "."), Problem: e.Message()}
	}
	var doc catalogueDocument
	dec := json.NewDecoder(bytes.NewReader(asJSON))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&doc); err != nil { // what the schema lets through, this does
		return nil, &CatalogueError{File: file, Problem: err.Error()}
	}
	return &doc, nil
}

// A lineFinder returns the line of the value at a path of keys; line is that in
// the JSON text.
type lineFinder func(path []string, line int) int

func toJSON(file string, text []byte) ([]byte, lineFinder, error) {
	switch ext := strings.ToLower(filepath.Ext(file)); ext {
	case ".toml":
		return tomlToJSON(file, text)
	case ".yaml", ".yml":
		return yamlToJSON(file, text)
	case ".json":
		return text, func(_ []string, line int) int { return line }, nil
	default:
		return nil, nil, &CatalogueError{File: file, Problem: "the name tells no form; expected it to end in .toml, .yaml, .yml or .json"}
	}
}

func tomlToJSON(file string, text []byte) ([]byte, lineFinder, error) {
	var tree map[string]any
	md, err := toml.Decode(string(text), &tree)
	if err != nil {
		var e toml.ParseError
		if errors.As(err, &e) {
			return nil, nil, &CatalogueError{File: file, Line: e.Position.Line, Problem: "this is not TOML: " + e.Message}
		}
		return nil, nil, &CatalogueError{File: file, Problem: "this is not TOML: " + err.Error()}
	}
	given := map[string]bool{}
	for _, key := range md.Keys() { // the library takes a list that is given twice
		if name := key.String(); len(key) <= 3 && md.Type(key...) == "Array" {
			if given[name] {
				return nil, nil, &CatalogueError{File: file, Line: tomlLine(text, key), Where: name, Problem: "this list is given twice"}
			}
			given[name] = true
		}
	}
	out, err := json.Marshal(tree)
	if err != nil { // such as a number that JSON cannot write
		return nil, nil, &CatalogueError{File: file, Problem: err.Error()}
	}
	if tree == nil {
		out = []byte("{}")
	}
	return out, func(path []string, _ int) int { return tomlLine(text, path) }, nil
}

// tomlLine finds the line on which the key path is set, or the nearest key
// above it. The reader of TOML does not tell, so each line is read by itself.
func tomlLine(text []byte, path []string) int {
	var table []string
	best, depth := 0, 0
	for i, line := range strings.Split(string(text), "\n") {
		trimmed := strings.TrimSpace(line)
		var key []string
		if strings.HasPrefix(trimmed, "[") {
			if key = tomlKey(trimmed); key == nil {
				continue
			}
			table = key
		} else if name, _, found := strings.Cut(trimmed, "="); found {
			if key = tomlKey(name + "= 0"); key == nil {
				continue
			}
			key = append(append([]string(nil), table...), key...)
		}
		n := 0
		for n < len(key) && n < len(path) && key[n] == path[n] {
			n++
		}
		if n == len(key) && n > depth {
			best, depth = i+1, n
		}
	}
	return best
}

// tomlKey returns the longest key of one line, nil if the line by itself is no TOML.
func tomlKey(line string) []string {
	var ignored map[string]any
	md, err := toml.Decode(line, &ignored)
	if err != nil {
		return nil
	}
	var longest []string
	for _, k := range md.Keys() {
		if len(k) > len(longest) {
			longest = k
		}
	}
	return longest
}

func yamlToJSON(file string, text []byte) ([]byte, lineFinder, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		return nil, nil, &CatalogueError{File: file, Problem: "this is not YAML: " + plain.YAML(err).Error()}
	}
	if root.Kind == 0 { // nothing but comments
		return []byte("{}"), func([]string, int) int { return 1 }, nil
	}
	tree, err := yamlTree(file, &root, 0)
	if err != nil {
		return nil, nil, err
	}
	out, err := json.Marshal(tree)
	if err != nil {
		return nil, nil, &CatalogueError{File: file, Problem: err.Error()}
	}
	return out, func(path []string, _ int) int { return yamlLine(&root, path) }, nil
}

const yamlDepth = 32

// yamlTree makes a plain tree of nodes. Aliases and keys that are given twice
// are errors: two readers could take them for different things.
func yamlTree(file string, n *yaml.Node, depth int) (any, error) {
	wrong := func(problem string) error { return &CatalogueError{File: file, Line: n.Line, Problem: problem} }
	if depth > yamlDepth {
		return nil, wrong("this is nested too deeply")
	}
	switch n.Kind {
	case yaml.DocumentNode:
		return yamlTree(file, n.Content[0], depth)
	case yaml.MappingNode:
		out := make(map[string]any, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			if key.Kind != yaml.ScalarNode || key.ShortTag() == "!!merge" {
				return nil, wrong("expected a plain name as the key")
			}
			if _, twice := out[key.Value]; twice {
				return nil, &CatalogueError{File: file, Line: key.Line, Problem: "the key " + strconv.Quote(key.Value) + " is given twice"}
			}
			v, err := yamlTree(file, n.Content[i+1], depth+1)
			if err != nil {
				return nil, err
			}
			out[key.Value] = v
		}
		return out, nil
	case yaml.SequenceNode:
		out := make([]any, 0, len(n.Content))
		for _, c := range n.Content {
			v, err := yamlTree(file, c, depth+1)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		return out, nil
	case yaml.ScalarNode:
		var v any
		if err := n.Decode(&v); err != nil {
			return nil, wrong(err.Error())
		}
		if f, ok := v.(float64); ok && (math.IsNaN(f) || math.IsInf(f, 0)) {
			return nil, wrong("expected a number that JSON can write")
		}
		if _, ok := v.(time.Time); ok { // a date is the text that it is written as
			return n.Value, nil
		}
		return v, nil
	default:
		return nil, wrong("aliases are not taken; write the value out")
	}
}

// yamlLine finds the line of the value at path, or of the nearest one above it.
func yamlLine(n *yaml.Node, path []string) int {
	if n.Kind == yaml.DocumentNode {
		n = n.Content[0]
	}
	line := n.Line
	for _, key := range path {
		var next *yaml.Node
		switch n.Kind {
		case yaml.MappingNode:
			for i := 0; i+1 < len(n.Content); i += 2 {
				if n.Content[i].Value == key {
					line, next = n.Content[i].Line, n.Content[i+1]
				}
			}
		case yaml.SequenceNode:
			if i, err := strconv.Atoi(key); err == nil && i >= 0 && i < len(n.Content) {
				next = n.Content[i]
				line = next.Line
			}
		}
		if next == nil {
			break
		}
		n = next
	}
	return line
}

// pointerPath takes a JSON pointer apart.
func pointerPath(pointer string) []string {
	if pointer == "" {
		return nil
	}
	parts := strings.Split(pointer[1:], "/")
	for i := range parts {
		parts[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(parts[i])
	}
	return parts
}
