package evaluator

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/internal/race"
)

// Names without end: tools get tables of their own until the bounds are
// reached, then OPA decides, and every answer is still right.
func TestBoundsOfTables(t *testing.T) {
	e := engineOf(t, `decision := object.union(ok, {"reason": upper(input.tool.name)})`+"\nok := "+okDecision, okSkill)
	ctx := context.Background()
	for i := range maxToolPages + 50 {
		tool := fmt.Sprint("tool", i)
		if i == 7 {
			tool = strings.Repeat("long", maxToolName)
		}
		for range 3 {
			o, err := e.Decide(ctx, &capability.Call{Tool: tool, Taint: capability.Clean})
			if err != nil || o.Reason != strings.ToUpper(tool) {
				t.Fatalf("tool %d: %+v, %v", i, o, err)
			}
		}
	}
	s := e.Stats()
	if !s.Full || s.Tools != maxToolPages || s.Bytes > 16<<20 || s.Evaluations < 3*49 {
		t.Errorf("%+v", s)
	}
}

// Answers without end: they are kept until there is no room for more.
func TestBoundsOfAnswers(t *testing.T) {
	race.SkipSlow(t)
	e := engineOf(t, `decision := object.union(ok, {"reason": text})
text := concat("", [concat("", [input.tool.origin, d, input.taint, long]) | some d in input.grant.base])
long := concat("", [input.tool.name | some i in numbers.range(1, 4000)])
ok := `+okDecision, okSkill)
	ctx := context.Background()
	for i := range 40 {
		c := callAt(place{pageCount - 1 - hints*hints*hints, i * 24 % (pageCells - taints*flags*flags*flags*transforms)})
		for range 2 {
			got, err := e.Decide(ctx, c)
			want, wantErr := e.Interpreter().Decide(ctx, c)
			if problem := same(got, err, want, wantErr); problem != "" {
				t.Fatal(problem[:200])
			}
		}
	}
	if s := e.Stats(); !s.Full || s.Bytes > 16<<20 || s.Compiled == 0 || s.Compiled > 30 {
		t.Errorf("%+v", s)
	}
}

// A table has a place for every call of the taxonomy, and no two share one.
func TestExtentOfTables(t *testing.T) {
	if n := len(capability.Origins()); n+1 != origins {
		t.Errorf("there are %d origins, and tables have place for %d and for none", n, origins)
	}
	if int(capability.All)+1 != bases-1 {
		t.Errorf("the grantable capabilities are %d, and tables have place for %d bases", capability.All, bases)
	}
	for n := range Cells {
		if got, ok := CellOf(CellCall(n)); got != n || !ok {
			t.Fatalf("the call of kind %d is of kind %d", n, got)
		}
	}
}
