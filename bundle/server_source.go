package bundle

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing/fstest"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/bundle"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/tester"

	"github.com/opa-gate/opa-gate/evaluator"
)

// A look is what the files of a bundle held at one time, all in memory: what is
// built, tested and served is the same, whatever is written meanwhile.
type look struct {
	tree fstest.MapFS // of a directory
	body []byte       // of a file
	sum  [sha256.Size]byte
}

// lookAtFiles reads the directory or bundle file at a path, no more than limit bytes.
func lookAtFiles(name string, limit int64) (*look, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		body, err := readBounded(os.DirFS(filepath.Dir(name)), filepath.Base(name), limit)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return &look{body: body, sum: sha256.Sum256(body)}, nil
	}
	root := os.DirFS(name)
	l := &look{tree: fstest.MapFS{}}
	left := limit
	err = fs.WalkDir(root, ".", func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && file != "." && strings.HasPrefix(path.Base(file), "."):
			return fs.SkipDir
		case entry.IsDir() || !isPolicyFile(path.Base(file)):
			return nil
		}
		text, err := readBounded(root, file, left)
		if err != nil {
			return fmt.Errorf("%s: %w", filepath.Join(name, filepath.FromSlash(file)), err)
		}
		left -= int64(len(text))
		l.tree[file] = &fstest.MapFile{Data: text, Mode: 0o444}
		return nil
	})
	if err != nil {
		return nil, err
	}
	h := sha256.New()
	for _, file := range slices.Sorted(maps.Keys(l.tree)) {
		_, _ = fmt.Fprintf(h, "%q %d\n", file, len(l.tree[file].Data))
		_, _ = h.Write(l.tree[file].Data)
	}
	l.sum = [sha256.Size]byte(h.Sum(nil))
	return l, nil
}

// isPolicyFile reports whether a directory of policies has a meaning for a file of
// that name.
func isPolicyFile(base string) bool {
	return strings.HasSuffix(base, ".rego") || base == "data.json" || base == "data.yaml"
}

