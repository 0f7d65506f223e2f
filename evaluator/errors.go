package evaluator

import (
	"errors"
	"fmt"
)

// Errors of New and of the engines, to be told apart with errors.Is. Each of
// them means that nothing was decided.
var (
	// ErrPolicy: the policies cannot be loaded or compiled.
	ErrPolicy = errors.New("the policies cannot be used")
	// ErrEvaluation: OPA failed while it evaluated the policies, for instance
	// because two rules gave different answers.
	ErrEvaluation = errors.New("the policies could not be evaluated")
	// ErrUndefined: the policies gave no answer.
	ErrUndefined = errors.New("the policies gave no answer")
	// ErrAmbiguous: the policies gave more than one answer.
	ErrAmbiguous = errors.New("the policies gave more than one answer")
	// ErrNoEngine: no policies are in force yet.
	ErrNoEngine = errors.New("no policies are in force")
	// ErrNotDecision: the policies' answer is not a decision.
	ErrNotDecision = errors.New("the policies' answer is not a decision")
)

// An AnswerError says where the policies' answer is not a decision. It matches
// ErrNotDecision.
type AnswerError struct {
	Entrypoint string // such as gate/call/decision
	Pointer    string // JSON pointer into the answer; "" is the whole
	Problem    string // what is wrong there, and what would be right
}

// Error implements error.
func (e *AnswerError) Error() string {
	at := e.Entrypoint
	if e.Pointer != "" {
		at += " at " + e.Pointer
	}
	return fmt.Sprintf("%v: %s: %s", ErrNotDecision, at, e.Problem)
}

// Unwrap returns ErrNotDecision.
func (e *AnswerError) Unwrap() error { return ErrNotDecision }

// A DifferenceError is the error of [Both] when its engines disagree.
type DifferenceError struct {
	Reference string // the reference's answer as JSON, or its error
	Other     string // the other engine's
}

// Error implements error.
func (e *DifferenceError) Error() string {
	return "the engines disagree: reference " + e.Reference + ", other " + e.Other
}
