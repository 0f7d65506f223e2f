package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/fixtures"
)

const vetoCase = `{"about": "A veto is a deny.", "kind": "call", "cases": [
  {"name": "NAME", "call": {"tool": {"name": "NAME", "origin": "local-sandbox", "read_only": true}, "taint": "clean", "grant": {"base": []}, "policy": {"veto": "no"}},
   "want": {"outcome": "deny", "reason": "no", "missing": [], "missing_mask": 0, "required": ["local-read"], "required_mask": 1, "granted": [], "granted_mask": 0}}
]}`

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

// A case that is answered rightly at first and wrongly later on has failed, and
// counts once, as does one that is wrong each time.
func TestConformAuto(t *testing.T) {
	suite, err := fixtures.Load(fstest.MapFS{
		"a.json": {Data: []byte(strings.ReplaceAll(vetoCase, "NAME", "good"))},
		"b.json": {Data: []byte(strings.ReplaceAll(vetoCase, "NAME", "later"))},
		"c.json": {Data: []byte(strings.ReplaceAll(vetoCase, "NAME", "never"))},
	})
	if err != nil {
		t.Fatal(err)
	}
	engine := func() *forgetful {
		return &forgetful{right: map[string]int{"good": 100, "later": 1}, asked: map[string]int{}}
	}
	e := engine()
	c := conform(t.Context(), engineAuto, e, suite)
	if c.OK || c.Total != 3 || c.Failed != 2 || len(c.Differences) != 2 || e.asked["good"] != autoRounds {
		t.Errorf("got %+v after %d rounds", c, e.asked["good"])
	}
	for _, d := range c.Differences {
		if d.Again != (d.Case == "later") {
			t.Errorf("%s: again is %v", d.Case, d.Again)
		}
	}
	var b bytes.Buffer
	if err := writeConformance(&b, []conformance{c}, false, false, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"total      3 cases, 2 failed\n", "b.json: later (call, when it was asked again)\n", "c.json: never (call)\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("there is no %q in\n%s", want, &b)
		}
	}
	e = engine()
	if c := conform(t.Context(), engineNative, e, suite); c.Failed != 1 || e.asked["good"] != 1 {
		t.Errorf("another engine was asked %d times: %+v", e.asked["good"], c)
	}
}

// The rounds of a single case reach the table that it fills.
func TestConformReachesTables(t *testing.T) {
	suite, err := fixtures.Load(fstest.MapFS{"a.json": {Data: []byte(vetoCase)}})
	if err != nil {
		t.Fatal(err)
	}
	e, err := evaluator.New(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if c := conform(t.Context(), engineAuto, e, suite); !c.OK {
		t.Errorf("got %+v", c)
	}
	if s := e.Stats(); s.Compiled != 1 || s.Evaluations >= autoRounds {
		t.Errorf("no round was answered from a table: %+v", s)
	}
}
