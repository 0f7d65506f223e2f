// Package analysis is the policy author's workbench.
//
// [Init] writes a working copy of the policies, [Check] finds what is wrong
// with one, and [Test] runs its tests. [Verify] holds every answer that
// policies can give against invariants, [Diff] tells which answers two policies
// give differently, and [Explain] names the branch that decided a document, the
// conditions that kept the others from it, and what would have to change for it
// to go ahead.
//
// Verify and Diff rest on [evaluator.Evaluator.Survey]: besides its texts, a call
// is one of a finite number of kinds, and what the policies do with a text is known
// from following their plan. Where they do more with one than to copy it or to
// compare it as a whole, the result says so, and what it then covers.
package analysis
