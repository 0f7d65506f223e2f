// Package evaluator decides calls and skills with the Rego policies, in an
// embedded OPA.
//
// Most callers need two functions, [New] and [Evaluator.Decide]:
//
//	e, err := evaluator.New(ctx, nil) // the embedded policies
//	call, err := wire.ParseCall(document)
//	outcome, err := e.Decide(ctx, call)
//
// An error means that the call could not be decided. It is never a "no", and
// never an allow: treat it as a deny and tell somebody.
//
// # What the policies see
//
// The engine evaluates a canonical document: names of the base in the order of
// the taxonomy, unknown names behind them, and a member that is null in the
// wire document left out. Two documents that mean the same are therefore
// answered the same, whatever a policy looks at.
//
// # Caveats
//
// A context that can be cancelled costs OPA a goroutine an evaluation. Policies
// are the operator's code: nothing here bounds the time they take but the
// context.
package evaluator
