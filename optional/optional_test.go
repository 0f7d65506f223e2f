package optional_test

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/cover"
	"github.com/open-policy-agent/opa/v1/format"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/tester"

	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/optional"
	"github.com/opa-gate/opa-gate/policies"
)

func TestNames(t *testing.T) {
	for _, name := range optional.Names() {
		tree, err := optional.FS(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := evaluator.New(t.Context(), &evaluator.Options{With: []fs.FS{tree}}); err != nil {
			t.Errorf("%s beside the embedded policies: %v", name, err)
		}
	}
	if _, err := optional.FS("../policies"); !errors.Is(err, optional.ErrUnknown) || !strings.Contains(err.Error(), "steering") {
		t.Errorf("%v", err)
	}
}

// Each optional policy passes its tests beside the embedded ones, and they reach
// each of its lines; it is formatted, and each of its rules has a title.
func TestRego(t *testing.T) {
	for _, name := range optional.Names() {
		t.Run(name, func(t *testing.T) {
			tree, err := optional.FS(name)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			for _, part := range []fs.FS{policies.FS(), tree} {
				if err := os.CopyFS(dir, part); err != nil {
					t.Fatal(err)
				}
			}
			bundles, err := tester.LoadBundlesWithRegoVersion([]string{dir}, nil, ast.RegoV1)
			if err != nil {
				t.Fatal(err)
			}
			store := inmem.New()
			txn, err := store.NewTransaction(t.Context(), storage.WriteParams)
			if err != nil {
				t.Fatal(err)
			}
			defer store.Abort(t.Context(), txn)
			cov := cover.New()
			results, err := tester.NewRunner().SetStore(store).SetBundles(bundles).SetTimeout(time.Minute).SetParallel(1).
				SetCoverageRuns(nil).SetCoverageQueryTracer(cov).RunTests(t.Context(), txn)
			if err != nil {
				t.Fatal(err)
			}
			own := "data.gate." + name + "_test"
			passed := 0
			for r := range results {
				if !r.Pass() {
					t.Errorf("%v", r)
				} else if r.Package == own {
					passed++
				}
			}
			if passed == 0 {
				t.Errorf("no test of %s passed", own)
			}
			modules, looked := map[string]*ast.Module{}, 0
			for _, b := range bundles {
				for _, file := range b.Modules {
					modules[file.Path] = file.Parsed
				}
			}
			report := cov.Report(modules)
			for file, module := range modules {
				if !strings.Contains(file, "/gate/"+name+"/") {
					continue
				}
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				want, err := format.SourceWithOpts(file, text, format.Opts{RegoVersion: ast.RegoV1})
				if err != nil || string(want) != string(text) {
					t.Errorf("%s is not formatted: %v", file, err)
				}
				if strings.HasSuffix(file, "_test.rego") {
					continue
				}
				looked++
				for _, gap := range report.Files[file].NotCovered {
					t.Errorf("%s:%d: not covered", file, gap.Start.Row)
				}
				titled(t, file, module)
			}
			if looked == 0 {
				t.Error("no module was looked at")
			}
		})
	}
}

func titled(t *testing.T, file string, module *ast.Module) {
	t.Helper()
	described, pkg := map[string]bool{}, false
	for _, a := range module.Annotations {
		pkg = pkg || a.Scope == "package" && a.Title != ""
		if path := a.GetTargetPath(); a.Title != "" && path != nil {
			described[path.String()] = true
		}
	}
	if !pkg {
		t.Errorf("%s: the package has no METADATA with a title", file)
	}
	for _, rule := range module.Rules {
		if !described[module.Package.Path.Extend(rule.Head.Ref().GroundPrefix()).String()] {
			t.Errorf("%s:%d: the rule %s has no METADATA with a title", file, rule.Location.Row, rule.Head.Name)
		}
	}
}
