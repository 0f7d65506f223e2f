package bundle_test

import (
	"strings"
	"testing"

	"github.com/opa-gate/opa-gate/bundle"
)

// Whatever is in a bundle, it is looked into without a fall, and is verified by no
// key that has not signed it.
func FuzzBundle(f *testing.F) {
	f.Add("/data.json", `{"a": 1}`, "/.manifest", `{"revision": "r", "roots": ["a"]}`)
	f.Add("/gate/c.rego", "package gate.call\n\ndecision := 1\n", "/.signatures.json", `{"signatures": ["e30.e30.e30"]}`)
	f.Add("/policy.wasm", "\x00asm", "/.manifest", `{"roots": ["gate"], "wasm": [{"module": "/policy.wasm", "entrypoint": "gate/x", "annotations": [null]}]}`)
	f.Add("/plan.json", "{}", "/.manifest", `{"metadata": {"opa_gate": {"optimize": "x", "entrypoints": 3}}}`)
	f.Add("/patch.json", `{"data": [{"op": "remove", "path": "/a"}]}`, "a/./b", "")
	f.Add("/data.yaml", "a: &a [*a]", "/.manifest.pb", "\x0a\x01r")
	f.Fuzz(func(t *testing.T, name1, text1, name2, text2 string) {
		if len(name1) > 90 || len(name2) > 90 || strings.Contains(name1+name2, "\x00") || strings.HasSuffix(name1, "/") || strings.HasSuffix(name2, "/") { // no name of a file in a tarball
			return
		}
		defer func() {
			if p := recover(); p != nil {
				t.Fatalf("%q %q %q %q: %v", name1, text1, name2, text2, p)
			}
		}()
		text := archive(t, []entry{{name1, text1}, {name2, text2}})
		_, _ = bundle.Inspect(text)
		_ = bundle.Loads(t.Context(), text)
		secret := pairs()[bundle.HS256][0].public
		if v, err := bundle.Verify(text, verificationKey(t, bundle.HS256, secret, "")); err == nil {
			t.Errorf("%+v is verified", v)
		}
		signed, err := bundle.Sign(text, signingKey(t, bundle.HS256, secret, ""))
		if err != nil {
			return
		}
		if _, err := bundle.Verify(signed, verificationKey(t, bundle.HS256, secret, "")); err != nil {
			t.Errorf("what was signed: %v", err)
		}
	})
}
