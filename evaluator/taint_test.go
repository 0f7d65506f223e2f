package evaluator_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/optional"
	"github.com/opa-gate/opa-gate/policies"
)

func optionalTree(t *testing.T) fs.FS {
	t.Helper()
	tree, err := optional.FS(optional.Steering)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func newEvaluator(t *testing.T, opts *evaluator.Options) *evaluator.Evaluator {
	t.Helper()
	e, err := evaluator.New(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// overResults visits every kind of result.
func overResults(visit func(r *capability.Result)) (n int) {
	for _, origin := range capability.Origins() {
		for i := range 81 {
			n++
			visit(&capability.Result{Tool: "read", Untrusted: capability.Hint(i % 3), Profile: capability.Profile{
				Origin: origin, ReadOnly: capability.Hint(i / 3 % 3), Destructive: capability.Hint(i / 9 % 3), OpenWorld: capability.Hint(i / 27),
			}})
		}
	}
	return n
}

// The rule is that of the reference over its whole domain, from the embedded
// policies and from a directory.
func TestResultTaintsIsTheReferences(t *testing.T) {
	for name, opts := range map[string]*evaluator.Options{
		"embedded": nil, "tree": {FS: policies.FS()}, "with an optional one": {With: []fs.FS{optionalTree(t)}},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEvaluator(t, opts)
			n := overResults(func(r *capability.Result) {
				got, err := e.ResultTaints(t.Context(), r)
				if want := r.Taints(); err != nil || got != want {
					t.Errorf("%+v taints: %v, %v, want %v", r, got, err, want)
				}
			})
			if n != 729 {
				t.Errorf("%d results, want 729", n)
			}
		})
	}
}

// tree is the embedded policies with another text in the place of one file, or
// without it if there is none.
func tree(t *testing.T, file, text string) fs.FS {
	t.Helper()
	files := fstest.MapFS{}
	err := fs.WalkDir(policies.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasSuffix(name, "_test.rego") {
			return err
		}
		data, err := fs.ReadFile(policies.FS(), name)
		files[name] = &fstest.MapFile{Data: data}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if text == "" {
		delete(files, file)
	} else {
		files[file] = &fstest.MapFile{Data: []byte(text)}
	}
	return files
}

func TestPoliciesWithoutARuleOnResults(t *testing.T) {
	e := newEvaluator(t, &evaluator.Options{FS: tree(t, "gate/taint/result.rego", "")})
	overResults(func(r *capability.Result) {
		if got, err := e.ResultTaints(t.Context(), r); err != nil || got != r.Taints() {
			t.Errorf("%+v taints: %v, %v", r, got, err)
		}
	})
}

// Whatever the rule does but say false, the result taints.
func TestResultRuleFailsClosed(t *testing.T) {
	r := &capability.Result{Tool: "read", Profile: capability.Profile{Origin: capability.FirstParty, OpenWorld: capability.No}}
	for name, test := range map[string]struct {
		rules string
		want  error
	}{
		"undefined":      {"result := false if input.tool.name == \"other\"", evaluator.ErrUndefined},
		"two answers":    {"result := false\n\nresult := true if input.tool.name == \"read\"", evaluator.ErrEvaluation},
		"null":           {"result := null", evaluator.ErrNotDecision},
		"a text":         {"result := \"false\"", evaluator.ErrNotDecision},
		"a number":       {"result := 0", evaluator.ErrNotDecision},
		"built-in error": {"result := false if 1 / (count(input.tool.name) - 4) == 1", evaluator.ErrEvaluation},
	} {
		t.Run(name, func(t *testing.T) {
			text := "package gate.taint\n\n# METADATA\n# schemas:\n#   - input: schema.result\n" + test.rules + "\n"
			e := newEvaluator(t, &evaluator.Options{FS: tree(t, "gate/taint/result.rego", text)})
			if taints, err := e.ResultTaints(t.Context(), r); !taints || !errors.Is(err, test.want) {
				t.Errorf("taints: %v, %v, want true, %v", taints, err, test.want)
			}
		})
	}
	e := newEvaluator(t, nil)
	for _, broken := range []capability.Result{
		{}, {Tool: "read", Profile: capability.Profile{Origin: 9}}, {Tool: "read", Untrusted: 3},
		{Tool: "read", Profile: capability.Profile{OpenWorld: 3}}, {Tool: "\xff"},
	} {
		if taints, err := e.ResultTaints(t.Context(), &broken); !taints || !errors.Is(err, capability.ErrInvalidCall) {
			t.Errorf("%+v taints: %v, %v", broken, taints, err)
		}
	}
}

// overSteering visits every kind of facts about a call, with a few annotations.
func overSteering(visit func(s *capability.Steering)) (n int) {
	for _, session := range []capability.Taint{capability.Clean, capability.Tainted} {
		for _, origin := range capability.Origins() {
			for hint := range capability.Hint(3) {
				for _, effect := range capability.Effects() {
					for _, aim := range capability.Aims() {
						for _, payload := range capability.Payloads() {
							n++
							visit(&capability.Steering{Session: session, Tool: "send", Effect: effect, Aim: aim, Payload: payload,
								Profile: capability.Profile{Origin: origin, ReadOnly: hint, Destructive: hint, OpenWorld: hint}})
						}
					}
				}
			}
		}
	}
	return n
}

const steeringKinds = 2 * 9 * 3 * 5 * 4 * 5

func TestCallTaintWithoutTheOptionalPolicy(t *testing.T) {
	e := newEvaluator(t, nil)
	if e.Steers() {
		t.Error("the embedded policies have the optional rule")
	}
	n := overSteering(func(s *capability.Steering) {
		if got, err := e.CallTaint(t.Context(), s); err != nil || got != s.Session {
			t.Errorf("%+v sees %v, %v", s, got, err)
		}
		if got, err := (evaluator.Native{}).CallTaint(t.Context(), s); err != nil || got != s.Session {
			t.Errorf("%+v sees %v, %v natively", s, got, err)
		}
	})
	if n != steeringKinds {
		t.Errorf("%d kinds", n)
	}
}

// The optional policy is its reference over the whole domain, for every choice of
// relaxations, also where it stands in a directory.
func TestCallTaintIsTheReferences(t *testing.T) {
	rules, err := fs.ReadFile(optionalTree(t), "gate/steering/steering.rego")
	if err != nil {
		t.Fatal(err)
	}
	for relax := range capability.AllRelaxations + 1 {
		t.Run(strings.Join(relax.Names(), "+"), func(t *testing.T) {
			t.Parallel()
			data := `{"relax": ["` + strings.Join(relax.Names(), `", "`) + `"]}`
			e := newEvaluator(t, &evaluator.Options{With: []fs.FS{fstest.MapFS{
				"gate/steering/steering.rego": {Data: rules}, "gate/steering/data.json": {Data: []byte(data)},
			}}})
			if !e.Steers() {
				t.Fatal("the optional rule is not there")
			}
			n := overSteering(func(s *capability.Steering) {
				if got, err := e.CallTaint(t.Context(), s); err != nil || got != s.Seen(relax) {
					t.Errorf("%+v sees %v, %v, want %v", s, got, err, s.Seen(relax))
				}
			})
			if n != steeringKinds {
				t.Errorf("%d kinds", n)
			}
		})
	}
}

// What ships makes every exception.
func TestShippedRelaxations(t *testing.T) {
	e := newEvaluator(t, &evaluator.Options{With: []fs.FS{optionalTree(t)}})
	overSteering(func(s *capability.Steering) {
		if got, err := e.CallTaint(t.Context(), s); err != nil || got != s.Seen(capability.AllRelaxations) {
			t.Errorf("%+v sees %v, %v", s, got, err)
		}
	})
}

func TestSteeringRuleFailsClosed(t *testing.T) {
	s := &capability.Steering{Session: capability.Clean, Tool: "send", Profile: capability.Profile{Origin: capability.FirstParty}}
	for name, test := range map[string]struct {
		rules string
		want  error
	}{
		"undefined": {"taint := \"clean\" if input.tool.name == \"other\"", evaluator.ErrUndefined},
		"two":       {"taint := \"clean\"\n\ntaint := \"tainted\" if input.session == \"clean\"", evaluator.ErrEvaluation},
		"true":      {"taint := true", evaluator.ErrNotDecision},
		"a word":    {"taint := \"unknown\"", evaluator.ErrNotDecision},
	} {
		t.Run(name, func(t *testing.T) {
			text := "# METADATA\n# schemas:\n#   - input: schema.steering\npackage gate.steering\n\n" + test.rules + "\n"
			e := newEvaluator(t, &evaluator.Options{With: []fs.FS{fstest.MapFS{"gate/steering/a.rego": {Data: []byte(text)}}}})
			if taint, err := e.CallTaint(t.Context(), s); taint != capability.Tainted || !errors.Is(err, test.want) {
				t.Errorf("%v, %v, want tainted, %v", taint, err, test.want)
			}
		})
	}
	e := newEvaluator(t, nil)
	for _, broken := range []capability.Steering{
		{}, {Session: capability.Clean}, {Tool: "send"}, {Session: capability.Clean, Tool: "send", Effect: 5},
		{Session: capability.Clean, Tool: "send", Aim: 4}, {Session: capability.Clean, Tool: "send", Payload: 5},
	} {
		if taint, err := e.CallTaint(t.Context(), &broken); taint != capability.Tainted || !errors.Is(err, capability.ErrInvalidCall) {
			t.Errorf("%+v sees %v, %v", broken, taint, err)
		}
	}
}

// A misspelt fact does not compile.
func TestSteeringSchema(t *testing.T) {
	text := "# METADATA\n# schemas:\n#   - input: schema.steering\npackage gate.steering\n\ndefault taint := \"tainted\"\n\ntaint := \"clean\" if input.aims == \"typed\"\n"
	_, err := evaluator.New(t.Context(), &evaluator.Options{With: []fs.FS{fstest.MapFS{"gate/steering/a.rego": {Data: []byte(text)}}}})
	if !errors.Is(err, evaluator.ErrPolicy) || !strings.Contains(err.Error(), "gate/steering/a.rego:8") {
		t.Errorf("%v", err)
	}
}

func TestWhatIsLaidBesideStandsOnce(t *testing.T) {
	for name, with := range map[string]fstest.MapFS{
		"file": {"gate/call/call.rego": {Data: []byte("package gate.other\n")}},
		"data": {"gate/settings/data.json": {Data: []byte(`{"system": "another"}`)}, "gate/other/a.rego": {Data: []byte("package gate.other\n")}},
	} {
		if _, err := evaluator.New(t.Context(), &evaluator.Options{With: []fs.FS{with}}); !errors.Is(err, evaluator.ErrPolicy) ||
			!strings.Contains(err.Error(), "beside") {
			t.Errorf("%s: %v", name, err)
		}
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, policies.FS()); err != nil {
		t.Fatal(err)
	}
	if e := newEvaluator(t, &evaluator.Options{Dir: dir, With: []fs.FS{optionalTree(t)}}); !e.Steers() {
		t.Error("beside a directory it is not in force")
	}
	if err := os.CopyFS(dir, optionalTree(t)); err != nil {
		t.Fatal(err)
	}
	if e := newEvaluator(t, &evaluator.Options{Dir: filepath.Clean(dir)}); !e.Steers() {
		t.Error("in a directory it is not in force")
	}
}

func TestSwitchTaints(t *testing.T) {
	var s evaluator.Switch
	r := &capability.Result{Tool: "read", Profile: capability.Profile{Origin: capability.FirstParty, OpenWorld: capability.No}}
	facts := &capability.Steering{Session: capability.Clean, Tool: "send"}
	if taints, err := s.ResultTaints(t.Context(), r); !taints || !errors.Is(err, evaluator.ErrNoEngine) {
		t.Errorf("%v, %v", taints, err)
	}
	if taint, err := s.CallTaint(t.Context(), facts); taint != capability.Tainted || !errors.Is(err, evaluator.ErrNoEngine) {
		t.Errorf("%v, %v", taint, err)
	}
	s.Replace(newEvaluator(t, nil))
	if taints, err := s.ResultTaints(t.Context(), r); taints || err != nil {
		t.Errorf("%v, %v", taints, err)
	}
	if taint, err := s.CallTaint(t.Context(), facts); taint != capability.Clean || err != nil {
		t.Errorf("%v, %v", taint, err)
	}
	s.Replace(evaluator.Both(evaluator.Native{}, evaluator.Native{}))
	if taints, err := s.ResultTaints(t.Context(), r); !taints || !errors.Is(err, evaluator.ErrNoEngine) {
		t.Errorf("of an engine that knows no taint: %v, %v", taints, err)
	}
}

func BenchmarkResultTaints(b *testing.B) {
	e, err := evaluator.New(b.Context(), nil)
	if err != nil {
		b.Fatal(err)
	}
	r := &capability.Result{Tool: "read", Profile: capability.Profile{Origin: capability.FirstParty, OpenWorld: capability.No}}
	for b.Loop() {
		if taints, err := e.ResultTaints(b.Context(), r); taints || err != nil {
			b.Fatal(taints, err)
		}
	}
}

func BenchmarkCallTaint(b *testing.B) {
	tree, err := optional.FS(optional.Steering)
	if err != nil {
		b.Fatal(err)
	}
	e, err := evaluator.New(b.Context(), &evaluator.Options{With: []fs.FS{tree}})
	if err != nil {
		b.Fatal(err)
	}
	s := &capability.Steering{Session: capability.Tainted, Tool: "send", Profile: capability.Profile{Origin: capability.FirstParty},
		Effect: capability.Outside, Aim: capability.TypedAim, Payload: capability.PlainPayload}
	for b.Loop() {
		if taint, err := e.CallTaint(b.Context(), s); taint != capability.Clean || err != nil {
			b.Fatal(taint, err)
		}
	}
}
