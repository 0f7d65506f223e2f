package bundle

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// An Algorithm is how bundles are signed.
type Algorithm string

// The algorithms, all of which OPA knows.
const (
	RS256 Algorithm = "RS256" // RSA with PKCS #1 v1.5, at least 2048 bits
	ES256 Algorithm = "ES256" // ECDSA on the curve P-256
	HS256 Algorithm = "HS256" // a secret that signer and verifier share, at least 32 bytes
)

// Algorithms returns the algorithms.
func Algorithms() []Algorithm { return []Algorithm{RS256, ES256, HS256} }

// DefaultKeyID is what OPA calls a key that was given no name.
const DefaultKeyID = "default"

const (
	minRSABits = 2048
	minSecret  = 32 // bytes; RFC 7518 demands as many as the hash has
)

// A SigningKey is what bundles are signed with. [NewSigningKey] makes one.
type SigningKey struct {
	Algorithm Algorithm
	ID        string // that a verifier looks the key up by; "" is DefaultKeyID
	Scope     string // which part of a fleet the bundle is for; a verifier demands the same one

	// *rsa.PrivateKey, *ecdsa.PrivateKey or []byte. Whatever prints a key prints no
	// more of a function than where it is.
	key func() any
}

// NewSigningKey reads a private key, in PEM, or the secret of HS256. A line break
// behind a secret is not a part of it. Errors match ErrKey and have nothing of
// the key in them.
func NewSigningKey(algorithm Algorithm, text []byte) (*SigningKey, error) {
	key, err := parseKey(algorithm, text)
	if err != nil {
		return nil, err
	}
	switch key.(type) {
	case *rsa.PublicKey, *ecdsa.PublicKey:
		return nil, fmt.Errorf("%w: it is a public key, and signing takes the private one", ErrKey)
	}
	return &SigningKey{Algorithm: algorithm, key: func() any { return key }}, nil
}

// A VerificationKey is what signatures are verified with. [NewVerificationKey]
// makes one.
type VerificationKey struct {
	Algorithm Algorithm
	ID        string // that the signature must name; "" is any
	Scope     string // that the signature must have; "" is none

	text func() string // as OPA takes it
}

// NewVerificationKey reads a public key or a certificate, in PEM, or the secret
// of HS256. Of a private key it takes the public part. Errors match ErrKey and
// have nothing of the key in them.
func NewVerificationKey(algorithm Algorithm, text []byte) (*VerificationKey, error) {
	key, err := parseKey(algorithm, text)
	if err != nil {
		return nil, err
	}
	if secret, ok := key.([]byte); ok {
		return &VerificationKey{Algorithm: algorithm, text: func() string { return string(secret) }}, nil
	}
	if private, ok := key.(interface{ Public() crypto.PublicKey }); ok {
		key = private.Public()
	}
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return nil, fmt.Errorf("%w: it cannot be written as a public key", ErrKey)
	}
	public := string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	return &VerificationKey{Algorithm: algorithm, text: func() string { return public }}, nil
}

// parseKey reads a key for an algorithm. What the parsers of keys say is left
// out of errors: it could quote the key.
func parseKey(algorithm Algorithm, text []byte) (any, error) {
	if !slices.Contains(Algorithms(), algorithm) {
		return nil, fmt.Errorf("%w: there is no algorithm %q, expected RS256, ES256 or HS256", ErrOptions, algorithm)
	}
	block, _ := pem.Decode(text)
	if algorithm == HS256 {
		secret := bytes.TrimSuffix(bytes.TrimSuffix(text, []byte("\n")), []byte("\r"))
		switch {
		case block != nil || bytes.Contains(text, []byte("-----BEGIN ")):
			// A public key taken for a secret is one that everybody knows.
			return nil, fmt.Errorf("%w: HS256 takes a secret, and this is a key in PEM; RS256 or ES256 goes with it", ErrKey)
		case len(secret) < minSecret:
			return nil, fmt.Errorf("%w: the secret has %d bytes, and HS256 needs at least %d", ErrKey, len(secret), minSecret)
		}
		return bytes.Clone(secret), nil
	}
	if block == nil {
		return nil, fmt.Errorf("%w: %s takes a key in PEM, which begins with -----BEGIN", ErrKey, algorithm)
	}
	if strings.Contains(block.Type, "ENCRYPTED") || block.Headers["DEK-Info"] != "" {
		return nil, fmt.Errorf("%w: it is encrypted; give it decrypted, for instance in an environment variable", ErrKey)
	}
	key, err := parseBlock(block)
	if err != nil {
		return nil, fmt.Errorf("%w: the PEM block %q holds no key that can be read", ErrKey, block.Type)
	}
	return key, fits(algorithm, key)
}

func parseBlock(block *pem.Block) (any, error) {
	switch block.Type {
	case "RSA PRIVATE KEY":
		return x509.ParsePKCS1PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		return x509.ParseECPrivateKey(block.Bytes)
	case "PRIVATE KEY":
		return x509.ParsePKCS8PrivateKey(block.Bytes)
	case "RSA PUBLIC KEY":
		return x509.ParsePKCS1PublicKey(block.Bytes)
	case "PUBLIC KEY":
		return x509.ParsePKIXPublicKey(block.Bytes)
	case "CERTIFICATE":
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		return cert.PublicKey, nil
	}
	return nil, errors.New("it is no key")
}

// fits tells whether a key is one for the algorithm.
func fits(algorithm Algorithm, key any) error {
	public := key
	if private, ok := key.(interface{ Public() crypto.PublicKey }); ok {
		public = private.Public()
	}
	switch public := public.(type) {
	case *rsa.PublicKey:
		if algorithm != RS256 {
			return fmt.Errorf("%w: it is an RSA key, for RS256, and %s was asked for", ErrKey, algorithm)
		}
		if bits := public.N.BitLen(); bits < minRSABits {
			return fmt.Errorf("%w: it has %d bits, and RS256 needs at least %d", ErrKey, bits, minRSABits)
		}
	case *ecdsa.PublicKey:
		if algorithm != ES256 {
			return fmt.Errorf("%w: it is an EC key, for ES256, and %s was asked for", ErrKey, algorithm)
		}
		if public.Curve != elliptic.P256() {
			return fmt.Errorf("%w: it is on the curve %s, and ES256 needs P-256", ErrKey, public.Curve.Params().Name)
		}
	default:
		return fmt.Errorf("%w: OPA verifies no signatures of such a key; take RSA or EC", ErrKey)
	}
	return nil
}

// sign signs a text.
func (k *SigningKey) sign(text []byte) ([]byte, error) {
	if k.key == nil {
		return nil, fmt.Errorf("%w: NewSigningKey makes one", ErrKey)
	}
	sum := sha256.Sum256(text)
	switch key := k.key().(type) {
	case []byte:
		mac := hmac.New(sha256.New, key)
		_, _ = mac.Write(text)
		return mac.Sum(nil), nil
	case *rsa.PrivateKey:
		return rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	case *ecdsa.PrivateKey:
		r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
		if err != nil {
			return nil, err
		}
		signature := make([]byte, 64)
		r.FillBytes(signature[:32])
		s.FillBytes(signature[32:])
		return signature, nil
	default:
		return nil, fmt.Errorf("%w: nothing is signed with a %T", ErrKey, key)
	}
}
