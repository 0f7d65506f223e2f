package evaluator

import (
	"context"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/policies"
)

// A tenth capability, in this test only: one more row of facts, and one origin
// that requires it. The rules of precedence, of taint and of escalation are the
// embedded files, to the byte.
func TestTenthCapability(t *testing.T) {
	const tenth = capability.Capability(512)
	const file = "gate/profile/profile.rego"
	for _, grantable := range []bool{true, false} {
		taxonomy := append(capability.Taxonomy(), capability.Definition{
			Capability: tenth, Name: "spend-money", Grantable: grantable})
		src, err := loadFS(withFile(t, file, func(text string) string {
			return replaceOnce(t, text, `required := facts.bit["grant-access"] if origin == "access-grant"`,
				`required := facts.bit["grant-access"] + facts.bit["spend-money"] if origin == "access-grant"`)
		}, "gate/facts/data.json"))
		if err != nil {
			t.Fatal(err)
		}
		e, err := prepare(context.Background(), src, factsOf(taxonomy), "")
		if err != nil {
			t.Fatal(err)
		}
		decide := func(doc string) map[string]any {
			t.Helper()
			answer, err := rawCall(e.Interpreter(), doc)
			if err != nil {
				t.Fatal(err)
			}
			return answer.(map[string]any)
		}
		// Required beside a marker: it is missing, named and in the mask.
		got := decide(`{"tool": {"name": "invite", "origin": "access-grant"}, "taint": "clean", "grant": {"base": ["local-read"]}}`)
		if want := "[grant-access spend-money] 544 escalate"; summary(got) != want {
			t.Errorf("grantable %v: got %s, want %s", grantable, summary(got), want)
		}
		// Granted: it is no longer missing if it is grantable, and a typo if not.
		got = decide(`{"tool": {"name": "invite", "origin": "access-grant"}, "taint": "tainted", "grant": {"base": ["spend-money"]}}`)
		want := "[grant-access] 32 escalate"
		if !grantable {
			want = "[grant-access spend-money] 544 escalate"
		}
		if summary(got) != want {
			t.Errorf("grantable %v: got %s, want %s", grantable, summary(got), want)
		}
		if _, warned := got["warnings"]; warned == grantable {
			t.Errorf("grantable %v: warnings %v", grantable, got["warnings"])
		}
		// Not required: nothing changes.
		got = decide(`{"tool": {"name": "ls", "origin": "local-sandbox", "read_only": true}, "taint": "tainted"}`)
		if want := "[] 0 allow"; summary(got) != want {
			t.Errorf("grantable %v: got %s, want %s", grantable, summary(got), want)
		}
	}
}

func summary(answer map[string]any) string {
	return strings.Join([]string{toText(answer["missing"]), toText(answer["missing_mask"]), toText(answer["outcome"])}, " ")
}

// withFile returns the embedded policies with one file edited and others left
// out.
func withFile(t testing.TB, file string, edit func(string) string, without ...string) fstest.MapFS {
	t.Helper()
	tree := copyTree(t)
	tree[file] = &fstest.MapFile{Data: []byte(edit(string(tree[file].Data)))}
	for _, name := range without {
		delete(tree, name)
	}
	return tree
}

func replaceOnce(t testing.TB, text, from, to string) string {
	t.Helper()
	if n := strings.Count(text, from); n != 1 {
		t.Fatalf("%q stands %d times in the file, want once", from, n)
	}
	return strings.Replace(text, from, to, 1)
}

func copyTree(t testing.TB) fstest.MapFS {
	t.Helper()
	tree := fstest.MapFS{}
	for _, name := range treeFiles(t) {
		text, err := policies.FS().(interface {
			ReadFile(string) ([]byte, error)
		}).ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		tree[name] = &fstest.MapFile{Data: text}
	}
	return tree
}
