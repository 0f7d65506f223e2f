package approvals

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/opa-gate/opa-gate/wire"
)

// A Role says what a token is good for. The zero Role is good for nothing.
type Role uint8

// The roles. Each may do what those before it may.
const (
	Viewer   Role = iota + 1 // reads what waits, what was decided, and the audit
	Approver                 // decides
)

var roleNames = [...]string{Viewer: "viewer", Approver: "approver"}

// Roles lists the names of all roles.
func Roles() []string { return roleNames[Viewer:] }

// ParseRole returns the role with a name, and whether there is one.
func ParseRole(name string) (Role, bool) {
	for r := Viewer; r <= Approver; r++ {
		if roleNames[r] == name {
			return r, true
		}
	}
	return 0, false
}

// String returns the name of r; "" if it has none.
func (r Role) String() string {
	if r < Viewer || r > Approver {
		return ""
	}
	return roleNames[r]
}

// A Holder is who has a token.
type Holder struct {
	Name string
	Role Role
}

// Reviewer is how a ledger calls the holder.
func (h Holder) Reviewer() string { return "token:" + h.Name }

// ErrTokens is matched by the errors of a file of tokens that cannot be used.
var ErrTokens = errors.New("the approval tokens cannot be used")

// Tokens know who holds which token. They have the tokens' hashes alone. Make
// them with [OpenTokens] or [OneToken]; they are safe for use by several
// goroutines.
type Tokens struct {
	path string // "" for those that are no file

	mu     sync.Mutex
	known  []known
	err    error // why the file cannot be used now
	looked time.Time
	stamp  stamp
}

type known struct {
	holder Holder
	sum    [sha256.Size]byte
}

// stamp tells whether a file is the one that was read.
type stamp struct {
	size int64
	at   time.Time
	mode os.FileMode
}

// Bounds of a file of tokens.
const (
	maxTokens    = 10_000
	maxTokenLine = 1024 // bytes
	maxTokenFile = maxTokens * maxTokenLine
	lookEvery    = time.Second // how often a file is looked at
)

// A token is 256 random bits behind a mark by which scanners for secrets, and
// people, know one.
const (
	tokenMark   = "ogt_"
	tokenLength = len(tokenMark) + 43
)

// NewToken makes a token.
func NewToken() string {
	var random [32]byte
	_, _ = rand.Read(random[:]) // never fails, or ends the process
	return tokenMark + base64.RawURLEncoding.EncodeToString(random[:])
}

// OneToken makes a token for a holder, and the Tokens that know it alone.
func OneToken(h Holder) (string, *Tokens) {
	token := NewToken()
	return token, &Tokens{known: []known{{h, sha256.Sum256([]byte(token))}}}
}

// OpenTokens reads a file that has one token a line, as [AddToken] writes it: an
// object of JSON with name, role and the token's SHA-256. Empty lines are for
// people. The file must be its owner's alone. It is read again when it changes;
// while it cannot be used, no token counts. Errors match ErrTokens.
func OpenTokens(path string) (*Tokens, error) {
	t := &Tokens{path: path}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.look(time.Now())
	if t.err != nil {
		return nil, t.err
	}
	if len(t.known) == 0 {
		return nil, fmt.Errorf("%w: %s has none; opa-gate approvals token NAME --role approver --file %s adds one", ErrTokens, path, path)
	}
	return t, nil
}

// look reads the file if it has changed.
func (t *Tokens) look(now time.Time) {
	if t.path == "" || !t.looked.IsZero() && now.Sub(t.looked) < lookEvery && now.After(t.looked) {
		return
	}
	t.looked = now
	info, err := os.Stat(t.path)
	if err == nil {
		s := stamp{info.Size(), info.ModTime(), info.Mode()}
		if s == t.stamp && t.err == nil {
			return
		}
		t.known, err = readTokens(t.path)
		t.stamp = s
	}
	if err != nil {
		t.known = nil
		if !errors.Is(err, ErrTokens) {
			err = fmt.Errorf("%w: %w", ErrTokens, err)
		}
	}
	t.err = err
}

// Holder returns who holds a token, and whether anybody does. The error matches
// ErrTokens: who holds what is not known now.
func (t *Tokens) Holder(token string) (Holder, bool, error) {
	t.mu.Lock()
	t.look(time.Now())
	all, err := t.known, t.err
	t.mu.Unlock()
	if err != nil {
		return Holder{}, false, err
	}
	if len(token) != tokenLength || !strings.HasPrefix(token, tokenMark) {
		return Holder{}, false, nil
	}
	sum := sha256.Sum256([]byte(token))
	var found Holder
	var ok bool
	for i := range all { // all of them, so that the time tells nothing
		if subtle.ConstantTimeCompare(sum[:], all[i].sum[:]) == 1 {
			found, ok = all[i].holder, true
		}
	}
	return found, ok, nil
}

