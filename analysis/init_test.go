package analysis_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/opa-gate/opa-gate/analysis"
	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/policies"
)

func initCopy(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "my")
	if _, err := analysis.Init(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// initTree lists everything under dir, directories with a slash behind them.
func initTree(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if entry.IsDir() {
			name += "/"
		}
		names = append(names, filepath.ToSlash(name))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestInitWritesAWorkingCopy(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b", "my")
	files, err := analysis.Init(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		".editorconfig", ".vscode/settings.json", "README.md", "gate/call/call.rego", "gate/call/call_test.rego",
		"gate/facts/data.json", "gate/invariants/invariants.rego", "gate/invariants/invariants_test.rego",
		"gate/settings/data.json", "schemas/call.json", "schemas/invariant.json", "schemas/skill.json",
	} {
		if !slices.Contains(files, name) {
			t.Errorf("%s is not among the files", name)
		}
	}
	var there []string
	for _, name := range initTree(t, dir) {
		if !strings.HasSuffix(name, "/") {
			there = append(there, name)
		}
	}
	slices.Sort(there)
	if !slices.Equal(there, files) {
		t.Errorf("written %q, reported %q", there, files)
	}
	err = fs.WalkDir(policies.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		want, err := fs.ReadFile(policies.FS(), name)
		if err != nil {
			return err
		}
		got, err := os.ReadFile(filepath.Join(dir, name))
		if string(got) != string(want) {
			t.Errorf("%s differs from the embedded one", name)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(entries) != 1 {
		t.Errorf("beside the copy there are %v, error %v", entries, err)
	}
	if _, err := evaluator.New(t.Context(), &evaluator.Options{Dir: dir}); err != nil {
		t.Errorf("the copy cannot be loaded: %v", err)
	}
}

func TestInitFillsAnEmptyDirectory(t *testing.T) {
	dir := t.TempDir()
	before, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	files, err := analysis.Init(dir)
	if err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(dir); err != nil || !os.SameFile(before, after) {
		t.Error("it is another directory now")
	}
	count := 0
	for _, name := range initTree(t, dir) {
		if !strings.HasSuffix(name, "/") {
			count++
		}
	}
	if count != len(files) {
		t.Errorf("%d files are there, want %d", count, len(files))
	}
}

func TestInitLeavesAloneWhatIsThere(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b", "c", "d", "e", "f", ".hidden"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, err := analysis.Init(dir)
	var blocked *analysis.NotEmptyError
	if !errors.As(err, &blocked) || !slices.Equal(blocked.Entries, []string{".hidden", "a", "b", "c", "d", "e", "f"}) {
		t.Fatalf("error %v, want one that lists what is there", err)
	}
	if !strings.Contains(err.Error(), ".hidden, a, b, c, d and 2 more") {
		t.Errorf("the message is %q", err)
	}
	if got := initTree(t, dir); len(got) != 7 {
		t.Errorf("afterwards there is %q", got)
	}
	if _, err := analysis.Init(filepath.Join(dir, "a")); err == nil {
		t.Error("a file is taken for a directory")
	}
}

func TestInitLeavesNothingBehind(t *testing.T) {
	if os.Getuid() == 0 {
		// Root may write everywhere, so the failure is a name that is too long: the
		// directories above can be made, the stage cannot.
		dir := filepath.Join(t.TempDir(), "new", strings.Repeat("x", 250))
		if _, err := analysis.Init(dir); err == nil {
			t.Fatal("there is room for a name of 260 bytes")
		}
		if got := initTree(t, filepath.Dir(filepath.Dir(dir))); len(got) != 0 {
			t.Errorf("left behind: %q", got)
		}
		return
	}
	parent := t.TempDir()
	if err := os.Chmod(parent, 0o500); err != nil {
		t.Fatal(err)
	}
	if _, err := analysis.Init(filepath.Join(parent, "my")); err == nil {
		t.Fatal("it was written where nobody may write")
	}
	if got := initTree(t, parent); len(got) != 0 {
		t.Errorf("left behind: %q", got)
	}
}

// The schema of what invariants look at repeats the other two: OPA resolves no
// reference from one schema file to another.
func TestInvariantSchemaRepeatsTheOthers(t *testing.T) {
	schema := func(name string) map[string]any {
		text, err := policies.Schema(name)
		if err != nil {
			t.Fatal(err)
		}
		var v map[string]any
		if err := json.Unmarshal(text, &v); err != nil {
			t.Fatal(err)
		}
		delete(v, "$schema")
		return v
	}
	members := schema("invariant.json")["properties"].(map[string]any)
	for _, name := range []string{"call", "skill"} {
		if !reflect.DeepEqual(members[name], schema(name+".json")) {
			t.Errorf("schemas/invariant.json describes a %s differently from schemas/%s.json", name, name)
		}
	}
}
