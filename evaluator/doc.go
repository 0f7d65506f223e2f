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
// # Compiled as it is used
//
// Besides its texts, a call is one of 427,680. An [Evaluator] keeps a table
// of what the policies answer to each. OPA decides the first call of a kind (and
// the first of all, from which nothing is learnt); then the policies' plan, as OPA makes it, is evaluated once more with marks
// in place of the tool's name, the veto, the note and the arguments. If the marks
// are only copied or formatted into the answer, no other text can change it,
// and the table answers from then on. The entry is kept only if it says of the
// call at hand what OPA said.
//
// A policy that compares the tool's name with others gives those tools tables of
// their own, and one that takes the name apart gives each tool one. Whatever
// else a policy does with a text, and whatever it asks of a clock or of chance,
// is left to OPA, each time: see [Evaluator.Report]. So are calls whose grant has
// names that are no capability, and all skills. In doubt it is OPA.
//
// # What the policies see
//
// The engine evaluates a canonical document: names of the base in the order of
// the taxonomy, unknown names behind them, and a member that is null in the
// wire document left out. Two documents that mean the same are therefore
// answered the same, whatever a policy looks at. An origin, or a grant, that the
// document leaves out stays left out, so that a policy with another default for it
// answers as it does on any OPA.
//
// # Caveats
//
// A context that can be cancelled costs OPA a goroutine an evaluation. Policies
// are the operator's code: nothing here bounds the time they take but the
// context.
package evaluator
