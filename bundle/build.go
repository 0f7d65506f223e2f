package bundle

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/bundle"
	"github.com/open-policy-agent/opa/v1/compile"
	"github.com/open-policy-agent/opa/v1/storage"

	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/policies"
)

// A Target is what policies are compiled to.
type Target int

// The targets. TargetRego is the zero value.
const (
	TargetRego Target = iota // Rego, for OPA and for this program
	TargetWasm               // a WebAssembly module with the entrypoints
	TargetPlan               // OPA's plan beside the Rego
)

var targetNames = []string{compile.TargetRego, compile.TargetWasm, compile.TargetPlan}

// String returns the target's name, as OPA calls it.
func (t Target) String() string {
	if t < 0 || int(t) >= len(targetNames) {
		return fmt.Sprintf("target %d", int(t))
	}
	return targetNames[t]
}

// MarshalText implements encoding.TextMarshaler.
func (t Target) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// ParseTarget returns the target with that name.
func ParseTarget(name string) (Target, error) {
	if i := slices.Index(targetNames, name); i >= 0 {
		return Target(i), nil
	}
	return 0, fmt.Errorf("%w: there is no target %q, expected %s", ErrOptions, name, strings.Join(targetNames, ", "))
}

// metadataKey is the member of the manifest's metadata that is ours.
const metadataKey = "opa_gate"

// Entrypoints returns the rules that every bundle answers, as OPA names them.
func Entrypoints() []string { return []string{"gate/call/decision", "gate/skill/decision"} }

// maxOptimize is OPA's highest level of optimization.
const maxOptimize = 2

// BuildOptions say what is built. The zero value builds the embedded policies
// for the target rego, unsigned.
type BuildOptions struct {
	Dir      string      // a directory of policies; at most one of Dir and FS
	FS       fs.FS       // a tree of policies
	Target   Target      // what the policies are compiled to
	Optimize int         // how far OPA works the rules out beforehand: 0, 1 or 2
	Revision string      // "": taken from the content, so that equal policies have equal ones
	Signing  *SigningKey // nil: not signed
}

// Built is a bundle that was built.
type Built struct {
	Bytes       []byte   // a gzipped tarball
	Revision    string   // of the manifest
	Roots       []string // what the bundle owns of data, sorted
	Digest      string   // sha256:HEX of Bytes
	Target      Target
	Entrypoints []string // as OPA names them, such as gate/call/decision
	Files       []string // the names in the tarball, sorted
}

// Build makes a bundle of policies. They must be such that [evaluator.New] takes
// them; its errors match evaluator.ErrPolicy and say file and line. Tests are
// left out, and the taxonomy's facts are compiled in. The same policies and
// options make the same bytes, but for signatures by ES256, which are never the
// same.
func Build(ctx context.Context, opts *BuildOptions) (*Built, error) {
	if opts == nil {
		opts = &BuildOptions{}
	}
	switch {
	case opts.Dir != "" && opts.FS != nil:
		return nil, fmt.Errorf("%w: give one of Dir and FS", ErrOptions)
	case opts.Optimize < 0 || opts.Optimize > maxOptimize:
		return nil, fmt.Errorf("%w: there is no optimization %d, expected 0 to %d", ErrOptions, opts.Optimize, maxOptimize)
	case opts.Target < 0 || int(opts.Target) >= len(targetNames):
		return nil, fmt.Errorf("%w: there is no %v", ErrOptions, opts.Target)
	}
	b, err := read(ctx, opts)
	if err != nil {
		return nil, err
	}
	entrypoints, err := entrypointsOf(b)
	if err != nil {
		return nil, err
	}
	if b, err = compiled(ctx, b, entrypoints, opts); err != nil {
		return nil, err
	}
	b.Manifest.Metadata = map[string]any{metadataKey: map[string]any{
		"target": opts.Target.String(), "optimize": opts.Optimize, "entrypoints": entrypoints}}
	b.Manifest.Revision = opts.Revision
	if b.Manifest.Revision == "" {
		if b.Manifest.Revision, err = revisionOf(b); err != nil {
			return nil, err
		}
	}
	var out bytes.Buffer
	if err := bundle.NewWriter(&out).Write(*b); err != nil {
		return nil, fmt.Errorf("write the bundle: %w", err)
	}
	built := &Built{Revision: b.Manifest.Revision, Roots: *b.Manifest.Roots, Target: opts.Target, Entrypoints: entrypoints}
	if err := built.finish(out.Bytes(), opts.Signing); err != nil {
		return nil, err
	}
	if _, err := compiles(ctx, built.Bytes); err != nil { // what OPA made of sound policies
		return nil, fmt.Errorf("what was built for the target %v at -O %d cannot be loaded: %w", opts.Target, opts.Optimize, err)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return built, nil
}

// read returns the policies as a bundle that nothing was done to yet.
func read(ctx context.Context, opts *BuildOptions) (*bundle.Bundle, error) {
	tree := opts.FS
	switch {
	case opts.Dir != "":
		tree = os.DirFS(opts.Dir)
	case tree == nil:
		tree = policies.FS()
	}
	// What is built must be what was found to be sound: the texts are read before
	// and after.
	texts, readErr := modulesOf(tree)
	loaded := &evaluator.Options{Dir: opts.Dir}
	if opts.Dir == "" {
		loaded.FS = tree
	}
	sound, err := evaluator.New(ctx, loaded)
	if err != nil {
		return nil, err
	}
	if readErr != nil {
		return nil, readErr
	}
	again, err := modulesOf(tree)
	if err != nil {
		return nil, err
	}
	if !maps.EqualFunc(texts, again, bytes.Equal) {
		return nil, errors.New("the policies were changed while they were read: build again")
	}
	b := &bundle.Bundle{}
	if b.Data, err = dataOf(ctx, sound); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		m, err := ast.ParseModuleWithOpts(name, string(texts[name]), ast.ParserOptions{ProcessAnnotation: true})
		if err != nil {
			return nil, err
		}
		if m == nil { // comments alone
			continue
		}
		b.Modules = append(b.Modules, bundle.ModuleFile{URL: name, Path: name, Raw: texts[name], Parsed: m})
	}
	roots, err := rootsOf(b)
	if err != nil {
		return nil, err
	}
	b.Manifest.Roots = &roots
	b.SetRegoVersion(ast.RegoV1)
	return b, nil
}

