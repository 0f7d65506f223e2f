package conformance

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/fixtures"
)

var loaded = sync.OnceValues(func() (fixtures.Suite, error) { return fixtures.Load(fixtures.Cases()) })

// whole is the built-in suite.
func whole(t testing.TB) fixtures.Suite {
	t.Helper()
	s, err := loaded()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// suiteOf is a suite of case files: name, text, name, text.
func suiteOf(t testing.TB, files ...string) fixtures.Suite {
	t.Helper()
	tree := fstest.MapFS{}
	for i := 0; i < len(files); i += 2 {
		tree[files[i]] = &fstest.MapFile{Data: []byte(files[i+1])}
	}
	s, err := fixtures.Load(tree)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A veto is a case file with one case, which the reference answers as wanted.
func veto(name string) string {
	return strings.ReplaceAll(`{"about": "A veto is a deny.", "kind": "call", "cases": [
  {"name": "NAME", "call": {"tool": {"name": "NAME", "origin": "local-sandbox", "read_only": true}, "taint": "clean", "grant": {"base": []}, "policy": {"veto": "no"}},
   "want": {"outcome": "deny", "reason": "no", "missing": [], "missing_mask": 0, "required": ["local-read"], "required_mask": 1, "granted": [], "granted_mask": 0}}
]}`, "NAME", name)
}

const (
	namesFile   = `{"about": "n", "kind": "names", "cases": [{"name": "one", "mask": 1, "want": {"display": ["local-read"], "coverage": ["local-read"]}}]}`
	invalidFile = `{"about": "i", "kind": "invalid", "cases": [
  {"name": "no taint", "document": "call", "text": "{\"tool\":{\"name\":\"t\"}}", "want": {"kind": "schema", "pointer": "/taint"}},
  {"name": "no tier", "document": "skill", "text": "{\"skill\":\"s\"}", "want": {"kind": "schema", "pointer": "/requested"}},
  {"name": "no JSON", "document": "call", "text": "{", "want": {"kind": "syntax"}}
]}`
)

// forgetful decides a tool rightly until it has answered for it so many times.
type forgetful struct {
	evaluator.Native
	right map[string]int
	asked map[string]int
}

// Decide implements evaluator.Engine.
func (f *forgetful) Decide(ctx context.Context, c *capability.Call) (capability.Outcome, error) {
	o, err := f.Native.Decide(ctx, c)
	if f.asked[c.Tool]++; f.asked[c.Tool] > f.right[c.Tool] {
		o.Reason = "another"
	}
	return o, err
}

func newForgetful() *forgetful {
	return &forgetful{right: map[string]int{"good": 100, "later": 1}, asked: map[string]int{}}
}

// twisted is the reference without its reader, and one text in place of another.
type twisted struct{ from, to string }

func (w twisted) twist(doc []byte, err error) ([]byte, error) {
	return bytes.ReplaceAll(doc, []byte(w.from), []byte(w.to)), err
}

func (w twisted) Call(ctx context.Context, doc []byte) ([]byte, error) {
	return w.twist(evaluator.Documents{Engine: evaluator.Native{}}.Call(ctx, doc))
}

func (w twisted) Skill(ctx context.Context, doc []byte) ([]byte, error) {
	return w.twist(evaluator.Documents{Engine: evaluator.Native{}}.Skill(ctx, doc))
}

func textOf(t *testing.T, r *Report, opts *TextOptions) string {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteText(&b, opts); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// holdsWhole asserts that an engine that decides calls and skills only was asked
// all of the built-in suite that it can be, and answered as wanted.
func holdsWhole(t *testing.T, e Engine) {
	t.Helper()
	suite := whole(t)
	r := Run(t.Context(), suite, nil, e)
	if !r.OK {
		t.Fatalf("not OK:\n%s", textOf(t, r, nil))
	}
	left := 0
	for _, n := range r.Engines[0].Counts {
		left += n.NotAsked
		switch n.Kind {
		case fixtures.Names, fixtures.Viability:
			if n.Total != 0 || n.NotAsked == 0 {
				t.Errorf("%s: %d were judged, %d not asked", n.Kind, n.Total, n.NotAsked)
			}
		case fixtures.Invalid:
			schema := 0
			for _, c := range suite.InvalidCases() {
				if c.Fault == "schema" {
					schema++
				}
			}
			if n.Total != schema || n.NotAsked != len(suite.InvalidCases())-schema {
				t.Errorf("invalid: %d were judged of %d that break the schema, %d not asked", n.Total, schema, n.NotAsked)
			}
		default:
			if n.Total == 0 || n.NotAsked != 0 {
				t.Errorf("%s: %d were judged, %d not asked", n.Kind, n.Total, n.NotAsked)
			}
		}
	}
	if total := r.Engines[0].Total; total+left != suite.Len() || total < 1000 {
		t.Errorf("%d were judged and %d not asked, of %d", total, left, suite.Len())
	}
	t.Logf("%s: %d cases, %d not asked", e.Name, r.Engines[0].Total, left)
}
