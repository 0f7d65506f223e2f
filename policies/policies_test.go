package policies_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/cover"
	"github.com/open-policy-agent/opa/v1/format"
	"github.com/open-policy-agent/opa/v1/loader"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/tester"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/policies"
)

// load reads the folder as every OPA would: modules, their annotations, data.
func load(t *testing.T) *loader.Result {
	t.Helper()
	result, err := loader.NewFileLoader().WithProcessAnnotation(true).Filtered([]string{"gate"},
		func(abspath string, info fs.FileInfo, _ int) bool {
			return !info.IsDir() && filepath.Ext(abspath) != ".rego" && filepath.Ext(abspath) != ".json"
		})
	if err != nil {
		t.Fatal(err)
	}
	if len(result.Modules) == 0 {
		t.Fatal("no modules")
	}
	return result
}

func isTest(file string) bool { return strings.HasSuffix(file, "_test.rego") }

// rules returns the modules that are not tests.
func rules(t *testing.T) map[string]*ast.Module {
	t.Helper()
	modules := map[string]*ast.Module{}
	for name, file := range load(t).Modules {
		if !isTest(name) {
			modules[name] = file.Parsed
		}
	}
	return modules
}

func TestRego(t *testing.T) {
	bundles, err := tester.LoadBundlesWithRegoVersion([]string{"."}, nil, ast.RegoV1)
	if err != nil {
		t.Fatal(err)
	}
	modules := map[string]*ast.Module{}
	for _, b := range bundles {
		for _, file := range b.Modules {
			modules[file.Path] = file.Parsed
		}
	}
	store := inmem.New()
	txn, err := store.NewTransaction(t.Context(), storage.WriteParams)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Abort(t.Context(), txn)
	cov := cover.New()
	results, err := tester.NewRunner().
		SetStore(store).
		SetBundles(bundles).
		SetTimeout(time.Minute).
		SetParallel(1).
		SetCoverageRuns(nil).
		SetCoverageQueryTracer(cov).
		RunTests(t.Context(), txn)
	if err != nil {
		t.Fatal(err)
	}
	passed := map[string]int{}
	for r := range results {
		if !r.Pass() {
			t.Errorf("%v", r)
			continue
		}
		passed[r.Package]++
	}
	for _, pkg := range []string{
		"call", "enforcement", "escalation", "grant", "profile", "skill", "taint", "trust", "wire",
	} {
		if passed["data.gate."+pkg+"_test"] == 0 {
			t.Errorf("no test of package gate.%s passed", pkg)
		}
	}

	report := cov.Report(modules)
	covered := 0
	for file, r := range report.Files {
		if isTest(file) {
			continue
		}
		covered += r.CoveredLines
		for _, gap := range r.NotCovered {
			t.Errorf("%s:%d: not covered", file, gap.Start.Row)
		}
	}
	if covered == 0 {
		t.Error("no line of the rules is covered")
	}
}

func TestFormat(t *testing.T) {
	for name, file := range load(t).Modules {
		want, err := format.SourceWithOpts(name, file.Raw, format.Opts{RegoVersion: ast.RegoV1})
		if err != nil {
			t.Fatal(err)
		}
		if string(want) != string(file.Raw) {
			t.Errorf("%s is not formatted", name)
		}
	}
}

