package symbolic

import (
	"fmt"

	"github.com/open-policy-agent/opa/v1/ast"
)

// faithful reports constructs whose plan does another thing than OPA's own
// evaluation. An evaluation that agrees with OPA on one document by luck could
// hide them, so that a policy with one is not compiled at all.
func faithful(modules map[string]*ast.Module) error {
	for _, module := range modules {
		var err error
		ast.WalkExprs(module, func(e *ast.Expr) bool {
			if t, ok := e.Terms.(*ast.Term); ok && err == nil && ast.IsComprehension(t.Value) {
				err = fmt.Errorf("%s: a comprehension that stands alone is not planned; give its value a name", e.Loc())
			}
			return err != nil
		})
		if err != nil {
			return err
		}
	}
	return sharedPrefixes(modules)
}

// sharedPrefixes reports a rule with branches or a default that the planner
// puts into one function with a rule whose name is computed.
func sharedPrefixes(modules map[string]*ast.Module) error {
	var computed []ast.Ref // the parts of rule names before what is computed
	for _, module := range modules {
		for _, rule := range module.Rules {
			if ref := rule.Ref(); !ref.IsGround() {
				computed = append(computed, ref.GroundPrefix())
			}
		}
	}
	for _, module := range modules {
		for _, rule := range module.Rules {
			for _, prefix := range computed {
				if (rule.Else != nil || rule.Default) && rule.Ref().HasPrefix(prefix) {
					return fmt.Errorf("%s: %s has branches or a default beside rules of %s whose names are computed, which is not planned as it is evaluated",
						rule.Loc(), rule.Ref(), prefix)
				}
			}
		}
	}
	return nil
}

// computedSets reports whether a set of several members is written down with
// something computed in it: OPA goes through such a set in the order in which it
// was written, not sorted.
func computedSets(modules map[string]*ast.Module) bool {
	found := false
	for _, module := range modules {
		ast.WalkTerms(module, func(t *ast.Term) bool {
			if set, ok := t.Value.(ast.Set); ok && set.Len() > 1 && !set.IsGround() {
				found = true
			}
			return found
		})
	}
	return found
}
