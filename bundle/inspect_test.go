package bundle_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/opa-gate/opa-gate/bundle"
	"github.com/opa-gate/opa-gate/evaluator"
)

// What is built says what it is, for every target and optimized or not.
func TestInspect(t *testing.T) {
	for target := range bundle.Target(3) {
		for optimize := range 2 {
			b := built(t, target, optimize)
			in, err := bundle.Inspect(b.Bytes)
			if err != nil {
				t.Fatal(err)
			}
			want := []bundle.Entrypoint{{Path: "gate/call/decision", Title: "The decision"}, {Path: "gate/skill/decision", Title: "The decision and its enforcement"}}
			if in.Target != target || in.Optimize == nil || *in.Optimize != optimize || !reflect.DeepEqual(in.Entrypoints, want) {
				t.Errorf("%v -O%d: %v %v %+v", target, optimize, in.Target, in.Optimize, in.Entrypoints)
			}
			if in.Revision != b.Revision || in.Digest != b.Digest || !reflect.DeepEqual(in.Roots, b.Roots) || len(in.Files) != len(b.Files) ||
				in.Packed != len(b.Bytes) || in.Unpacked <= in.Packed || in.Signature != nil || in.Facts != bundle.FactsOwn {
				t.Errorf("%v -O%d: %+v", target, optimize, in)
			}
			if hasWasm := len(in.Wasm) == 1 && in.Wasm[0].Bytes > 1000; hasWasm != (target == bundle.TargetWasm) {
				t.Errorf("%v -O%d: wasm %+v", target, optimize, in.Wasm)
			}
			if want := []string{"data.gate.facts", "data.gate.settings"}; !reflect.DeepEqual(in.Data, want) {
				t.Errorf("data %q, want %q", in.Data, want)
			}
		}
	}
}

// A bundle that somebody else has made need not say what ours say, and whose
// facts it has decides whether it can be used.
func TestInspectOthers(t *testing.T) {
	const (
		call = `{"outcome": "deny", "reason": "", "missing": [], "missing_mask": 0, "required": [], "required_mask": 0, "granted": [], "granted_mask": 0}`
		ask  = `{"trust": "untrusted", "ceiling": null, "granted": null, "outcome": "deny", "reason": "",
	"enforcement": {"deploy": false, "effective_tier": null, "overridden": false, "blocked": true, "pending": null, "reason": ""}}`
	)
	modules := []entry{{"/c.rego", "package gate.call\n\ndecision := " + call + "\n"}, {"/s.rego", "package gate.skill\n\ndecision := " + ask + "\n"}}
	for name, tt := range map[string]struct {
		data  string
		facts bundle.Facts
		loads bool
	}{
		"no facts":    {`{}`, bundle.FactsMissing, true},
		"other facts": {`{"gate": {"facts": {"all": 63}}}`, bundle.FactsOther, false},
		"no object":   {`{"gate": []}`, bundle.FactsMissing, false},
	} {
		text := archive(t, append([]entry{{"/data.json", tt.data}}, modules...))
		in, err := bundle.Inspect(text)
		if err != nil {
			t.Fatal(name, err)
		}
		if in.Facts != tt.facts || in.Optimize != nil || in.Revision != "" || !reflect.DeepEqual(in.Roots, []string{""}) {
			t.Errorf("%s: %+v", name, in)
		}
		if err := bundle.Loads(t.Context(), text); (err == nil) != tt.loads || err != nil && !errors.Is(err, evaluator.ErrPolicy) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	shapeless := archive(t, append([]entry{{"/c.rego", "package gate.call\n\ndecision := {}\n"}}, modules[1:]...))
	if err := bundle.Loads(t.Context(), shapeless); !errors.Is(err, evaluator.ErrPolicy) || !strings.Contains(err.Error(), "/outcome") {
		t.Errorf("a decision without a shape: error %v", err)
	}
	delta := archive(t, []entry{{"/patch.json", `{"data": [{"op": "remove", "path": "/gate/facts"}]}`}})
	if _, err := bundle.Inspect(delta); !errors.Is(err, bundle.ErrNotBundle) || !strings.Contains(err.Error(), "it is a delta") {
		t.Errorf("a delta: error %v", err)
	}
	torn := archive(t, []entry{{"/c.rego", "package gate.call\n\ndecision := {\n"}})
	if _, err := bundle.Inspect(torn); !errors.Is(err, bundle.ErrDamaged) || !strings.Contains(err.Error(), "/c.rego:4") {
		t.Errorf("torn: error %v", err)
	}
	unreadable, err := bundle.Inspect(archive(t, append([]entry{{"/.signatures.json", `{"signatures": ["a.b.c"]}`}}, modules...)))
	if err != nil || unreadable.Signature == nil || unreadable.Signature.Problem == "" || unreadable.Signature.Verified {
		t.Errorf("%+v, error %v", unreadable, err)
	}
}

// A bundle whose WebAssembly lacks an entrypoint is not loaded.
func TestLoadsWasm(t *testing.T) {
	all := entries(t, built(t, bundle.TargetWasm, 0).Bytes)
	for i := range all {
		if all[i].name == "/.manifest" {
			all[i].text = strings.Replace(all[i].text, "gate/skill/decision", "gate/skill/decided", 1)
		}
	}
	if err := bundle.Loads(t.Context(), archive(t, all)); !errors.Is(err, evaluator.ErrPolicy) || !strings.Contains(err.Error(), "there is no entrypoint gate/skill/decision") {
		t.Errorf("error %v", err)
	}
}