func schemaSet(t *testing.T) *ast.SchemaSet {
	t.Helper()
	set := ast.NewSchemaSet()
	for _, name := range []string{"call", "skill", "result"} {
		text, err := policies.Schema(name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		var schema any
		if err := json.Unmarshal(text, &schema); err != nil {
			t.Fatal(err)
		}
		set.Put(ast.SchemaRootRef.Append(ast.StringTerm(name)), schema)
	}
	return set
}

func compile(t *testing.T, modules map[string]*ast.Module) ast.Errors {
	t.Helper()
	c := ast.NewCompiler().WithStrict(true).WithUseTypeCheckAnnotations(true).WithSchemas(schemaSet(t))
	c.Compile(modules)
	return c.Errors
}

func TestCompile(t *testing.T) {
	if errs := compile(t, rules(t)); len(errs) > 0 {
		t.Fatal(errs)
	}
	all := map[string]*ast.Module{}
	for name, file := range load(t).Modules {
		all[name] = file.Parsed
	}
	if errs := compile(t, all); len(errs) > 0 {
		t.Fatal(errs)
	}
}

// A misspelt path into the input must not compile: in Rego it would be
// undefined, and a veto that is undefined vetoes nothing.
func TestMisspeltInputDoesNotCompile(t *testing.T) {
	tests := map[string][2]string{
		"gate/call/call.rego":               {"input.policy.veto", "input.policy.vetto"},
		"gate/grant/grant.rego":             {"input.grant.base", "input.grants.base"},
		"gate/taint/taint.rego":             {"input.taint", "input.taints"},
		"gate/taint/result.rego":            {`input, "untrusted_result"`, `input.untrusted, "untrusted_result"`},
		"gate/profile/profile.rego":         {"input.tool.destructive", "input.tool.destructiv"},
		"gate/trust/trust.rego":             {"input.provenance.fail_count", "input.provenance.failed_count"},
		"gate/skill/skill.rego":             {"input.requested", "input.request"},
		"gate/enforcement/enforcement.rego": {"input.approval", "input.approved"},
	}
	for name, edit := range tests {
		t.Run(name, func(t *testing.T) {
			modules := rules(t)
			text, err := os.ReadFile(filepath.FromSlash(name))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(text), edit[0]) {
				t.Fatalf("%s is not there to misspell", edit[0])
			}
			wrong := strings.ReplaceAll(string(text), edit[0], edit[1])
			module, err := ast.ParseModuleWithOpts(name, wrong, ast.ParserOptions{ProcessAnnotation: true})
			if err != nil {
				t.Fatal(err)
			}
			if modules[name] == nil {
				t.Fatalf("no module %s", name)
			}
			modules[name] = module
			if errs := compile(t, modules); len(errs) == 0 {
				t.Errorf("%s compiles", edit[1])
			}
		})
	}
}

func TestPackagesAndMetadata(t *testing.T) {
	var entrypoints []string
	for name, file := range load(t).Modules {
		pkg := strings.TrimPrefix(file.Parsed.Package.Path.String(), "data.")
		if want := "gate." + path.Base(path.Dir(filepath.ToSlash(name))); isTest(name) {
			if pkg != want+"_test" {
				t.Errorf("%s: package %s, want %s_test", name, pkg, want)
			}
			continue
		} else if pkg != want {
			t.Errorf("%s: package %s, want %s", name, pkg, want)
		}
		for _, rule := range file.Parsed.Rules {
			if strings.HasPrefix(string(rule.Head.Name), "test_") {
				t.Errorf("%s:%d: a test beside the rules", name, rule.Location.Row)
			}
		}
		for _, a := range file.Parsed.Annotations {
			if a.Title == "" {
				t.Errorf("%s:%d: METADATA without a title", name, a.Location.Row)
			}
			if a.Entrypoint {
				target := strings.TrimPrefix(a.GetTargetPath().String(), "data.")
				entrypoints = append(entrypoints, strings.ReplaceAll(target, ".", "/"))
			}
		}
	}
	sort.Strings(entrypoints)
	if want := []string{"gate/call/decision", "gate/skill/decision"}; !slices.Equal(entrypoints, want) {
		t.Errorf("entrypoints %q, want %q", entrypoints, want)
	}

	for name, module := range rules(t) {
		described := map[string]bool{}
		for _, a := range module.Annotations {
			if path := a.GetTargetPath(); a.Scope != "package" && a.Title != "" && path != nil {
				described[path.String()] = true
			}
		}
		for _, rule := range module.Rules {
			if !described[module.Package.Path.Extend(rule.Head.Ref().GroundPrefix()).String()] {
				t.Errorf("%s:%d: the rule %s has no METADATA with a title", name, rule.Location.Row, rule.Head.Name)
			}
		}
	}

	titled := map[string]bool{}
	for _, module := range rules(t) {
		pkg := module.Package.Path.String()
		titled[pkg] = titled[pkg] || slices.ContainsFunc(module.Annotations, func(a *ast.Annotations) bool {
			return a.Scope == "package" && a.Title != ""
		})
	}
	for pkg, ok := range titled {
		if !ok {
			t.Errorf("package %s has no METADATA with a title", pkg)
		}
	}
}

