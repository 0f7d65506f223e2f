package evaluator_test

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/util"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/policies"
)

// storeOf returns a store with the embedded policies, further modules, and
// documents.
func storeOf(t *testing.T, astValues bool, modules map[string]string, data string) *evaluator.Stored {
	t.Helper()
	ctx := context.Background()
	s := inmem.NewWithOpts(inmem.OptReturnASTValuesOnRead(astValues))
	txn := storage.NewTransactionOrDie(ctx, s, storage.WriteParams)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	root := map[string]any{}
	must(util.UnmarshalJSON([]byte(data), &root))
	must(s.Write(ctx, txn, storage.AddOp, storage.RootPath, root))
	must(fs.WalkDir(policies.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, ".rego") {
			return err
		}
		text, err := fs.ReadFile(policies.FS(), name)
		if err != nil {
			return err
		}
		return s.UpsertPolicy(ctx, txn, "gate/"+name, text)
	}))
	for name, text := range modules {
		if text == "" {
			must(s.DeletePolicy(ctx, txn, name))
			continue
		}
		must(s.UpsertPolicy(ctx, txn, name, []byte(text)))
	}
	must(s.Commit(ctx, txn))
	read := storage.NewTransactionOrDie(ctx, s)
	t.Cleanup(func() { s.Abort(ctx, read) })
	return &evaluator.Stored{Store: s, Txn: read}
}

func TestStored(t *testing.T) {
	const settings = `{"gate": {"settings": {"system": "Stored Desk"}}, "system": {"bundles": {"x": {}}}, "pay": {"tools": ["pay"]}}`
	const vetoing = `package gate.call

import data.rules

default decision := {"outcome": "allow", "missing": [], "missing_mask": 0, "required": [], "required_mask": 0, "granted": [], "granted_mask": 0, "reason": ""}

decision := {"outcome": "deny", "missing": [], "missing_mask": 0, "required": [], "required_mask": 0, "granted": [], "granted_mask": 0, "reason": "vetoed"} if {
	input.tool.name in rules.vetoed
}
`
	for _, tt := range []struct {
		name    string
		modules map[string]string
		data    string
		vetoed  bool // by a module that others refer to
		refused string
	}{
		{name: "the policies alone", data: settings},
		{name: "an application's package does not know the gate's schemas",
			modules: map[string]string{"app.rego": "package app\n\nallow if input.user.name == data.gate.settings.system\n"}, data: settings},
		{name: "OPA's own packages", data: settings,
			modules: map[string]string{"authz.rego": "package system.authz\n\nallow if input.identity == \"x\"\n", "empty.rego": "package empty\n"}},
		{name: "tests are left out", data: settings,
			modules: map[string]string{"gate/call/x_test.rego": "package gate.call_test\n\ntest_x if input.user\n"}},
		{name: "an unsound module of the gate", data: settings,
			modules: map[string]string{"gate/more.rego": "package gate.more\n\nx if input.tol.name\n"}, refused: "gate/more.rego:3"},
		{name: "an unsound module that the gate refers to", data: settings,
			modules: map[string]string{"gate/more.rego": "package gate.more\n\nx if data.far.y\n", "far.rego": "package far\n\ny if input.tol\n"},
			refused: "far.rego:3"},
		{name: "facts of another program", data: `{"gate": {"facts": {"masks": {}}}}`, refused: "data.gate.facts"},
		{name: "no decision", data: settings, modules: map[string]string{"gate/gate/call/call.rego": ""}, refused: "data.gate.call.decision"},
		{name: "what the gate refers to is taken", data: settings, vetoed: true,
			modules: map[string]string{"gate/gate/call/call.rego": "", "call.rego": vetoing, "rules.rego": "package rules\n\nvetoed := data.pay.tools\n"}},
	} {
		for _, astValues := range []bool{false, true} {
			t.Run(tt.name, func(t *testing.T) {
				ctx := context.Background()
				stored := storeOf(t, astValues, tt.modules, tt.data)
				e, err := evaluator.New(ctx, &evaluator.Options{Store: stored})
				if tt.refused != "" {
					if !errors.Is(err, evaluator.ErrPolicy) || !strings.Contains(err.Error(), tt.refused) {
						t.Fatalf("error %v, want one with %q", err, tt.refused)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if !tt.vetoed {
					got, err := e.Decide(ctx, &capability.Call{Tool: "pay", Taint: capability.Clean, Profile: capability.Profile{Origin: capability.AccessGrant}})
					if err != nil || got.Kind != capability.Escalate || !strings.Contains(got.Reason, "Stored Desk") {
						t.Errorf("%v, %v; want an escalation that names Stored Desk", got, err)
					}
				}
				if tt.vetoed {
					got, err := e.Decide(ctx, &capability.Call{Tool: "pay", Taint: capability.Clean})
					if err != nil || got.Kind != capability.Deny || got.Reason != "vetoed" {
						t.Errorf("%v, %v; want the veto", got, err)
					}
				}
				if _, err := stored.Store.Read(ctx, stored.Txn, storage.MustParsePath("/gate/facts")); !storage.IsNotFound(err) {
					t.Errorf("the store was written to: %v", err)
				}
			})
		}
	}
}

func TestStoredOfNothing(t *testing.T) {
	ctx := context.Background()
	s := inmem.New()
	txn := storage.NewTransactionOrDie(ctx, s)
	defer s.Abort(ctx, txn)
	if _, err := evaluator.New(ctx, &evaluator.Options{Store: &evaluator.Stored{Store: s, Txn: txn}}); !errors.Is(err, evaluator.ErrPolicy) {
		t.Errorf("error %v", err)
	}
}
