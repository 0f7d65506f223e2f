package provenance

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// files is a tree, by path.
type files map[string]string

// write puts the files into a new folder.
func (fs files) write(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range fs {
		name = filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func (fs files) tree(t testing.TB) *Tree {
	t.Helper()
	tree, err := ReadTree(fs.write(t))
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

var pdf = files{"SKILL.md": "# PDF\n", "scripts/run.py": "print(1)\n", "empty": "", "SIGNATURE.json": "{}"}

func sum(text string) string {
	h := sha256.Sum256([]byte(text))
	return hex.EncodeToString(h[:])
}

// What is written here by hand is what the documentation of digests says.
func TestDigest(t *testing.T) {
	want := "sha256:" + sum("opa-gate skill tree 1\n"+
		sum("# PDF\n")+"  SKILL.md\n"+
		sum("")+"  empty\n"+
		sum("print(1)\n")+"  scripts/run.py\n")
	tree := pdf.tree(t)
	if got := tree.Digest.String(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if len(tree.Files) != 3 || tree.Files[2].Path != "scripts/run.py" || string(tree.Signature) != "{}" {
		t.Errorf("got %+v, %q", tree.Files, tree.Signature)
	}
	if tree = (files{"a": ""}).tree(t); tree.Signature != nil {
		t.Errorf("a signature where there is none: %q", tree.Signature)
	}
}

func TestDigestTellsTreesApart(t *testing.T) {
	trees := []files{
		{"a": "b"}, {"a": "b\n"}, {"a": ""}, {"b": "a"}, {"A": "b"}, {"a": "b", "c": ""}, {"a": "", "b": ""}, {"ab": ""},
		{"a/b": ""}, {"a/b/c": ""}, {"a b": ""}, {"a  b": ""}, {" a": ""}, {"x/SIGNATURE.json": ""}, {"é": ""}, {"e\u0301": ""},
		{"a": "opa-gate skill tree 1\n"}, {"a": "b", "SIGNATURE.json ": ""}, {".hidden": ""}, {".git/config": ""},
	}
	seen := make(map[Digest]files)
	for _, f := range trees {
		d := f.tree(t).Digest
		if other := seen[d]; other != nil {
			t.Errorf("%q and %q have the digest %s", f, other, d)
		}
		seen[d] = f
	}
	for name, same := range map[string]files{"signature": {"a": "b", "SIGNATURE.json": "x"}} {
		if d := same.tree(t).Digest; d != trees[0].tree(t).Digest {
			t.Errorf("%s: the digest is another: %s", name, d)
		}
	}
}

func TestDigestIgnoresModesAndEmptyFolders(t *testing.T) {
	dir := pdf.write(t)
	before, err := ReadTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(filepath.Join(dir, "SKILL.md"), 0o700), os.Mkdir(filepath.Join(dir, "none"), 0o755)); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil { // the way to a skill may be a link
		t.Fatal(err)
	}
	after, err := ReadTree(link)
	if err != nil || after.Digest != before.Digest {
		t.Errorf("got %v, %v", after, err)
	}
}

func TestReadTreeRefuses(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("such files cannot be made there")
	}
	link := func(to string) func(string) error { return func(name string) error { return os.Symlink(to, name) } }
	write := func(name string) error { return os.WriteFile(name, nil, 0o644) }
	tests := []struct {
		name, file string
		make       func(string) error
		want       string
	}{
		{"link to a file in it", "l", link("SKILL.md"), "l: it is a symbolic link; put the file itself there"},
		{"link out of it", "scripts/l", link("/etc/passwd"), "scripts/l: it is a symbolic link"},
		{"link to a folder", "l", link("scripts"), "l: it is a symbolic link"},
		{"link to nothing", "l", link("nothing"), "l: it is a symbolic link"},
		{"link as signature", "SIGNATURE.json", link("SKILL.md"), "SIGNATURE.json: it is a symbolic link"},
		{"folder as signature", "SIGNATURE.json", func(name string) error { return os.Mkdir(name, 0o755) },
			"SIGNATURE.json: it is a folder, and the place of the signature"},
		{"pipe", "p", func(name string) error { return syscall.Mkfifo(name, 0o644) }, "p: it is neither a file nor a folder (p"},
		{"line break", "a\nb", write, "its name has a backslash or a control character"},
		{"backslash", `a\b`, write, "its name has a backslash or a control character"},
		{"escape", "a\x1bb", write, "its name has a backslash or a control character"},
		{"not UTF-8", "a\xff", write, "its name is not valid UTF-8"},
		{"deep", strings.Repeat("d/", MaxDepth) + "f", write, "it is more than 32 folders deep"},
		{"long", strings.Repeat(strings.Repeat("d", 250)+"/", 5) + "f", write, "its path is longer than 1024 bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := files{"SKILL.md": "", "scripts/run.py": ""}.write(t)
			name := filepath.Join(dir, tt.file)
			if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), tt.make(name)); err != nil {
				t.Fatal(err)
			}
			tree, err := ReadTree(dir)
			if tree != nil || !errors.Is(err, ErrTree) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, %v, want %q", tree, err, tt.want)
			}
		})
	}
	t.Run("as deep as may be", func(t *testing.T) {
		files{strings.Repeat("d/", MaxDepth-1) + "f": ""}.tree(t)
	})
	t.Run("empty", func(t *testing.T) {
		if _, err := ReadTree(files{"SIGNATURE.json": ""}.write(t)); !errors.Is(err, ErrTree) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("nowhere", func(t *testing.T) {
		if _, err := ReadTree(filepath.Join(t.TempDir(), "no")); !errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrTree) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a file", func(t *testing.T) {
		if _, err := ReadTree(filepath.Join(pdf.write(t), "SKILL.md")); err == nil {
			t.Error("a file was taken for a skill")
		}
	})
}

