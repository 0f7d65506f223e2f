package ledger

import (
	"context"
	"encoding/json"
	"time"

	"github.com/opa-gate/opa-gate/capability"
)

// AdmitWithin is [Ledger.Admit], except that it waits for the person if something
// waits for one, and then settles the call again: as long as wait, at most. What
// expires or is withdrawn meanwhile is not filed again: Pending tells its state.
// Errors are those of Admit.
func (l *Ledger) AdmitWithin(ctx context.Context, e *Escalation, wait time.Duration) (Admission, error) {
	a, err := l.Admit(ctx, e)
	if err != nil || a.Pending == nil || wait <= 0 {
		return a, err
	}
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	p, err := l.Wait(waiting, a.Pending.ID)
	switch {
	case err != nil && (ctx.Err() != nil || waiting.Err() == nil):
		return a, err
	case err != nil: // the time is over
		return a, nil
	case p.Decision == nil: // nobody decided, and nobody will
		a.Pending = p
		return a, nil
	}
	return l.Admit(ctx, e)
}

// An Answer is what whoever asked about a call is told, by the command line as by
// HTTP:
//
//	{"decision": DECISION, "pending": {…}, "approval": {…}, "refused": "…", "error": "…"}
//
// The decision is that of specification, section 7. Pending is what waits for a
// person, as a [Pending] has it, and approval what let the call pass; they are
// null where there is none. Refused says why an approval that was there did not
// help, and error why the ledger could not be asked or told; they are left out
// otherwise.
type Answer struct {
	Admission Admission
	Err       error // of Admit
}

// MarshalJSON implements json.Marshaler. Characters that only HTML treats
// specially are left as they are.
func (a Answer) MarshalJSON() ([]byte, error) {
	decision, err := a.Admission.Outcome.MarshalJSON()
	if err != nil {
		return nil, err
	}
	return compact(struct {
		Decision json.RawMessage `json:"decision"`
		Pending  *Pending        `json:"pending"`
		Approval *Approval       `json:"approval"`
		Refused  string          `json:"refused,omitempty"`
		Err      string          `json:"error,omitempty"`
	}{decision, a.Admission.Pending, a.Admission.Approval, errorText(a.Admission.Refused), errorText(a.Err)})
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// MarshalJSON implements json.Marshaler.
func (a *Approval) MarshalJSON() ([]byte, error) {
	return compact(struct {
		ID           string         `json:"id"`
		Tool         string         `json:"tool"`
		Digest       Hash           `json:"digest"`
		Coverage     []string       `json:"coverage"`
		CoverageMask capability.Set `json:"coverage_mask"`
		Session      string         `json:"session"`
		Revision     string         `json:"revision"`
		Scope        Scope          `json:"scope"`
		Reviewer     string         `json:"reviewer"`
		At           time.Time      `json:"decided_at"`
		Expires      time.Time      `json:"expires_at"`
	}{a.ID, a.Tool, a.Digest, a.Coverage.DisplayNames(), a.Coverage, a.Session, a.Revision, a.Scope, a.Reviewer, a.At, a.Expires})
}
