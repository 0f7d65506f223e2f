package settings_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opa-gate/opa-gate/agent/hook/settings"
)

var hook = settings.Hook{Command: "/opt/opa-gate-hook || exit 2", Timeout: 30}

var events = []string{"PreToolUse", "PostToolUse", "SessionStart"}

// Files as people have them: laid out in every way, with hooks of others.
var files = map[string]string{
	"empty":            "",
	"blank":            "\n",
	"an empty object":  "{}",
	"spread":           "{\n}\n",
	"other members":    "{\n  \"model\": \"opus\",\n  \"n\": 1.0e2\n}\n",
	"tabs":             "{\n\t\"model\": \"opus\"\n}",
	"CRLF":             "{\r\n    \"a\": [1,\r\n 2]\r\n}\r\n",
	"one line":         `{"a":1,"hooks":{}}`,
	"empty hooks":      "{\n  \"hooks\": {\n  }\n}\n",
	"empty list":       `{"hooks": {"PreToolUse": [ ]}}`,
	"hooks of others":  "{\n  \"hooks\": {\n    \"Stop\": [],\n    \"PreToolUse\": [\n      {\"matcher\": \"Bash\", \"hooks\": [{\"type\": \"command\", \"command\": \"x\"}]}\n    ]\n  },\n  \"z\": \"\\u00e9<&\"\n}\n",
	"a member between": `{"hooks":{"PostToolUse":[{"hooks":[]}]},"b":2}`,
	"strange member":   `{"hooks":{"PreToolUse":[{"hooks":[{"type":"prompt"}]}]}}`,
}

func TestInstallAndUndo(t *testing.T) {
	for name, text := range files {
		t.Run(name, func(t *testing.T) {
			after, put, err := settings.Install([]byte(text), events, hook)
			if err != nil {
				t.Fatal(err)
			}
			found, err := settings.Find(after)
			if err != nil || len(found) != len(events) {
				t.Fatalf("%d hooks found in %s (%v)", len(found), after, err)
			}
			for _, f := range found {
				if f.Command != hook.Command || f.Timeout != 30 || f.Matcher != "" || f.OnFailure != "" {
					t.Errorf("%+v", f)
				}
			}
			back, ok := settings.Undo(after, put)
			if !ok || string(back) != text {
				t.Errorf("undone: %q, want %q", back, text)
			}
			// Without a record it is the same JSON but for what the hook was put into.
			if strings.TrimSpace(text) == "" {
				return
			}
			removed, err := settings.Remove(after)
			if err != nil {
				t.Fatal(err)
			}
			if found, err := settings.Find(removed); err != nil || len(found) > 0 {
				t.Errorf("%d hooks left in %s (%v)", len(found), removed, err)
			}
			if want, got := withoutEmpty(t, []byte(text)), withoutEmpty(t, removed); !bytes.Equal(want, got) {
				t.Errorf("removed: %s, want %s", got, want)
			}
		})
	}
}

// withoutEmpty is the JSON without empty lists and objects under hooks.
func withoutEmpty(t *testing.T, text []byte) []byte {
	t.Helper()
	var v map[string]json.RawMessage
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	var hooks map[string]any
	if json.Unmarshal(v["hooks"], &hooks) == nil {
		for name, list := range hooks {
			if l, ok := list.([]any); ok && len(l) == 0 {
				delete(hooks, name)
			}
		}
		delete(v, "hooks")
		if len(hooks) > 0 {
			v["hooks"], _ = json.Marshal(hooks)
		}
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// What others write after the installation stays.
func TestUndoAfterEdits(t *testing.T) {
	text := []byte(files["hooks of others"])
	after, put, err := settings.Install(text, events, hook)
	if err != nil {
		t.Fatal(err)
	}
	edited := bytes.Replace(after, []byte(`"z":`), []byte(`"new": true, "z":`), 1)
	back, ok := settings.Undo(edited, put)
	if want := bytes.Replace(text, []byte(`"z":`), []byte(`"new": true, "z":`), 1); !ok || !bytes.Equal(back, want) {
		t.Errorf("%s, want %s", back, want)
	}
	if _, ok := settings.Undo(bytes.Replace(after, []byte(`"timeout": 30`), []byte(`"timeout": 31`), 1), put); ok {
		t.Error("what was put in has been changed, and was undone")
	}
}

func TestInstallRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"a comment":      "{\n// hello\n}",
		"a list":         "[]",
		"a member twice": `{"a":1,"a":2}`,
		"hooks is text":  `{"hooks":"no"}`,
		"a text event":   `{"hooks":{"PreToolUse":{}}}`,
		"cut":            `{"hooks":`,
		"two":            `{}{}`,
	} {
		if after, _, err := settings.Install([]byte(text), events, hook); !errors.Is(err, settings.ErrSettings) {
			t.Errorf("%s: %s, %v", name, after, err)
		}
	}
}

