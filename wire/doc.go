// Package wire reads the gate's JSON documents: strictly, with bounds, and
// with errors that say where and what would have been right.
//
// Most callers need two functions, [ParseCall] and [ParseSkill]. Each takes one
// document, checks it against its draft-07 schema and returns the typed form
// that packages capability and skill decide. Answers write themselves: see
// capability.Outcome.MarshalJSON and skill.Answer.MarshalJSON.
//
// The reader is stricter than encoding/json, because two readers that differ on
// a document could decide different calls: a member given twice, a text that is
// not valid UTF-8 and anything behind the document are errors.
package wire
