package bundle

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/bundle"
	"github.com/open-policy-agent/opa/v1/keys"

	"github.com/opa-gate/opa-gate/evaluator"
)

// Verified is what a signature was found to vouch for.
type Verified struct {
	Algorithm Algorithm `json:"algorithm"`
	KeyID     string    `json:"key_id"`
	Scope     string    `json:"scope"`
	Revision  string    `json:"revision"`
	Roots     []string  `json:"roots"`
	Files     []string  `json:"files"` // sorted
	Digest    string    `json:"digest"`
}

// Verify tells whether a bundle was signed with the key: by the algorithm that
// was asked for, for the scope, and for just the files that are in it. OPA would
// accept it too. Its errors match ErrNotVerified but for those of a text that is
// no bundle at all.
//
// What is signed is the files, not the archive around them, and of a JSON or YAML
// document the values, not the blanks between them.
func Verify(text []byte, key *VerificationKey) (*Verified, error) {
	if key == nil || key.text == nil {
		return nil, fmt.Errorf("%w: there is none to verify with", ErrKey)
	}
	files, err := unpack(text)
	if err != nil {
		return nil, err
	}
	t, err := tokenIn(files)
	if err != nil {
		return nil, err
	}
	if err := t.verify(key); err != nil {
		return nil, err
	}
	if err := t.covers(files); err != nil {
		return nil, err
	}
	// What OPA itself says has the last word.
	b, err := bundle.NewReader(bytes.NewReader(text)).WithLazyLoadingMode(false).WithSizeLimitBytes(MaxFile).
		WithBundleVerificationConfig(key.config(key.Scope)).Read()
	if err != nil {
		return nil, fmt.Errorf("%w: OPA does not accept it: %w", ErrNotVerified, err)
	}
	v := &Verified{Algorithm: key.Algorithm, KeyID: t.keyID(), Scope: t.claims.Scope, Revision: b.Manifest.Revision,
		Roots: slices.Sorted(slices.Values(*b.Manifest.Roots)), Digest: digestOf(text)}
	for _, f := range t.claims.Files {
		v.Files = append(v.Files, f.Name)
	}
	slices.Sort(v.Files)
	return v, nil
}

// Loads tells whether this program can use a bundle: its policies compile, their
// facts are this program's, and the rules that decide are there and answer in the
// right shape. Of a bundle whose
// entrypoints are compiled to WebAssembly it tells whether OPA takes it and both
// entrypoints are in it.
func Loads(ctx context.Context, text []byte) error {
	e, err := compiles(ctx, text)
	if err != nil || e == nil {
		return err
	}
	if err := e.Probe(ctx); err != nil {
		return fmt.Errorf("%w: %w", evaluator.ErrPolicy, err)
	}
	return nil
}

// compiles is Loads without asking the rules anything. The evaluator is nil for
// WebAssembly.
func compiles(ctx context.Context, text []byte) (*evaluator.Evaluator, error) {
	if _, err := unpack(text); err != nil {
		return nil, err
	}
	b, err := open(text)
	if err != nil {
		return nil, err
	}
	if len(b.WasmModules) == 0 {
		return evaluator.New(ctx, &evaluator.Options{Packed: text})
	}
	var compiled []string
	for _, r := range b.Manifest.WasmResolvers {
		compiled = append(compiled, r.Entrypoint)
	}
	for _, name := range Entrypoints() {
		if !slices.Contains(compiled, name) {
			return nil, fmt.Errorf("%w: there is no entrypoint %s in its WebAssembly", evaluator.ErrPolicy, name)
		}
	}
	if !ownFacts(b) {
		return nil, fmt.Errorf("%w: data.gate.facts differs from this program's taxonomy", evaluator.ErrPolicy)
	}
	return nil, nil
}

// config is a key as OPA takes it.
func (k *VerificationKey) config(scope string) *bundle.VerificationConfig {
	return bundle.NewVerificationConfig(map[string]*keys.Config{
		DefaultKeyID: {Key: k.text(), Algorithm: string(k.Algorithm)}}, DefaultKeyID, scope, nil)
}

// A token is the signature of a bundle, taken apart but not verified.
type token struct {
	text   string
	header struct {
		Algorithm string          `json:"alg"`
		KeyID     string          `json:"kid"`
		Critical  json.RawMessage `json:"crit"`
	}
	claims bundle.DecodedSignature
}

