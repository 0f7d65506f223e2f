package provenance

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// ErrKey is wrapped by the errors of reading keys.
var ErrKey = errors.New("the key cannot be used")

// A KeyID names a public key: the SHA-256 of its SubjectPublicKeyInfo in DER.
type KeyID [sha256.Size]byte

// String returns "sha256:" and 64 hexadecimal digits.
func (id KeyID) String() string { return Digest(id).String() }

// MarshalText writes what String returns.
func (id KeyID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// IDOf returns the name of a public key.
func IDOf(key ed25519.PublicKey) KeyID {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil { // only other kinds of key have errors
		panic(err)
	}
	return sha256.Sum256(der)
}

// KeyIDOf returns the name of the public half of a private key.
func KeyIDOf(key ed25519.PrivateKey) KeyID { return IDOf(key.Public().(ed25519.PublicKey)) }

// block returns what is in one block of PEM, of that type and with nothing around it that is not blank.
func block(text []byte, kind, instead string) ([]byte, error) {
	b, rest := pem.Decode(text)
	switch {
	case b == nil:
		return nil, fmt.Errorf("%w: expected PEM with a block %q", ErrKey, kind)
	case b.Type != kind:
		return nil, fmt.Errorf("%w: expected a block %q, got %q%s", ErrKey, kind, cut(b.Type), instead)
	}
	if next, _ := pem.Decode(rest); next != nil {
		return nil, fmt.Errorf("%w: expected one block of PEM, got more", ErrKey)
	}
	return b.Bytes, nil
}

// ParsePublicKey reads an Ed25519 public key in PEM (SubjectPublicKeyInfo).
// Its errors wrap ErrKey.
func ParsePublicKey(text []byte) (ed25519.PublicKey, error) {
	der, err := block(text, "PUBLIC KEY", "; openssl pkey -pubout makes the public key of a private one")
	if err != nil {
		return nil, err
	}
	key, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return nil, fmt.Errorf("%w: it is no public key: %w", ErrKey, err)
	}
	public, ok := key.(ed25519.PublicKey)
	if !ok {
		return nil, fmt.Errorf("%w: expected an Ed25519 key, got another kind", ErrKey)
	}
	return public, nil
}

// ParsePrivateKey reads an Ed25519 private key in PEM (PKCS #8, not encrypted),
// as openssl genpkey -algorithm ed25519 writes it. Its errors wrap ErrKey and
// have nothing of the key in them.
func ParsePrivateKey(text []byte) (ed25519.PrivateKey, error) {
	der, err := block(text, "PRIVATE KEY", "; the key must be PKCS #8 and not encrypted, as openssl genpkey -algorithm ed25519 writes it")
	if err != nil {
		return nil, err
	}
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, fmt.Errorf("%w: it is no private key in PKCS #8", ErrKey)
	}
	private, ok := key.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%w: expected an Ed25519 key, got another kind", ErrKey)
	}
	return private, nil
}

// NewKey makes a key, and returns both halves in PEM.
func NewKey() (private, public []byte, err error) {
	pub, priv, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(priv)
	if err != nil {
		return nil, nil, err
	}
	spki, err := x509.MarshalPKIXPublicKey(pub)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: spki}), nil
}