// modulesOf reads every module that an evaluator takes from a tree.
func modulesOf(tree fs.FS) (map[string][]byte, error) {
	texts, total := map[string][]byte{}, int64(0)
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && strings.HasPrefix(path.Base(name), "."):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ".rego") || strings.HasSuffix(name, "_test.rego"):
			return nil
		}
		info, err := fs.Stat(tree, name)
		if err != nil {
			return err
		}
		if total += info.Size(); !info.Mode().IsRegular() || total > MaxUnpacked {
			return fmt.Errorf("%s: %w", name, ErrTooLarge)
		}
		texts[name], err = fs.ReadFile(tree, name)
		return err
	})
	return texts, err
}

// dataOf returns the data of policies, the facts among them.
func dataOf(ctx context.Context, e *evaluator.Evaluator) (map[string]any, error) {
	_, store := e.Policies()
	value, err := storage.ReadOne(ctx, store, storage.RootPath)
	if err != nil {
		return nil, fmt.Errorf("read the data of the policies: %w", err)
	}
	if term, ok := value.(ast.Value); ok {
		if value, err = ast.JSON(term); err != nil {
			return nil, fmt.Errorf("read the data of the policies: %w", err)
		}
	}
	data, ok := value.(map[string]any)
	if !ok {
		return nil, errors.New("the data of the policies are not an object")
	}
	return data, nil
}

// rootsOf returns the top of every path that modules and data define. What
// another bundle owns may stand beside them.
func rootsOf(b *bundle.Bundle) ([]string, error) {
	tops := map[string]bool{}
	for name := range b.Data {
		tops[name] = true
	}
	for _, m := range b.Modules {
		if name, ok := m.Parsed.Package.Path[1].Value.(ast.String); ok {
			tops[string(name)] = true
		}
	}
	for name := range tops {
		if name == "" || strings.ContainsAny(name, "/%*") {
			return nil, fmt.Errorf("a bundle cannot own %q: the first part of a package or of a path into the data needs a plain name", name)
		}
	}
	return slices.Sorted(maps.Keys(tops)), nil
}

// revisionOf returns a revision that says what the bundle holds.
func revisionOf(b *bundle.Bundle) (string, error) {
	h := sha256.New()
	add := func(name string, text []byte) { _, _ = fmt.Fprintf(h, "%q %d\n%s\n", name, len(text), text) }
	for _, m := range b.Modules {
		add(m.URL, m.Raw)
	}
	for _, m := range b.WasmModules {
		add(m.URL, m.Raw)
	}
	for _, m := range b.PlanModules {
		add(m.URL, m.Raw)
	}
	for _, part := range []any{b.Data, b.Manifest} {
		text, err := json.Marshal(part)
		if err != nil {
			return "", err
		}
		add("", text)
	}
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}

// finish signs what was written if that is asked for.
func (b *Built) finish(text []byte, key *SigningKey) (err error) {
	if key != nil {
		if text, err = Sign(text, key); err != nil {
			return err
		}
	}
	files, err := unpack(text)
	if err != nil {
		return err
	}
	for _, f := range files {
		b.Files = append(b.Files, f.name)
	}
	slices.Sort(b.Files)
	b.Bytes, b.Digest = text, digestOf(text)
	return nil
}

func digestOf(text []byte) string {
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:])
}
