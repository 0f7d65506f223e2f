package ledger

import (
	"errors"
	"fmt"
	"time"
)

// Errors of a ledger. Every error of this package matches one of them, one of
// package skill, or that of a context that ended.
var (
	// ErrUnavailable: the database could not be asked or written to. What was
	// asked is not known, and what was to be recorded is not.
	ErrUnavailable = errors.New("the ledger is not available")
	// ErrNewer: the database has a schema that a newer program made.
	ErrNewer = errors.New("the ledger is newer than this program")
	// ErrAbsent: there is no ledger of that name, and none was to be made.
	ErrAbsent = errors.New("there is no such ledger")
	// ErrForeign: the database holds something else than a ledger.
	ErrForeign = errors.New("not a ledger")
	// ErrDamaged: an entry cannot be what was recorded.
	ErrDamaged = errors.New("the ledger is damaged")
	// ErrInvalid: what was to be recorded, or is asked for, breaks a rule or a bound.
	ErrInvalid = errors.New("cannot be recorded")
	// ErrNotFound: there is no such escalation.
	ErrNotFound = errors.New("there is no such escalation")
	// ErrDecided: somebody decided it before. A *[DecidedError] tells who.
	ErrDecided = errors.New("already decided")
	// ErrTooMany: more escalations wait than a ledger lets wait.
	ErrTooMany = errors.New("too many escalations wait")
	// ErrKey: a key cannot be read or used.
	ErrKey = errors.New("the key cannot be used")
)

// Why an approval does not cover a call. All but the first four can come of a
// sound approval that is for something else.
var (
	ErrMalformed  = errors.New("the approval is malformed")
	ErrUnknownKey = errors.New("the approval is signed by a key that is not trusted")
	ErrSignature  = errors.New("the approval's signature is wrong")
	ErrScope      = errors.New("the approval covers what no approval may")
	ErrTool       = errors.New("the approval is for another tool")
	ErrArguments  = errors.New("the approval is for other arguments")
	ErrSession    = errors.New("the approval is for another session")
	ErrRevision   = errors.New("the approval was given under other policies")
	ErrExpired    = errors.New("the approval has expired")
	ErrCoverage   = errors.New("the approval does not cover what is missing")
	ErrUsed       = errors.New("the approval was used before")
	ErrWithdrawn  = errors.New("the approval was withdrawn")
)

// A DecidedError says who was first. It matches [ErrDecided].
type DecidedError struct {
	ID       string
	State    State // what became of it
	Reviewer string
	At       time.Time
}

// Error implements error.
func (e *DecidedError) Error() string {
	if e.Reviewer == "" {
		return fmt.Sprintf("escalation %s no longer waits: it is %s since %s", e.ID, e.State, e.At.Format(time.RFC3339))
	}
	return fmt.Sprintf("escalation %s no longer waits: %s %s it at %s", e.ID, e.Reviewer, e.State, e.At.Format(time.RFC3339))
}

// Is makes e match ErrDecided.
func (e *DecidedError) Is(target error) bool { return target == ErrDecided }

// An askedError is an ErrInvalid about what is asked for. Nothing was to be
// recorded, and so its text does not say that it cannot be.
type askedError string

func (e askedError) Error() string { return string(e) }

// Is makes e match ErrInvalid.
func (e askedError) Is(target error) bool { return target == ErrInvalid }

// askedf is the error for what is asked for and cannot be.
func askedf(format string, args ...any) error { return askedError(fmt.Sprintf(format, args...)) }

// unavailable says of an error of a database what it means for a ledger.
func unavailable(err error) error {
	if err == nil || errors.Is(err, ErrUnavailable) || errors.Is(err, ErrDamaged) {
		return err
	}
	if corrupt(err) {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if full(err) {
		return fmt.Errorf("%w: the disk may be full: %w", ErrUnavailable, err)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}
