package server

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"strings"
	"testing"

	opabundle "github.com/open-policy-agent/opa/v1/bundle"
)

// A signer signs bundles, and OPA knows its public half by configuration.
type signer struct {
	algorithm       string
	private, public string
}

func newSigners(t *testing.T) map[string]signer {
	t.Helper()
	text := func(kind string, der []byte, err error) string {
		if err != nil {
			t.Fatal(err)
		}
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	ours, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rsaPublic, err := x509.MarshalPKIXPublicKey(&ours.PublicKey)
	rs := signer{"RS256", text("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(ours), nil), text("PUBLIC KEY", rsaPublic, err)}
	curvePrivate, err := x509.MarshalECPrivateKey(curve)
	es := signer{algorithm: "ES256", private: text("EC PRIVATE KEY", curvePrivate, err)}
	curvePublic, err := x509.MarshalPKIXPublicKey(&curve.PublicKey)
	es.public = text("PUBLIC KEY", curvePublic, err)
	return map[string]signer{"HS256": {"HS256", "a secret of two", "a secret of two"}, "RS256": rs, "ES256": es}
}

// set is the configuration that requires a signature of s on bundle gate.
func (s signer) set(scope string) []string {
	set := []string{"keys.k.algorithm=" + s.algorithm, "keys.k.key=" + s.public, "bundles.gate.signing.keyid=k"}
	if scope != "" {
		set = append(set, "bundles.gate.signing.scope="+scope)
	}
	return set
}

// sign returns a bundle signed for a scope.
func (s signer) sign(t *testing.T, text []byte, scope string) []byte {
	t.Helper()
	b, err := opabundle.NewReader(bytes.NewReader(text)).WithSkipBundleVerification(true).Read()
	if err != nil {
		t.Fatal(err)
	}
	claims := ""
	if scope != "" {
		claims = t.TempDir() + "/claims.json"
		save(t, claims, `{"scope": "`+scope+`"}`)
	}
	if err := b.GenerateSignature(opabundle.NewSigningConfig(s.private, s.algorithm, claims), "k", false); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := opabundle.NewWriter(&out).Write(b); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestSigned(t *testing.T) {
	signers := newSigners(t)
	good, next := with(t, "good", unchanged), with(t, "next", unchanged)
	for name, s := range signers {
		for _, scope := range []string{"", "write"} {
			t.Run(name+" "+scope, func(t *testing.T) {
				h := newHost(t)
				server := start(t, from(h, s.set(scope)...))
				for revision, text := range map[string][]byte{"good": good, "next": next} {
					h.put(s.sign(t, text, scope))
					if err := server.fetch(); err != nil {
						t.Fatal(err)
					}
					if _, header, body := server.ask(t, http.MethodPost, "/v1/gate/call", tainted); header.Get(RevisionHeader) != `gate="`+revision+`"` {
						t.Errorf("revision %s: %s", header.Get(RevisionHeader), body)
					}
				}
			})
		}
	}
}

// What is not signed as it must be is refused, with the policies before it in
// force, and the reason in OPA's status, in the log and in the health.
func TestSignaturesThatDoNotHold(t *testing.T) {
	signers := newSigners(t)
	hs, rs, es := signers["HS256"], signers["RS256"], signers["ES256"]
	good, next := with(t, "good", unchanged), with(t, "next", unchanged)
	signed := rs.sign(t, next, "write")
	stranger := newSigners(t)["RS256"]
	// repacked changes files of a signed bundle, and leaves its signature.
	repacked := func(edit func(map[string]string)) []byte {
		all := unpacked(t, signed)
		edit(all)
		return tarball(t, all)
	}
	for _, tt := range []struct {
		name, says string
		body       []byte
	}{
		{"a byte of a policy is another", "digest mismatch", repacked(func(f map[string]string) {
			name := named(t, f, "gate/call/call.rego")
			f[name] = f[name][:100] + "#" + f[name][101:]
		})},
		{"a value of the data is another", "digest mismatch", repacked(func(f map[string]string) {
			replace(t, f, "data.json", `{`, `{"more": 1, `)
		})},
		{"a file is left out", "not found in the target bundle", repacked(func(f map[string]string) { delete(f, named(t, f, "gate/skill/skill.rego")) })},
		{"a file is put in", "not included in bundle signature", repacked(func(f map[string]string) { f["more/more.rego"] = "package gate.more\n" })},
		{"the revision is another", "digest mismatch", repacked(func(f map[string]string) { replace(t, f, ".manifest", "next", "tail") })},
		{"the key of a stranger", "verif", stranger.sign(t, next, "write")},
		{"another algorithm", "verif", es.sign(t, next, "write")},
		{"the public key as a secret", "verif", signer{"HS256", rs.public, ""}.sign(t, next, "write")},
		{"another secret", "verif", hs.sign(t, next, "write")},
		{"another scope", "scope mismatch", rs.sign(t, next, "read")},
		{"no scope", "scope mismatch", rs.sign(t, next, "")},
		{"no signature", "missing .signatures.json", next},
		{"an empty list of signatures", "signature", repacked(func(f map[string]string) { f[".signatures.json"] = `{"signatures": []}` })},
		{"a signature that is none", "", repacked(func(f map[string]string) { f[".signatures.json"] = `{"signatures": ["e30.e30.e30"]}` })},
		{"cut off", "EOF", signed[:len(signed)*3/4]},
		{"a delta, which cannot be signed", "", tarball(t, map[string]string{
			"patch.json": `{"data": [{"op": "upsert", "path": "/gate/settings/system", "value": "mine"}]}`})},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, c := newHost(t), newCollector(t)
			server := start(t, from(h, append(rs.set("write"), c.set()...)...))
			h.put(rs.sign(t, good, "write"))
			if err := server.fetch(); err != nil {
				t.Fatal(err)
			}
			h.put(tt.body)
			if err := server.fetch(); err == nil {
				t.Fatal("it was activated")
			}
			if status, header, body := server.ask(t, http.MethodPost, "/v1/gate/call", tainted); status != 200 ||
				header.Get(RevisionHeader) != `gate="good"` || !strings.Contains(body, `"escalate"`) {
				t.Errorf("status %d, revision %s: %s", status, header.Get(RevisionHeader), body)
			}
			status := c.status(t, func(s bundleStatus) bool { return s.Code != "" && s.ActiveRevision == "good" })
			if status.Code != "bundle_error" || !strings.Contains(status.Message, tt.says) {
				t.Errorf("OPA's status does not say %q: %+v", tt.says, status)
			}
			_, _, health := server.ask(t, http.MethodGet, "/v1/gate/health", "")
			for where, text := range map[string]string{"health": health, "log": server.log.String()} {
				if !strings.Contains(text, tt.says) {
					t.Errorf("the %s does not say %q:\n%s", where, tt.says, text)
				}
			}
			if !strings.Contains(health, `"ready": true`) || !strings.Contains(health, `"failing_since"`) {
				t.Errorf("health: %s", health)
			}
			h.put(signed)
			if err := server.fetch(); err != nil {
				t.Errorf("the right one behind it: %v", err)
			}
			c.status(t, func(s bundleStatus) bool { return s.Code == "" && s.ActiveRevision == "next" })
		})
	}
}

// What the gate refuses is in OPA's status as what OPA refuses.
func TestStatusOfARefusedBundle(t *testing.T) {
	h, c := newHost(t), newCollector(t)
	server := start(t, from(h, c.set()...))
	h.put(raw(t, "good", unchanged))
	if err := server.fetch(); err != nil {
		t.Fatal(err)
	}
	c.status(t, func(s bundleStatus) bool { return s.ActiveRevision == "good" && s.Code == "" })
	h.put(raw(t, "bad", func(f map[string]string) { f["gate/call/call.rego"] = "package gate.call\n\ndecision := true\n" }))
	if err := server.fetch(); err == nil {
		t.Fatal("it was activated")
	}
	status := c.status(t, func(s bundleStatus) bool { return s.Code != "" })
	if status.ActiveRevision != "good" || status.Code != "bundle_error" || !strings.Contains(status.Message, "not a decision") {
		t.Errorf("status %+v", status)
	}
}
