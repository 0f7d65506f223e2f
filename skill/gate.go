package skill

import (
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// An Outcome is the gate's answer for a skill. The zero Outcome is invalid.
type Outcome uint8

// The three answers.
const (
	Allow Outcome = iota + 1
	Downgrade
	Deny
)

var outcomeNames = [...]string{
	Allow:     "allow",
	Downgrade: "downgrade",
	Deny:      "deny",
}

// ParseOutcome returns the outcome with that wire name, and whether there is
// one.
func ParseOutcome(name string) (Outcome, bool) {
	i, ok := index(outcomeNames[Allow:], name)
	if !ok {
		return 0, false
	}
	return Allow + Outcome(i), true
}

// String returns the wire name of o, or Outcome(N) if o is not valid.
func (o Outcome) String() string {
	if o < Allow || o > Deny {
		return "Outcome(" + strconv.Itoa(int(o)) + ")"
	}
	return outcomeNames[o]
}

// A Decision is what the gate makes of a provenance and a requested tier
// (specification, section 6).
type Decision struct {
	Trust   Trust
	Ceiling Tier // NoTier where the trust has none
	Granted Tier // NoTier for a deny
	Outcome Outcome
	Reason  string // one sentence for a person
}

// Gate judges p against the tier that was requested. Granted is never above
// the ceiling nor above the request. A requested tier that is not valid is
// denied.
func Gate(p Provenance, requested Tier) Decision {
	trust := p.Trust()
	d := Decision{Trust: trust, Ceiling: trust.Ceiling()}
	switch {
	case !requested.Valid():
		d.Outcome, d.Reason = Deny, "The request names no tier."
	case d.Ceiling == NoTier:
		d.Outcome, d.Reason = Deny, distrust(p)
	case requested <= d.Ceiling:
		d.Outcome, d.Granted = Allow, requested
		d.Reason = "Its trust is " + trust.String() + ", which is enough for " + requested.String() + "."
	default:
		d.Outcome, d.Granted = Downgrade, d.Ceiling
		d.Reason = "Its trust is " + trust.String() + ", which is enough for " + d.Ceiling.String() +
			" but not for " + requested.String() + "."
	}
	return d
}

// distrust says why p is untrusted.
func distrust(p Provenance) string {
	switch {
	case p.Degraded():
		return "It is not trusted: it has failed clearly more often than it has succeeded."
	case p.Vulnerabilities > 0:
		return "It is not trusted: a scan found vulnerabilities in it."
	default:
		return "It is not trusted: no scan of it is known."
	}
}

// A Verdict is what a person decided. The zero Verdict means that nobody has.
type Verdict uint8

// The verdicts.
const (
	NoVerdict Verdict = iota
	Approved
	Rejected
)

var verdictNames = [...]string{
	Approved: "approved",
	Rejected: "rejected",
}

// ParseVerdict returns the verdict with that wire name, and whether there is
// one. NoVerdict has no name.
func ParseVerdict(name string) (Verdict, bool) {
	i, ok := index(verdictNames[Approved:], name)
	if !ok {
		return NoVerdict, false
	}
	return Approved + Verdict(i), true
}

// String returns the wire name of v; "" if it has none.
func (v Verdict) String() string {
	if v == Approved || v == Rejected {
		return verdictNames[v]
	}
	return ""
}

// Pending is what waits for a person.
type Pending struct {
	Fingerprint string   `json:"fingerprint"`
	SkillName   string   `json:"skill_name"`
	Requested   Tier     `json:"requested"`
	Decision    Decision `json:"decision"`
}

// An Enforcement says what happens to the skill (specification, section 6).
type Enforcement struct {
	Deploy        bool
	EffectiveTier Tier // NoTier unless Deploy
	Overridden    bool // a person's approval stands in for the gate's deny
	Blocked       bool // a person's rejection stands
	Pending       *Pending
	Reason        string
}

// Enforce carries out d, the gate's decision on the named skill at the
// requested tier. What the gate allows or downgrades is deployed at the tier it
// granted, without a person. For a deny the verdict counts: verdict is what
// the last record about [Fingerprint](name, requested) says.
func Enforce(name string, requested Tier, d Decision, verdict Verdict) Enforcement {
	switch {
	case (d.Outcome == Allow || d.Outcome == Downgrade) && d.Granted.Valid():
		return Enforcement{
			Deploy:        true,
			EffectiveTier: d.Granted,
			Reason:        "It is deployed at " + d.Granted.String() + "; no person needs to decide.",
		}
	case d.Outcome != Deny || !requested.Valid():
		return Enforcement{Blocked: true, Reason: "It is blocked: the request could not be decided."}
	case verdict == Approved:
		return Enforcement{
			Deploy:        true,
			EffectiveTier: requested,
			Overridden:    true,
			Reason:        "It is deployed at " + requested.String() + ": a person approved that.",
		}
	case verdict == Rejected:
		return Enforcement{
			Blocked: true,
			Reason:  "It is blocked: a person rejected it at " + requested.String() + ".",
		}
	default:
		return Enforcement{
			Pending: &Pending{
				Fingerprint: Fingerprint(name, requested),
				SkillName:   name,
				Requested:   requested,
				Decision:    d,
			},
			Reason: "It waits for a person to decide about " + requested.String() + ".",
		}
	}
}

// A Request is the skill document of specification, section 7, after its names
// were read.
type Request struct {
	Skill      string // not empty
	Requested  Tier
	Provenance Provenance
	Approval   Verdict // what a person decided about this skill at this tier
}

// An Answer is the gate's decision together with its enforcement: the skill
// answer of specification, section 7.
type Answer struct {
	Decision
	Enforcement Enforcement
}

// Decide runs the native reference on r.
func (r *Request) Decide() Answer {
	d := Gate(r.Provenance, r.Requested)
	return Answer{d, Enforce(r.Skill, r.Requested, d, r.Approval)}
}

// ErrInvalidRequest is wrapped by every error of [Request.Validate].
var ErrInvalidRequest = errors.New("invalid skill request")

// Validate reports the first thing in r that no wire document could say.
// Documents read by package wire are valid.
func (r *Request) Validate() error {
	switch {
	case r.Skill == "":
		return fmt.Errorf("%w: the skill has no name", ErrInvalidRequest)
	case !utf8.ValidString(r.Skill):
		return fmt.Errorf("%w: the name %q is not valid UTF-8", ErrInvalidRequest, r.Skill)
	case !r.Requested.Valid():
		return fmt.Errorf("%w: %v is no tier", ErrInvalidRequest, r.Requested)
	case r.Provenance.Source > Official:
		return fmt.Errorf("%w: %v is no source", ErrInvalidRequest, r.Provenance.Source)
	case r.Approval > Rejected:
		return fmt.Errorf("%w: verdict %d is unknown", ErrInvalidRequest, r.Approval)
	}
	return nil
}
