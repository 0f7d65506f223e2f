package bundle

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/bundle"
)

// patchKey writes a key as a part of a patch's path: as in a JSON pointer, and
// with % escaped, because OPA reads it as a part of a URL first.
var patchKey = strings.NewReplacer("~", "~0", "/", "~1", "%", "%25")

// deltaBetween returns the bundle that takes an OPA from one edition to another. It is nil
// if there is none: the policies or the roots differ, there is no difference (an
// empty delta would be taken for a snapshot of nothing), a signature must come
// along, or a key cannot be written in a path.
func deltaBetween(from, to *edition) []byte {
	if !from.patchable || !to.patchable || from.policies != to.policies || !slices.Equal(from.roots, to.roots) {
		return nil
	}
	d := differ{roots: to.roots}
	d.object("", from.data, to.data)
	if d.failed || len(d.ops) == 0 {
		return nil
	}
	var out bytes.Buffer
	b := bundle.Bundle{Manifest: to.manifest, Patch: bundle.Patch{Data: d.ops}}
	if err := bundle.NewWriter(&out).Write(b); err != nil {
		return nil
	}
	return out.Bytes()
}

// A differ collects what is to be done to data.
type differ struct {
	roots  []string
	ops    []bundle.PatchOperation
	failed bool
}

// object goes through the members of two objects at one place, in order.
func (d *differ) object(at string, from, to map[string]any) {
	keys := map[string]bool{}
	for key := range from {
		keys[key] = true
	}
	for key := range to {
		keys[key] = true
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		before, had := from[key]
		now, has := to[key]
		if had && has && reflect.DeepEqual(before, now) {
			continue
		}
		if key == "" { // a path cannot end with it
			d.failed = true
			return
		}
		d.member(at+"/"+patchKey.Replace(key), before, now, had, has)
		if d.failed {
			return
		}
	}
}

func (d *differ) member(path string, before, now any, had, has bool) {
	fromObject, wasObject := before.(map[string]any)
	toObject, isObject := now.(map[string]any)
	switch within := bundle.RootPathsContain(d.roots, path[1:]); {
	case had && has && wasObject && isObject:
		d.object(path, fromObject, toObject)
	case !within: // what stands above the roots belongs to several bundles
		if had && !wasObject || has && !isObject {
			d.failed = true
			return
		}
		d.object(path, fromObject, toObject)
	case has:
		d.ops = append(d.ops, bundle.PatchOperation{Op: "upsert", Path: path, Value: now})
	default:
		d.ops = append(d.ops, bundle.PatchOperation{Op: "remove", Path: path})
	}
}

// dataSize is about how many bytes data takes.
func dataSize(data map[string]any) int {
	text, err := json.Marshal(data)
	if err != nil {
		return 0
	}
	return len(text)
}
