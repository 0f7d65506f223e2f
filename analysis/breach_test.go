package analysis

import (
	"testing"

	"github.com/opa-gate/opa-gate/evaluator"
)

// To say which rules gave an answer takes one evaluation: nobody is told what would
// go ahead instead, so nothing is decided besides.
func TestBreachLooksForNothingElse(t *testing.T) {
	e := minimal(t, "decision := object.union(ok, {\"outcome\": \"escalate\"})\n")
	v := &verifier{evaluator: e}
	if places := v.decidedBy(t.Context(), "answered", evaluator.CellCall(0)); len(places) == 0 {
		t.Error("no rule gave the answer")
	}
	r := skillRequests()[0]
	if places := v.skillDecidedBy(t.Context(), &r); len(places) == 0 {
		t.Error("no rule gave the answer to the skill")
	}
	if s := e.Stats(); s.Evaluations > 0 || s.Compiled > 0 {
		t.Errorf("other documents were decided: %+v", s)
	}
	c := *evaluator.CellCall(0)
	if _, err := Explain(t.Context(), e, &c); err != nil {
		t.Fatal(err)
	}
	if s := e.Stats(); s.Evaluations == 0 && s.Compiled == 0 {
		t.Error("the test does not see it when they are")
	}
}
