package bundle_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	opabundle "github.com/open-policy-agent/opa/v1/bundle"
	"github.com/open-policy-agent/opa/v1/keys"

	"github.com/opa-gate/opa-gate/bundle"
)

// A pair is a private and a public key, or a secret twice.
type pair struct{ private, public []byte }

var pairs = sync.OnceValue(func() map[bundle.Algorithm][2]pair {
	all := map[bundle.Algorithm][2]pair{}
	for _, algorithm := range bundle.Algorithms() {
		var two [2]pair
		for i := range two {
			two[i] = newPair(algorithm, 2048, elliptic.P256())
		}
		all[algorithm] = two
	}
	return all
})

func newPair(algorithm bundle.Algorithm, bits int, curve elliptic.Curve) pair {
	block := func(kind string, der []byte, err error) []byte {
		if err != nil {
			panic(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	}
	private := func(key any, err error) []byte {
		if err != nil {
			panic(err)
		}
		der, err := x509.MarshalPKCS8PrivateKey(key)
		return block("PRIVATE KEY", der, err)
	}
	public := func(key any) []byte {
		der, err := x509.MarshalPKIXPublicKey(key)
		return block("PUBLIC KEY", der, err)
	}
	switch algorithm {
	case bundle.RS256:
		key, err := rsa.GenerateKey(rand.Reader, bits)
		return pair{private(key, err), public(&key.PublicKey)}
	case bundle.ES256:
		key, err := ecdsa.GenerateKey(curve, rand.Reader)
		return pair{private(key, err), public(&key.PublicKey)}
	default:
		secret := []byte("secret-" + rand.Text() + rand.Text())
		return pair{secret, secret}
	}
}

func signingKey(t *testing.T, algorithm bundle.Algorithm, text []byte, scope string) *bundle.SigningKey {
	t.Helper()
	k, err := bundle.NewSigningKey(algorithm, text)
	if err != nil {
		t.Fatal(err)
	}
	k.Scope = scope
	return k
}

func verificationKey(t *testing.T, algorithm bundle.Algorithm, text []byte, scope string) *bundle.VerificationKey {
	t.Helper()
	k, err := bundle.NewVerificationKey(algorithm, text)
	if err != nil {
		t.Fatal(err)
	}
	k.Scope = scope
	return k
}

// small is a bundle of little text, and with two data files, which OPA's own
// writer would make one of.
func small(t *testing.T) []byte {
	t.Helper()
	return archive(t, []entry{
		{"/.manifest", `{"revision": "r1", "roots": ["gate"], "rego_version": 1}`},
		{"/gate/settings/data.json", `{"system": "Desk", "n": 12345678901234567890}`},
		{"/gate/other/data.yaml", "a: 1\n"},
		{"/gate/call.rego", "package gate.call\n\ndecision := {}\n"},
		{"/gate/skill.rego", "package gate.skill\n\ndecision := {}\n"},
	})
}

type entry struct{ name, text string }

func archive(t *testing.T, entries []entry) []byte {
	t.Helper()
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	w := tar.NewWriter(zipped)
	for _, e := range entries {
		header := &tar.Header{Name: e.name, Typeflag: tar.TypeReg, Mode: 0o600, Size: int64(len(e.text))}
		if target, link := strings.CutPrefix(e.text, "link:"); link {
			header.Typeflag, header.Linkname, header.Size, e.text = tar.TypeSymlink, target, 0, ""
		}
		if err := w.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.text); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func entries(t *testing.T, text []byte) []entry {
	t.Helper()
	zipped, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	var all []entry
	for r := tar.NewReader(zipped); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, entry{header.Name, string(text)})
	}
}

// What is signed is verified, here and by a stock OPA, and says what it is.
func TestSign(t *testing.T) {
	for algorithm, two := range pairs() {
		for _, id := range []string{"", "fleet-key"} {
			for _, scope := range []string{"", "prod"} {
				t.Run(fmt.Sprintf("%s %s %s", algorithm, id, scope), func(t *testing.T) {
					key := signingKey(t, algorithm, two[0].private, scope)
					key.ID = id
					signed, err := bundle.Sign(small(t), key)
					if err != nil {
						t.Fatal(err)
					}
					check := verificationKey(t, algorithm, two[0].public, scope)
					check.ID = id
					got, err := bundle.Verify(signed, check)
					if err != nil {
						t.Fatal(err)
					}
					if id == "" {
						id = bundle.DefaultKeyID
					}
					want := &bundle.Verified{Algorithm: algorithm, KeyID: id, Scope: scope, Revision: "r1", Roots: []string{"gate"},
						Files: []string{".manifest", "gate/call.rego", "gate/other/data.yaml", "gate/settings/data.json", "gate/skill.rego"}, Digest: got.Digest}
					if !reflect.DeepEqual(got, want) {
						t.Errorf("got  %+v\nwant %+v", got, want)
					}
					stock := opabundle.NewVerificationConfig(map[string]*keys.Config{id: {Key: string(two[0].public), Algorithm: string(algorithm)}}, "", scope, nil)
					if _, err := opabundle.NewReader(bytes.NewReader(signed)).WithLazyLoadingMode(false).WithBundleVerificationConfig(stock).Read(); err != nil {
						t.Errorf("a stock OPA: %v", err)
					}
					again, err := bundle.Sign(signed, key) // in place of the old one
					if err != nil {
						t.Fatal(err)
					}
					if same := bytes.Equal(again, signed); same == (algorithm == bundle.ES256) {
						t.Errorf("signing again gives the same bytes: %t", same)
					}
					if _, err := bundle.Verify(again, check); err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
}

// What a stock OPA has signed is verified.
func TestVerifyStock(t *testing.T) {
	two := pairs()[bundle.ES256]
	b, err := opabundle.NewReader(bytes.NewReader(small(t))).WithLazyLoadingMode(false).Read()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err = errors.Join(b.GenerateSignature(opabundle.NewSigningConfig(string(two[0].private), "ES256", ""), "theirs", false), opabundle.NewWriter(&out).Write(b))
	if err != nil {
		t.Fatal(err)
	}
	got, err := bundle.Verify(out.Bytes(), verificationKey(t, bundle.ES256, two[0].public, ""))
	if err != nil || got.KeyID != "theirs" || len(got.Files) != 4 {
		t.Errorf("%+v, error %v", got, err)
	}
}

// What is built is signed in one go, and is otherwise what it is unsigned.
func TestBuildSigned(t *testing.T) {
	two := pairs()[bundle.RS256]
	opts := &bundle.BuildOptions{Signing: signingKey(t, bundle.RS256, two[0].private, "prod")}
	b, err := bundle.Build(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	v, err := bundle.Verify(b.Bytes, verificationKey(t, bundle.RS256, two[0].public, "prod"))
	if err != nil {
		t.Fatal(err)
	}
	plain := built(t, bundle.TargetRego, 0)
	if b.Revision != plain.Revision || v.Revision != plain.Revision || !reflect.DeepEqual(v.Files, plain.Files) {
		t.Errorf("signed %+v, unsigned %q %q", v, plain.Revision, plain.Files)
	}
	if err := bundle.Loads(t.Context(), b.Bytes); err != nil {
		t.Error(err)
	}
	again, err := bundle.Build(t.Context(), opts)
	if err != nil || !bytes.Equal(again.Bytes, b.Bytes) {
		t.Errorf("signing by RS256 is not reproducible, error %v", err)
	}
	if err := bundle.Loads(t.Context(), built(t, bundle.TargetWasm, 0).Bytes); err != nil {
		t.Errorf("wasm: %v", err)
	}
}

// resign changes the parts of a token; the signature over them is made anew by
// the key, if there is one.
func resign(t *testing.T, token string, header func(map[string]any), claims func(map[string]any), signature func(signed string) []byte) string {
	t.Helper()
	parts := strings.Split(token, ".")
	for i, change := range []func(map[string]any){header, claims} {
		text, err := base64.RawURLEncoding.DecodeString(parts[i])
		if err != nil {
			t.Fatal(err)
		}
		m := map[string]any{}
		if err := json.Unmarshal(text, &m); err != nil {
			t.Fatal(err)
		}
		if change == nil {
			continue
		}
		change(m)
		if text, err = json.Marshal(m); err != nil {
			t.Fatal(err)
		}
		parts[i] = base64.RawURLEncoding.EncodeToString(text)
	}
	if signature != nil {
		parts[2] = base64.RawURLEncoding.EncodeToString(signature(parts[0] + "." + parts[1]))
	}
	return strings.Join(parts, ".")
}

// Each way in which a bundle can be other than what was signed has words of its
// own.
func TestVerifyRefuses(t *testing.T) {
	rs, es, hs := pairs()[bundle.RS256], pairs()[bundle.ES256], pairs()[bundle.HS256]
	signed, err := bundle.Sign(small(t), signingKey(t, bundle.RS256, rs[0].private, "prod"))
	if err != nil {
		t.Fatal(err)
	}
	good := verificationKey(t, bundle.RS256, rs[0].public, "prod")
	all := entries(t, signed)
	at := slices.IndexFunc(all, func(e entry) bool { return e.name == "/.signatures.json" })
	var signatures opabundle.SignaturesConfig
	if err := json.Unmarshal([]byte(all[at].text), &signatures); err != nil {
		t.Fatal(err)
	}
	token := signatures.Signatures[0]
	// with returns the bundle with other files.
	with := func(change func([]entry) []entry) []byte { return archive(t, change(slices.Clone(all))) }
	file := func(name, text string) []byte {
		return with(func(all []entry) []entry {
			i := slices.IndexFunc(all, func(e entry) bool { return e.name == name })
			all[i].text = text
			return all
		})
	}
	tokens := func(tokens ...string) []byte {
		text, err := json.Marshal(opabundle.SignaturesConfig{Signatures: tokens})
		if err != nil {
			t.Fatal(err)
		}
		return file("/.signatures.json", string(text))
	}
	hmacWith := func(secret []byte) func(string) []byte {
		return func(signed string) []byte { return mac(secret, signed) }
	}
	alg := func(name string) func(map[string]any) { return func(m map[string]any) { m["alg"] = name } }
	secret := verificationKey(t, bundle.HS256, hs[0].public, "prod")
	named := verificationKey(t, bundle.RS256, rs[0].public, "prod")
	named.ID = "other"
	bySecret := func(claims func(map[string]any), header func(map[string]any)) []byte {
		return tokens(resign(t, token, func(m map[string]any) {
			m["alg"] = "HS256"
			if header != nil {
				header(m)
			}
		}, claims, hmacWith(hs[0].private)))
	}
	listed := func(change func([]any) []any) func(map[string]any) {
		return func(m map[string]any) { m["files"] = change(m["files"].([]any)) }
	}
	for _, tt := range []struct {
		name string
		text []byte
		key  *bundle.VerificationKey
		is   error
		want string
	}{
		{"another key", signed, verificationKey(t, bundle.RS256, rs[1].public, "prod"), bundle.ErrWrongKey, "the signature is not by this key"},
		{"no scope", signed, verificationKey(t, bundle.RS256, rs[0].public, ""), bundle.ErrScope, `another scope: it has "prod", expected none`},
		{"another scope", signed, verificationKey(t, bundle.RS256, rs[0].public, "test"), bundle.ErrScope, `it has "prod", expected "test"`},
		{"another key and scope", signed, verificationKey(t, bundle.RS256, rs[1].public, "test"), bundle.ErrWrongKey, ""},
		{"another key id", signed, named, bundle.ErrKeyID, `it has "default", expected "other"`},
		{"another algorithm", signed, verificationKey(t, bundle.ES256, es[0].public, "prod"), bundle.ErrAlgorithm, `it has "RS256", expected "ES256"`},
		{"a secret", signed, secret, bundle.ErrAlgorithm, `it has "RS256", expected "HS256"`},
		{"alg none", tokens(resign(t, token, alg("none"), nil, func(string) []byte { return nil })), good, bundle.ErrAlgorithm, `it has "none"`},
		{"alg none, signature kept", tokens(resign(t, token, alg("none"), nil, nil)), good, bundle.ErrAlgorithm, ""},
		{"alg HS256 by the public key", tokens(resign(t, token, alg("HS256"), nil, hmacWith(rs[0].public))), good, bundle.ErrAlgorithm, ""},
		{"HMAC by the public key", tokens(resign(t, token, nil, nil, hmacWith(rs[0].public))), good, bundle.ErrWrongKey, ""},
		{"no signature in the token", tokens(resign(t, token, nil, nil, func(string) []byte { return nil })), good, bundle.ErrWrongKey, ""},
		{"scope changed", tokens(resign(t, token, nil, func(m map[string]any) { m["scope"] = "test" }, nil)),
			verificationKey(t, bundle.RS256, rs[0].public, "test"), bundle.ErrWrongKey, ""},
		{"list changed", tokens(resign(t, token, nil, func(m map[string]any) { m["files"] = []any{} }, nil)), good, bundle.ErrWrongKey, ""},
		{"weak hash", bySecret(listed(func(l []any) []any {
			l[0].(map[string]any)["algorithm"] = "MD5"
			return l
		}), nil), secret, bundle.ErrSignature, `"MD5"`},
		{"extension", bySecret(nil, func(m map[string]any) { m["crit"] = []string{"b64"} }), secret, bundle.ErrSignature, "extensions"},
		{"stripped", with(func(all []entry) []entry { return slices.Delete(all, at, at+1) }), good, bundle.ErrUnsigned, "there is no .signatures.json"},
		{"never signed", small(t), good, bundle.ErrUnsigned, ""},
		{"no token", tokens(), good, bundle.ErrUnsigned, "has none in it"},
		{"two tokens", tokens(token, token), good, bundle.ErrSignature, "there are 2, expected one"},
		{"no JWT", tokens("abc"), good, bundle.ErrSignature, "it has 1 parts"},
		{"no JSON", file("/.signatures.json", "{"), good, bundle.ErrSignature, "not the JSON"},
		{"plugin", file("/.signatures.json", `{"plugin": "mine", "signatures": ["`+token+`"]}`), good, bundle.ErrSignature, `plugin "mine"`},
		{"elsewhere", with(func(all []entry) []entry { return append(all, entry{"/gate/.signatures.json", all[at].text}) }), good, bundle.ErrSignature, "gate/.signatures.json"},
		{"added", with(func(all []entry) []entry { return append(all, entry{"/gate/z.rego", "package gate.z\n"}) }), good, bundle.ErrFileAdded, "signed: gate/z.rego"},
		{"added, of no use to OPA", with(func(all []entry) []entry { return append(all, entry{"/run.sh", "rm"}) }), good, bundle.ErrFileAdded, "signed: run.sh"},
		{"missing", with(func(all []entry) []entry { return slices.Delete(all, 3, 4) }), good, bundle.ErrFileMissing, "signed: gate/call.rego"},
		{"changed", file("/gate/call.rego", "package gate.call\n\ndecision := {} \n"), good, bundle.ErrFileChanged, "signed: gate/call.rego"},
		{"changed data", file("/gate/settings/data.json", `{"system": "Desk", "n": 12345678901234567891}`), good, bundle.ErrFileChanged, "gate/settings/data.json"},
		{"changed manifest", file("/.manifest", `{"revision": "r2", "roots": ["gate"], "rego_version": 1}`), good, bundle.ErrFileChanged, "signed: .manifest"},
		{"broken data", file("/gate/settings/data.json", "{"), good, bundle.ErrFileChanged, ""},
		{"twice", with(func(all []entry) []entry { return append(all, all[0]) }), good, bundle.ErrDamaged, "twice"},
		{"twice under another name", with(func(all []entry) []entry {
			return append(all, entry{"/./gate/call.rego", "package gate.call\n"})
		}), good, bundle.ErrDamaged, "twice"},
		{"link", with(func(all []entry) []entry { return append(all, entry{"/link", "link:/etc/passwd"}) }), good, bundle.ErrDamaged, "not a regular file"},
		{"way out", with(func(all []entry) []entry { return append(all, entry{"/../out.rego", "package gate\n"}) }), good, bundle.ErrDamaged, "not the name of a file"},
		{"truncated", signed[:len(signed)/2], good, bundle.ErrDamaged, ""},
		{"last byte gone", signed[:len(signed)-1], good, bundle.ErrDamaged, ""},
		{"behind the end", append(slices.Clone(signed), "more"...), good, bundle.ErrDamaged, ""},
		{"another archive behind", append(slices.Clone(signed), small(t)...), good, bundle.ErrDamaged, "behind the end"},
		{"no archive", []byte("hello"), good, bundle.ErrNotBundle, "gzipped tarball"},
		{"nothing", nil, good, bundle.ErrNotBundle, ""},
		{"no file", archive(t, nil), good, bundle.ErrNotBundle, "no file"},
		{"no key", signed, nil, bundle.ErrKey, "none to verify with"},
		{"zero key", signed, &bundle.VerificationKey{Algorithm: bundle.HS256}, bundle.ErrKey, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v, err := bundle.Verify(tt.text, tt.key)
			if v != nil || !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("%+v, error %v; want %v %q", v, err, tt.is, tt.want)
			}
			if outside := tt.is == bundle.ErrNotBundle || tt.is == bundle.ErrKey; errors.Is(err, bundle.ErrNotVerified) == outside {
				t.Errorf("%v matches ErrNotVerified: %t", err, !outside)
			}
			silent(t, err.Error(), tt.key)
		})
	}
	if _, err := bundle.Verify(bySecret(nil, nil), secret); err != nil {
		t.Errorf("what the table changes is not the reason: %v", err)
	}
}

// silent fails if a text has a part of a key in it.
func silent(t *testing.T, text string, also ...any) {
	t.Helper()
	text += fmt.Sprintf("%v %+v %#v", also, also, also)
	for algorithm, two := range pairs() {
		for _, p := range two {
			for _, key := range [][]byte{p.private, p.public} {
				for line := range strings.Lines(string(key)) {
					if line = strings.TrimSpace(line); !strings.HasPrefix(line, "-----") && strings.Contains(text, line) {
						t.Errorf("a key for %s is in %q", algorithm, text)
					}
				}
			}
		}
	}
}

// A change of any byte is noticed, unless the files are to the byte what they were:
// there are bits in the gzip format that nobody reads.
func TestVerifyFlips(t *testing.T) {
	two := pairs()[bundle.RS256]
	signed, err := bundle.Sign(small(t), signingKey(t, bundle.RS256, two[0].private, ""))
	if err != nil {
		t.Fatal(err)
	}
	key := verificationKey(t, bundle.RS256, two[0].public, "")
	want := entries(t, signed)
	step := 1
	if testing.Short() {
		step = 7
	}
	flips, unread := 0, 0
	for at := 0; at < len(signed); at += step {
		for _, bit := range []byte{1, 0x10, 0x80} {
			changed := slices.Clone(signed)
			changed[at] ^= bit
			_, err := bundle.Verify(changed, key)
			flips++
			switch {
			case err != nil:
				silent(t, err.Error())
			case !reflect.DeepEqual(entries(t, changed), want):
				t.Errorf("byte %d with bit %#x flipped is verified", at, bit)
			default:
				unread++
			}
		}
	}
	if flips < 100 || unread > flips/20 {
		t.Errorf("%d flips, %d of them without a consequence", flips, unread)
	}
}

// A small archive that unpacks to a large one is refused before it is unpacked.
func TestBombs(t *testing.T) {
	key := verificationKey(t, bundle.HS256, pairs()[bundle.HS256][0].public, "")
	zeros := strings.Repeat("\x00", 48<<20)
	var many []entry
	for i := range bundle.MaxFiles + 1 {
		many = append(many, entry{fmt.Sprintf("/%d/data.json", i), "1"})
	}
	var endless bytes.Buffer // zeros behind the end of an archive
	w := gzip.NewWriter(&endless)
	if _, err := w.Write(make([]byte, 1024)); err != nil {
		t.Fatal(err)
	}
	for range 8 {
		if _, err := io.WriteString(w, zeros); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	calls := func(text []byte) map[string]error {
		return map[string]error{
			"Verify":  second(bundle.Verify(text, key)),
			"Inspect": second(bundle.Inspect(text)),
			"Sign":    second(bundle.Sign(text, signingKey(t, bundle.HS256, pairs()[bundle.HS256][0].private, ""))),
			"Loads":   bundle.Loads(t.Context(), text),
		}
	}
	for call, err := range calls(archive(t, many)) {
		if !errors.Is(err, bundle.ErrTooLarge) {
			t.Errorf("%s: error %v", call, err)
		}
	}
	for name, text := range map[string][]byte{
		"one file":   archive(t, []entry{{"/data.json", zeros + zeros}}),
		"some files": archive(t, []entry{{"/1", zeros}, {"/2", zeros}, {"/3", zeros}, {"/4", zeros}, {"/5", zeros}, {"/6", zeros}}),
		"packed":     make([]byte, bundle.MaxPacked+1),
		"behind it":  endless.Bytes(),
	} {
		if _, err := bundle.Verify(text, key); !errors.Is(err, bundle.ErrTooLarge) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }
