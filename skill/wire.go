package skill

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// decisionJSON fixes the order of a decision's members on the wire.
type decisionJSON struct {
	Trust   string `json:"trust"`
	Ceiling Tier   `json:"ceiling"`
	Granted Tier   `json:"granted"`
	Outcome string `json:"outcome"`
	Reason  string `json:"reason"`
}

type enforcementJSON struct {
	Deploy        bool     `json:"deploy"`
	EffectiveTier Tier     `json:"effective_tier"`
	Overridden    bool     `json:"overridden"`
	Blocked       bool     `json:"blocked"`
	Pending       *Pending `json:"pending"`
	Reason        string   `json:"reason"`
}

type recordJSON struct {
	Fingerprint  string    `json:"fingerprint"`
	RequiredTier Tier      `json:"required_tier"`
	Decision     string    `json:"decision"`
	Reviewer     string    `json:"reviewer"`
	Reason       string    `json:"reason"`
	Evidence     string    `json:"evidence,omitempty"`
	DecidedAt    time.Time `json:"decided_at"`
}

// wire returns d in wire form, or an error if it was never decided.
func (d Decision) wire() (decisionJSON, error) {
	if d.Outcome < Allow || d.Outcome > Deny {
		return decisionJSON{}, fmt.Errorf("a skill's decision has %v", d.Outcome)
	}
	return decisionJSON{d.Trust.String(), d.Ceiling, d.Granted, d.Outcome.String(), d.Reason}, nil
}

// MarshalJSON writes the decision as it stands in a pending entry.
func (d Decision) MarshalJSON() ([]byte, error) {
	w, err := d.wire()
	if err != nil {
		return nil, err
	}
	return encode(w)
}

// MarshalJSON writes the skill answer of specification, section 7. Characters
// that only HTML treats specially are left as they are.
func (a Answer) MarshalJSON() ([]byte, error) {
	d, err := a.Decision.wire()
	if err != nil {
		return nil, err
	}
	return encode(struct {
		decisionJSON
		Enforcement enforcementJSON `json:"enforcement"`
	}{d, enforcementJSON(a.Enforcement)})
}

// MarshalJSON writes the record of specification, section 6.
func (r Record) MarshalJSON() ([]byte, error) {
	return encode(recordJSON{
		r.Fingerprint, r.RequiredTier, r.Decision.String(), r.Reviewer, r.Reason, r.Evidence, r.DecidedAt,
	})
}

func encode(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(buf.Bytes(), "\n"), nil
}
