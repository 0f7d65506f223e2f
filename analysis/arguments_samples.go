package analysis

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
)

// maxArguments bounds the documents of arguments that are tried, and of them those
// that are put together of what one rule looks at.
const (
	maxArguments = 96
	maxTogether  = 48
)

// argumentSamples are documents of arguments to try, the shortest first: each with
// one member that a rule looks at, or with all those of one rule, or of all rules.
func argumentSamples(all []argumentUses) []json.RawMessage {
	var samples []json.RawMessage
	seen := map[string]bool{}
	add := func(doc map[string]any, ok bool) {
		text := encode(doc)
		if ok && len(samples) < maxArguments && !seen[string(text)] {
			seen[string(text)] = true
			samples = append(samples, text)
		}
	}
	merged := argumentUses{}
	for _, uses := range all {
		for _, u := range uses {
			merged.add(u.path, u.values, u.besides)
		}
	}
	singles := func(of func(u *argumentUse) []any) {
		for _, key := range slices.Sorted(maps.Keys(merged)) {
			u := merged[key]
			for _, v := range of(u) {
				add(argumentsWith([]argumentPath{u.path}, []any{v}))
			}
		}
	}
	singles(func(u *argumentUse) []any { return u.values })
	for _, uses := range append(slices.Clip(all), merged) {
		together(uses, add)
	}
	singles(func(u *argumentUse) []any { return u.tried() })
	slices.SortStableFunc(samples, func(a, b json.RawMessage) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(string(a), string(b)))
	})
	return samples
}

// tried are the values to put at a path. What rules only look for is there, or is
// true or not.
func (u *argumentUse) tried() []any {
	list := slices.Concat(u.values, u.besides)
	if len(list) == 0 {
		list = []any{true, "x", false}
	}
	return list
}

// together puts the members that one rule looks at into one document: every choice of
// their values, or if there are too many, the first of each, the second, and so on.
func together(uses argumentUses, add func(doc map[string]any, ok bool)) {
	var paths []argumentPath
	var values [][]any
	choices, most := 1, 0
	for _, key := range slices.Sorted(maps.Keys(uses)) {
		if u := uses[key]; len(u.path) > 0 {
			paths, values = append(paths, u.path), append(values, u.tried())
			choices = min(choices*len(u.tried()), maxTogether+1)
			most = max(most, len(u.tried()))
		}
	}
	if len(paths) < 2 {
		return
	}
	every := choices <= maxTogether
	if !every {
		choices = min(most, maxTogether)
	}
	for n := range choices {
		chosen := make([]any, len(paths))
		for i := range paths {
			chosen[i] = values[i][n%len(values[i])]
			if every {
				n /= len(values[i])
			}
		}
		add(argumentsWith(paths, chosen))
	}
}

// argumentsWith is the document that has values at paths; ok is false if there is none.
func argumentsWith(paths []argumentPath, values []any) (doc map[string]any, ok bool) {
	var root any
	for i, path := range paths {
		if len(path) > 0 && path[0] == anyElement { // arguments are an object
			path = append(argumentPath{"any"}, path[1:]...)
		}
		if root, ok = putAt(root, path, values[i]); !ok {
			return nil, false
		}
	}
	doc, ok = root.(map[string]any)
	return doc, ok
}

// putAt puts a value at a path into what is there, which it does not change. Of two
// values at one place, one within the other, the one that goes further stays.
func putAt(into any, path argumentPath, v any) (any, bool) {
	if len(path) == 0 {
		switch into.(type) {
		case map[string]any, []any:
			return into, true
		}
		return v, true
	}
	switch e := path[0].(type) {
	case string:
		members, _ := into.(map[string]any)
		inner, ok := putAt(members[e], path[1:], v)
		members = maps.Clone(members)
		if members == nil {
			members = map[string]any{}
		}
		members[e] = inner
		return members, ok
	case int:
		if members, isObject := into.(map[string]any); isObject && e == anyElement {
			return putAt(members, append(argumentPath{"any"}, path[1:]...), v)
		}
		e = max(e, 0)
		list, _ := into.([]any)
		list = slices.Clone(list)
		for len(list) <= e {
			list = append(list, "x")
		}
		inner, ok := putAt(list[e], path[1:], v)
		list[e] = inner
		return list, ok
	}
	return nil, false
}
