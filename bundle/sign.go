package bundle

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/open-policy-agent/opa/v1/bundle"
	"github.com/open-policy-agent/opa/v1/util"
)

// signaturesFile is where OPA looks for the signature.
const signaturesFile = ".signatures.json"

// hashing is how the files of a bundle are hashed.
const hashing = bundle.SHA256

// Sign returns a bundle with a signature in place of the one that it may have.
// Every other file stays as it is.
//
// The token is put together here, and not by OPA: OPA takes a key as a text,
// looks for a file of that name first, and quotes the text if it is too long for
// one.
func Sign(text []byte, key *SigningKey) ([]byte, error) {
	if key == nil {
		return nil, fmt.Errorf("%w: there is none to sign with", ErrKey)
	}
	files, err := unpack(text)
	if err != nil {
		return nil, err
	}
	if _, err := open(text); err != nil { // what OPA cannot read is not worth a signature
		return nil, err
	}
	files = slices.DeleteFunc(files, func(f file) bool { return bundle.IsSignaturesFile(f.name) })
	infos := make([]bundle.FileInfo, 0, len(files))
	for _, f := range files {
		sum, err := hashOf(f, hashing)
		if err != nil {
			return nil, err
		}
		infos = append(infos, bundle.NewFile(f.name, hex.EncodeToString(sum), string(hashing)))
	}
	token, err := key.token(infos)
	if err != nil {
		return nil, err
	}
	signatures, err := json.MarshalIndent(bundle.SignaturesConfig{Signatures: []string{token}}, "", " ")
	if err != nil {
		return nil, err
	}
	return pack(append(files, file{signaturesFile, signatures}))
}

// token returns the signed list of a bundle's files.
func (k *SigningKey) token(files []bundle.FileInfo) (string, error) {
	id := k.ID
	if id == "" {
		id = DefaultKeyID
	}
	claims := map[string]any{"files": files, "keyid": id} // older OPAs look for the id here
	if k.Scope != "" {
		claims["scope"] = k.Scope
	}
	var token []byte
	for i, part := range []any{map[string]any{"alg": k.Algorithm, "kid": id, "typ": "JWT"}, claims} {
		text, err := json.Marshal(part)
		if err != nil {
			return "", err
		}
		if i > 0 {
			token = append(token, '.')
		}
		token = base64.RawURLEncoding.AppendEncode(token, text)
	}
	signature, err := k.sign(token)
	if err != nil {
		return "", err
	}
	return string(base64.RawURLEncoding.AppendEncode(append(token, '.'), signature)), nil
}

// hashOf hashes a file as OPA does: a document by its values, and any other file
// by its bytes.
func hashOf(f file, algorithm bundle.HashingAlgorithm) ([]byte, error) {
	hasher, err := bundle.NewSignatureHasher(algorithm)
	if err != nil {
		return nil, err
	}
	var value any = f.text
	if bundle.IsStructuredDoc(f.name) {
		if err := util.Unmarshal(f.text, &value); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrDamaged, f.name, err)
		}
	}
	return hasher.HashFile(value)
}

// open reads a bundle as OPA does, without a look at its signature. Its bounds
// were looked after by unpack.
func open(text []byte) (*bundle.Bundle, error) {
	b, err := bundle.NewReader(bytes.NewReader(text)).WithSkipBundleVerification(true).WithLazyLoadingMode(false).
		WithProcessAnnotations(true).WithSizeLimitBytes(MaxFile).Read()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if b.Type() != bundle.SnapshotBundleType {
		return nil, fmt.Errorf("%w: it is a delta, which changes another bundle and has no policies or signature of its own", ErrNotBundle)
	}
	return &b, nil
}