func TestReadTreeBounds(t *testing.T) {
	if testing.Short() {
		t.Skip("it writes 10,000 files and reads 256 MiB")
	}
	dir := t.TempDir()
	for i := range MaxFiles {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if tree, err := ReadTree(dir); err != nil || len(tree.Files) != MaxFiles {
		t.Errorf("as many files as may be: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "more"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadTree(dir); !errors.Is(err, ErrTree) || !strings.Contains(err.Error(), "more than 10000 files") {
		t.Errorf("got %v", err)
	}
	dir = files{"a": "x"}.write(t)
	for size, ok := range map[int64]bool{MaxBytes - 1: true, MaxBytes: false} { // beside the one byte of a
		f, err := os.Create(filepath.Join(dir, "big"))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadTree(dir); (err == nil) != ok || err != nil && !errors.Is(err, ErrTree) {
			t.Errorf("%d bytes: %v", size+1, err)
		}
	}
}

func TestParseDigest(t *testing.T) {
	good := "sha256:" + strings.Repeat("0f", 32)
	if d, err := ParseDigest(good); err != nil || d.String() != good || d[0] != 15 {
		t.Errorf("got %v, %v", d, err)
	}
	for _, bad := range []string{"", "sha256:", good[7:], good + "0", good[:70], strings.ToUpper(good), "sha256:" + strings.Repeat("0F", 32),
		"sha512:" + good[7:], good[:69] + "zz", " " + good} {
		if d, err := ParseDigest(bad); !errors.Is(err, ErrDigest) || d != (Digest{}) {
			t.Errorf("%q: got %v, %v", bad, d, err)
		}
	}
}

// unframe reads back what writeFrames wrote: that it can shows that no two trees
// are written alike.
func unframe(text string) (list []File, ok bool) {
	text, ok = strings.CutPrefix(text, treeHeader)
	for ok && text != "" {
		var line string
		line, text, ok = strings.Cut(text, "\n")
		var f File
		if !ok || len(line) < 66 || line[64:66] != "  " {
			return nil, false
		}
		if _, err := hex.Decode(f.SHA256[:], []byte(line[:64])); err != nil {
			return nil, false
		}
		f.Path = line[66:]
		list = append(list, f)
	}
	return list, ok
}

func FuzzFrames(f *testing.F) {
	f.Add("a", "b", "c", "d")
	f.Add("a", "", "a/b", "")
	f.Add("x  y", "opa-gate skill tree 1\n", "x", "y\n")
	f.Add("a\nb", "", "c", "")
	f.Fuzz(func(t *testing.T, name1, text1, name2, text2 string) {
		one := []File{{name1, sha256.Sum256([]byte(text1))}, {name2, sha256.Sum256([]byte(text2))}}
		for _, file := range one {
			if checkPath(file.Path) != "" {
				return // it is in no tree
			}
		}
		var framed bytes.Buffer
		writeFrames(&framed, one)
		if back, ok := unframe(framed.String()); !ok || !slices.Equal(back, one) {
			t.Fatalf("%q was read back as %q", one, back)
		}
		other := []File{{name1, one[1].SHA256}, {name2, one[0].SHA256}}
		if (digestOf(one) == digestOf(other)) != (text1 == text2) {
			t.Errorf("%q and %q", one, other)
		}
		for _, fewer := range [][]File{nil, one[:1], one[1:]} {
			if digestOf(fewer) == digestOf(one) {
				t.Errorf("%q and %q share a digest", fewer, one)
			}
		}
	})
}
