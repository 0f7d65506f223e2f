package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"unicode/utf8"
)

// What a bundle may be at most. A small archive can unpack to a very large one.
const (
	MaxPacked   = 64 << 20  // bytes of the gzipped tarball
	MaxFile     = 64 << 20  // bytes of one file in it
	MaxUnpacked = 256 << 20 // bytes of all files together
	MaxFiles    = 10_000
)

// A file is one file of a bundle.
type file struct {
	name string // without the slash in front
	text []byte
}

// unpack returns the files of a gzipped tarball in their order. OPA looks at
// regular files only and stops at the end of the first archive; whatever else
// could be hidden in it is refused here.
func unpack(text []byte) ([]file, error) {
	if len(text) > MaxPacked {
		return nil, fmt.Errorf("%w: %d bytes, at most %d are read", ErrTooLarge, len(text), MaxPacked)
	}
	zipped, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("%w: a bundle is a gzipped tarball", ErrNotBundle)
	}
	// One more than the bound tells that there is more. Headers and padding are in
	// the archive too.
	bounded := &io.LimitedReader{R: zipped, N: MaxUnpacked + MaxFiles*2048 + 1}
	damaged := func(err error) error {
		if bounded.N <= 0 {
			return fmt.Errorf("%w: it unpacks to more than %d bytes", ErrTooLarge, MaxUnpacked)
		}
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	var (
		files []file
		names = map[string]bool{}
		total int64
	)
	for archive := tar.NewReader(bounded); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, damaged(err)
		}
		name := strings.TrimPrefix(header.Name, "/")
		switch {
		case header.Typeflag == tar.TypeDir:
			continue
		case header.Typeflag != tar.TypeReg:
			return nil, fmt.Errorf("%w: %q is not a regular file", ErrDamaged, name)
		case name == "" || !utf8.ValidString(name) || path.Clean("/"+name) != "/"+strings.TrimPrefix(name, "./") || strings.Contains(name, `\`):
			return nil, fmt.Errorf("%w: %q is not the name of a file in it", ErrDamaged, name)
		case names[path.Clean(name)]:
			return nil, fmt.Errorf("%w: %q is in it twice", ErrDamaged, name)
		case len(files) == MaxFiles:
			return nil, fmt.Errorf("%w: more than %d files", ErrTooLarge, MaxFiles)
		case header.Size > MaxFile:
			return nil, fmt.Errorf("%w: %q has %d bytes, a file may have %d", ErrTooLarge, name, header.Size, MaxFile)
		}
		if total += header.Size; total > MaxUnpacked {
			return nil, fmt.Errorf("%w: it unpacks to more than %d bytes", ErrTooLarge, MaxUnpacked)
		}
		names[path.Clean(name)] = true
		var buf bytes.Buffer // grows with what is there, not with what the header says
		if _, err := io.Copy(&buf, archive); err != nil {
			return nil, damaged(err)
		}
		files = append(files, file{name, buf.Bytes()})
	}
	if err := onlyZeros(bounded); err != nil || bounded.N <= 0 {
		return nil, damaged(err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%w: there is no file in it", ErrNotBundle)
	}
	return files, nil
}

// onlyZeros reads what stands behind an archive, which is padding.
func onlyZeros(r io.Reader) error {
	block := make([]byte, 4096)
	for {
		n, err := r.Read(block)
		if bytes.Count(block[:n], []byte{0}) != n {
			return errors.New("there is something behind the end of the archive")
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// pack writes files as OPA's writer does: nothing but names and texts has an
// influence on the bytes.
func pack(files []file) ([]byte, error) {
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	archive := tar.NewWriter(zipped)
	for _, f := range files {
		header := &tar.Header{Name: "/" + f.name, Mode: 0o600, Typeflag: tar.TypeReg, Size: int64(len(f.text))}
		if err := archive.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := archive.Write(f.text); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(archive.Close(), zipped.Close()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
