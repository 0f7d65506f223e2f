package settings

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// MaxBytes is the length of a settings file.
const MaxBytes = 8 << 20

// A File is a settings file as it was read.
type File struct {
	Path  string // behind all links
	Text  []byte // empty if there is none
	There bool
	mode  fs.FileMode
}

// Read reads a settings file. One that is not there is empty.
func Read(path string) (*File, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if target, err := filepath.EvalSymlinks(path); err == nil { // a link stays one
		path = target
	} else if _, dangling := os.Lstat(path); dangling == nil {
		return nil, fmt.Errorf("%w: %s is a link that leads nowhere", ErrSettings, path)
	}
	f := &File{Path: path, mode: 0o600}
	// To open a pipe would wait for its writer.
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: %s is not a file", ErrSettings, path)
	}
	in, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }() // nothing was written to it
	info, err := in.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: %s is not a file", ErrSettings, path)
	}
	if f.Text, err = io.ReadAll(io.LimitReader(in, MaxBytes+1)); err != nil {
		return nil, err
	}
	if len(f.Text) > MaxBytes {
		return nil, fmt.Errorf("%w: %s has more than %d bytes", ErrSettings, path, MaxBytes)
	}
	f.There, f.mode = true, info.Mode().Perm()
	return f, nil
}

// Write puts text in the place of what was read, in one step, with the same owner
// and mode. Text nil removes the file. It is ErrChanged if the file is no longer
// what was read. First, if it is not nil, is called when nothing stands in the way
// any more; nothing is written if it fails. Of several who write at once only one
// gets so far.
func (f *File) Write(text []byte, first func() error) error {
	dir := filepath.Dir(f.Path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	unlock, err := lock(dir)
	if err != nil {
		return err
	}
	defer unlock()
	ready := func() error {
		now, err := Read(f.Path)
		if err != nil {
			return err
		}
		if now.There != f.There || !bytes.Equal(now.Text, f.Text) {
			return fmt.Errorf("%w: %s; look at them and try again", ErrChanged, f.Path)
		}
		if first != nil {
			return first()
		}
		return nil
	}
	if text != nil {
		return replace(f.Path, text, f.mode, ready)
	}
	if err := ready(); err != nil {
		return err
	}
	return os.Remove(f.Path)
}

// replace writes a file that has its name only once it is whole, and only if ready,
// which is called in the last moment, says so.
func replace(path string, text []byte, mode fs.FileMode, ready func() error) error {
	out, err := os.CreateTemp(filepath.Dir(path), ".opa-gate-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(out.Name()) }() // no longer there if all went well
	_, err = out.Write(text)
	if before, there := os.Stat(path); err == nil && there == nil {
		err = keepOwner(out, before)
	}
	if err := errors.Join(err, out.Chmod(mode), out.Sync(), out.Close()); err != nil {
		return err
	}
	if err := ready(); err != nil {
		return err
	}
	return os.Rename(out.Name(), path)
}

// A Record is what an installation did to a file, so that it can be undone to
// the byte.
type Record struct {
	Path  string      `json:"path"`
	There bool        `json:"there"` // the file was there before
	Put   []Insertion `json:"put"`
}

// RecordFile is where, in a folder, the record of a settings file is kept.
func RecordFile(dir, path string) string {
	sum := sha256.Sum256([]byte(path))
	return filepath.Join(dir, "installed-"+hex.EncodeToString(sum[:8])+".json")
}

// Save keeps r in a file.
func (r *Record) Save(file string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return replace(file, append(text, '\n'), 0o600, func() error { return nil })
}

// LoadRecord reads a record; nil if there is none that can be used.
func LoadRecord(file, path string) *Record {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	var r Record
	if json.Unmarshal(text, &r) != nil || r.Path != path {
		return nil
	}
	return &r
}

// Without returns the text of f without the hooks of this program: exactly what
// was there before if r, which may be nil, is the record of how they got there.
// It is nil if there was no file before, and nothing else is in it now.
func (f *File) Without(r *Record) ([]byte, error) {
	if r != nil {
		if text, ok := Undo(f.Text, r.Put); ok {
			if !r.There && isBlank(text) {
				return nil, nil
			}
			return text, nil
		}
	}
	if isBlank(f.Text) {
		return f.Text, nil
	}
	return Remove(f.Text)
}
