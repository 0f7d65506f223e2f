package evaluator

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"
)

// callPackage is where the rules begin that decide calls.
const callPackage = "data.gate.call"

// Digest names the policies that decide calls, as "sha256:" and hexadecimal
// digits: the modules that gate/call refers to, one way or another, and the data
// that these refer to. Two evaluators with the same digest answer every call
// alike, whether they were loaded from a directory, a bundle or a store; policies
// on skills and the tests do not count. The error is that of data which are not JSON.
func (e *Evaluator) Digest() (string, error) { return e.digest() }

// digest sums the policies up before they are compiled, which changes them.
func (s *source) digest() func() (string, error) {
	data := maps.Clone(s.data)
	if gate, ok := data["gate"].(map[string]any); ok { // without the facts: all policies of a program have the same
		gate = maps.Clone(gate)
		delete(gate, "facts")
		data["gate"] = gate
	}
	var sums []string
	used := map[string]any{}
	for id, m := range reachable(s.modules, callPackage) {
		sum := s.sums[id]
		sums = append(sums, hex.EncodeToString(sum[:]))
		ast.WalkRefs(m, func(r ast.Ref) bool {
			if r.HasPrefix(ast.DefaultRootRef) {
				if path, value := lookUp(data, r.ConstantPrefix()); value != nil {
					used[path] = value
				}
			}
			return false
		})
	}
	slices.Sort(sums)
	return sync.OnceValues(func() (string, error) {
		text, err := json.Marshal(used)
		if err != nil {
			return "", fmt.Errorf("%w: sum up the data: %w", ErrPolicy, err)
		}
		h := sha256.New()
		h.Write([]byte("opa-gate policies 1\n" + strings.Join(sums, "\n") + "\n"))
		h.Write(text)
		return "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
	})
}

// lookUp follows a reference into the data; what stands where it leaves them
// counts as a whole.
func lookUp(data map[string]any, r ast.Ref) (path string, value any) {
	value = data
	for i, term := range r[1:] {
		object, ok := value.(map[string]any)
		key, isText := term.Value.(ast.String)
		if !ok || !isText {
			return r[:i+1].String(), value
		}
		if value, ok = object[string(key)]; !ok {
			return "", nil
		}
	}
	return r.String(), value
}