// readBounded reads a regular file. A pipe in its place would never end.
func readBounded(root fs.FS, name string, limit int64) ([]byte, error) {
	info, err := fs.Stat(root, name)
	if err != nil {
		return nil, bare(err)
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	f, err := root.Open(name)
	if err != nil {
		return nil, bare(err)
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	switch {
	case err != nil:
		return nil, bare(err)
	case int64(len(text)) > limit:
		return nil, fmt.Errorf("%w: a bundle and what it is built of may have %d bytes", ErrTooLarge, limit)
	}
	return text, nil
}

// bare is an error of the file system without the name that it says: the caller
// says the whole of it.
func bare(err error) error {
	var named *fs.PathError
	if errors.As(err, &named) {
		return named.Err
	}
	return err
}

// rulesPlace is a line of a file of rules in a message.
var rulesPlace = regexp.MustCompile(`[^\s:;"]+\.rego:[0-9]`)

// located writes a message in which files are named such that they can be opened
// from where the program runs.
func (l *look) located(dir, text string) string {
	return rulesPlace.ReplaceAllStringFunc(text, func(place string) string {
		if file, _, _ := strings.Cut(place, ":"); l.tree[file] == nil {
			return place
		}
		return filepath.Join(dir, filepath.FromSlash(place))
	})
}

// edition makes what is served of a look: it builds and tests a directory, and
// reads a file to see that an OPA can use it.
func (l *look) edition(ctx context.Context, name string, opts *ServerOptions) (*edition, error) {
	fail := func(err error) (*edition, error) { return nil, fmt.Errorf("%s: %w", name, err) }
	body := l.body
	if l.tree != nil {
		build := opts.Build
		build.Dir, build.FS = "", l.tree
		built, err := Build(ctx, &build)
		if err != nil {
			return fail(err)
		}
		body = built.Bytes
	} else if opts.Verification != nil {
		if _, err := Verify(body, opts.Verification); err != nil {
			return fail(err)
		}
	}
	files, err := unpack(body)
	if err != nil {
		return fail(err)
	}
	b, err := open(body)
	if err != nil {
		return fail(err)
	}
	switch {
	case l.tree == nil:
		err = usable(b)
	case !opts.SkipTests:
		err = passTests(ctx, l.tree, b.Data)
	}
	if err != nil {
		return fail(err)
	}
	e := newEdition(body, b, time.Now())
	if slices.ContainsFunc(files, func(f file) bool { return bundle.IsSignaturesFile(f.name) }) {
		e.patchable = false // a patch has no signature; the reader, which verifies nothing, does not tell
	}
	return e, nil
}

// usable tells why an OPA that is given a bundle file could not use it.
func usable(b *bundle.Bundle) error {
	modules := map[string]*ast.Module{}
	for _, m := range b.Modules {
		modules[m.Path] = m.Parsed
	}
	compiler := ast.NewCompiler()
	evaluator.WhileCompiling(func() { compiler.Compile(modules) })
	if compiler.Failed() {
		return compiler.Errors
	}
	return nil
}

const (
	testTime       = 30 * time.Second // for each test
	namedFailures  = 5
	allTestsInTime = 2 * time.Minute
)

// passTests passes the tests in a tree of policies with the data of what was built
// of it. Without a test there is nothing to be said against them.
func passTests(ctx context.Context, tree fs.FS, data map[string]any) error {
	modules := map[string]*ast.Module{}
	any := false
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".rego") {
			return err
		}
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		m, err := ast.ParseModuleWithOpts(name, string(text), ast.ParserOptions{ProcessAnnotation: true})
		if m != nil {
			modules[name] = m
			any = any || strings.HasSuffix(name, "_test.rego")
		}
		return err
	})
	if err != nil || !any {
		return err
	}
	compiler, err := evaluator.NewCompiler()
	if err != nil {
		return err
	}
	compiler.WithEnablePrintStatements(true)
	ctx, cancel := context.WithTimeout(ctx, allTestsInTime)
	defer cancel()
	runner := tester.NewRunner().SetCompiler(compiler).SetStore(inmem.NewFromObject(data)).SetModules(modules).
		SetParallel(1).SetTimeout(testTime).CapturePrintOutput(true)
	var results chan *tester.Result
	evaluator.WhileCompiling(func() { results, err = runner.RunTests(ctx, nil) })
	if err != nil {
		return fmt.Errorf("the tests do not compile: %w", err)
	}
	return failedTests(ctx, results)
}

// failedTests waits for the results of tests, and names the first that fail.
func failedTests(ctx context.Context, results <-chan *tester.Result) error {
	count := 0
	var failed []*tester.Result
	for r := range results {
		count++
		if !r.Skip && (r.Fail || r.Error != nil) {
			failed = append(failed, r)
		}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("the tests did not end in time: %w", err)
	}
	if len(failed) == 0 {
		return nil
	}
	slices.SortFunc(failed, func(a, b *tester.Result) int {
		return cmp.Or(cmp.Compare(a.Location.File, b.Location.File), cmp.Compare(a.Location.Row, b.Location.Row))
	})
	e := &TestsFailedError{Tests: count}
	for _, r := range failed {
		t := FailedTest{Name: r.Package + "." + r.Name, File: r.Location.File, Line: r.Location.Row}
		if r.Error != nil {
			t.Problem = r.Error.Error()
		}
		e.Failed = append(e.Failed, t)
	}
	return e
}

// A FailedTest is a test of policies that did not pass.
type FailedTest struct {
	Name    string // such as data.gate.call_test.test_veto
	File    string // within the policies, with slashes
	Line    int
	Problem string // "" if an expression was not true
}

// A TestsFailedError says that policies do not pass their own tests.
type TestsFailedError struct {
	Tests  int // how many there are
	Failed []FailedTest
}

// Error implements error.
func (e *TestsFailedError) Error() string {
	var text strings.Builder
	_, _ = fmt.Fprintf(&text, "%d of %d tests failed", len(e.Failed), e.Tests)
	for i, t := range e.Failed {
		if i == namedFailures {
			_, _ = fmt.Fprintf(&text, "; and %d more", len(e.Failed)-i)
			break
		}
		_, _ = fmt.Fprintf(&text, "; %s:%d: %s", t.File, t.Line, t.Name)
		if t.Problem != "" {
			text.WriteString(": " + t.Problem)
		}
	}
	return text.String()
}
