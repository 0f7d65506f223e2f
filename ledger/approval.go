package ledger

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/internal/plain"
)

// A Scope says how much one approval lets pass. The zero Scope lets nothing pass.
type Scope uint8

// The scopes.
const (
	Once       Scope = iota + 1 // one call, exactly the one that was asked about
	ForSession                  // every call of that tool in that session, with any arguments
)

var scopeNames = [...]string{Once: "once", ForSession: "session"}

// ParseScope returns the scope with that name, and whether there is one.
func ParseScope(name string) (Scope, bool) {
	for s := Once; s <= ForSession; s++ {
		if scopeNames[s] == name {
			return s, true
		}
	}
	return 0, false
}

// String returns the name of s; "" if it has none.
func (s Scope) String() string {
	if s < Once || s > ForSession {
		return ""
	}
	return scopeNames[s]
}

// MarshalText implements encoding.TextMarshaler.
func (s Scope) MarshalText() ([]byte, error) {
	if s.String() == "" {
		return nil, fmt.Errorf("scope %d has no name", s)
	}
	return []byte(s.String()), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Scope) UnmarshalText(text []byte) (err error) {
	ok := false
	if *s, ok = ParseScope(string(text)); !ok {
		err = fmt.Errorf("expected once or session, got %q", text)
	}
	return err
}

// An Approval is what a person approved: which call, how far, until when.
type Approval struct {
	ID       string
	Tool     string
	Digest   Hash           // of the call that was asked about; see [Call.Digest]
	Coverage capability.Set // what may be missing
	Session  string
	Revision string
	Scope    Scope
	Reviewer string
	At       time.Time // to the second
	Expires  time.Time // to the second
}

// claims are an approval on the wire.
type claims struct {
	ID           string   `json:"jti"`
	Tool         string   `json:"tool"`
	Digest       Hash     `json:"digest"`
	Coverage     []string `json:"coverage"`
	CoverageMask uint16   `json:"coverage_mask"` // counts; the names cannot say the markers
	Session      string   `json:"session"`
	Revision     string   `json:"revision"`
	Scope        Scope    `json:"scope"`
	Reviewer     string   `json:"sub"`
	At           int64    `json:"iat"`
	Expires      int64    `json:"exp"`
}

type header struct {
	Algorithm string `json:"alg"`
	KeyID     string `json:"kid"`
	Type      string `json:"typ"`
}

const (
	algorithm = "EdDSA"
	tokenType = "opa-gate-approval"
	maxToken  = 1 << 20
)

// sign writes a as a JSON Web Signature (RFC 7515, compact) by EdDSA (RFC 8037).
func (k *Keyring) sign(a *Approval) (string, error) {
	if k.signer == nil {
		return "", fmt.Errorf("%w: there is no key to sign approvals with", ErrKey)
	}
	head, err := compact(header{algorithm, KeyID(k.Signer()), tokenType})
	if err != nil {
		return "", err
	}
	body, err := compact(claims{a.ID, a.Tool, a.Digest, a.Coverage.CoverageNames(), a.Coverage.Mask(), a.Session, a.Revision,
		a.Scope, a.Reviewer, a.At.Unix(), a.Expires.Unix()})
	if err != nil {
		return "", err
	}
	signed := base64.RawURLEncoding.EncodeToString(head) + "." + base64.RawURLEncoding.EncodeToString(body)
	return signed + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(k.signer, []byte(signed))), nil
}

// Read verifies the signature of an approval and returns what it says. Whether it
// covers a call is for [Approval.Covers] to tell. Errors match ErrMalformed,
// ErrUnknownKey or ErrSignature.
func (k *Keyring) Read(token string) (*Approval, error) {
	parts := strings.Split(token, ".")
	if len(token) > maxToken || len(parts) != 3 || strings.ContainsAny(token, "\r\n") { // which base64 would pass over
		return nil, fmt.Errorf("%w: expected three parts with dots between, as in a JSON Web Signature", ErrMalformed)
	}
	var raw [3][]byte
	for i, part := range parts {
		var err error
		if raw[i], err = base64.RawURLEncoding.Strict().DecodeString(part); err != nil {
			return nil, fmt.Errorf("%w: part %d is no base64url", ErrMalformed, i+1)
		}
	}
	var h header
	if err := strict(raw[0], &h); err != nil || h.Algorithm != algorithm || h.Type != tokenType {
		return nil, fmt.Errorf("%w: expected the header of an approval, with alg %s and typ %s", ErrMalformed, algorithm, tokenType)
	}
	key, ok := k.trusted[h.KeyID]
	if !ok {
		return nil, fmt.Errorf("%w: key %.64q", ErrUnknownKey, h.KeyID)
	}
	if !ed25519.Verify(key, []byte(parts[0]+"."+parts[1]), raw[2]) {
		return nil, ErrSignature
	}
	var c claims
	if err := strict(raw[1], &c); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	a := &Approval{c.ID, c.Tool, c.Digest, capability.Set(c.CoverageMask), c.Session, c.Revision, c.Scope, c.Reviewer,
		time.Unix(c.At, 0).UTC(), time.Unix(c.Expires, 0).UTC()}
	if a.ID == "" || a.Tool == "" || a.Reviewer == "" {
		return nil, fmt.Errorf("%w: it lacks its id, its tool or its reviewer", ErrMalformed)
	}
	return a, nil
}

// strict decodes one JSON value without members that are not known.
func strict(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return plain.JSON(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something stands behind the value")
	}
	return nil
}

// Covers reports why a does not cover a call from which something is missing, at a
// time; nil if it does. Whether it was used before only a ledger knows. Errors
// match ErrScope, ErrTool, ErrArguments, ErrSession, ErrRevision, ErrExpired or
// ErrCoverage, or ErrInvalid for a call that has no digest.
func (a *Approval) Covers(c *Call, missing capability.Set, now time.Time) error {
	digest, err := c.Digest()
	switch {
	case err != nil:
		return err
	case a.Scope != Once && a.Scope != ForSession:
		return fmt.Errorf("%w: it has no scope", ErrScope)
	case a.Scope == ForSession && (a.Session == "" || !a.Coverage.SubsetOf(capability.All)):
		return fmt.Errorf("%w: a session that has no name, or acts that are approved one by one", ErrScope)
	case a.Tool != c.Tool:
		return fmt.Errorf("%w, %.200q", ErrTool, a.Tool)
	case a.Session != c.Session:
		return ErrSession
	case a.Scope == Once && a.Digest != digest:
		return ErrArguments
	case a.Revision != c.Revision:
		return ErrRevision
	case !now.Before(a.Expires):
		return fmt.Errorf("%w at %s", ErrExpired, a.Expires.Format(time.RFC3339))
	case !missing.SubsetOf(a.Coverage):
		return fmt.Errorf("%w: it does not cover %s", ErrCoverage, strings.Join(missing.Minus(a.Coverage).DisplayNames(), ", "))
	}
	return nil
}
