package provenance

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/opa-gate/opa-gate/internal/plain"
	"github.com/opa-gate/opa-gate/skill"
)

// KeyringFile is the file in a keyring's folder that says what its keys are
// good for.
const KeyringFile = "keyring.yaml"

const (
	keySuffix = ".pem"
	maxKeys   = 1000
	maxKey    = 16 << 10
	maxConfig = 1 << 20
)

// ErrKeyring is wrapped by the errors of [ReadKeyring] about what is in one.
var ErrKeyring = errors.New("the keyring cannot be used")

// A Key is one public key of an operator's keyring.
type Key struct {
	Name    string // the file's, without .pem
	ID      KeyID
	Public  ed25519.PublicKey
	Trusted bool         // the operator trusts whoever signs with it
	Source  skill.Source // whose skills it signs; the zero value if the operator does not say
}

// A Keyring is the public keys that an operator knows. The zero Keyring knows
// none.
type Keyring struct {
	Keys []*Key // sorted by name
	byID map[KeyID]*Key
}

// keyConfig is what KeyringFile says of a key.
type keyConfig struct {
	Trusted bool   `yaml:"trusted"`
	Source  string `yaml:"source"`
}

// ReadKeyring reads a keyring: a folder with a public key in each NAME.pem and,
// if a key is to be more than known, KeyringFile:
//
//	release:
//	  trusted: true
//	  source: official
//
// A single PEM file is a keyring too, whose key is known and no more. Errors
// about what is there wrap ErrKeyring, the others are those of the file system.
func ReadKeyring(name string) (*Keyring, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	r := &Keyring{byID: make(map[KeyID]*Key)}
	if !info.IsDir() {
		return r, r.read(name)
	}
	entries, err := os.ReadDir(name)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), keySuffix) {
			if err := r.read(filepath.Join(name, e.Name())); err != nil {
				return nil, err
			}
		}
	}
	if len(r.Keys) == 0 {
		return nil, fmt.Errorf("%s: %w: it has no file NAME%s with a public key", name, ErrKeyring, keySuffix)
	}
	return r, r.configure(filepath.Join(name, KeyringFile))
}

// read adds the key in a file.
func (r *Keyring) read(file string) error {
	text, err := readFile(file, maxKey)
	if err != nil {
		return err
	}
	public, err := ParsePublicKey(text)
	if err != nil {
		return fmt.Errorf("%s: %w: %w", file, ErrKeyring, err)
	}
	key := &Key{Name: strings.TrimSuffix(filepath.Base(file), keySuffix), ID: IDOf(public), Public: public}
	if other := r.byID[key.ID]; other != nil {
		return fmt.Errorf("%s: %w: it is the key %q once more; a key has one name", file, ErrKeyring, other.Name)
	}
	if len(r.Keys) == maxKeys {
		return fmt.Errorf("%s: %w: a keyring has at most %d keys", file, ErrKeyring, maxKeys)
	}
	r.Keys, r.byID[key.ID] = append(r.Keys, key), key
	return nil
}

// configure reads KeyringFile, if there is one.
func (r *Keyring) configure(file string) error {
	text, err := readFile(file, maxConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var config map[string]keyConfig
	if err := decodeYAML(text, &config); err != nil {
		return fmt.Errorf("%s: %w: %w", file, ErrKeyring, err)
	}
	for name, c := range config {
		i := slices.IndexFunc(r.Keys, func(k *Key) bool { return k.Name == name })
		if i < 0 {
			return fmt.Errorf("%s: %w: there is no key %q, expected a file %s beside it", file, ErrKeyring, cut(name), cut(name)+keySuffix)
		}
		key := r.Keys[i]
		key.Trusted = c.Trusted
		if c.Source == "" {
			continue
		}
		source, ok := skill.ParseSource(c.Source)
		if !ok || source == skill.UnknownSource {
			return fmt.Errorf("%s: %w: %s: source: expected official, first_party or community, got %q", file, ErrKeyring, name, cut(c.Source))
		}
		key.Source = source
	}
	return nil
}

// readFile reads a file of at most limit bytes.
func readFile(name string, limit int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(text)) > limit {
		return nil, fmt.Errorf("%s has more than %d bytes", name, limit)
	}
	return text, nil
}

// decodeYAML reads one YAML document. A member that v does not have is an error.
func decodeYAML(text []byte, v any) error {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(v); err != nil {
		if errors.Is(err, io.EOF) {
			return errors.New("it is empty")
		}
		return plain.YAML(err)
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return errors.New("expected one YAML document, got more")
	}
	return nil
}
