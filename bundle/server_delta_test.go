package bundle

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/bundle"
	"github.com/open-policy-agent/opa/v1/metrics"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/util"

	"github.com/opa-gate/opa-gate/internal/race"
)

// editionOf makes an edition of data and policies.
func editionOf(t testing.TB, data string, module string, roots ...string) *edition {
	t.Helper()
	b := bundle.Bundle{Data: map[string]any{}}
	if err := util.UnmarshalJSON([]byte(data), &b.Data); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	if module != "" {
		b.Modules = []bundle.ModuleFile{{URL: "/p.rego", Path: "/p.rego", Raw: []byte(module), Parsed: ast.MustParseModule(module)}}
	}
	b.Manifest.Roots = &roots
	b.Manifest.Revision = fmt.Sprintf("%x", sha256.Sum256([]byte(data)))
	var out bytes.Buffer
	if err := bundle.NewWriter(&out).Write(b); err != nil {
		t.Fatal(err)
	}
	read, err := bundle.NewReader(bytes.NewReader(out.Bytes())).WithLazyLoadingMode(false).Read()
	if err != nil {
		t.Fatal(err)
	}
	return newEdition(out.Bytes(), &read, time.Now())
}

// activate has OPA put a bundle into a store, as its plugin does.
func activate(t testing.TB, store storage.Store, body []byte) error {
	t.Helper()
	b, err := bundle.NewReader(bytes.NewReader(body)).WithLazyLoadingMode(true).WithBundleName("gate").Read()
	if err != nil {
		return err
	}
	return storage.Txn(t.Context(), store, storage.WriteParams, func(txn storage.Transaction) error {
		return bundle.Activate(&bundle.ActivateOpts{
			Ctx: t.Context(), Store: store, Txn: txn, Compiler: ast.NewCompiler(), Metrics: metrics.New(),
			Bundles: map[string]*bundle.Bundle{"gate": &b},
		})
	})
}

// stored is the data in a store, but for what OPA keeps of its own.
func stored(t testing.TB, store storage.Store) map[string]any {
	t.Helper()
	value, err := storage.ReadOne(t.Context(), store, storage.RootPath)
	if err != nil {
		t.Fatal(err)
	}
	data := value.(map[string]any)
	delete(data, "system")
	return data
}

// checkDelta has OPA apply the delta between two editions, and compares that with
// what it makes of the second one as a whole. It reports whether there was a delta.
func checkDelta(t testing.TB, from, to *edition) bool {
	t.Helper()
	body := deltaBetween(from, to)
	if body == nil {
		return false
	}
	patched, whole := inmem.New(), inmem.New()
	for _, step := range []struct {
		what  string
		store storage.Store
		body  []byte
	}{{"the first", patched, from.body}, {"the delta", patched, body}, {"the second", whole, to.body}} {
		if err := activate(t, step.store, step.body); err != nil {
			t.Fatalf("from %v to %v: OPA does not take %s: %v", from.data, to.data, step.what, err)
		}
	}
	if got, want := stored(t, patched), stored(t, whole); !reflect.DeepEqual(got, want) {
		t.Fatalf("from %v to %v: the delta leads to %v, want %v", from.data, to.data, got, want)
	}
	return true
}

