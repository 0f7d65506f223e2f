package bundle_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	opabundle "github.com/open-policy-agent/opa/v1/bundle"
	_ "github.com/open-policy-agent/opa/v1/features/wasm" // a stock OPA has it
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/util"

	"github.com/opa-gate/opa-gate/bundle"
	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/fixtures"
	"github.com/opa-gate/opa-gate/internal/race"
	"github.com/opa-gate/opa-gate/policies"
)

// plain is a stock OPA with a bundle: no schemas, no strict compiler, nothing
// of ours.
type plain struct{ call, skill rego.PreparedEvalQuery }

func newPlain(t *testing.T, text []byte) plain {
	t.Helper()
	b, err := opabundle.NewReader(bytes.NewReader(text)).WithLazyLoadingMode(false).Read()
	if err != nil {
		t.Fatal(err)
	}
	prepare := func(query string) (q rego.PreparedEvalQuery) {
		var err error
		evaluator.WhileCompiling(func() {
			q, err = rego.New(rego.Query(query), rego.ParsedBundle("gate", &b)).PrepareForEval(t.Context())
		})
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	return plain{prepare("data.gate.call.decision"), prepare("data.gate.skill.decision")}
}

func (p plain) Call(ctx context.Context, doc []byte) ([]byte, error) {
	return p.ask(ctx, p.call, doc)
}

func (p plain) Skill(ctx context.Context, doc []byte) ([]byte, error) {
	return p.ask(ctx, p.skill, doc)
}

func (p plain) ask(ctx context.Context, q rego.PreparedEvalQuery, doc []byte) ([]byte, error) {
	var input any
	if err := util.UnmarshalJSON(doc, &input); err != nil {
		return nil, err
	}
	value, err := ast.InterfaceToValue(input)
	if err != nil {
		return nil, err
	}
	results, err := q.Eval(ctx, rego.EvalParsedInput(value))
	if err != nil {
		return nil, err
	}
	if len(results) != 1 || len(results[0].Expressions) != 1 {
		return nil, fmt.Errorf("%d results", len(results))
	}
	return json.Marshal(results[0].Expressions[0].Value)
}

func suite(t *testing.T) fixtures.Suite {
	t.Helper()
	s, err := fixtures.Load(fixtures.Cases())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func conforms(t *testing.T, judge fixtures.Judge, gaps ...string) {
	t.Helper()
	report := fixtures.Run(t.Context(), judge, suite(t))
	report.Differences = slices.DeleteFunc(report.Differences, func(d fixtures.Difference) bool {
		return slices.Contains(gaps, d.File+": "+d.Case)
	})
	total, failed := report.Total()
	if failed != len(gaps) || len(report.Differences) > 0 || total < 100 || report.Stopped != "" {
		t.Errorf("%d of %d cases failed, stopped: %q", failed, total, report.Stopped)
	}
	for i, d := range report.Differences {
		if i < 3 {
			t.Errorf("%s: %s\ninput %s\nwant  %s\ngot   %s", d.File, d.Case, d.Input, d.Want, d.Got)
		}
	}
}

var builds sync.Map // of the embedded policies, by target and optimization

// built builds a bundle once for all tests of this package.
func built(t *testing.T, target bundle.Target, optimize int) *bundle.Built {
	t.Helper()
	key := [2]int{int(target), optimize}
	if b, there := builds.Load(key); there {
		return b.(*bundle.Built)
	}
	b, err := bundle.Build(t.Context(), &bundle.BuildOptions{Target: target, Optimize: optimize})
	if err != nil {
		t.Fatal(err)
	}
	builds.Store(key, b)
	return b
}

// wasmGap is what OPA's wasm engine cannot read: a NUL within a text of the
// document. The policies then deny.
const wasmGap = "transforms.json: unicode"

// Whatever is built answers the whole suite, in this program and in a stock OPA.
func TestBuiltConforms(t *testing.T) {
	race.SkipSlow(t)
	for _, target := range []bundle.Target{bundle.TargetRego, bundle.TargetWasm, bundle.TargetPlan} {
		for optimize := range 3 {
			if target != bundle.TargetRego && optimize > 0 && (testing.Short() || target == bundle.TargetPlan) {
				continue
			}
			t.Run(fmt.Sprintf("%v-O%d", target, optimize), func(t *testing.T) {
				b := built(t, target, optimize)
				if want := []string{"gate"}; !reflect.DeepEqual(b.Roots, want) {
					t.Errorf("roots %q, want %q", b.Roots, want)
				}
				if strings.Contains(strings.Join(b.Files, " "), "_test.rego") {
					t.Errorf("tests are in it: %q", b.Files)
				}
				if target == bundle.TargetWasm { // its entrypoints are no Rego
					conforms(t, newPlain(t, b.Bytes), wasmGap)
					return
				}
				conforms(t, newPlain(t, b.Bytes))
				e, err := evaluator.New(t.Context(), &evaluator.Options{Packed: b.Bytes})
				if err != nil {
					t.Fatal(err)
				}
				conforms(t, evaluator.Documents{Engine: e.Interpreter()})
				conforms(t, evaluator.Documents{Engine: e})
				sameAsNative(t, e)
			})
		}
	}
}

// sameAsNative asks about kinds of call that the suite may not have.
func sameAsNative(t *testing.T, e *evaluator.Evaluator) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	opa := e.Interpreter()
	for range 1000 {
		call := evaluator.CellCall(random.IntN(evaluator.Cells))
		got, err := opa.Decide(t.Context(), call)
		if want := call.Decide(""); err != nil || !got.Equal(want) {
			t.Fatalf("%+v\ngot  %+v, error %v\nwant %+v", call, got, err, want)
		}
	}
}

// The name of the system is a setting that whoever loads the bundle gives anew,
// optimized or not.
func TestSettingsStayOpen(t *testing.T) {
	for optimize := range 3 {
		e, err := evaluator.New(t.Context(), &evaluator.Options{Packed: built(t, bundle.TargetRego, optimize).Bytes, System: "Desk"})
		if err != nil {
			t.Fatal(err)
		}
		got, err := evaluator.DecideJSON(t.Context(), e, []byte(`{"tool": {"name": "t", "origin": "access-grant"}, "taint": "clean"}`))
		if err != nil || !strings.Contains(string(got), "Desk") {
			t.Errorf("-O%d: %s, error %v", optimize, got, err)
		}
	}
}

// copyTree copies the embedded policies, or the texts that are given, in an
// order of its own.
func copyTree(t *testing.T, backward bool, old time.Duration, texts map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	var names []string
	for name := range texts {
		names = append(names, name)
	}
	if texts == nil {
		texts = map[string]string{}
		err := fs.WalkDir(policies.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			text, err := fs.ReadFile(policies.FS(), name)
			names, texts[name] = append(names, name), string(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(names)
	if backward {
		slices.Reverse(names)
	}
	when := time.Now().Add(-old)
	for _, name := range names {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(texts[name]), 0o600), os.Chtimes(file, when, when)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Equal policies make equal bytes: again, from a directory, from one whose files
// were made at another time in another order, and without the facts' file, which
// the program has itself.
func TestReproducible(t *testing.T) {
	for target := range bundle.Target(3) {
		for optimize := range 3 {
			if optimize > 0 && (target != bundle.TargetRego || testing.Short()) {
				continue
			}
			want := built(t, target, optimize)
			bare := copyTree(t, false, 0, nil)
			if err := os.RemoveAll(filepath.Join(bare, "gate/facts")); err != nil {
				t.Fatal(err)
			}
			for name, dir := range map[string]string{
				"the same": "", "a directory": "../policies", "an old copy": copyTree(t, true, 1000*time.Hour, nil), "no facts": bare,
			} {
				got, err := bundle.Build(t.Context(), &bundle.BuildOptions{Dir: dir, Target: target, Optimize: optimize})
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got.Bytes, want.Bytes) || got.Revision != want.Revision || got.Digest != want.Digest {
					t.Errorf("%v -O%d from %s: revision %s, want %s; the bytes differ: %t", target, optimize, name, got.Revision, want.Revision, !bytes.Equal(got.Bytes, want.Bytes))
				}
			}
		}
	}
}

// A revision tells what is in the bundle apart.
func TestRevisions(t *testing.T) {
	const call = "package gate.call\n\ndecision := {}\n"
	const skill = "package gate.skill\n\ndecision := {}\n"
	seen := map[string]string{}
	for name, opts := range map[string]*bundle.BuildOptions{
		"embedded":  nil,
		"optimized": {Optimize: 1},
		"wasm":      {Target: bundle.TargetWasm},
		"plan":      {Target: bundle.TargetPlan},
		"own":       {Dir: copyTree(t, false, 0, map[string]string{"gate/c.rego": call, "gate/s.rego": skill})},
		"own data": {Dir: copyTree(t, false, 0, map[string]string{"gate/c.rego": call, "gate/s.rego": skill,
			"acme/data.json": `{"tools": ["a"]}`})},
		"other data": {Dir: copyTree(t, false, 0, map[string]string{"gate/c.rego": call, "gate/s.rego": skill,
			"acme/data.json": `{"tools": ["b"]}`})},
	} {
		b, err := bundle.Build(t.Context(), opts)
		if err != nil {
			t.Fatal(name, err)
		}
		if other, there := seen[b.Revision]; there || len(b.Revision) != 32 {
			t.Errorf("%s has revision %q, as has %q", name, b.Revision, other)
		}
		seen[b.Revision] = name
	}
	b, err := bundle.Build(t.Context(), &bundle.BuildOptions{Revision: "v1.2"})
	if err != nil || b.Revision != "v1.2" {
		t.Errorf("revision %q, error %v", b.Revision, err)
	}
}

// A bundle owns the tops of its packages and its data, so that others stand
// beside it in one OPA, and not in it.
func TestRoots(t *testing.T) {
	own := copyTree(t, false, 0, map[string]string{
		"gate/c.rego": "package gate.call\n\ndecision := data.shop.limits\n", "gate/s.rego": "package gate.skill\n\ndecision := {}\n",
		"lib/l.rego": "package acme.lib\n\nx := 1\n", "shop/data.yaml": "limits: {pay: 3}\n",
	})
	for optimize := range 3 {
		b, err := bundle.Build(t.Context(), &bundle.BuildOptions{Dir: own, Optimize: optimize})
		if err != nil {
			t.Fatal(err)
		}
		if want := []string{"acme", "gate", "shop"}; !reflect.DeepEqual(b.Roots, want) {
			t.Errorf("-O%d: roots %q, want %q", optimize, b.Roots, want)
		}
	}
	read := func(text []byte) *opabundle.Bundle {
		b, err := opabundle.NewReader(bytes.NewReader(text)).WithLazyLoadingMode(false).Read()
		if err != nil {
			t.Fatal(err)
		}
		return &b
	}
	roots := []string{"users"}
	beside := &opabundle.Bundle{Manifest: opabundle.Manifest{Roots: &roots}, Data: map[string]any{"users": map[string]any{"a": true}}}
	policies := read(built(t, 0, 1).Bytes)
	var q rego.PreparedEvalQuery
	var err error
	evaluator.WhileCompiling(func() {
		q, err = rego.New(rego.Query("[data.users.a, data.gate.call.decision.outcome]"), rego.ParsedBundle("gate", policies),
			rego.ParsedBundle("users", beside)).PrepareForEval(t.Context())
	})
	if err != nil {
		t.Fatal(err)
	}
	results, err := q.Eval(t.Context(), rego.EvalInput(map[string]any{}))
	if err != nil || len(results) != 1 || !reflect.DeepEqual(results[0].Expressions[0].Value, []any{true, "deny"}) {
		t.Errorf("%v, error %v", results, err)
	}
}

// What an evaluator would not take is not built, and the error says where.
func TestBuildRefuses(t *testing.T) {
	const skill = "package gate.skill\n\ndecision := {}\n"
	for _, tt := range []struct {
		name  string
		opts  bundle.BuildOptions
		texts map[string]string
		is    error
		want  string
	}{
		{name: "two sources", opts: bundle.BuildOptions{Dir: "x", FS: policies.FS()}, is: bundle.ErrOptions, want: "give one of Dir and FS"},
		{name: "optimization", opts: bundle.BuildOptions{Optimize: 3}, is: bundle.ErrOptions, want: "there is no optimization 3, expected 0 to 2"},
		{name: "target", opts: bundle.BuildOptions{Target: 7}, is: bundle.ErrOptions, want: "there is no target 7"},
		{name: "no directory", opts: bundle.BuildOptions{Dir: "nowhere"}, is: fs.ErrNotExist, want: "nowhere"},
		{name: "nothing", texts: map[string]string{"a.txt": ""}, is: evaluator.ErrPolicy, want: "there is no .rego file"},
		{name: "torn", texts: map[string]string{"gate/c.rego": "package gate.call\n\ndecision := {\n"}, is: evaluator.ErrPolicy, want: "gate/c.rego:4:"},
		{name: "misspelt", texts: map[string]string{"gate/s.rego": skill, "gate/c.rego": "package gate.call\n\ndecision := input.tool.nmae\n"},
			is: evaluator.ErrPolicy, want: "gate/c.rego:3:13: undefined ref: input.tool.nmae"},
		{name: "unsafe", texts: map[string]string{"gate/s.rego": skill, "gate/c.rego": "package gate.call\n\ndecision := x\n"},
			is: evaluator.ErrPolicy, want: "gate/c.rego:3:"},
		{name: "no entrypoint", texts: map[string]string{"gate/s.rego": skill}, is: evaluator.ErrPolicy, want: "there is no rule data.gate.call.decision"},
		{name: "other facts", texts: map[string]string{"gate/s.rego": skill, "gate/c.rego": "package gate.call\n\ndecision := 1\n",
			"gate/facts/data.json": `{"all": 63}`}, is: evaluator.ErrPolicy, want: "data.gate.facts differs"},
		{name: "a root with a slash", texts: map[string]string{"gate/s.rego": skill, "gate/c.rego": "package gate.call\n\ndecision := 1\n",
			"data.json": `{"a/b": 1}`}, want: `a bundle cannot own "a/b"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.texts != nil {
				tt.opts.Dir = copyTree(t, false, 0, tt.texts)
			}
			_, err := bundle.Build(t.Context(), &tt.opts)
			if err == nil || !strings.Contains(err.Error(), tt.want) || tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}
