package bundle

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/bundle"
	"github.com/open-policy-agent/opa/v1/util"

	"github.com/opa-gate/opa-gate/evaluator"
)

// Inspection is what is in a bundle. Nothing of it is verified: see [Verify].
type Inspection struct {
	Revision    string       `json:"revision"`
	Roots       []string     `json:"roots"`
	Target      Target       `json:"target"`
	Optimize    *int         `json:"optimize"` // null: the bundle does not say
	Entrypoints []Entrypoint `json:"entrypoints"`
	Packages    []Package    `json:"packages"`
	Data        []string     `json:"data"`  // paths of what stands below the roots
	Facts       Facts        `json:"facts"` // of the taxonomy
	Wasm        []File       `json:"wasm"`
	Files       []File       `json:"files"`
	Packed      int          `json:"packed_bytes"`
	Unpacked    int          `json:"unpacked_bytes"`
	Digest      string       `json:"digest"`
	Signature   *Signature   `json:"signature"` // null: there is none
}

// An Entrypoint is a rule that is meant to be asked for.
type Entrypoint struct {
	Path  string `json:"path"` // such as gate/call/decision
	Title string `json:"title"`
}

// A Package is one package of the Rego.
type Package struct {
	Path  string `json:"path"` // such as data.gate.call
	Rules int    `json:"rules"`
}

// A File is one file of a bundle.
type File struct {
	Name  string `json:"name"`
	Bytes int    `json:"bytes"`
}

// Facts says whose facts of the taxonomy a bundle has.
type Facts string

// Whose facts they are.
const (
	FactsOwn     Facts = "own"     // this program's
	FactsOther   Facts = "other"   // of another taxonomy: this program refuses the bundle
	FactsMissing Facts = "missing" // this program puts its own in; a stock OPA answers deny
)

// A Signature is what a signature says of itself, without a look at whether it is
// true.
type Signature struct {
	Verified  bool     `json:"verified"` // false: nobody has looked
	Algorithm string   `json:"algorithm"`
	KeyID     string   `json:"key_id"`
	Scope     string   `json:"scope"`
	Files     []string `json:"files"`
	Problem   string   `json:"problem,omitempty"` // why it cannot be read
}

// Inspect tells what is in a bundle.
func Inspect(text []byte) (*Inspection, error) {
	files, err := unpack(text)
	if err != nil {
		return nil, err
	}
	b, err := open(text)
	if err != nil {
		return nil, err
	}
	in := &Inspection{Revision: b.Manifest.Revision, Roots: slices.Sorted(slices.Values(*b.Manifest.Roots)),
		Entrypoints: []Entrypoint{}, Packages: packagesOf(b), Data: dataPaths(b), Facts: factsOf(b), Wasm: []File{},
		Packed: len(text), Digest: digestOf(text)}
	for _, f := range files {
		in.Files = append(in.Files, File{f.name, len(f.text)})
		in.Unpacked += len(f.text)
		if strings.HasSuffix(f.name, ".wasm") {
			in.Wasm = append(in.Wasm, File{f.name, len(f.text)})
		}
	}
	switch {
	case len(b.WasmModules) > 0:
		in.Target = TargetWasm
	case len(b.PlanModules) > 0:
		in.Target = TargetPlan
	}
	in.entrypoints(b)
	in.signature(files)
	return in, nil
}

// entrypoints lists those that the Rego, the WebAssembly or the manifest names.
func (in *Inspection) entrypoints(b *bundle.Bundle) {
	titles := annotated(b)
	for _, r := range b.Manifest.WasmResolvers {
		titles[r.Entrypoint] = ""
		for _, a := range r.Annotations {
			if a != nil { // whoever writes a manifest can write null
				titles[r.Entrypoint] = a.Title
			}
		}
	}
	var said struct {
		Optimize    *int     `json:"optimize"`
		Entrypoints []string `json:"entrypoints"`
	}
	if text, err := json.Marshal(b.Manifest.Metadata[metadataKey]); err == nil && json.Unmarshal(text, &said) == nil {
		in.Optimize = said.Optimize
		for _, path := range said.Entrypoints {
			if _, there := titles[path]; !there {
				titles[path] = ""
			}
		}
	}
	for _, path := range slices.Sorted(maps.Keys(titles)) {
		in.Entrypoints = append(in.Entrypoints, Entrypoint{path, titles[path]})
	}
}

// signature reads what the signature says.
func (in *Inspection) signature(files []file) {
	if !slices.ContainsFunc(files, func(f file) bool { return bundle.IsSignaturesFile(f.name) }) {
		return
	}
	in.Signature = &Signature{Files: []string{}}
	t, err := tokenIn(files)
	if err != nil {
		in.Signature.Problem = err.Error()
		return
	}
	in.Signature.Algorithm, in.Signature.KeyID, in.Signature.Scope = t.header.Algorithm, t.keyID(), t.claims.Scope
	for _, f := range t.claims.Files {
		in.Signature.Files = append(in.Signature.Files, f.Name)
	}
	slices.Sort(in.Signature.Files)
}

func packagesOf(b *bundle.Bundle) []Package {
	rules := map[string]int{}
	for _, m := range b.Modules {
		rules[m.Parsed.Package.Path.String()] += len(m.Parsed.Rules)
	}
	all := []Package{}
	for _, path := range slices.Sorted(maps.Keys(rules)) {
		all = append(all, Package{path, rules[path]})
	}
	return all
}

// dataPaths returns the paths of the data, down to two names.
func dataPaths(b *bundle.Bundle) []string {
	paths := []string{}
	for name, value := range b.Data {
		members, ok := value.(map[string]any)
		if !ok || len(members) == 0 {
			paths = append(paths, "data."+name)
		}
		for member := range members {
			paths = append(paths, "data."+name+"."+member)
		}
	}
	slices.Sort(paths)
	return paths
}

// ownFacts tells whether a bundle has this program's facts.
func ownFacts(b *bundle.Bundle) bool { return factsOf(b) == FactsOwn }

func factsOf(b *bundle.Bundle) Facts {
	gate, _ := b.Data["gate"].(map[string]any)
	facts, there := gate["facts"]
	if !there {
		return FactsMissing
	}
	var own any
	text, err := json.Marshal(evaluator.Facts())
	if err == nil {
		err = util.UnmarshalJSON(text, &own)
	}
	if err == nil && util.Compare(facts, own) == 0 {
		return FactsOwn
	}
	return FactsOther
}
