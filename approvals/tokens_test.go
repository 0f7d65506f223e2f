package approvals

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func sumOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

func TestTokenFiles(t *testing.T) {
	one, two := NewToken(), NewToken()
	line := func(name, role, sum string) string {
		return fmt.Sprintf(`{"name":%q,"role":%q,"sha256":%q}`, name, role, sum) + "\n"
	}
	good := line("ann", "approver", sumOf(one))
	for _, tt := range []struct {
		name, text string
		mode       os.FileMode
		says       string // of the error; "" for none
	}{
		{"one", good, 0o600, ""},
		{"blanks and no end of line", "\n  " + good + "\n" + strings.TrimSpace(line("v", "viewer", sumOf(two))), 0o600, ""},
		{"two of one person", good + line("ann", "approver", sumOf(two)), 0o400, ""},
		{"none", "\n", 0o600, "has none"},
		{"for a group", good, 0o640, "mode 0640"},
		{"for all", good, 0o604, "mode 0604"},
		{"one person in two roles", good + line("ann", "viewer", sumOf(two)), 0o600, "one role"},
		{"one token twice", good + line("ben", "approver", sumOf(one)), 0o600, "line 2: the token of ann"},
		{"the token itself", line("ann", "approver", one), 0o600, "SHA-256"},
		{"a role that is none", line("ann", "admin", sumOf(one)), 0o600, "/role"},
		{"no role", `{"name":"ann","sha256":"` + sumOf(one) + `"}`, 0o600, "role"},
		{"another member", `{"name":"ann","role":"viewer","sha256":"` + sumOf(one) + `","expires":1}`, 0o600, "/expires"},
		{"a role twice", `{"name":"ann","role":"viewer","role":"approver","sha256":"` + sumOf(one) + `"}`, 0o600, "line 1"},
		{"a name with blanks", line("ann b", "viewer", sumOf(one)), 0o600, "letters"},
		{"an empty name", line("", "viewer", sumOf(one)), 0o600, "/name"},
		{"torn", good[:40], 0o600, "line 1"},
		{"a long line", strings.Repeat(" ", 2*maxTokenLine), 0o600, "too long"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "tokens")
			if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, tt.mode); err != nil {
				t.Fatal(err)
			}
			tokens, err := OpenTokens(path)
			if tt.says == "" {
				if err != nil {
					t.Fatal(err)
				}
				if h, ok, err := tokens.Holder(one); err != nil || !ok || h != (Holder{"ann", Approver}) {
					t.Errorf("%v %v %v", h, ok, err)
				}
				for _, other := range []string{"", NewToken(), one[:len(one)-1], one + "x", strings.ToUpper(one), sumOf(one)} {
					if h, ok, err := tokens.Holder(other); ok || err != nil {
						t.Errorf("%q is %v, %v", other, h, err)
					}
				}
				return
			}
			if !errors.Is(err, ErrTokens) || !strings.Contains(err.Error(), tt.says) {
				t.Fatalf("error %v, want one that says %q", err, tt.says)
			}
			if strings.Contains(err.Error(), one) || strings.Contains(err.Error(), sumOf(one)) {
				t.Errorf("the error tells a secret: %v", err)
			}
		})
	}
	if _, err := OpenTokens(filepath.Join(t.TempDir(), "none")); !errors.Is(err, ErrTokens) {
		t.Error(err)
	}
	if _, err := OpenTokens(t.TempDir()); !errors.Is(err, ErrTokens) {
		t.Error(err)
	}
}

// A token that is added counts, and one whose line is gone does not; while the
// file is broken none counts.
func TestTokensAreReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	ann, err := AddToken(path, Holder{"ann", Approver})
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := OpenTokens(path)
	if err != nil {
		t.Fatal(err)
	}
	again := func() { // without waiting for the clock
		tokens.mu.Lock()
		tokens.looked = time.Time{}.Add(1)
		tokens.mu.Unlock()
	}
	ben, err := AddToken(path, Holder{"ben", Viewer})
	if err != nil {
		t.Fatal(err)
	}
	again()
	if h, ok, err := tokens.Holder(ben); !ok || err != nil || h.Role != Viewer {
		t.Error(h, ok, err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	first, rest, _ := strings.Cut(string(text), "\n")
	for _, step := range []struct {
		text     string
		ann, ben bool
		broken   bool
	}{{rest, false, true, false}, {"{", false, false, true}, {"", false, false, false}, {first, true, false, false}} {
		if err := os.WriteFile(path, []byte(step.text), 0o600); err != nil {
			t.Fatal(err)
		}
		again()
		_, isAnn, err := tokens.Holder(ann)
		again()
		_, isBen, _ := tokens.Holder(ben)
		if isAnn != step.ann || isBen != step.ben || errors.Is(err, ErrTokens) != step.broken {
			t.Errorf("%q: ann %v, ben %v, %v", step.text, isAnn, isBen, err)
		}
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	again()
	if _, ok, err := tokens.Holder(ann); ok || !errors.Is(err, ErrTokens) {
		t.Error("a file that all can read counts", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	again()
	if _, ok, err := tokens.Holder(ann); ok || !errors.Is(err, ErrTokens) {
		t.Error("a file that is gone counts", err)
	}
}

func TestAddToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	var wait sync.WaitGroup
	made := make([]string, 16)
	for i := range made {
		wait.Go(func() {
			var err error
			if made[i], err = AddToken(path, Holder{fmt.Sprint("p", i), Approver}); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	tokens, err := OpenTokens(path)
	if err != nil {
		t.Fatal(err)
	}
	for i, token := range made {
		if h, ok, err := tokens.Holder(token); !ok || err != nil || h.Name != fmt.Sprint("p", i) {
			t.Error(h, ok, err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info.Mode(), err)
	}
	text, err := os.ReadFile(path)
	if err != nil || strings.Contains(string(text), made[0]) {
		t.Error("the file has the token itself", err)
	}
	for _, h := range []Holder{{"", Viewer}, {"a b", Viewer}, {"a\n", Viewer}, {strings.Repeat("a", 65), Viewer}, {"a", 0}, {"a", 9}, {"p1", Viewer}} {
		if token, err := AddToken(path, h); !errors.Is(err, ErrTokens) || token != "" {
			t.Errorf("%v: %q, %v", h, token, err)
		}
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(text) {
		t.Error("what was refused was written", err)
	}
}

func TestRoleNames(t *testing.T) {
	for r := range Role(255) {
		back, ok := ParseRole(r.String())
		if known := r == Viewer || r == Approver; ok != known || known && back != r || (r.String() != "") != known {
			t.Errorf("%d: %q, %v, %v", r, r, back, ok)
		}
	}
}