func TestDelta(t *testing.T) {
	const module = "package gate\n\nallow := data.gate.limit > 1\n"
	for _, c := range []struct {
		name, from, to string
		roots          []string
		want           bool
	}{
		{"a value", `{"gate": {"limit": 1}}`, `{"gate": {"limit": 2}}`, []string{"gate"}, true},
		{"nothing is no delta", `{"gate": {"limit": 1}}`, `{"gate": {"limit": 1}}`, []string{"gate"}, false},
		{"one more", `{"gate": {}}`, `{"gate": {"a": {"b": [1]}}}`, []string{"gate"}, true},
		{"one fewer", `{"gate": {"a": 1, "b": 2}}`, `{"gate": {"b": 2}}`, []string{"gate"}, true},
		{"to null", `{"gate": {"a": 1}}`, `{"gate": {"a": null}}`, []string{"gate"}, true},
		{"from null", `{"gate": {"a": null}}`, `{"gate": {}}`, []string{"gate"}, true},
		{"an array", `{"gate": {"a": [1, 2]}}`, `{"gate": {"a": [2]}}`, []string{"gate"}, true},
		{"an object to a value", `{"gate": {"a": {"b": 1}}}`, `{"gate": {"a": "b"}}`, []string{"gate"}, true},
		{"odd keys", `{"gate": {"a/b": 1, "~": 1, "~1": 1, "%41": 1, "ä b": 1}}`, `{"gate": {"a/b": 2, "~": 2, "~1": 2, "%41": 2, "ä b": 2}}`, []string{"gate"}, true},
		{"a key that no path ends with", `{"gate": {"": 1}}`, `{"gate": {"": 2}}`, []string{"gate"}, false},
		{"above the roots", `{"x": {"y": {"a": 1}}, "gate": {}}`, `{"x": {"y": {"a": 2}}, "gate": {}}`, []string{"gate", "x/y"}, true},
		{"below what was not there", `{"gate": {}}`, `{"x": {"y": {"a": 2}}, "gate": {}}`, []string{"gate", "x/y"}, true},
		{"everything is the root", `{"a": 1}`, `{"b": 1}`, []string{""}, true},
		{"a large number", `{"gate": {"a": 1}}`, `{"gate": {"a": 123456789012345678901234567890}}`, []string{"gate"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := checkDelta(t, editionOf(t, c.from, module, c.roots...), editionOf(t, c.to, module, c.roots...)); got != c.want {
				t.Errorf("there is a delta: %v, want %v", got, c.want)
			}
		})
	}
}

func TestDeltaNeedsEqualPolicies(t *testing.T) {
	const module = "package gate\n\nallow := true\n"
	from := editionOf(t, `{"gate": {"a": 1}}`, module, "gate")
	for name, to := range map[string]*edition{
		"another policy": editionOf(t, `{"gate": {"a": 2}}`, "package gate\n\nallow := false\n", "gate"),
		"no policy":      editionOf(t, `{"gate": {"a": 2}}`, "", "gate"),
		"another root":   editionOf(t, `{"gate": {"a": 2}}`, module, "gate", "more"),
	} {
		if deltaBetween(from, to) != nil || deltaBetween(to, from) != nil {
			t.Errorf("%s: there is a delta", name)
		}
	}
	signed := editionOf(t, `{"gate": {"a": 2}}`, module, "gate")
	signed.patchable = false
	if deltaBetween(from, signed) != nil || deltaBetween(signed, from) != nil {
		t.Error("there is a delta of a signed bundle")
	}
}

// TestDeltaOfAnything goes from one random document to the next.
func TestDeltaOfAnything(t *testing.T) {
	race.SkipSlow(t)
	r := rand.New(rand.NewPCG(1, 2))
	keys := []string{"a", "b", "c/d", "~e", "%f", "g h", "0", "1"}
	var value func(depth int) any
	value = func(depth int) any {
		switch n := r.IntN(7); {
		case n < 3 && depth > 0:
			object := map[string]any{}
			for range r.IntN(4) {
				object[keys[r.IntN(len(keys))]] = value(depth - 1)
			}
			return object
		case n == 3 && depth > 0:
			return []any{value(depth - 1), value(depth - 1)}
		case n == 4:
			return nil
		case n == 5:
			return strings.Repeat("x", r.IntN(3))
		default:
			return r.IntN(3)
		}
	}
	deltas := 0
	var before *edition
	for range 400 {
		text, err := json.Marshal(map[string]any{"gate": map[string]any{"x": value(3), "y": value(3)}})
		if err != nil {
			t.Fatal(err)
		}
		now := editionOf(t, string(text), "", "gate")
		if before != nil && checkDelta(t, before, now) {
			deltas++
		}
		before = now
	}
	if deltas < 200 {
		t.Errorf("only %d of 399 steps have a delta", deltas)
	}
}

