package provenance

import (
	"bytes"
	"crypto/ed25519"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/opa-gate/opa-gate/internal/plain"
)

// SignatureFile is the file in a skill's folder that has its signature. It is
// no part of what is signed.
const SignatureFile = "SIGNATURE.json"

const (
	maxSignature    = 4 << 10
	signatureFormat = "opa-gate skill signature 1"
)

// Why a skill is not signed, as far as this keyring can tell.
var (
	// ErrNoSignature: the folder has no SignatureFile.
	ErrNoSignature = errors.New("there is no signature")
	// ErrSignatureFile: what is in SignatureFile is no signature.
	ErrSignatureFile = errors.New("its signature cannot be read")
	// ErrUnknownKey: the signature's key is not in the keyring.
	ErrUnknownKey = errors.New("it is signed with a key that is not in the keyring")
	// ErrOtherFiles: the signature is for other files.
	ErrOtherFiles = errors.New("its signature is for other files than are in the folder")
	// ErrBadSignature: the key did not make the signature.
	ErrBadSignature = errors.New("its signature is not by the key that it names")
)

// A signature is what is in SignatureFile.
type signature struct {
	Format    string `json:"format"`
	KeyID     string `json:"key_id"`
	Digest    string `json:"digest"`
	Signature string `json:"signature"` // base64, standard alphabet, padded
}

// message is what is signed: no other protocol signs such a text, and no
// two digests share one.
func message(d Digest) []byte { return []byte(signatureFormat + "\n" + d.String() + "\n") }

// encode writes the one text that says s.
func (s *signature) encode() []byte {
	text, err := json.Marshal(s, jsontext.WithIndent("  "))
	if err != nil { // four texts
		panic(err)
	}
	return append(text, '\n')
}

// Sign returns what goes into [SignatureFile] for the tree. The error wraps
// ErrSignatureFile: what is in that place is one of the skill's files, and would
// be lost.
func (t *Tree) Sign(key ed25519.PrivateKey) ([]byte, error) {
	if t.Signature != nil {
		if _, err := parseSignature(t.Signature); err != nil {
			return nil, fmt.Errorf("%w; remove the file to sign the others", err)
		}
	}
	s := signature{
		Format:    signatureFormat,
		KeyID:     KeyIDOf(key).String(),
		Digest:    t.Digest.String(),
		Signature: base64.StdEncoding.EncodeToString(ed25519.Sign(key, message(t.Digest))),
	}
	return s.encode(), nil
}

// Verify returns the key of the ring that signed the tree. Its errors wrap
// ErrNoSignature, ErrSignatureFile, ErrUnknownKey, ErrOtherFiles or
// ErrBadSignature.
func (r *Keyring) Verify(t *Tree) (*Key, error) {
	if t.Signature == nil {
		return nil, fmt.Errorf("%w: the folder has no %s", ErrNoSignature, SignatureFile)
	}
	s, err := parseSignature(t.Signature)
	if err != nil {
		return nil, err
	}
	key := r.byID[s.key]
	switch {
	case key == nil:
		return nil, fmt.Errorf("%w: %s", ErrUnknownKey, s.key)
	case subtle.ConstantTimeCompare(s.digest[:], t.Digest[:]) != 1:
		return nil, fmt.Errorf("%w: it is for %s, and they are %s", ErrOtherFiles, s.digest, t.Digest)
	case !ed25519.Verify(key.Public, message(t.Digest), s.signature):
		return nil, fmt.Errorf("%w: %s", ErrBadSignature, key.Name)
	}
	return key, nil
}

// A claim is what a signature says, nothing of which is known to be true.
type claim struct {
	key       KeyID
	digest    Digest
	signature []byte
}

// parseSignature reads what Sign writes, and nothing else. Its errors wrap
// ErrSignatureFile.
func parseSignature(text []byte) (*claim, error) {
	fail := func(why string, args ...any) (*claim, error) {
		return nil, fmt.Errorf("%w: %s: "+why, append([]any{ErrSignatureFile, SignatureFile}, args...)...)
	}
	if len(text) > maxSignature {
		return fail("it has more than %d bytes", maxSignature)
	}
	var s signature
	if err := json.Unmarshal(text, &s, json.RejectUnknownMembers(true)); err != nil {
		return fail("it is not what skill sign writes: %w", plain.JSON(err))
	}
	if s.Format != signatureFormat {
		return fail("expected the format %q, got %q", signatureFormat, cut(s.Format))
	}
	key, err := ParseDigest(s.KeyID)
	if err != nil {
		return fail("key_id: %w", err)
	}
	digest, err := ParseDigest(s.Digest)
	if err != nil {
		return fail("digest: %w", err)
	}
	sig, err := base64.StdEncoding.Strict().DecodeString(s.Signature)
	if err != nil || len(sig) != ed25519.SignatureSize {
		return fail("signature: expected %d bytes in base64", ed25519.SignatureSize)
	}
	if !bytes.Equal(s.encode(), text) { // no room for anything else, not even in blanks
		return fail("it says the same as what skill sign writes, in another way")
	}
	return &claim{KeyID(key), digest, sig}, nil
}
