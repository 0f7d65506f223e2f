package evaluator

import (
	"context"
	"strings"
	"testing"
)

func TestProbe(t *testing.T) {
	for name, tt := range map[string]struct{ module, says string }{
		"sound":                     {"decision := " + okDecision, ""},
		"a decision of a shape":     {`decision := object.union(` + okDecision + `, {"outcome": "yes"})`, "a call of tool"},
		"no decision on some":       {"decision := " + okDecision + ` if input.taint == "clean"`, "a call of tool"},
		"not even an object at all": {`decision := true`, "a call of tool"},
	} {
		err := engineOf(t, tt.module, okSkill).Probe(context.Background())
		if (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: error %v, want one with %q", name, err, tt.says)
		}
	}
	if err := embedded(t).Probe(context.Background()); err != nil {
		t.Error(err)
	}
	ended, end := context.WithCancel(context.Background())
	end()
	if err := embedded(t).Probe(ended); err == nil {
		t.Error("no error of a context that ended")
	}
}
