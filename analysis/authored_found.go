package analysis

import (
	"cmp"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/opa-gate/opa-gate/evaluator"
)

// blockers are what the verdict does not cover, by place.
func (t *textReader) blockers() []evaluator.Blocker {
	list := []evaluator.Blocker{}
	for b := range t.found {
		list = append(list, b)
	}
	slices.SortFunc(list, func(a, b evaluator.Blocker) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column),
			cmp.Compare(a.Expression, b.Expression), cmp.Compare(a.Why, b.Why))
	})
	return list
}

// looks reports whether a text of a kind is in a rule.
func (t *textReader) looks(k textKind) bool {
	for _, o := range t.touches {
		if o.of(k) {
			return true
		}
	}
	return false
}

// constants are the texts of a kind that rules compare with.
func (t *textReader) constants(k textKind) []string {
	handed := t.handed(k)
	var found []string
	for _, r := range t.rules {
		if t.touches[r].of(k) || handed {
			found = append(found, t.stringsIn(r, k)...)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// samples are more texts of a kind to try: where rules do more than to compare,
// some made of what they mention, and those of the data that they refer to.
func (t *textReader) samples(k textKind, data any) []string {
	if !t.looks(k) {
		return nil
	}
	handed := t.handed(k) && t.blocks(k)
	var mentioned []string
	for _, r := range t.rules {
		if t.blocked[r].of(k) || handed {
			mentioned = append(mentioned, t.stringsIn(r, k)...)
		}
	}
	slices.Sort(mentioned)
	mentioned = slices.Compact(mentioned)
	var found []string
	for _, text := range mentioned[:min(len(mentioned), maxTexts)] {
		found = append(found, formsOf(text)...)
	}
	for _, ref := range t.baseData {
		from := stringsOf(dataAt(data, ref))
		found = append(found, from[:min(len(from), maxTexts)]...)
	}
	known := t.constants(k)
	slices.Sort(found)
	return slices.DeleteFunc(slices.Compact(found), func(text string) bool { return text == "" || slices.Contains(known, text) })
}

// handed reports whether a text goes from one rule to another, which may compare
// it with texts of its own, or one with a text uses what another one lists.
func (t *textReader) handed(k textKind) bool {
	for _, r := range t.rules {
		if !t.touches[r].of(k) {
			continue
		}
		names := false
		ast.WalkRefs(r.Body, func(ref ast.Ref) bool {
			for _, rules := range t.byName {
				names = names || mayReach(ref, rules[0].Ref().GroundPrefix())
			}
			return false
		})
		if names {
			return true
		}
	}
	return false
}

func (t *textReader) blocks(k textKind) bool {
	for _, o := range t.blocked {
		if o.of(k) {
			return true
		}
	}
	return false
}

// stringsIn lists the strings in a rule, or one of its elses, that are no names
// of members, and not the message alone. The empty one is no name.
func (t *textReader) stringsIn(rule *ast.Rule, k textKind) []string {
	var found []string
	var visitor *ast.GenericVisitor
	visitor = ast.NewGenericVisitor(func(x any) bool {
		switch x := x.(type) {
		case *ast.Expr:
			return t.beside[x]
		case ast.Ref:
			if _, isVar := x[0].Value.(ast.Var); !isVar { // a collection itself
				visitor.Walk(x[0])
			}
			return true
		case ast.String:
			if x != "" || k == vetoText || k == noteText {
				found = append(found, string(x))
			}
		}
		return false
	})
	visitor.Walk(rule.Body)
	for _, arg := range rule.Head.Args {
		visitor.Walk(arg)
	}
	if rule.Head.Value != nil && explainRuleName(rule) != invariantsRule {
		visitor.Walk(rule.Head.Value)
	}
	if rule.Head.Key != nil && explainRuleName(rule) != invariantsRule {
		visitor.Walk(rule.Head.Key)
	}
	return found
}

// formsOf are the texts that rules may tell from others that look for a part of a
// text, or take it for a pattern.
func formsOf(text string) []string {
	forms := []string{text + "x", "x" + text}
	if plain := strings.NewReplacer("**", "x", "*", "x", "?", "x").Replace(text); plain != text {
		forms = append(forms, plain)
	}
	if re, err := syntax.Parse(text, syntax.Perl); err == nil && re.Op != syntax.OpLiteral {
		if match := matching(re); match != "" {
			forms = append(forms, match, match+"x")
		}
	}
	return forms
}

// matching is a short text that a regular expression matches.
func matching(re *syntax.Regexp) string {
	switch re.Op {
	case syntax.OpLiteral:
		return string(re.Rune)
	case syntax.OpCharClass:
		if len(re.Rune) > 0 {
			return string(re.Rune[:1])
		}
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return "x"
	case syntax.OpCapture, syntax.OpPlus:
		return matching(re.Sub[0])
	case syntax.OpRepeat:
		return strings.Repeat(matching(re.Sub[0]), min(re.Min, 64))
	case syntax.OpAlternate:
		return matching(re.Sub[0])
	case syntax.OpConcat:
		text := ""
		for _, sub := range re.Sub {
			text += matching(sub)
		}
		return text
	}
	return ""
}

// dataAt is the data that a reference leads to, as far as it names members.
func dataAt(data any, ref ast.Ref) any {
	for _, e := range ref[1:] {
		object, ok := data.(map[string]any)
		name, isName := e.Value.(ast.String)
		if !ok || !isName {
			return data
		}
		data = object[string(name)]
	}
	return data
}

// stringsOf lists the strings in data, names of members too, sorted.
func stringsOf(data any) []string {
	var found []string
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			if v != "" {
				found = append(found, v)
			}
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			for name, e := range v {
				walk(name)
				walk(e)
			}
		}
	}
	walk(data)
	slices.Sort(found)
	return slices.Compact(found)
}

// mayReach reports whether a reference can be to a member, to one around it or
// to one in it.
func mayReach(r, member ast.Ref) bool {
	for i := range min(len(r), len(member)) {
		if i > 0 && !r[i].IsGround() {
			return true
		}
		if !r[i].Equal(member[i]) {
			return false
		}
	}
	return true
}
