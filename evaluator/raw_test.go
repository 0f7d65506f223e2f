package evaluator

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"strings"
	"testing"

	"github.com/opa-gate/opa-gate/policies"
	"github.com/opa-gate/opa-gate/skill"
	"github.com/opa-gate/opa-gate/wire"
)

// rawCall and rawSkill evaluate a document just as a stock OPA would that has
// nothing but the policies: no schema check, no canonical form.
func rawCall(e *Interpreter, doc string) (any, error) { return raw(e, doc, true) }

func rawSkill(e *Interpreter, doc string) (any, error) { return raw(e, doc, false) }

func raw(e *Interpreter, doc string, call bool) (any, error) {
	input, err := parseJSON([]byte(doc))
	if err != nil {
		return nil, err
	}
	query := e.skill
	if call {
		query = e.call
	}
	return evaluate(context.Background(), query, input.Value)
}

// placeInReason is how a reason names the place of a fault.
func placeInReason(pointer string) string {
	if pointer == "" {
		return "breaks its schema:"
	}
	return "breaks its schema at " + pointer + ":"
}

func toText(v any) string { return fmt.Sprint(v) }

func treeFiles(t testing.TB) []string {
	t.Helper()
	var names []string
	err := fs.WalkDir(policies.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			names = append(names, name)
		}
		return err
	})
	if err != nil || len(names) == 0 {
		t.Fatalf("walking the policies: %d files, error %v", len(names), err)
	}
	return names
}

// The rules that stand for the schema on a stock OPA accept what the schema
// accepts, answer it alike, and name the same place in what it refuses.
func FuzzCallDocument(f *testing.F) {
	for _, doc := range []string{
		`{"tool":{"name":"t","origin":"fetcher","read_only":null},"taint":"tainted","grant":{"base":["x","local-read","x"]}}`,
		`{"tool":{"name":"t"},"taint":"clean","policy":{"veto":"","transform":{"kind":"rewrite","arguments":{"a":[1.0,9007199254740993]}}}}`,
		`{"tool":{"name":""},"taint":"dirty","grant":[],"policy":{"veto":3,"transform":{"kind":"x","note":1,"arguments":2}}}`,
		`{"tool":[],"grant":{"base":[1,"a",null]},"policy":{"transform":{"kind":"none","note":"n"}},"a/~b":1}`,
		`[]`, `null`, `"x"`, `{"taint":null,"policy":{"transform":{"kind":["none"]}}}`,
		`{"tool":{"name":"t"},"taint":"clean","policy":{"transform":{"kind":"inject_context","note":"n"}}}`,
	} {
		f.Add([]byte(doc))
	}
	e := embedded(f)
	f.Fuzz(func(t *testing.T, doc []byte) {
		call, err := wire.ParseCall(doc)
		var broken *wire.Error
		if errors.As(err, &broken) && broken.Kind != wire.Invalid {
			return // a stock OPA's own reader refuses it, or reads another document
		}
		answer, rawErr := rawCall(e.Interpreter(), string(doc))
		if rawErr != nil {
			t.Fatalf("%s: %v", doc, rawErr)
		}
		got, readErr := readOutcome(answer)
		if readErr != nil {
			t.Fatalf("%s: %v", doc, readErr)
		}
		if broken != nil {
			want := placeInReason(broken.Pointer)
			if got.Kind.String() != "deny" || !strings.Contains(got.Reason, want) {
				t.Errorf("%s\nthe schema says %v\nthe rules say %v %q", doc, broken, got.Kind, got.Reason)
			}
			return
		}
		if want := call.Decide(""); !got.Equal(want) {
			t.Errorf("%s\nnative %+v\nRego %+v", doc, want, got)
		}
	})
}

func FuzzSkillDocument(f *testing.F) {
	for _, doc := range []string{
		`{"skill":"a:b","requested":"read_only","provenance":{"scanned":true,"fail_count":1e1,"success_count":7.0},"approval":null}`,
		`{"skill":"","requested":"all","provenance":{"fail_count":-1,"success_count":18446744073709551616,"vulnerabilities":0.5,"source":"x"},"approval":"maybe"}`,
		`{"skill":"s","requested":"full_access","provenance":{"signed":true,"scanned":true,"signer_trusted":true,"source":"official"}}`,
		`{"skill":"s","requested":"full_access","approval":"approved","x":1}`, `7`, `{"provenance":[]}`,
	} {
		f.Add([]byte(doc))
	}
	e := embedded(f)
	f.Fuzz(func(t *testing.T, doc []byte) {
		request, err := wire.ParseSkill(doc)
		var broken *wire.Error
		if errors.As(err, &broken) && broken.Kind != wire.Invalid {
			return
		}
		answer, rawErr := rawSkill(e.Interpreter(), string(doc))
		if rawErr != nil {
			t.Fatalf("%s: %v", doc, rawErr)
		}
		if request == nil {
			request = &skill.Request{}
		}
		got, readErr := readAnswer(answer, request)
		if readErr != nil {
			t.Fatalf("%s: %v", doc, readErr)
		}
		if broken != nil {
			if got.Enforcement.Deploy || !got.Enforcement.Blocked || !strings.Contains(got.Reason, placeInReason(broken.Pointer)) {
				t.Errorf("%s\nthe schema says %v\nthe rules say %+v", doc, broken, got)
			}
			return
		}
		if want := request.Decide(); !reflect.DeepEqual(got, want) {
			t.Errorf("%s\nnative %+v\nRego %+v", doc, want, got)
		}
	})
}
