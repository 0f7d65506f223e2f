package evaluator

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/opa-gate/opa-gate/internal/race"
)

// A survey answers as OPA does, also where texts decide, and knows the texts
// that the policies compare with.
func TestSurvey(t *testing.T) {
	if testing.Short() || race.Enabled {
		t.Skip("several whole surveys take minutes under the race detector; they run without -race and -short")
	}
	tests := []struct {
		condition            string
		tools, vetoes, notes []string
		incomplete           int
	}{
		{`input.taint == "tainted"`, nil, nil, nil, 0},
		{`input.tool.name in {"a", "b"}`, []string{"a", "b"}, nil, nil, 0},
		{`input.policy.veto == ""`, nil, []string{""}, nil, 0},
		{`input.policy.transform.note == "x"; input.tool.name != "a"`, []string{"a"}, nil, []string{"x"}, 0},
		{`startswith(input.tool.name, "mcp_")`, []string{"mcp_", "mcp_x", "xmcp_"}, []string{"mcp_", "mcp_x", "xmcp_"}, []string{"mcp_", "mcp_x", "xmcp_"}, 1},
		{`input.policy.transform.arguments.path`, nil, nil, nil, 1},
		{`input.taint == "clean"; concat(",", [x | some x in {"z", input.taint}]) == "clean,z"`,
			[]string{"xz", "z", "zx"}, []string{"xz", "z", "zx"}, []string{"xz", "z", "zx"}, 1},
	}
	for _, tt := range tests {
		t.Run(tt.condition, func(t *testing.T) {
			e := engineOf(t, "decision := object.union(ok, {\"reason\": \"held\"}) if { "+tt.condition+" }\nelse := ok\n\nok := "+okDecision, okSkill)
			ctx := context.Background()
			s, err := e.Survey(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(s.Tools, tt.tools) || !slices.Equal(s.Vetoes, tt.vetoes) || !slices.Equal(s.Notes, tt.notes) || len(s.Incomplete) != tt.incomplete {
				t.Errorf("tools %q, vetoes %q, notes %q, incomplete %+v", s.Tools, s.Vetoes, s.Notes, s.Incomplete)
			}
			r := rand.New(rand.NewPCG(1, 2))
			for range 300 {
				n := r.IntN(Cells)
				calls := 0
				for c := range s.Calls(n) {
					calls++
					if got, ok := CellOf(c); got != n || !ok {
						t.Fatalf("a call of kind %d is of kind %d", n, got)
					}
					got, err := s.Decide(ctx, c)
					want, wantErr := e.Interpreter().Decide(ctx, c)
					if problem := same(got, err, want, wantErr); problem != "" {
						t.Fatalf("%s on %+v", problem, c)
					}
				}
				if s.Exact(n) != (calls == 1) && len(tt.tools) > 0 {
					t.Errorf("kind %d: %d calls, exact %v", n, calls, s.Exact(n))
				}
			}
		})
	}
}

// What is answered to tools that the policies name was followed with the others: it is what
// OPA says of each, without OPA being asked about each.
func TestSurveyOfNamedTools(t *testing.T) {
	if testing.Short() || race.Enabled {
		t.Skip("several whole surveys take minutes under the race detector; they run without -race and -short")
	}
	for rules, asks := range map[string]bool{
		`decision := object.union(ok, {"reason": concat(" ", ["no", input.tool.name])}) if input.tool.name in {"a", "b", "c"} else := ok`:                             false,
		`decision := object.union(ok, {"reason": "a"}) if { input.tool.name == "a"; input.taint == "tainted" } else := object.union(ok, {"reason": input.tool.name})`: false,
		`decision := object.union(ok, {"reason": names[input.tool.name]}) if names[input.tool.name] else := ok
names := {"a": "first", "b": "second"}`: false,
		`decision := object.union(ok, {"reason": "x"}) if { input.tool.name == "a"; input.policy.veto == "x" } else := ok`:                                                                   true,
		`decision := object.union(ok, {"reason": "x"}) if { input.tool.name in {"a", "b"}; startswith(input.policy.transform.note, "n") } else := ok`:                                        true,
		`decision := object.union(ok, {"reason": "x"}) if { input.tool.name == "a"; input.tool.destructive } else := object.union(ok, {"reason": "y"}) if input.tool.name != "b" else := ok`: false,
	} {
		t.Run(rules, func(t *testing.T) {
			e := engineOf(t, rules+"\n\nok := "+okDecision, okSkill)
			s, err := e.Survey(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			looked := 0
			for n := 0; n < Cells; n += 97 { // no divisor of any dimension
				for c := range s.Calls(n) {
					looked++
					got, err := s.Decide(t.Context(), c)
					want, wantErr := e.Interpreter().Decide(t.Context(), c)
					if problem := same(got, err, want, wantErr); problem != "" {
						t.Fatalf("%s on %+v", problem, c)
					}
				}
			}
			if looked < Cells/97 || s.asked.Load() > 0 != asks {
				t.Errorf("%d calls, of which OPA was asked about %d", looked, s.asked.Load())
			}
		})
	}
}
