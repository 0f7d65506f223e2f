package main

import (
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// repository makes a repository of Git with one revision, and goes there. A text
// that begins with "-> " is a link.
func repository(t *testing.T, files map[string]string) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("there is no git")
	}
	t.Setenv("GIT_CONFIG_GLOBAL", "/dev/null")
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	t.Chdir(t.TempDir())
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if target, isLink := strings.CutPrefix(text, "-> "); isLink {
			if err := os.Symlink(target, name); err != nil {
				t.Skip(err)
			}
		} else if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	git(t, "init", "-q")
	git(t, "add", "-A")
	git(t, "-c", "user.name=nobody", "-c", "user.email=nobody@example.com", "commit", "-q", "-m", "first")
}

func git(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
		t.Fatalf("git %q: %v\n%s", args, err, out)
	}
}

// A revision has the files that the directory has, byte for byte.
func TestRevision(t *testing.T) {
	repository(t, map[string]string{
		".gitattributes":       "hidden.rego export-ignore\n*.rego text eol=crlf export-subst ident\n",
		"policies/plain.rego":  "$Format:%H$ $Id$\n",
		"policies/hidden.rego": "hidden\n",
		"policies/a b.rego":    "blanks\n",
		"policies/note.txt":    "not asked for",
		"policies/sub/x.json":  "{}",
		"policies/sub/up.rego": "-> ../../shared/shared.rego",
		"policies/far":         "-> /usr",
		"shared/shared.rego":   "shared\n",
		"other":                "-> policies",
	})
	want := map[string]string{"plain.rego": "$Format:%H$ $Id$\n", "hidden.rego": "hidden\n", "a b.rego": "blanks\n",
		"sub/x.json": "{}", "sub/up.rego": "shared\n"}
	for dir, from := range map[string]string{"policies": ".", "./policies/": ".", "other": ".", ".": "policies", "": "policies", "../policies": "shared"} {
		t.Run(from+" "+dir, func(t *testing.T) {
			t.Chdir(from)
			tree, err := revisionFS(t.Context(), "HEAD", dir, maxRevision)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			err = fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
				if err != nil || entry.IsDir() {
					return err
				}
				text, err := fs.ReadFile(tree, name)
				got[name] = string(text)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			if !maps.Equal(got, want) {
				t.Errorf("got  %q\nwant %q", got, want)
			}
		})
	}
}

// What cannot be read is told, and not left out.
func TestRevisionRefused(t *testing.T) {
	repository(t, map[string]string{
		"out/a.rego":      "-> ../../../etc/a.rego",
		"away/a.rego":     "-> /etc/a.rego",
		"dangling/a.rego": "-> b.rego",
		"loop/a.rego":     "-> a.rego",
		"through/a.rego":  "-> ../file/b.rego",
		"dir/a.rego":      "-> ../out",
		"file":            "text",
		"large/a.rego":    strings.Repeat("x", 2000),
	})
	git(t, "update-index", "--add", "--cacheinfo", "160000,"+strings.Repeat("1", 40)+",module/sub")
	git(t, "-c", "user.name=nobody", "-c", "user.email=nobody@example.com", "commit", "-q", "-m", "second")
	refused := map[string]string{
		"out":      "git: a.rego: the link leads out of the repository, to ../../etc/a.rego",
		"away":     "git: a.rego: the link leads out of the repository, to /etc/a.rego",
		"dangling": "git: a.rego: the link leads to a file that is not there",
		"loop":     "git: a.rego: the link leads back to itself",
		"through":  "git: a.rego: the link leads through a file as if it were a directory",
		"dir":      "git: a.rego: the link leads to a directory, expected a file",
		"large":    "git: the files of this directory are too large to be compared",
		"module":   "git: sub is a submodule, whose files are in another repository",
		"file":     `git: there is no directory "file" in this revision`,
		"nothing":  `git: there is no directory "nothing" in this revision`,
		"..":       `the directory ".." lies outside of the repository`,
		"out\nin":  "expected a revision and a directory of Git on one line",
	}
	for _, dir := range slices.Sorted(maps.Keys(refused)) {
		if _, err := revisionFS(t.Context(), "HEAD", dir, 1000); err == nil || err.Error() != refused[dir] {
			t.Errorf("%q: got  %v\nwant %s", dir, err, refused[dir])
		}
	}
	if _, err := revisionFS(t.Context(), "HAED", "out", 1000); err == nil || err.Error() != `git: the revision "HAED" is missing; a shallow clone has only the newest` {
		t.Errorf("a misspelt revision: %v", err)
	}
}
