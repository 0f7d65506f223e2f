package provenance

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of a skill's folder.
const (
	MaxFiles = 10_000    // files in it
	MaxBytes = 256 << 20 // bytes of all its files together
	MaxPath  = 1024      // bytes of a path in it
	MaxDepth = 32        // folders within folders

	maxEntries = 4 * MaxFiles // of any kind, empty folders among them
)

// ErrTree is wrapped by the errors of [ReadTree] about what is in a folder.
var ErrTree = errors.New("the skill's folder cannot be taken")

// A Digest names the files of a skill: their paths and contents.
type Digest [sha256.Size]byte

const digestPrefix = "sha256:"

// String returns "sha256:" and 64 hexadecimal digits.
func (d Digest) String() string { return digestPrefix + hex.EncodeToString(d[:]) }

// MarshalText writes what String returns.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// ErrDigest is wrapped by the errors of [ParseDigest].
var ErrDigest = errors.New("not a digest")

// ParseDigest is the inverse of [Digest.String], and takes nothing else.
func ParseDigest(text string) (Digest, error) {
	var d Digest
	digits, ok := strings.CutPrefix(text, digestPrefix)
	if !ok || len(digits) != hex.EncodedLen(len(d)) || strings.ToLower(digits) != digits {
		return Digest{}, fmt.Errorf("%w: expected %s and %d hexadecimal digits in lower case, got %q",
			ErrDigest, digestPrefix, hex.EncodedLen(len(d)), cut(text))
	}
	if _, err := hex.Decode(d[:], []byte(digits)); err != nil {
		return Digest{}, fmt.Errorf("%w: %w", ErrDigest, err)
	}
	return d, nil
}

// cut shortens a text for a message.
func cut(text string) string {
	if len(text) > 100 {
		return text[:100] + "…"
	}
	return text
}

// A File is one file of a skill.
type File struct {
	Path   string // from the skill's folder, with slashes
	SHA256 [sha256.Size]byte
}

// A Tree is the files of a skill, sorted by path. [SignatureFile] in the
// folder itself is none of them.
type Tree struct {
	Files     []File
	Digest    Digest
	Signature []byte // what is in SignatureFile; nil if there is none
}

// treeHeader begins what the digest is taken of, so that it is a digest of
// nothing else.
const treeHeader = "opa-gate skill tree 1\n"

// writeFrames writes what the digest is taken of: a line for each file, as
// sha256sum writes it. A path has no line break (see checkPath), so that the
// lines can be read back in one way only.
func writeFrames(w io.Writer, files []File) {
	_, _ = io.WriteString(w, treeHeader)
	for _, f := range files {
		_, _ = fmt.Fprintf(w, "%x  %s\n", f.SHA256, f.Path)
	}
}

func digestOf(files []File) (d Digest) {
	h := sha256.New()
	writeFrames(h, files)
	h.Sum(d[:0])
	return d
}

// checkPath says what keeps a path out of a tree: "" if nothing does.
func checkPath(name string) string {
	switch {
	case len(name) > MaxPath:
		return fmt.Sprintf("its path is longer than %d bytes", MaxPath)
	case !utf8.ValidString(name):
		return "its name is not valid UTF-8"
	case strings.ContainsRune(name, '\\') || strings.ContainsFunc(name, unicode.IsControl):
		return "its name has a backslash or a control character"
	case strings.Count(name, "/") >= MaxDepth:
		return fmt.Sprintf("it is more than %d folders deep", MaxDepth)
	}
	return ""
}

// ReadTree reads the skill in a folder. The folder itself may be reached by a
// symbolic link; in it there may be files and folders only. Errors about what is
// in it wrap ErrTree, the others are those of the file system.
func ReadTree(folder string) (*Tree, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	r := reader{root: root, tree: &Tree{}}
	if err := r.folder("."); err != nil {
		return nil, fmt.Errorf("%s: %w", folder, err)
	}
	if len(r.tree.Files) == 0 {
		return nil, fmt.Errorf("%s: %w: it has no files", folder, ErrTree)
	}
	slices.SortFunc(r.tree.Files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	r.tree.Digest = digestOf(r.tree.Files)
	return r.tree, nil
}

// A reader reads one tree.
type reader struct {
	root    *os.Root
	tree    *Tree
	entries int
	bytes   int64
}

func refuse(name, why string) error { return fmt.Errorf("%w: %s: %s", ErrTree, name, why) }

// folder reads a folder. It takes the names one handful at a time, so that a
// folder with very many is given up early.
func (r *reader) folder(name string) error {
	f, err := r.root.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	for {
		entries, err := f.ReadDir(256)
		for _, e := range entries {
			if r.entries++; r.entries > maxEntries {
				return fmt.Errorf("%w: it has more than %d files and folders", ErrTree, maxEntries)
			}
			if err := r.entry(path.Join(name, e.Name()), e.Type()); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

func (r *reader) entry(name string, kind fs.FileMode) error {
	if why := checkPath(name); why != "" {
		return refuse(name, why)
	}
	switch {
	case kind.IsRegular():
		return r.file(name)
	case kind.IsDir() && name == SignatureFile:
		return refuse(name, "it is a folder, and the place of the signature")
	case kind.IsDir():
		return r.folder(name)
	case kind&fs.ModeSymlink != 0:
		return refuse(name, "it is a symbolic link; put the file itself there")
	}
	return refuse(name, "it is neither a file nor a folder ("+kind.Type().String()+")")
}

// file reads a file, if it still is what the folder said it was.
func (r *reader) file(name string) error {
	before, err := r.root.Lstat(name)
	if err != nil {
		return err
	}
	if !before.Mode().IsRegular() {
		return refuse(name, "it has changed while it was read")
	}
	f, err := r.root.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err != nil || !os.SameFile(before, info) {
		return refuse(name, "it has changed while it was read")
	}
	if name == SignatureFile {
		text, err := io.ReadAll(io.LimitReader(f, maxSignature+1))
		r.tree.Signature = text
		return err
	}
	if len(r.tree.Files) == MaxFiles {
		return fmt.Errorf("%w: it has more than %d files", ErrTree, MaxFiles)
	}
	h := sha256.New()
	n, err := io.Copy(h, io.LimitReader(f, MaxBytes-r.bytes+1))
	if err != nil {
		return err
	}
	if r.bytes += n; r.bytes > MaxBytes {
		return fmt.Errorf("%w: its files have more than %d MiB", ErrTree, MaxBytes>>20)
	}
	r.tree.Files = append(r.tree.Files, File{Path: name, SHA256: [sha256.Size]byte(h.Sum(nil))})
	return nil
}
