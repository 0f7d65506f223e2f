package evaluator

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/bundle"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/util"

	"github.com/opa-gate/opa-gate/policies"
)

// source is what a set of policies consists of.
type source struct {
	modules map[string]*ast.Module       // by file name
	sums    map[string][sha256.Size]byte // of the modules' texts
	data    map[string]any

	dataFiles []dataFile // that the data come from, if it is a tree
}

// load reads the policies that opts name.
func load(ctx context.Context, opts *Options) (*source, error) {
	given := 0
	for _, set := range []bool{opts.Dir != "", opts.FS != nil, opts.Bundle != "", opts.Packed != nil, opts.Store != nil} {
		if set {
			given++
		}
	}
	switch {
	case given > 1:
		return nil, errors.New("give one of Dir, FS, Bundle, Packed and Store")
	case opts.Store != nil:
		return opts.Store.load(ctx)
	case opts.Bundle != "":
		text, err := os.ReadFile(opts.Bundle)
		if err != nil {
			return nil, err
		}
		s, err := loadBundle(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", opts.Bundle, err)
		}
		return s, nil
	case opts.Packed != nil:
		return loadBundle(opts.Packed)
	case opts.Dir != "":
		info, err := os.Stat(opts.Dir)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			return nil, fmt.Errorf("%s is not a directory", opts.Dir)
		}
		s, err := loadFS(os.DirFS(opts.Dir))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", opts.Dir, err)
		}
		return s, nil
	default:
		return loadFS(opts.FS)
	}
}

// A part is one file of a policy tree, of which it is a module or data.
type part struct {
	name   string
	module *ast.Module
	sum    [sha256.Size]byte
	data   any
	err    error
}

func (p *part) parse(text []byte) {
	if strings.HasSuffix(p.name, ".rego") {
		if p.module, p.err = ast.ParseModuleWithOpts(p.name, string(text), ast.ParserOptions{ProcessAnnotation: true}); p.err != nil {
			p.err = compileError(p.err)
		}
		p.sum = sha256.Sum256(text)
		return
	}
	p.data, p.err = ReadData(p.name, text)
}

// loadFS reads a policy tree as OPA reads a bundle directory: every .rego file
// except tests, and every data.json and data.yaml at the path of its folder.
// Files are parsed side by side, because that is a quarter of the time that a
// process takes to start; the error is still that of the first one in order.
func loadFS(fsys fs.FS) (*source, error) {
	var (
		parts   []*part
		parsing sync.WaitGroup
		free    = make(chan struct{}, runtime.GOMAXPROCS(0)) // bounds how many texts are held
	)
	walkErr := fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		base := path.Base(name)
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			if name != "." && strings.HasPrefix(base, ".") {
				return fs.SkipDir
			}
			return nil
		case strings.HasSuffix(base, "_test.rego"):
			return nil
		case !strings.HasSuffix(base, ".rego") && base != "data.json" && base != "data.yaml":
			return nil
		}
		free <- struct{}{}
		text, err := readPolicy(fsys, name)
		if err != nil {
			<-free
			return err
		}
		p := &part{name: name}
		parts = append(parts, p)
		parsing.Go(func() {
			p.parse(text)
			<-free
		})
		return nil
	})
	parsing.Wait()
	s := &source{modules: map[string]*ast.Module{}, sums: map[string][sha256.Size]byte{}, data: map[string]any{}}
	for _, p := range parts {
		switch {
		case p.err != nil:
			return nil, p.err
		case p.module != nil:
			s.modules[p.name], s.sums[p.name] = p.module, p.sum
		default:
			if err := s.put(p.name, path.Dir(p.name), p.data); err != nil {
				return nil, err
			}
		}
	}
	if walkErr != nil { // the walk ended there: what is wrong with a file before it comes first
		return nil, walkErr
	}
	if len(s.modules) == 0 {
		return nil, errors.New("there is no .rego file (tests do not count)")
	}
	return s, nil
}

// put merges value into the data at a folder's path.
func (s *source) put(file, dir string, value any) error {
	if dir != "." {
		tokens := strings.Split(dir, "/")
		for i := len(tokens) - 1; i >= 0; i-- {
			value = map[string]any{tokens[i]: value}
		}
	}
	object, ok := value.(map[string]any)
	if !ok {
		return fmt.Errorf("%s: the data at the root must be an object", file)
	}
	s.dataFiles = append(s.dataFiles, dataFile{file, object})
	if at, ok := merge(s.data, object, ""); !ok {
		return fmt.Errorf("%s: data at %s stands in another file too", file, at)
	}
	return nil
}

// merge adds from to into; ok is false, and at names where, if both have a
// value at one place.
func merge(into, from map[string]any, at string) (string, bool) {
	for key, value := range from {
		old, there := into[key]
		oldObject, a := old.(map[string]any)
		newObject, b := value.(map[string]any)
		switch {
		case !there:
			into[key] = value
		case a && b:
			if where, ok := merge(oldObject, newObject, at+"/"+key); !ok {
				return where, false
			}
		default:
			return at + "/" + key, false
		}
	}
	return "", true
}

// maxPolicyFile bounds each file of a policy tree, and of a bundle once it is
// unpacked: a small archive can hold a very large file.
const maxPolicyFile = 64 << 20

// readPolicy reads one file of a policy tree. A pipe or a device in its place
// would never end.
func readPolicy(fsys fs.FS, name string) ([]byte, error) {
	info, err := fs.Stat(fsys, name)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file", name)
	case info.Size() > maxPolicyFile:
		return nil, fmt.Errorf("%s has %d bytes, more than %d", name, info.Size(), maxPolicyFile)
	}
	return fs.ReadFile(fsys, name)
}