func TestShelfKeepsFormerEditions(t *testing.T) {
	b := newShelf("gate", "", 3)
	var all []*edition
	for i := range 6 {
		e := editionOf(t, fmt.Sprintf(`{"gate": {"n": %d, "more": %q}}`, i, incompressible()), "", "gate")
		all = append(all, e)
		if !b.put(e) {
			t.Fatalf("edition %d is not new", i)
		}
	}
	current := all[5]
	for i, e := range all {
		if got, want := b.delta(e.etag, current) != nil, i >= 2 && i < 5; got != want {
			t.Errorf("from edition %d there is a delta: %v, want %v", i, got, want)
		}
	}
	if b.delta(all[4].etag, all[3]) != nil {
		t.Error("there is a delta to what is not served any more")
	}
	if b.put(editionOf(t, fmt.Sprintf(`{"gate": {"n": %d, "more": %q}}`, 5, incompressible()), "", "gate")) {
		t.Error("the same again is new")
	}
}

// incompressible is a text that makes a whole longer than a delta.
func incompressible() string {
	r := rand.New(rand.NewPCG(7, 7))
	var text strings.Builder
	for range 500 {
		text.WriteByte(byte('!' + r.IntN(90)))
	}
	return strings.NewReplacer(`"`, "", `\`, "").Replace(text.String())
}

func TestServerDeltas(t *testing.T) {
	file := builtFile(t, 1)
	r := serve(t, ServerOptions{Bundles: gateOf(file)})
	first := r.ask(t, "GET", "/bundles/gate", "Prefer", "modes=snapshot,delta")
	one := first.header.Get("ETag")
	fill(t, file, 2)
	eventually(t, "the edit is served", func() bool { return r.one().ETag != one })
	two := r.one().ETag
	for _, c := range []struct {
		name, tags, prefer, kind string
	}{
		{"asked for", one, "modes=snapshot,delta", "delta"},
		{"again on the same connection: it could not be used", one, "modes=snapshot,delta", "snapshot"},
		{"not asked for", one, "modes=snapshot", "snapshot"},
		{"from what nobody knows", `"x"`, "modes=snapshot,delta", "snapshot"},
		{"from nothing", "", "modes=snapshot,delta", "snapshot"},
		{"what it has now is not known", `"x", ` + one, "modes=snapshot,delta", "snapshot"},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := strings.Count(r.access.String(), `"kind":"`+c.kind+`"`)
			got := r.ask(t, "GET", "/bundles/gate", "If-None-Match", c.tags, "Prefer", c.prefer)
			if got.code != 200 || got.header.Get("ETag") != two || got.header.Get("Content-Type") != mediaType {
				t.Fatalf("status %d, headers %v", got.code, got.header)
			}
			if whole := len(got.body) >= len(first.body)-20; whole != (c.kind == "snapshot") {
				t.Errorf("%d bytes, want a %s", len(got.body), c.kind)
			}
			eventually(t, "the log says "+c.kind, func() bool { return strings.Count(r.access.String(), `"kind":"`+c.kind+`"`) == before+1 })
		})
	}
}

func TestGivenDeltas(t *testing.T) {
	g := newGivenDeltas()
	if !g.first("10.0.0.1:1", "gate", "a", "b") || g.first("10.0.0.1:1", "gate", "a", "b") {
		t.Error("a connection is to get a delta once")
	}
	if !g.first("10.0.0.1:1", "gate", "b", "c") || !g.first("10.0.0.1:1", "other", "a", "b") {
		t.Error("a connection is to get another delta")
	}
	n := 0
	for port := range 1000 {
		if g.first(fmt.Sprintf("10.0.0.2:%d", port), "gate", "a", "b") {
			n++
		}
	}
	if n != givenByHost {
		t.Errorf("a host that makes a connection each time got a delta %d times, want %d", n, givenByHost)
	}
	for i := range 2 * maxGiven {
		g.first(fmt.Sprint(i), "gate", "a", "b")
	}
	if len(g.count) > maxGiven {
		t.Errorf("%d are remembered", len(g.count))
	}
}
