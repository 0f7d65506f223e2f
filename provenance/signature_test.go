package provenance

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opa-gate/opa-gate/skill"
)

// pair makes a key, as files have it and as programs do.
func pair(t testing.TB) (private ed25519.PrivateKey, public string) {
	t.Helper()
	priv, pub, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	if private, err = ParsePrivateKey(priv); err != nil {
		t.Fatal(err)
	}
	return private, string(pub)
}

func signed(t testing.TB, tree *Tree, key ed25519.PrivateKey) []byte {
	t.Helper()
	text, err := tree.Sign(key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func ringOf(t testing.TB, f files) *Keyring {
	t.Helper()
	r, err := ReadKeyring(f.write(t))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSignAndVerify(t *testing.T) {
	private, public := pair(t)
	tree := pdf.tree(t)
	tree.Signature = signed(t, tree, private)
	if again := signed(t, tree, private); !bytes.Equal(again, tree.Signature) {
		t.Error("signing twice gives other bytes")
	}
	ring := ringOf(t, files{"release.pem": public, "keyring.yaml": "release: {trusted: true, source: official}\n"})
	key, err := ring.Verify(tree)
	if err != nil || key.Name != "release" || !key.Trusted || key.Source != skill.Official || key.ID != KeyIDOf(private) {
		t.Fatalf("got %+v, %v", key, err)
	}
	// What the file says, by hand.
	var doc map[string]string
	if err := json.Unmarshal(tree.Signature, &doc); err != nil {
		t.Fatal(err)
	}
	sig, err := base64.StdEncoding.DecodeString(doc["signature"])
	if err != nil || !ed25519.Verify(private.Public().(ed25519.PublicKey), []byte("opa-gate skill signature 1\n"+tree.Digest.String()+"\n"), sig) {
		t.Errorf("the signature is of another text: %v", err)
	}
	if len(doc) != 4 || doc["digest"] != tree.Digest.String() || doc["key_id"] != KeyIDOf(private).String() || doc["format"] != "opa-gate skill signature 1" {
		t.Errorf("got %v", doc)
	}
}

func TestVerifyRefuses(t *testing.T) {
	private, public := pair(t)
	other, otherPublic := pair(t)
	ring := ringOf(t, files{"release.pem": public, "other.pem": otherPublic})
	tree := pdf.tree(t)
	good := string(signed(t, tree, private))
	id, otherID := KeyIDOf(private).String(), KeyIDOf(other).String()
	digest := tree.Digest.String()
	unknown, _ := pair(t)
	changed := files{"SKILL.md": "# PDg\n", "scripts/run.py": "print(1)\n", "empty": ""}.tree(t)
	tests := []struct {
		name, text string
		tree       *Tree
		want       error
	}{
		{"good", good, tree, nil},
		{"unknown key", string(signed(t, tree, unknown)), tree, ErrUnknownKey},
		{"another file's byte", good, changed, ErrOtherFiles},
		{"names another key of the ring", strings.Replace(good, id, otherID, 1), tree, ErrBadSignature},
		{"says the digest of other files", strings.Replace(string(signed(t, changed, private)), changed.Digest.String(), digest, 1), tree, ErrBadSignature},
		{"empty", "", tree, ErrSignatureFile},
		{"not JSON", "signed", tree, ErrSignatureFile},
		{"null", "null", tree, ErrSignatureFile},
		{"a list", "[" + good + "]", tree, ErrSignatureFile},
		{"twice", good + good, tree, ErrSignatureFile},
		{"a member twice", strings.Replace(good, `"format"`, `"digest": "`+digest+`", "format"`, 1), tree, ErrSignatureFile},
		{"a member more", strings.Replace(good, `"format"`, `"trusted": true, "format"`, 1), tree, ErrSignatureFile},
		{"a member in capitals", strings.Replace(good, `"key_id"`, `"KEY_ID"`, 1), tree, ErrSignatureFile},
		{"another format", strings.Replace(good, "signature 1", "signature 2", 1), tree, ErrSignatureFile},
		{"no digest", strings.Replace(good, digest, "", 1), tree, ErrSignatureFile},
		{"digest of another kind", strings.Replace(good, digest, "md5:00", 1), tree, ErrSignatureFile},
		{"key of another kind", strings.Replace(good, id, "release", 1), tree, ErrSignatureFile},
		{"long", good + strings.Repeat(" ", maxSignature), tree, ErrSignatureFile},
		{"a blank more", good + " ", tree, ErrSignatureFile},
		{"on one line", strings.ReplaceAll(good, "\n", ""), tree, ErrSignatureFile},
		{"an escape", strings.Replace(good, "opa-gate", `\u006fpa-gate`, 1), tree, ErrSignatureFile},
		{"short signature", `{"format":"opa-gate skill signature 1","key_id":"` + id + `","digest":"` + digest + `","signature":"AAAA"}`, tree, ErrSignatureFile},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tree := *tt.tree
			tree.Signature = []byte(tt.text)
			key, err := ring.Verify(&tree)
			if !errors.Is(err, tt.want) || (key == nil) == (err == nil) {
				t.Errorf("got %v, %v, want %v", key, err, tt.want)
			}
		})
	}
	garbage := files{"SKILL.md": "# PDF\n", SignatureFile: "curl example.org | sh"}.tree(t)
	if len(garbage.Files) != 2 {
		t.Errorf("what is no signature is a file: %v", garbage.Files)
	}
	if text, err := garbage.Sign(private); text != nil || !errors.Is(err, ErrSignatureFile) {
		t.Errorf("signed away a file: %q, %v", text, err)
	}
	bare := *tree
	bare.Signature = nil
	if key, err := ring.Verify(&bare); key != nil || !errors.Is(err, ErrNoSignature) {
		t.Errorf("none: %v, %v", key, err)
	}
	bare.Signature = []byte(good)
	if key, err := (&Keyring{}).Verify(&bare); key != nil || !errors.Is(err, ErrUnknownKey) {
		t.Errorf("the zero keyring: %v, %v", key, err)
	}
}

// Every bit of what is signed, of the signature and of the key's name counts.
func TestFlippedBits(t *testing.T) {
	private, public := pair(t)
	ring := ringOf(t, files{"release.pem": public})
	tree := pdf.tree(t)
	text := signed(t, tree, private)
	flipped := 0
	for i := range text {
		for bit := range 8 {
			changed := bytes.Clone(text)
			changed[i] ^= 1 << bit
			tree.Signature = changed
			if key, err := ring.Verify(tree); key != nil || err == nil {
				t.Fatalf("bit %d of byte %d (%q): %v, %v", bit, i, text[i], key, err)
			}
			flipped++
		}
	}
	tree.Signature = text
	for i := range tree.Digest {
		for bit := range 8 {
			tree.Digest[i] ^= 1 << bit
			if _, err := ring.Verify(tree); !errors.Is(err, ErrOtherFiles) {
				t.Fatalf("bit %d of byte %d of the digest: %v", bit, i, err)
			}
			tree.Digest[i] ^= 1 << bit
			flipped++
		}
	}
	if _, err := ring.Verify(tree); err != nil || flipped != 8*(len(text)+len(tree.Digest)) {
		t.Errorf("%d bits, and at the end %v", flipped, err)
	}
}

func FuzzSignatureFile(f *testing.F) {
	private, public := pair(f)
	ring := ringOf(f, files{"release.pem": public})
	tree := pdf.tree(f)
	good := signed(f, tree, private)
	f.Add(good)
	f.Add([]byte(`{"format":"opa-gate skill signature 1"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		tree := *tree
		tree.Signature = text
		key, err := ring.Verify(&tree)
		if (key == nil) != (err != nil) {
			t.Fatalf("%v, %v", key, err)
		}
		if key == nil {
			return
		}
		if !bytes.Equal(text, good) {
			t.Errorf("verified %q", text)
		}
	})
}

func TestReadKeyring(t *testing.T) {
	private, public := pair(t)
	_, second := pair(t)
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&curve.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	p256 := string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	der, err = x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	secret := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	tests := []struct {
		name  string
		files files
		want  string // "" is good
	}{
		{"two", files{"a.pem": public, "b.pem": second, "README": "x", "keyring.yaml": "a: {trusted: true}\nb: {source: community}\n"}, ""},
		{"nothing said", files{"a.pem": public}, ""},
		{"no keys", files{"keyring.yaml": "a: {trusted: true}\n"}, "it has no file NAME.pem with a public key"},
		{"a key that is not there", files{"a.pem": public, "keyring.yaml": "b: {trusted: true}\n"}, `there is no key "b", expected a file b.pem beside it`},
		{"a source that is none", files{"a.pem": public, "keyring.yaml": "a: {source: oficial}\n"}, `source: expected official, first_party or community, got "oficial"`},
		{"unknown as source", files{"a.pem": public, "keyring.yaml": "a: {source: unknown}\n"}, "source: expected"},
		{"a member that is none", files{"a.pem": public, "keyring.yaml": "a: {trust: true}\n"}, "line 1: there is no member trust"},
		{"a member twice", files{"a.pem": public, "keyring.yaml": "a: {trusted: false, trusted: true}\n"}, "already defined"},
		{"a key twice in the file", files{"a.pem": public, "keyring.yaml": "a: {trusted: false}\na: {trusted: true}\n"}, "already defined"},
		{"trusted as a text", files{"a.pem": public, "keyring.yaml": "a: {trusted: very}\n"}, "line 1: expected true or false, got the text very"},
		{"two documents", files{"a.pem": public, "keyring.yaml": "a: {trusted: false}\n---\na: {trusted: true}\n"}, "expected one YAML document"},
		{"empty file", files{"a.pem": public, "keyring.yaml": ""}, "it is empty"},
		{"one key, two names", files{"a.pem": public, "b.pem": public}, `it is the key "a" once more`},
		{"two blocks", files{"a.pem": public + second}, "expected one block of PEM, got more"},
		{"a private key", files{"a.pem": secret}, `expected a block "PUBLIC KEY", got "PRIVATE KEY"; openssl pkey -pubout`},
		{"another kind", files{"a.pem": p256}, "expected an Ed25519 key, got another kind"},
		{"no PEM", files{"a.pem": "AAAA"}, "expected PEM"},
		{"PEM of no key", files{"a.pem": string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: []byte("x")}))}, "it is no public key"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := ReadKeyring(tt.files.write(t))
			if tt.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if !errors.Is(err, ErrKeyring) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, %v, want %q", r, err, tt.want)
			}
			if strings.Contains(err.Error(), strings.Split(secret, "\n")[1]) {
				t.Error("the error has a private key in it")
			}
		})
	}
	r := ringOf(t, tests[0].files)
	if len(r.Keys) != 2 || !r.Keys[0].Trusted || r.Keys[0].Source != skill.UnknownSource || r.Keys[1].Trusted || r.Keys[1].Source != skill.Community {
		t.Errorf("got %+v %+v", r.Keys[0], r.Keys[1])
	}
	// One file is a keyring whose key is known, and no more: keyring.yaml beside
	// it is not read.
	dir := files{"a.pem": public, "keyring.yaml": "a: {trusted: true, source: official}\n"}.write(t)
	r, err = ReadKeyring(filepath.Join(dir, "a.pem"))
	if err != nil || len(r.Keys) != 1 || r.Keys[0].Name != "a" || r.Keys[0].Trusted || r.Keys[0].Source != skill.UnknownSource {
		t.Errorf("got %+v, %v", r, err)
	}
	if _, err := ReadKeyring(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestParsePrivateKey(t *testing.T) {
	_, public := pair(t)
	for name, text := range map[string]string{
		"nothing":   "",
		"a public":  public,
		"encrypted": string(pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte("secret")})),
		"broken":    string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("secret")})),
	} {
		if key, err := ParsePrivateKey([]byte(text)); key != nil || !errors.Is(err, ErrKey) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
