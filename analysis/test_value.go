package analysis

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// A ValueDifference is one place in which two JSON values differ.
type ValueDifference struct {
	Pointer string          `json:"pointer"`        // RFC 6901; "" is the whole
	Want    json.RawMessage `json:"want,omitempty"` // none: it should not be there
	Got     json.RawMessage `json:"got,omitempty"`  // none: it is not there
}

// valueDifferences lists where two values differ, the smallest parts of them, in
// the order of want. Lists are held together by their beginning and end, so that
// one member too many is one difference.
func valueDifferences(want, got any) []ValueDifference {
	var list []ValueDifference
	var walk func(at string, want, got any)
	walk = func(at string, want, got any) {
		if reflect.DeepEqual(want, got) {
			return
		}
		if w, ok := want.(map[string]any); ok {
			if g, ok := got.(map[string]any); ok {
				names := slices.AppendSeq(slices.Collect(maps.Keys(w)), maps.Keys(g))
				slices.Sort(names)
				for _, name := range slices.Compact(names) {
					pointer := at + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
					inWant, a := w[name]
					inGot, b := g[name]
					switch {
					case a && b:
						walk(pointer, inWant, inGot)
					case a:
						list = append(list, ValueDifference{Pointer: pointer, Want: encode(inWant)})
					default:
						list = append(list, ValueDifference{Pointer: pointer, Got: encode(inGot)})
					}
				}
				return
			}
		}
		if w, ok := want.([]any); ok {
			if g, ok := got.([]any); ok {
				start, end := 0, 0
				for start < min(len(w), len(g)) && reflect.DeepEqual(w[start], g[start]) {
					start++
				}
				for end < min(len(w), len(g))-start && reflect.DeepEqual(w[len(w)-1-end], g[len(g)-1-end]) {
					end++
				}
				for i := start; i < max(len(w), len(g))-end; i++ {
					pointer := at + "/" + strconv.Itoa(i)
					switch {
					case i < len(w)-end && i < len(g)-end:
						walk(pointer, w[i], g[i])
					case i < len(w)-end:
						list = append(list, ValueDifference{Pointer: pointer, Want: encode(w[i])})
					default:
						list = append(list, ValueDifference{Pointer: pointer, Got: encode(g[i])})
					}
				}
				return
			}
		}
		list = append(list, ValueDifference{Pointer: at, Want: encode(want), Got: encode(got)})
	}
	walk("", want, got)
	return list
}
