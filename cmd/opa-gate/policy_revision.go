package main

import (
	"archive/zip"
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// maxRevision bounds what is read of one directory in a revision, in bytes.
const maxRevision = 256 << 20

// revisionFS reads the policies in a directory of the repository that the
// program runs in, as they are in a revision: byte for byte, whatever
// .gitattributes say about archives, line ends and filters. A link to a file is
// followed as it is in a directory on disk, but not out of the repository. What
// cannot be read is an error and never left out, because the policies would be
// others without it.
func revisionFS(ctx context.Context, revision, dir string, limit int64) (fs.FS, error) {
	switch {
	case revision == "" || strings.HasPrefix(revision, "-"):
		return nil, fmt.Errorf("expected a revision of Git before the colon, got %q", revision)
	case strings.Contains(revision+dir, "\n"):
		return nil, errors.New("expected a revision and a directory of Git on one line")
	}
	prefix, err := gitOutput(gitCommand(ctx, "rev-parse", "--show-prefix"))
	if err != nil {
		return nil, err
	}
	dir = path.Join(strings.TrimRight(string(prefix), "\n"), filepath.ToSlash(dir))
	switch {
	case dir == ".." || strings.HasPrefix(dir, "../"):
		return nil, fmt.Errorf("the directory %q lies outside of the repository", dir)
	case dir == ".":
		dir = ""
	}
	// The revision is looked up once, so that all files are of the same one.
	top, err := readObjects(ctx, []string{revision + "^{tree}"}, limit)
	if err != nil {
		return nil, err
	}
	if top[0].kind != "tree" {
		return nil, fmt.Errorf("git: the revision %q is %s; a shallow clone has only the newest", revision, top[0].kind)
	}
	root := top[0].hash + ":"
	found, err := readObjects(ctx, []string{root + dir}, limit)
	if err != nil {
		return nil, err
	}
	if found[0].kind != "tree" {
		return nil, fmt.Errorf("git: there is no directory %q in this revision", dir)
	}
	names, err := listPolicies(ctx, found[0].hash)
	if err != nil {
		return nil, err
	}
	asked := make([]string, len(names))
	for i, name := range names {
		asked[i] = root + path.Join(dir, name)
	}
	objects, err := readObjects(ctx, asked, limit)
	if err != nil {
		return nil, err
	}
	var archive bytes.Buffer // an fs.FS that lies in memory
	w := zip.NewWriter(&archive)
	for i, o := range objects {
		if o.kind != "blob" {
			return nil, fmt.Errorf("git: %s: %s", names[i], o.problem())
		}
		file, err := w.CreateHeader(&zip.FileHeader{Name: names[i], Method: zip.Store})
		if err != nil {
			return nil, err
		}
		if _, err := file.Write(o.text); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return zip.NewReader(bytes.NewReader(archive.Bytes()), int64(archive.Len()))
}

// listPolicies names the files below a tree that could be policies or their data.
// The evaluator reads no others, and does not go into a directory by a link.
func listPolicies(ctx context.Context, tree string) ([]string, error) {
	listing, err := gitOutput(gitCommand(ctx, "ls-tree", "-r", "-z", "--full-tree", tree))
	if err != nil {
		return nil, err
	}
	var names []string
	for entry := range strings.SplitSeq(strings.TrimSuffix(string(listing), "\x00"), "\x00") {
		about, name, _ := strings.Cut(entry, "\t") // MODE KIND HASH
		if strings.Contains(about, " commit ") {
			return nil, fmt.Errorf("git: %s is a submodule, whose files are in another repository", name)
		}
		switch path.Ext(name) {
		case ".rego", ".json", ".yaml":
			if strings.Contains(name, "\n") {
				return nil, fmt.Errorf("git: the name %q has a line break", name)
			}
			names = append(names, name)
		}
	}
	return names, nil
}

// An object is what Git has under a name.
type object struct {
	hash string
	kind string // blob, tree, or why it is nothing that could be read
	text []byte
}

// problem says why an object is not a file.
func (o *object) problem() string {
	switch o.kind {
	case "symlink":
		return fmt.Sprintf("the link leads out of the repository, to %s", strings.TrimSpace(string(o.text)))
	case "dangling":
		return "the link leads to a file that is not there"
	case "loop":
		return "the link leads back to itself"
	case "notdir":
		return "the link leads through a file as if it were a directory"
	case "tree":
		return "the link leads to a directory, expected a file"
	default:
		return "expected a file, got " + o.kind
	}
}

// readObjects reads what Git has under names, following links as a file system
// does. Together they must not be larger than a limit.
func readObjects(ctx context.Context, names []string, limit int64) ([]object, error) {
	if len(names) == 0 {
		return nil, nil
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	cmd := gitCommand(ctx, "cat-file", "--batch", "--follow-symlinks")
	cmd.Stdin = strings.NewReader(strings.Join(names, "\n") + "\n")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	objects := make([]object, len(names))
	in := bufio.NewReader(out)
	for i := range objects {
		if err = objects[i].read(in, &limit); err != nil {
			stop()
			break
		}
	}
	failed := gitError(cmd, cmd.Wait())
	if failed != nil && (err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) {
		err = failed // it says why there was no more to read
	}
	return objects, err
}

// read reads one object, as git cat-file writes it: a line that ends in its kind
// and its size, the text and a line break; or only a line that ends in a word.
func (o *object) read(in *bufio.Reader, limit *int64) error {
	line, err := in.ReadString('\n')
	if err != nil {
		return err
	}
	words := strings.Fields(line)
	if len(words) < 2 {
		return fmt.Errorf("git: cat-file wrote %q", line)
	}
	o.hash, o.kind = words[0], words[len(words)-1]
	size, err := strconv.ParseInt(o.kind, 10, 64)
	if err != nil {
		return nil // such as missing
	}
	o.kind = words[len(words)-2]
	if *limit -= size; *limit < 0 {
		return errors.New("git: the files of this directory are too large to be compared")
	}
	text := make([]byte, size+1)
	if _, err := io.ReadFull(in, text); err != nil {
		return err
	}
	o.text = text[:size]
	return nil
}

// gitCommand makes a run of git that keeps what it says of errors.
func gitCommand(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Stderr = &bytes.Buffer{}
	return cmd
}

// gitOutput returns what git prints.
func gitOutput(cmd *exec.Cmd) ([]byte, error) {
	out, err := cmd.Output()
	return out, gitError(cmd, err)
}

// gitError is the error of a run of git, in its own words if it said any.
func gitError(cmd *exec.Cmd, err error) error {
	if err == nil {
		return nil
	}
	if said, ok := cmd.Stderr.(*bytes.Buffer); ok && said.Len() > 0 {
		return errors.New("git: " + strings.TrimSpace(said.String()))
	}
	return fmt.Errorf("git: %w", err)
}
