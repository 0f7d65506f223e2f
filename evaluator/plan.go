package evaluator

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/ir"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage"

	"github.com/opa-gate/opa-gate/evaluator/internal/symbolic"
)

// planTarget is the name under which OPA hands over its plan of a query: the
// one way to its planner that is open to programs.
const planTarget = "opa-gate/plan"

var registerPlanner = sync.OnceFunc(func() { rego.RegisterPlugin(planTarget, planner{}) })

// planner is the target's plugin. It leaves the plan where its context says.
type planner struct{}

type planKey struct{}

var errPlanOnly = errors.New("the target only plans")

// IsTarget implements rego.TargetPlugin.
func (planner) IsTarget(name string) bool { return name == planTarget }

// PrepareForEval implements rego.TargetPlugin.
func (planner) PrepareForEval(ctx context.Context, policy *ir.Policy, _ ...rego.PrepareOption) (rego.TargetPluginEval, error) {
	if into, ok := ctx.Value(planKey{}).(**ir.Policy); ok {
		*into = policy
	}
	return nil, errPlanOnly
}

// planOf returns the plan of a rule.
func planOf(ctx context.Context, rule string, compiler *ast.Compiler, store storage.Store, texts *symbolic.Texts) (program *symbolic.Program, err error) {
	defer func() {
		if cause := recover(); cause != nil { // OPA's planner, at something it does not know
			err = fmt.Errorf("OPA cannot plan the policies: %v", cause)
		}
	}()
	registerPlanner()
	compiling.Lock()
	defer compiling.Unlock()
	var policy *ir.Policy
	_, err = rego.New(rego.Query(symbolic.Result+" = "+rule), rego.Compiler(compiler), rego.Store(store), rego.Target(planTarget)).
		PrepareForEval(context.WithValue(ctx, planKey{}, &policy))
	if policy == nil {
		return nil, fmt.Errorf("OPA cannot plan the policies: %w", err)
	}
	read, err := storage.ReadOne(ctx, store, storage.RootPath)
	if err != nil {
		return nil, err
	}
	data, ok := read.(ast.Value)
	if !ok {
		return nil, fmt.Errorf("the store reads data as %T", read)
	}
	return symbolic.New(policy, compiler.Modules, data, texts)
}
