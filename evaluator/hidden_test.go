package evaluator

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/opa-gate/opa-gate/capability"
)

// A plan that is wrong about a condition without any text can agree with OPA on
// the call that a cell is learnt from, and hide that a text decides behind the
// condition. Each row is such a condition, or a use of a text that was once
// followed wrongly; each stands before a text, and before a text it must fail
// for.
func TestNothingHidesText(t *testing.T) {
	rows := []struct{ condition, helpers string }{
		{condition: `s := {input.tool.name}; s[input.tool.name]`},
		{condition: `s := {[input.tool.name]}; s[[input.tool.name]]`},
		{condition: `s := {input.tool}; s[input.tool]`},
		{`r[input.tool.name]`, `r contains input.tool.name`},
		{`n := 1; r[input.tool.name]; n == 1`, `r contains input.tool.name`},
		{condition: `object.get({"s": {input.tool.name}}, ["s", input.tool.name], 9) == input.tool.name`},
		{`c2 with input.policy.transform.arguments.path as "/x"`, `c2 if input.policy.transform.arguments.mode == "rw"`},
		{`c2 with input.policy.transform.arguments.z as "rw"`, `c2 if count(input.policy.transform.arguments) == 1`},
		{`c2 with data.x as input.policy.transform.arguments with data.x.y as 1`, `c2 if data.x.mode == "rw"`},
		{condition: `data.gate.facts.names[input.tool.name]`},
		{condition: `data.l[input.tool.name]`},
		{condition: `data.l["0"] == 10`},
		{condition: `data.o[1]`},
		{condition: `[x | some x in {"z", "b", input.taint}] == ["b", input.taint, "z"]`},
		{condition: `[x | some x in {"z", "b", input.taint}] == ["b", "clean", "z"]`},
		{condition: `[1 | to_number(input.tool.name) > 3]; false`},
		{condition: `not [1 | to_number(input.tool.name) > 3]`},
		{`k := "c"; l := "d"; data.gate.call.q[k][l] == 2`, "q.a[x] := 1 if some x in [\"b\"]\n\nq.c.d := 2"},
		{`data.gate.call.r.y == 2`, "r.y := 1 if { false } else := 2\n\nr[x] := 1 if some x in [\"z\"]"},
		{`input.taint == "clean"; input.tool.name == "a\u0000b"`, `deny if { input.taint == "tainted"; input.tool.name in {"a", "b"} }`},
	}
	var calls []*capability.Call
	for _, tool := range []string{"t", "t", "7", "a", "a\x00b", "xa", "x0", "0", "rw"} {
		for _, taint := range []capability.Taint{capability.Clean, capability.Tainted} {
			for _, arguments := range []string{"", `{}`, `{"mode":"rw"}`} {
				c := &capability.Call{Tool: tool, Taint: taint}
				if arguments != "" {
					c.Policy.Transform = capability.Transform{Kind: capability.Rewrite, Arguments: json.RawMessage(arguments)}
				}
				calls = append(calls, c)
			}
		}
	}
	for _, row := range rows {
		for _, form := range []string{
			"deny if { C }", `deny if { C; startswith(input.tool.name, "x") }`,
			"c if { C }\n\ndeny if { not c; startswith(input.tool.name, \"x\") }",
		} {
			hideAndSeek(t, strings.ReplaceAll(form, "C", row.condition)+"\n\n"+row.helpers, calls)
		}
	}
}

// hideAndSeek holds auto against OPA with rules that define deny.
func hideAndSeek(t *testing.T, rules string, calls []*capability.Call) {
	t.Helper()
	e, err := New(context.Background(), &Options{FS: fstest.MapFS{
		"call.rego": {Data: []byte("package gate.call\n\ndecision := object.union(ok, {\"outcome\": \"deny\"}) if { deny } else := ok\n\nok := " +
			okDecision + "\n\n" + rules)},
		"skill.rego": {Data: []byte(okSkill)},
		"data.json":  {Data: []byte(`{"l": [10, 20], "o": {"1": true}}`)},
	}})
	if err != nil {
		t.Fatalf("%v in\n%s", err, rules)
	}
	for range 3 {
		for _, c := range calls {
			want, wantErr := e.Interpreter().Decide(context.Background(), c)
			got, err := e.Decide(context.Background(), c)
			if problem := same(got, err, want, wantErr); problem != "" {
				t.Errorf("%s\non %+v of\n%s", problem, c, rules)
				return
			}
		}
	}
	if e.compiled.off.Load() {
		t.Errorf("the plan was followed to another answer than OPA's, of\n%s", rules)
	}
}

// Answers whose texts differ in bytes that JSON cannot tell apart are two.
func TestAnswersWithBrokenText(t *testing.T) {
	e := engineOf(t, `decision := object.union(ok, {"reason": hex.decode({"clean": "ff", "tainted": "fe"}[input.taint])})`+"\nok := "+okDecision, okSkill)
	for range 4 {
		for taint, want := range map[capability.Taint]string{capability.Clean: "\xff", capability.Tainted: "\xfe"} {
			if o, err := e.Decide(context.Background(), &capability.Call{Tool: "t", Taint: taint}); err != nil || o.Reason != want {
				t.Errorf("%v: %q, %v", taint, o.Reason, err)
			}
		}
	}
}

// A policy that takes long to follow costs one attempt a kind of call.
func TestSlowPoliciesStayWithOPA(t *testing.T) {
	e := engineOf(t, `big[y] contains x if { some y in ["a"]; some x in numbers.range(1, 3000) }
decision := object.union(ok, {"reason": input.tool.name}) if { count(big.a) > 7 } else := ok
ok := `+okDecision, okSkill)
	for i := range 4 {
		o, err := e.Decide(context.Background(), &anyCall)
		if err != nil || o.Reason != anyCall.Tool {
			t.Fatal(o, err)
		}
		if follows := e.compiled.follows.Load(); i > 1 && follows != 1 {
			t.Errorf("call %d: the plan was followed %d times", i, follows)
		}
	}
}
