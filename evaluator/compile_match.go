package evaluator

import (
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/types"
)

// describeMatch words OPA's "match error": two values that can never be equal.
func describeMatch(e *ast.Error, detail *ast.UnificationErrDetail) string {
	left, right := typeWords(detail.Left), typeWords(detail.Right)
	a, b, ok := comparedTerms(e.Location)
	if !ok {
		return fmt.Sprintf("two values can never be equal: one is %s, the other %s", left, right)
	}
	if !isNamed(a) && isNamed(b) { // the constant comes last
		a, b, left, right = b, a, right, left
	}
	if !isNamed(a) {
		return fmt.Sprintf("%s and %s are never equal: one is %s, the other %s", shortTerm(a), shortTerm(b), left, right)
	}
	text := fmt.Sprintf("%s is %s, and is never equal to %s", a, left, shortTerm(b))
	ref, isRef := a.Value.(ast.Ref)
	input := isRef && ref.HasPrefix(ast.InputRootRef)
	object, isObject := b.Value.(ast.Object)
	switch _, isNull := b.Value.(ast.Null); {
	case isNull && input:
		text += fmt.Sprintf("; null in a document counts as left out, which rules see as not there: not %s", a)
	case isNull:
		text += fmt.Sprintf("; what has no value is asked for with: not %s", a)
	case isObject && isRef && strings.HasPrefix(left, "an object"):
		text += ", which has other members; compare the members that matter, each by itself"
		if like := likeMember(ref, object, detail.Left, detail.Right); like != "" {
			text += ", such as " + like
		}
	default:
		text += ", which is " + right
	}
	return text
}

// isNamed reports whether a term is a path or a name rather than a value.
func isNamed(t *ast.Term) bool {
	switch t.Value.(type) {
	case ast.Ref, ast.Var:
		return true
	}
	return false
}

// comparedTerms are the two sides of a comparison, as it is written.
func comparedTerms(at *ast.Location) (a, b *ast.Term, ok bool) {
	if at == nil {
		return nil, nil, false
	}
	body, err := ast.ParseBody(string(at.Text))
	if err != nil || len(body) != 1 || !(body[0].IsEquality() || body[0].IsAssignment() || body[0].IsCall() && body[0].Operator().String() == ast.Equal.Name) {
		return nil, nil, false
	}
	return body[0].Operand(0), body[0].Operand(1), true
}

// likeMember is a comparison of one member: of the first that the object has.
func likeMember(ref ast.Ref, object ast.Object, kinds ...types.Type) string {
	var like string
	object.Foreach(func(k, v *ast.Term) {
		if like == "" {
			like = fmt.Sprintf("%s == %s", ref.Append(k), shortTerm(v))
		}
	})
	for _, kind := range kinds {
		if o, ok := kind.(*types.Object); ok && like == "" && len(o.StaticProperties()) > 0 {
			var names []string
			for _, p := range o.StaticProperties() {
				names = append(names, fmt.Sprint(p.Key))
			}
			like = fmt.Sprintf("not %s", ref.Append(ast.StringTerm(slices.Min(names))))
		}
	}
	return like
}

// shortTerm is a term as it is written, cut where it gets too long to read.
func shortTerm(t *ast.Term) string {
	const longest = 60
	if text := []rune(t.String()); len(text) > longest {
		return string(text[:longest]) + "…"
	}
	return t.String()
}

// typeWords says in a few words what values of a type are.
func typeWords(t types.Type) string {
	switch t := t.(type) {
	case types.Null:
		return "null"
	case types.Boolean:
		return "true or false"
	case types.Number:
		return "a number"
	case types.String:
		return "a string"
	case *types.Array:
		return "an array"
	case *types.Set:
		return "a set"
	case *types.Object:
		var names []string
		for _, p := range t.StaticProperties() {
			names = append(names, fmt.Sprint(p.Key))
		}
		if len(names) == 0 {
			return "an object"
		}
		slices.Sort(names)
		return "an object with " + strings.Join(names, ", ")
	case types.Any:
		var kinds []string
		for _, of := range t {
			if words := typeWords(of); !slices.Contains(kinds, words) {
				kinds = append(kinds, words)
			}
		}
		if len(kinds) > 0 {
			return strings.Join(kinds, " or ")
		}
	}
	return "any value"
}
