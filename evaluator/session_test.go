package evaluator

import (
	"context"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/opa-gate/opa-gate/internal/race"
)

// What a session keeps from one call to the next changes nothing of what
// following the plan gives, whatever is edited into the policies.
func TestSessionsAgree(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() || race.Enabled {
		seeds = 8
	}
	compared := 0
	for seed := range seeds {
		tree, edits := anEdit(t, seed+5000)
		ctx := context.Background()
		e, err := New(ctx, &Options{FS: tree})
		if err != nil {
			continue // not every edit compiles
		}
		program, err := e.compiled.wholePlan(ctx)
		if err != nil {
			continue // and not every one is planned
		}
		by := newFollower(program)
		r := rand.New(rand.NewPCG(seed, 13))
		pages := [3]int{r.IntN(pageCount), r.IntN(pageCount), r.IntN(pageCount)}
		for range 150 {
			c := callAt(place{pages[r.IntN(3)], r.IntN(pageCells)})
			var given fixed
			if r.IntN(3) == 0 {
				given = ofTool([]string{"a", "xa", "mcp_x", "zz"}[r.IntN(4)])
			}
			want, err := e.compiled.follow(ctx, program, c, given, textual...)
			if err != nil {
				t.Fatal(err)
			}
			got, err := e.compiled.followWith(ctx, by, c, given, textual...)
			if err != nil || got.cell.key() != want.cell.key() || got.cell.decided != want.cell.decided ||
				!reflect.DeepEqual(got.except, want.except) || !reflect.DeepEqual(got.blocker, want.blocker) {
				t.Fatalf("seed %d, %+v:\nsession %+v %v %v, %v\nalone   %+v %v %v\nof\n%s", seed, c,
					got.cell, got.except, got.blocker, err, want.cell, want.except, want.blocker, edits)
			}
			compared++
		}
	}
	if compared < 500 {
		t.Errorf("only %d calls were compared", compared)
	}
}
