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
	f.Add("invite", "x", "y", "", `{}`, uint32(110591))
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
		c.Grant = capability.ParseGrant(strings.Split(base, ","))
		want := c.Decide("")
		got, err := e.Decide(ctx, c)
		if invalid := c.Validate(); invalid != nil {
			if !errors.Is(err, capability.ErrInvalidCall) || got.Kind.Valid() {
				t.Errorf("%v, and the engine says %v, %v", invalid, got.Kind, err)
			}
			return
		}
		if err != nil || !got.Equal(want) {
			t.Errorf("%+v\nnative %+v\nRego %+v, error %v", c, want, got, err)
		}
	})
}
