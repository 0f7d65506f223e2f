package evaluator

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/opa-gate/opa-gate/capability"
)

// Parity over texts: whatever the tool, the veto, the note, the arguments and
// the operator's list say, both engines give the same answer.
func FuzzCallParity(f *testing.F) {
	f.Add("web_fetch", "", "note", "local-read,typo", `{"n":9007199254740993}`, uint32(0))
	f.Add(`"\`+"\n\u202e", "no", "", "grant-access,,arbitrary-egress", `{"a":{"b":[1e400,-0]}}`, uint32(4711))
	f.Add("invite", "x", "y", "", `{}`, uint32(126719))
	e, ctx := embedded(f), context.Background()
	f.Fuzz(func(t *testing.T, tool, veto, note, base, arguments string, cell uint32) {
		c := domainCall(int(cell % domainSize))
		c.Tool = tool
		if c.Policy.Vetoed {
			c.Policy.Veto = veto
		}
		switch c.Policy.Transform.Kind {
		case capability.Rewrite:
			c.Policy.Transform.Arguments = json.RawMessage(arguments)
		case capability.InjectContext:
			c.Policy.Transform.Note = note
		}
		if !c.LeftOut.Has(capability.GrantMember) {
			c.Grant = capability.ParseGrant(strings.Split(base, ","))
		}
		want := c.Decide("")
		got, err := e.Interpreter().Decide(ctx, c)
		if invalid := c.Validate(); invalid != nil {
			if !errors.Is(err, capability.ErrInvalidCall) || got.Kind.Valid() {
				t.Errorf("%v, and the engine says %v, %v", invalid, got.Kind, err)
			}
			return
		}
		if err != nil || !got.Equal(want) {
			t.Errorf("%+v\nnative %+v\nRego %+v, error %v", c, want, got, err)
		}
		for use := range 2 {
			if got, err := e.Decide(ctx, c); err != nil || !got.Equal(want) {
				t.Errorf("use %d of %+v\nnative %+v\nauto %+v, error %v", use+1, c, want, got, err)
			}
		}
	})
}

// Whatever is edited into the policies, and whatever the texts say, an
// evaluator answers as OPA does, on first and on later use.
func FuzzEdits(f *testing.F) {
	f.Add(uint64(1), "a", "", "note", `{"path":"/etc"}`, uint32(0))
	f.Add(uint64(32), "mcp_x", "x", "", `{}`, uint32(4711))
	f.Add(uint64(222), "\u202e%s", "%d", "y", `{"":[{"":null}]}`, uint32(427679))
	f.Fuzz(func(t *testing.T, seed uint64, tool, veto, note, arguments string, cell uint32) {
		tree, edits := anEdit(t, seed)
		ctx := context.Background()
		e, err := New(ctx, &Options{FS: tree})
		if err != nil {
			t.Skip("the edit does not compile")
		}
		n := int(cell) % (pageCount * pageCells)
		first := callAt(place{n / pageCells, n % pageCells})
		second := *first
		second.Tool = tool
		if second.Policy.Vetoed {
			second.Policy.Veto = veto
		}
		switch second.Policy.Transform.Kind {
		case capability.Rewrite:
			second.Policy.Transform.Arguments = json.RawMessage(arguments)
		case capability.InjectContext:
			second.Policy.Transform.Note = note
		}
		// The first call of all teaches nothing, and the cell is learnt from
		// another call than the one whose texts are in question.
		for use, c := range []*capability.Call{first, first, &second, first, &second, &second} {
			want, wantErr := e.Interpreter().Decide(ctx, c)
			got, err := e.Decide(ctx, c)
			if problem := same(got, err, want, wantErr); problem != "" {
				t.Fatalf("use %d: %s\non %+v\nof\n%s", use, problem, c, edits)
			}
		}
	})
}
