package bundle_test

import (
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/opa-gate/opa-gate/bundle"
)

func sum(b []byte) []byte {
	s := sha256.Sum256(b)
	return s[:]
}

func mac(secret []byte, text string) []byte {
	h := hmac.New(sha256.New, secret)
	_, _ = h.Write([]byte(text))
	return h.Sum(nil)
}

// A key that is not one for the algorithm is refused, and its text is in no error.
func TestKeys(t *testing.T) {
	rs, es, hs := pairs()[bundle.RS256][0], pairs()[bundle.ES256][0], pairs()[bundle.HS256][0]
	small := newPair(bundle.RS256, 1024, nil)
	wide := newPair(bundle.ES256, 0, elliptic.P384())
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(ed)
	if err != nil {
		t.Fatal(err)
	}
	edPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	torn := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der[:20]})
	for _, tt := range []struct {
		name      string
		algorithm bundle.Algorithm
		text      []byte
		want      string
	}{
		{"no algorithm", "", rs.private, `there is no algorithm "", expected RS256`},
		{"none", "none", rs.private, `there is no algorithm "none"`},
		{"EdDSA", "EdDSA", edPEM, `there is no algorithm "EdDSA"`},
		{"EC for RS256", bundle.RS256, es.private, "it is an EC key, for ES256, and RS256 was asked for"},
		{"RSA for ES256", bundle.ES256, rs.private, "it is an RSA key, for RS256"},
		{"PEM as a secret", bundle.HS256, rs.public, "HS256 takes a secret, and this is a key in PEM"},
		{"secret as PEM", bundle.RS256, hs.private, "RS256 takes a key in PEM"},
		{"short secret", bundle.HS256, hs.private[:31], "the secret has 31 bytes, and HS256 needs at least 32"},
		{"empty secret", bundle.HS256, nil, "the secret has 0 bytes"},
		{"small RSA", bundle.RS256, small.private, "it has 1024 bits, and RS256 needs at least 2048"},
		{"wide curve", bundle.ES256, wide.private, "it is on the curve P-384, and ES256 needs P-256"},
		{"Ed25519", bundle.ES256, edPEM, "take RSA or EC"},
		{"torn", bundle.RS256, torn, `the PEM block "PRIVATE KEY" holds no key`},
		{"something else", bundle.RS256, pem.EncodeToMemory(&pem.Block{Type: "X", Bytes: der}), `the PEM block "X" holds no key`},
		{"encrypted", bundle.RS256, pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: der}), "it is encrypted"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for which, err := range map[string]error{
				"sign": second(bundle.NewSigningKey(tt.algorithm, tt.text)), "verify": second(bundle.NewVerificationKey(tt.algorithm, tt.text)),
			} {
				if err == nil || !strings.Contains(err.Error(), tt.want) || !errors.Is(err, bundle.ErrKey) && !errors.Is(err, bundle.ErrOptions) {
					t.Errorf("%s: error %v, want %q", which, err, tt.want)
				}
				silent(t, fmt.Sprint(err))
				if len(tt.text) > 0 && strings.Contains(fmt.Sprint(err), string(tt.text)) {
					t.Errorf("%s: the key is in %q", which, err)
				}
			}
		})
	}
	if _, err := bundle.NewSigningKey(bundle.RS256, rs.public); err == nil || !strings.Contains(err.Error(), "signing takes the private one") {
		t.Errorf("a public key signs: %v", err)
	}
	// A private key verifies what it has signed, and of a secret a line break behind
	// it is no part.
	for _, tt := range []struct {
		algorithm    bundle.Algorithm
		sign, verify []byte
	}{{bundle.RS256, rs.private, rs.private}, {bundle.ES256, es.private, es.private},
		{bundle.HS256, hs.private, append([]byte(string(hs.private)), '\n')}, {bundle.HS256, append([]byte(string(hs.private)), "\r\n"...), hs.private}} {
		signed, err := bundle.Sign(built(t, bundle.TargetRego, 0).Bytes, signingKey(t, tt.algorithm, tt.sign, ""))
		if err != nil {
			t.Fatal(err)
		}
		key := verificationKey(t, tt.algorithm, tt.verify, "")
		if _, err := bundle.Verify(signed, key); err != nil {
			t.Errorf("%s: %v", tt.algorithm, err)
		}
		silent(t, string(signed), key, *key, signingKey(t, tt.algorithm, tt.sign, ""))
	}
}
