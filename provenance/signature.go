package provenance

import (
	"crypto/ed25519"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
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

// Sign returns what goes into [SignatureFile] for the tree.
func (t *Tree) Sign(key ed25519.PrivateKey) []byte {
	text, err := json.Marshal(signature{
		Format:    signatureFormat,
		KeyID:     KeyIDOf(key).String(),
		Digest:    t.Digest.String(),
		Signature: base64.StdEncoding.EncodeToString(ed25519.Sign(key, message(t.Digest))),
	}, jsontext.WithIndent("  "))
	if err != nil { // four texts
		panic(err)
	}
	return append(text, '\n')
}

// Verify returns the key of the ring that signed the tree. Its errors wrap
// ErrNoSignature, ErrSignatureFile, ErrUnknownKey, ErrOtherFiles or
// ErrBadSignature.
func (r *Keyring) Verify(t *Tree) (*Key, error) {
	if t.Signature == nil {
		return nil, fmt.Errorf("%w: the folder has no %s", ErrNoSignature, SignatureFile)
	}
	s, id, signed, err := parseSignature(t.Signature)
	if err != nil {
		return nil, err
	}
	key := r.byID[id]
	switch {
	case key == nil:
		return nil, fmt.Errorf("%w: %s", ErrUnknownKey, id)
	case subtle.ConstantTimeCompare(signed[:], t.Digest[:]) != 1:
		return nil, fmt.Errorf("%w: it is for %s, and they are %s", ErrOtherFiles, signed, t.Digest)
	case !ed25519.Verify(key.Public, message(t.Digest), s):
		return nil, fmt.Errorf("%w: %s", ErrBadSignature, key.Name)
	}
	return key, nil
}

func parseSignature(text []byte) (sig []byte, id KeyID, signed Digest, err error) {
	fail := func(why string, args ...any) ([]byte, KeyID, Digest, error) {
		return nil, KeyID{}, Digest{}, fmt.Errorf("%w: "+why, append([]any{ErrSignatureFile}, args...)...)
	}
	if len(text) > maxSignature {
		return fail("%s has more than %d bytes", SignatureFile, maxSignature)
	}
	var s signature
	if err := json.Unmarshal(text, &s, json.RejectUnknownMembers(true)); err != nil {
		return fail("%s is not what skill sign writes: %w", SignatureFile, err)
	}
	if s.Format != signatureFormat {
		return fail("%s: expected the format %q, got %q", SignatureFile, signatureFormat, cut(s.Format))
	}
	key, err := ParseDigest(s.KeyID)
	if err != nil {
		return fail("%s: key_id: %w", SignatureFile, err)
	}
	if signed, err = ParseDigest(s.Digest); err != nil {
		return fail("%s: digest: %w", SignatureFile, err)
	}
	sig, err = base64.StdEncoding.Strict().DecodeString(s.Signature)
	if err != nil || len(sig) != ed25519.SignatureSize || base64.StdEncoding.EncodeToString(sig) != s.Signature {
		return fail("%s: signature: expected %d bytes in base64", SignatureFile, ed25519.SignatureSize)
	}
	return sig, KeyID(key), signed, nil
}
