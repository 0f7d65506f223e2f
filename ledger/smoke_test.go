package ledger

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"path/filepath"
	"testing"

	"github.com/opa-gate/opa-gate/capability"
)

func TestSmoke(t *testing.T) {
	ctx := context.Background()
	for _, name := range []string{"memory:", filepath.Join(t.TempDir(), "l.db")} {
		_, key, _ := ed25519.GenerateKey(nil)
		ring := &Keyring{}
		ring.Sign(key)
		l, err := Open(ctx, name, &Options{Keys: ring})
		if err != nil {
			t.Fatal(err)
		}
		e := &Escalation{Call: Call{Tool: "t", Arguments: json.RawMessage(`{"a":1}`), Session: "s", Revision: "r"},
			Outcome: capability.Outcome{Kind: capability.Escalate, Missing: capability.Set(8), Required: 8, Granted: 7, Reason: "why"}}
		a, err := l.Admit(ctx, e)
		if err != nil || a.Pending == nil {
			t.Fatal(a, err)
		}
		b, err := l.Admit(ctx, e)
		if err != nil || b.Pending.ID != a.Pending.ID {
			t.Fatal(b, err)
		}
		if _, err := l.Decide(ctx, "me", a.Pending.ID, Decision{Approve: true}); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Decide(ctx, "me", a.Pending.ID, Decision{}); !errors.Is(err, ErrDecided) {
			t.Fatal(err)
		}
		c, err := l.Admit(ctx, e)
		if err != nil || c.Outcome.Kind != capability.Allow {
			t.Fatal(c, err)
		}
		d, err := l.Admit(ctx, e)
		if err != nil || d.Outcome.Kind != capability.Escalate || !errors.Is(d.Refused, ErrUsed) {
			t.Fatal(d, err)
		}
		au, err := l.Audit(ctx, nil, nil)
		if err != nil || !au.Sound() || au.Entries != 4 {
			t.Fatal(au, err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
