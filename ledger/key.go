package ledger

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// A Keyring has the keys of approvals. The zero Keyring signs nothing and trusts
// nobody.
type Keyring struct {
	signer  ed25519.PrivateKey
	trusted map[string]ed25519.PublicKey // by id
}

// KeyID names a public key: the first 16 bytes of its SHA-256, in hexadecimal.
func KeyID(key ed25519.PublicKey) string {
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:16])
}

// Trust adds a key whose approvals count.
func (k *Keyring) Trust(key ed25519.PublicKey) {
	if k.trusted == nil {
		k.trusted = map[string]ed25519.PublicKey{}
	}
	k.trusted[KeyID(key)] = key
}

// Sign has the keyring sign with a key, which it trusts from then on.
func (k *Keyring) Sign(key ed25519.PrivateKey) {
	k.signer = key
	k.Trust(key.Public().(ed25519.PublicKey))
}

// Signer is the public half of the key that signs; nil if there is none.
func (k *Keyring) Signer() ed25519.PublicKey {
	if k.signer == nil {
		return nil
	}
	return k.signer.Public().(ed25519.PublicKey)
}

// maxKeyFile bounds a file of keys, in bytes.
const maxKeyFile = 1 << 20

// LoadKey reads a private key: one block of PEM with an Ed25519 key in PKCS #8,
// as openssl genpkey writes it. The file must be its owner's alone. Errors match
// ErrKey; those of a missing file match fs.ErrNotExist, too.
func LoadKey(path string) (ed25519.PrivateKey, error) {
	text, mode, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	if mode.Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%w: %s can be read by others (mode %04o); expected 0600", ErrKey, path, mode.Perm())
	}
	block, rest := pem.Decode(text)
	if block == nil || block.Type != "PRIVATE KEY" || len(rest) > 0 {
		return nil, fmt.Errorf("%w: %s: expected one private key as PEM, in PKCS #8", ErrKey, path)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: expected an Ed25519 key in PKCS #8", ErrKey, path) // err may tell of the key
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%w: %s: expected an Ed25519 key, got another kind", ErrKey, path)
	}
	return key, nil
}

// LoadOrMakeKey reads a private key, or makes one with mode 0600 if there is no
// file. Of several processes that do so at once one makes it. Beside a key that
// it makes, the public half goes into the same name with .pub behind.
func LoadOrMakeKey(path string) (ed25519.PrivateKey, error) {
	key, err := LoadKey(path)
	if !errors.Is(err, os.ErrNotExist) {
		return key, err
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		err = create(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	}
	if errors.Is(err, os.ErrExist) { // somebody else was faster
		return LoadKey(path)
	}
	if err == nil {
		err = create(path+".pub", PublicPEM(public))
	}
	if err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("%w: make %s: %w", ErrKey, path, err)
	}
	return private, nil
}

// create makes a file that is whole as soon as it has its name.
func create(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.Write(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	return os.Link(f.Name(), path) // fails if there is one
}

// PublicPEM writes a public key as PEM.
func PublicPEM(key ed25519.PublicKey) []byte {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		panic(err) // every Ed25519 key can be written
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

// LoadPublic reads the public keys of a file: blocks of PEM. Errors match ErrKey.
func LoadPublic(path string) ([]ed25519.PublicKey, error) {
	rest, _, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	var keys []ed25519.PublicKey
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
		key, ok := parsed.(ed25519.PublicKey)
		if err != nil || !ok || block.Type != "PUBLIC KEY" {
			return nil, fmt.Errorf("%w: %s: key %d is no public Ed25519 key", ErrKey, path, len(keys)+1)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%w: %s: expected public keys as PEM, found none", ErrKey, path)
	}
	return keys, nil
}

func readFile(path string) (text []byte, mode os.FileMode, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	text, err = io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err == nil && len(text) > maxKeyFile {
		err = fmt.Errorf("%s: expected at most %d bytes", path, maxKeyFile)
	}
	return text, info.Mode(), err
}