func TestFactsAreTheTaxonomys(t *testing.T) {
	text, err := fs.ReadFile(policies.FS(), "gate/facts/data.json")
	if err != nil {
		t.Fatal(err)
	}
	computed, err := json.Marshal(evaluator.Facts())
	if err != nil {
		t.Fatal(err)
	}
	var got, want any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(computed, &want); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Error("gate/facts/data.json is stale: run go generate ./policies")
	}
}

func TestOrigins(t *testing.T) {
	var want []string
	for _, o := range capability.Origins() {
		want = append(want, o.String())
	}
	sort.Strings(want)

	text, err := policies.Schema("call.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Properties struct {
			Tool struct {
				Properties struct {
					Origin struct {
						Enum []*string `json:"enum"`
					} `json:"origin"`
				} `json:"properties"`
			} `json:"tool"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	var inSchema []string
	null := false
	for _, name := range schema.Properties.Tool.Properties.Origin.Enum {
		if name == nil {
			null = true
			continue
		}
		inSchema = append(inSchema, *name)
	}
	sort.Strings(inSchema)
	if !null || !slices.Equal(inSchema, want) {
		t.Errorf("schema has origins %q, null: %v; want %q and null", inSchema, null, want)
	}

	options := []func(*rego.Rego){rego.Query("data.gate.wire.origins")}
	for _, module := range rules(t) {
		options = append(options, rego.ParsedModule(module))
	}
	results, err := rego.New(options...).Eval(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != 1 {
		t.Fatal("gate.wire.origins is undefined")
	}
	var inRego []string
	for _, v := range results[0].Expressions[0].Value.([]any) {
		inRego = append(inRego, v.(string))
	}
	sort.Strings(inRego)
	if !slices.Equal(inRego, want) {
		t.Errorf("Rego has origins %q, want %q", inRego, want)
	}
}

// The schemas that have a tool describe it alike.
func TestToolsOfSchemas(t *testing.T) {
	tool := func(name string) map[string]any {
		text, err := policies.Schema(name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		var schema struct {
			Properties struct {
				Tool map[string]any `json:"tool"`
			} `json:"properties"`
		}
		if err := json.Unmarshal(text, &schema); err != nil {
			t.Fatal(err)
		}
		members := schema.Properties.Tool["properties"].(map[string]any)
		for _, m := range members {
			delete(m.(map[string]any), "description") // says what follows from it, which differs
		}
		return members
	}
	want := tool("call")
	if len(want) != 5 {
		t.Fatalf("a call's tool has %d members, want 5", len(want))
	}
	for _, name := range []string{"result", "steering"} {
		if got := tool(name); !reflect.DeepEqual(got, want) {
			t.Errorf("%s.json has the tool %v, want %v", name, got, want)
		}
	}
}

func TestSchemaOfUnknownName(t *testing.T) {
	if _, err := policies.Schema("tool.json"); err == nil {
		t.Error("there is a schema tool.json")
	}
}

// The part that decides calls is the same, file by file, as in the whole, and
// lacks only what decides skills.
func TestCallsStandAlone(t *testing.T) {
	var names []string
	err := fs.WalkDir(policies.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		want, err := fs.ReadFile(policies.FS(), name)
		if err != nil {
			return err
		}
		got, err := fs.ReadFile(policies.Calls(), name)
		ofSkills := strings.HasPrefix(name, "schemas/") || name == "gate/wire/skill.rego"
		for _, pkg := range []string{"gate/enforcement/", "gate/skill/", "gate/trust/"} {
			ofSkills = ofSkills || strings.HasPrefix(name, pkg)
		}
		switch {
		case strings.HasSuffix(name, "_test.rego"): // the evaluator reads none
		case ofSkills != (err != nil):
			t.Errorf("%s: it is of skills: %v; reading it among what decides calls: %v", name, ofSkills, err)
		case !ofSkills && string(got) != string(want):
			t.Errorf("%s differs", name)
		}
		names = append(names, name)
		return nil
	})
	if err != nil || len(names) == 0 {
		t.Fatal(len(names), err)
	}
	if _, err := evaluator.New(t.Context(), &evaluator.Options{FS: policies.Calls()}); !errors.Is(err, evaluator.ErrPolicy) ||
		!strings.Contains(err.Error(), "data.gate.skill.decision") {
		t.Errorf("without the rules on skills: %v", err)
	}
}
