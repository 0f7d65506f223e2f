package evaluator

import (
	"context"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/util"
)

// Policies that give a member another default than the specification get
// documents without it as they came: the answer is the one that any OPA gives to
// the same document, the first time and later on.
func TestLeftOutMembers(t *testing.T) {
	const all = `["local-read","local-write","fixed-connector-read","arbitrary-egress","mutate-external"]`
	edits := []struct{ name, file, old, text string }{
		{"unchanged", "gate/grant/grant.rego", "else := facts.all", "else := facts.all"},
		{"no grant grants nothing", "gate/grant/grant.rego", "else := facts.all", "else := 0"},
		{"no origin is a fetcher", "gate/profile/profile.rego", `default origin := "unknown"`, `default origin := "fetcher"`},
		{"no origin is an admin's grant", "gate/profile/profile.rego", `default origin := "unknown"`, `default origin := "admin-grant"`},
	}
	documents := []string{
		`{"tool":{"name":"t"},"taint":"clean"}`,
		`{"tool":{"name":"t","origin":null},"grant":null,"taint":"clean"}`,
		`{"tool":{"name":"t"},"grant":{},"taint":"clean"}`,
		`{"tool":{"name":"t","origin":"unknown"},"taint":"clean"}`,
		`{"tool":{"name":"t","origin":"local-sandbox"},"taint":"tainted"}`,
		`{"tool":{"name":"t","origin":"local-sandbox"},"grant":{"base":` + all + `},"taint":"clean"}`,
		`{"tool":{"name":"t","origin":"local-sandbox"},"grant":{"base":[]},"taint":"clean"}`,
		`{"tool":{"name":"t","origin":"fetcher","read_only":true},"taint":"clean"}`,
	}
	ctx := context.Background()
	answers := map[string]bool{}
	for _, edit := range edits {
		t.Run(edit.name, func(t *testing.T) {
			tree := withFile(t, edit.file, func(text string) string { return replaceOnce(t, text, edit.old, edit.text) })
			e, err := New(ctx, &Options{FS: tree})
			if err != nil {
				t.Fatal(err)
			}
			src, err := loadFS(tree)
			if err != nil {
				t.Fatal(err)
			}
			built, err := src.build(Facts(), "", callQuery)
			if err != nil {
				t.Fatal(err)
			}
			stock, err := built.prepared(ctx, callQuery)()
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				for _, doc := range documents {
					var input any
					if err := util.UnmarshalJSON([]byte(doc), &input); err != nil {
						t.Fatal(err)
					}
					rs, err := stock.Eval(ctx, rego.EvalInput(input))
					if err != nil || len(rs) != 1 {
						t.Fatal(rs, err)
					}
					got, err := DecideJSON(ctx, e, []byte(doc))
					if err != nil {
						t.Fatal(err)
					}
					want := ast.MustInterfaceToValue(rs[0].Expressions[0].Value)
					if ast.MustInterfaceToValue(util.MustUnmarshalJSON(got)).Compare(want) != 0 {
						t.Errorf("%s:\n got %s\nwant %v", doc, got, want)
					}
					answers[edit.name+string(got)] = true
				}
			}
			if s := e.Stats(); s.Compiled == 0 {
				t.Errorf("nothing is compiled: %+v", s)
			}
		})
	}
	if len(answers) < 12 { // the edits change something
		t.Errorf("%d answers", len(answers))
	}
}