// loadBundle reads a bundle. Tests in it are left out.
func loadBundle(text []byte) (*source, error) {
	b, err := bundle.NewReader(bytes.NewReader(text)).WithSkipBundleVerification(true).
		WithProcessAnnotations(true).WithSizeLimitBytes(maxPolicyFile).Read()
	switch {
	case len(text) == 0:
		return nil, errors.New("the file is empty, expected a bundle: an archive (.tar.gz) as opa build writes it")
	case !bytes.HasPrefix(text, []byte{0x1f, 0x8b}):
		return nil, errors.New("this is no bundle, which is an archive (.tar.gz) as opa build writes it; for a file of rules, name the directory that it is in")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, fmt.Errorf("the archive ends too early: %w", err)
	case err != nil:
		return nil, err
	}
	s := &source{modules: map[string]*ast.Module{}, sums: map[string][sha256.Size]byte{}, data: b.Data}
	if s.data == nil {
		s.data = map[string]any{}
	}
	for _, m := range b.Modules {
		if !strings.HasSuffix(m.Path, "_test.rego") {
			s.modules[m.Path], s.sums[m.Path] = m.Parsed, sha256.Sum256(m.Raw)
		}
	}
	if len(s.modules) == 0 {
		return nil, errors.New("there is no .rego file (tests do not count)")
	}
	return s, nil
}

// prepareData puts facts and settings into the policies' data. Facts that the
// policies bring along must be the ones of this program: with others, the two
// would mean different capabilities by the same bit.
func (s *source) prepareData(facts map[string]any, system string) error {
	gate, ok := s.data["gate"].(map[string]any)
	if !ok {
		if _, there := s.data["gate"]; there {
			return errors.New("data.gate must be an object")
		}
		gate = map[string]any{}
		s.data["gate"] = gate
	}
	if brought, there := gate["facts"]; there && !sameFacts(brought, facts) {
		return errors.New("data.gate.facts differs from this program's taxonomy: remove the data files in gate/facts, " +
			"and the program's own facts are used")
	}
	gate["facts"] = facts
	if system != "" {
		settings, _ := gate["settings"].(map[string]any)
		if settings == nil {
			settings = map[string]any{}
			gate["settings"] = settings
		}
		settings["system"] = system
	}
	return nil
}

// sameFacts tells whether a data file has facts as this program has them. It walks
// both as they are: to write their JSON texts and read them again would take
// about as long as to parse half of the policies.
func sameFacts(brought, own any) bool {
	switch own := own.(type) {
	case map[string]any:
		object, ok := brought.(map[string]any)
		if !ok || len(object) != len(own) {
			return false
		}
		for name, value := range own {
			if member, there := object[name]; !there || !sameFacts(member, value) {
				return false
			}
		}
		return true
	case []any:
		array, ok := brought.([]any)
		return ok && slices.EqualFunc(array, own, sameFacts)
	case int:
		return brought == json.Number(strconv.Itoa(own))
	default:
		return brought == own
	}
}

// compiling is held while OPA compiles modules or a query: its type checker
// writes to types that all compilers of a program share.
var compiling sync.Mutex

// WhileCompiling runs f while nothing else in the program compiles Rego: OPA's
// compilers share state, so a program that has OPA compile something by itself,
// beside what evaluators do, does so within f. F must not make an evaluator.
func WhileCompiling(f func()) {
	compiling.Lock()
	defer compiling.Unlock()
	f()
}

// NewCompiler returns a compiler set up as the one that policies are loaded
// with: strict, and with the schemas of the documents, so that a misspelt path
// into the input is an error. Compile within [WhileCompiling].
func NewCompiler() (*ast.Compiler, error) {
	schemas := ast.NewSchemaSet()
	either := map[string]any{}
	for _, name := range []string{"call", "skill", "invariant"} {
		text, err := policies.Schema(name + ".json")
		if err != nil {
			return nil, err
		}
		var schema any
		if err := util.Unmarshal(text, &schema); err != nil {
			return nil, err
		}
		schemas.Put(ast.MustParseRef("schema."+name), schema)
		if name != "invariant" {
			maps.Copy(either, schema.(map[string]any)["properties"].(map[string]any))
		}
	}
	// A rule that names no schema may read a call or a skill, and nothing else.
	schemas.Put(ast.SchemaRootRef, map[string]any{
		"type": "object", "additionalProperties": false, "properties": either})
	return ast.NewCompiler().
		WithStrict(true).
		WithEnablePrintStatements(false).
		WithUseTypeCheckAnnotations(true).
		WithSchemas(schemas), nil
}

// Policies returns the compiled policies and their data, the facts among them,
// for a look at what stands in them: neither may be changed. Of the embedded
// policies it is the part that decides calls.
func (e *Evaluator) Policies() (*ast.Compiler, storage.Store) {
	return e.compiled.compiler, e.compiled.store
}

// compile compiles the modules strictly, so that a misspelt path into the input
// is an error here rather than a rule that never applies.
func (s *source) compile() (*ast.Compiler, error) {
	c, err := NewCompiler()
	if err != nil {
		return nil, err
	}
	compiling.Lock()
	defer compiling.Unlock()
	if c.Compile(s.modules); c.Failed() {
		return nil, compileError(c.Errors)
	}
	return c, s.conflictFree(c)
}
