// Package symbolic evaluates a planned policy once for all texts of a document.
//
// The texts of a call (its tool's name, a veto, a note, a rewrite's arguments)
// are marks that stand for any text. [Program.Eval] follows OPA's own plan of the
// policy, statement by statement. As long as a mark is only copied, formatted
// into a longer text or put into a list or an object, no branch can depend on
// what it stands for: the answer, with the texts in place of the marks, is the
// answer for every document that differs in these texts alone. Anything else
// that touches a mark (a comparison, a pattern, its length, a built-in
// function) ends the evaluation with a [*Dependence] that says where.
//
// The one comparison that it can go through is of a whole text with constants,
// of the texts that the caller names: the answer then holds for all texts but
// those, which [Answer.Except] lists.
package symbolic