func TestWords(t *testing.T) {
	words := []string{"/opt/my programs/opa-gate-hook", "--system=it's", "--policies=/a b", "-", "ü", `back\slash`}
	var quoted []string
	for _, w := range words {
		quoted = append(quoted, settings.Quote(w))
	}
	command := strings.Join(quoted, " ") + " || exit 2"
	if got := settings.Words(command); !slices.Equal(got, words) {
		t.Errorf("%q", got)
	}
	if _, args, ok := settings.Ours(command); !ok || !slices.Equal(args, words[1:]) {
		t.Errorf("%v %q", ok, args)
	}
	for command, want := range map[string]bool{
		"/x/opa-gate hook || exit 2": true, "opa-gate-hook": true, "opa-gate serve": false, "opa-gate": false,
		"echo opa-gate-hook": false, "": false, "opa-gate-hooked": false,
		"opa-gate hook --mode=shadow": true, "opa-gate hook && x": true,
		`"/a b/opa-gate-hook" --system="it's" || exit 2`: true, `"/a\"b/opa-gate" "hook"`: true,
		"opa-gate hook status || true": false, "opa-gate hook install --yes": false, "opa-gate 'hook' 'status'": false,
		`"$HOME/opa-gate-hook"`: false, "`x`/opa-gate-hook": false, `"opa-gate-hook x"`: false,
	} {
		if _, _, ok := settings.Ours(command); ok != want {
			t.Errorf("%q: %v, want %v", command, ok, want)
		}
	}
}

func TestFile(t *testing.T) {
	dir := t.TempDir()
	real, link := filepath.Join(dir, "real.json"), filepath.Join(dir, "settings.json")
	if err := os.WriteFile(real, []byte("{}"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	f, err := settings.Read(link)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Write([]byte(`{"a":1}`), nil); err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(link)
	if err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is gone: %v, %v", info.Mode(), err)
	}
	if info, err := os.Stat(real); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if err := f.Write([]byte(`{"b":1}`), nil); !errors.Is(err, settings.ErrChanged) {
		t.Errorf("written over what somebody else wrote: %v", err)
	}
	none, err := settings.Read(filepath.Join(dir, "sub", "new.json"))
	if err != nil || none.There {
		t.Fatalf("%+v, %v", none, err)
	}
	if err := none.Write([]byte("{}"), nil); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "nowhere"), filepath.Join(dir, "dangles")); err != nil {
		t.Fatal(err)
	}
	if _, err := settings.Read(filepath.Join(dir, "dangles")); !errors.Is(err, settings.ErrSettings) {
		t.Errorf("%v", err)
	}
}

// What only looks blank is no JSON, and nothing is written around it.
func TestInstallRefusesOtherBlanks(t *testing.T) {
	for _, text := range []string{"\f", "\v", "\u00a0", "\u0085", "\ufeff", "\x00", "{}\f", "{}\u00a0", " \u2028\n"} {
		if after, _, err := settings.Install([]byte(text), events, hook); !errors.Is(err, settings.ErrSettings) {
			t.Errorf("%q: %q, %v", text, after, err)
		}
		if found, err := settings.Find([]byte(text)); !errors.Is(err, settings.ErrSettings) {
			t.Errorf("%q: found %v, %v", text, found, err)
		}
		if _, err := settings.Remove([]byte(text)); !errors.Is(err, settings.ErrSettings) {
			t.Errorf("%q: removed, %v", text, err)
		}
	}
}

func TestSwitchedOff(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "{}": "", "{": "", `{"disableAllHooks": false}`: "", `{"disableAllHooks": null}`: "",
		`{"hooks": {"disableAllHooks": true}}`:                     "",
		`{"disableAllHooks": true}`:                                "disableAllHooks",
		`{"disableAllHooks": "yes"}`:                               "disableAllHooks", // whatever the agent makes of it
		`{"allowManagedHooksOnly": true, "disableAllHooks": true}`: "disableAllHooks allowManagedHooksOnly",
	} {
		if got := strings.Join(settings.SwitchedOff([]byte(text)), " "); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// A person finds the place.
func TestSyntaxErrorsTellTheLine(t *testing.T) {
	for text, want := range map[string]string{
		"{\n  \"a\": 1,\n}":               "line 2: invalid character ','",
		"{\n  // mine\n}":                 "line 2: invalid character '/'",
		"{\"a\": {\n\"b\": 1, \"b\": 2}}": "line 2: the member \"b\" is given twice",
		"\ufeff{}":                        `line 1: invalid character '\ufeff'`,
		"{\"a\": [1":                      "it ends too early",
		"[]":                              "it is not an object",
		"{} {}":                           "something stands behind the object",
		"{\"a\": \"\xff\"}":               "line 1: invalid UTF-8",
	} {
		_, _, err := settings.Install([]byte(text), events, hook)
		if !errors.Is(err, settings.ErrSettings) || !strings.Contains(err.Error(), want) || !strings.HasSuffix(err.Error(), "members given twice") {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func FuzzInstall(f *testing.F) {
	for _, text := range files {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if found, err := settings.Find(text); err == nil && len(found) > 0 {
			return // has to be taken out first
		}
		after, put, err := settings.Install(text, events, hook)
		if err != nil {
			return
		}
		if found, err := settings.Find(after); err != nil || len(found) != len(events) {
			t.Errorf("%d hooks found in %q (%v)", len(found), after, err)
		}
		if back, ok := settings.Undo(after, put); !ok || !bytes.Equal(back, text) {
			t.Errorf("undone: %q, want %q", back, text)
		}
	})
}