// tokenIn returns the one token in a bundle.
func tokenIn(files []file) (*token, error) {
	var signatures []byte
	for _, f := range files {
		switch {
		case !bundle.IsSignaturesFile(f.name):
		case f.name != signaturesFile || signatures != nil:
			return nil, fmt.Errorf("%w: it has a signature at %q; the one place for it is %s", ErrSignature, f.name, signaturesFile)
		default:
			signatures = f.text
		}
	}
	if signatures == nil {
		return nil, fmt.Errorf("%w: there is no %s in it", ErrUnsigned, signaturesFile)
	}
	var all bundle.SignaturesConfig
	if err := json.Unmarshal(signatures, &all); err != nil {
		return nil, fmt.Errorf("%w: %s is not the JSON that was expected", ErrSignature, signaturesFile)
	}
	switch {
	case all.Plugin != "" && all.Plugin != "_default":
		return nil, fmt.Errorf("%w: it was made by the plugin %q, which this program does not have", ErrSignature, all.Plugin)
	case len(all.Signatures) == 0:
		return nil, fmt.Errorf("%w: %s has none in it", ErrUnsigned, signaturesFile)
	case len(all.Signatures) > 1:
		return nil, fmt.Errorf("%w: there are %d, expected one", ErrSignature, len(all.Signatures))
	}
	t := &token{text: all.Signatures[0]}
	parts := strings.Split(t.text, ".")
	if len(parts) != 3 {
		return nil, fmt.Errorf("%w: it has %d parts, expected the three of a JWT", ErrSignature, len(parts))
	}
	for i, into := range []any{&t.header, &t.claims} {
		text, err := base64.RawURLEncoding.DecodeString(parts[i])
		if err == nil {
			err = json.Unmarshal(text, into)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: the %s of the JWT cannot be read", ErrSignature, []string{"header", "list of files"}[i])
		}
	}
	return t, nil
}

// keyID returns the name that the token gives its key.
func (t *token) keyID() string {
	if t.header.KeyID != "" {
		return t.header.KeyID
	}
	return t.claims.KeyID
}

// verify tells whether the key has signed the token, and whether the token is
// what was asked for.
func (t *token) verify(key *VerificationKey) error {
	if t.header.Algorithm != string(key.Algorithm) {
		return &MismatchError{ErrAlgorithm, string(key.Algorithm), t.header.Algorithm}
	}
	if t.header.Critical != nil {
		return fmt.Errorf("%w: its header demands extensions that neither OPA nor this program has", ErrSignature)
	}
	if id := t.keyID(); key.ID != "" && id != key.ID {
		return &MismatchError{ErrKeyID, key.ID, id}
	}
	// The scope is looked at below: here it is the token's own, so that what OPA
	// says is about the signature alone. What it says is left out: the one thing
	// that it can be is that another key, or nobody, has signed this text.
	if _, err := bundle.VerifyBundleSignature(bundle.SignaturesConfig{Signatures: []string{t.text}}, key.config(t.claims.Scope)); err != nil {
		return ErrWrongKey
	}
	if t.claims.Scope != key.Scope {
		return &MismatchError{ErrScope, key.Scope, t.claims.Scope}
	}
	return nil
}

// covers tells whether the files are those that the token lists.
func (t *token) covers(files []file) error {
	listed := map[string]bundle.FileInfo{}
	for _, f := range t.claims.Files {
		listed[f.Name] = f
	}
	for _, f := range files {
		if f.name == signaturesFile {
			continue
		}
		info, there := listed[f.name]
		if !there {
			return &FileError{ErrFileAdded, f.name}
		}
		delete(listed, f.name)
		switch bundle.HashingAlgorithm(info.Algorithm) {
		case bundle.SHA256, bundle.SHA384, bundle.SHA512, bundle.SHA512256:
		default:
			return fmt.Errorf("%w: %s is hashed with %q, expected SHA-256 or better", ErrSignature, f.name, info.Algorithm)
		}
		sum, err := hashOf(f, bundle.HashingAlgorithm(info.Algorithm))
		if err != nil || hex.EncodeToString(sum) != strings.ToLower(info.Hash) {
			return &FileError{ErrFileChanged, f.name}
		}
	}
	if len(listed) > 0 {
		return &FileError{ErrFileMissing, slices.Min(slices.Collect(maps.Keys(listed)))}
	}
	return nil
}