// A tokenLine is one line of a file.
type tokenLine struct {
	Name   string `json:"name"`
	Role   string `json:"role"`
	SHA256 string `json:"sha256"`
}

var tokenSchema = must(wire.CompileSchema("token", []byte(`{"type": "object", "additionalProperties": false,
  "required": ["name", "role", "sha256"],
  "properties": {
    "name": {"type": "string", "minLength": 1, "maxLength": 64},
    "role": {"type": "string", "enum": ["viewer", "approver"]},
    "sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$"}}}`)))

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func readTokens(path string) ([]known, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%w: %s is not a file", ErrTokens, path)
	case info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("%w: %s can be read or written by others (mode %04o); expected 0600", ErrTokens, path, info.Mode().Perm())
	case info.Size() > maxTokenFile:
		return nil, fmt.Errorf("%w: %s has %d bytes, and at most %d are read", ErrTokens, path, info.Size(), maxTokenFile)
	}
	var all []known
	lines := bufio.NewScanner(io.LimitReader(f, maxTokenFile+1))
	lines.Buffer(nil, maxTokenLine)
	n := 0
	for lines.Scan() {
		n++
		text := bytes.TrimSpace(lines.Bytes())
		if len(text) == 0 {
			continue
		}
		k, err := readToken(text, all)
		if err != nil {
			return nil, fmt.Errorf("%w: %s: line %d: %w", ErrTokens, path, n, err)
		}
		if all = append(all, k); len(all) > maxTokens {
			return nil, fmt.Errorf("%w: %s has more than %d tokens", ErrTokens, path, maxTokens)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%w: %s: line %d: %w", ErrTokens, path, n+1, err)
	}
	return all, nil
}

// readToken reads a line that follows those before it.
func readToken(text []byte, before []known) (known, error) {
	if _, err := tokenSchema.Decode(text); err != nil {
		var e *wire.Error
		if errors.As(err, &e) && e.Pointer != "/sha256" { // it may be a token that somebody pasted
			return known{}, fmt.Errorf("%s: %s", e.Pointer, e.Message())
		}
		return known{}, errors.New("/sha256: expected the SHA-256 of a token, as 64 hexadecimal digits in lower case")
	}
	var line tokenLine
	if err := json.Unmarshal(text, &line); err != nil {
		return known{}, err
	}
	k := known{holder: Holder{Name: line.Name}}
	k.holder.Role, _ = ParseRole(line.Role)
	if err := checkName(line.Name); err != nil {
		return known{}, err
	}
	if _, err := hex.Decode(k.sum[:], []byte(line.SHA256)); err != nil {
		return known{}, err
	}
	for _, b := range before {
		switch {
		case b.sum == k.sum:
			return known{}, fmt.Errorf("the token of %s stands here twice", b.holder.Name)
		case b.holder.Name == k.holder.Name && b.holder.Role != k.holder.Role:
			return known{}, fmt.Errorf("%s is %s and %s; a name has one role", k.holder.Name, b.holder.Role, k.holder.Role)
		}
	}
	return k, nil
}

// checkName reports what is wrong with the name of a holder.
func checkName(name string) error {
	const others = "._@+-"
	odd := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune(others, r)
	}
	if name == "" || len(name) > 64 || strings.ContainsFunc(name, odd) {
		return fmt.Errorf("expected a name of 1 to 64 letters, digits or %s, got %q", others, name)
	}
	return nil
}

// AddToken makes a token for a holder, and adds its hash to the file, which is
// made with mode 0600 if there is none. A holder may have several. Errors match
// ErrTokens.
func AddToken(path string, h Holder) (string, error) {
	if err := checkName(h.Name); err != nil {
		return "", fmt.Errorf("%w: %w", ErrTokens, err)
	}
	if h.Role.String() == "" {
		return "", fmt.Errorf("%w: there is no role %d", ErrTokens, h.Role)
	}
	before, err := readTokens(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	if i := slices.IndexFunc(before, func(k known) bool { return k.holder.Name == h.Name && k.holder.Role != h.Role }); i >= 0 {
		return "", fmt.Errorf("%w: %s is %s in %s; a name has one role", ErrTokens, h.Name, before[i].holder.Role, path)
	}
	token := NewToken()
	sum := sha256.Sum256([]byte(token))
	text, err := json.Marshal(tokenLine{h.Name, h.Role.String(), hex.EncodeToString(sum[:])})
	if err == nil {
		err = appendLine(path, text)
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrTokens, err)
	}
	return token, nil
}

// appendLine adds a line in one write, so that two who do so at once both succeed.
func appendLine(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if info, err := f.Stat(); err == nil && info.Size() > 0 {
		var last [1]byte
		if _, err := f.ReadAt(last[:], info.Size()-1); err == nil && last[0] != '\n' {
			text = append([]byte{'\n'}, text...)
		}
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Sync(), f.Close())
}
