package provenance

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/opa-gate/opa-gate/skill"
)

// Errors of [Manifest.Examine], besides those that wrap ErrTree or ErrReport
// and those of the file system.
var (
	// ErrMissing: the manifest names a folder that is not there.
	ErrMissing = errors.New("there is no such skill")
	// ErrSelfServing: a report or a keyring is where the skills are, so that
	// whoever changes a skill can change it as well.
	ErrSelfServing = errors.New("it is inside a skill's folder, and a skill does not vouch for itself")
)

// Facts is what is true of a skill, and how that is known.
type Facts struct {
	Provenance skill.Provenance
	Digest     Digest
	Key        *Key    // that signed it; nil if none of the keyring did
	Unsigned   error   // why Key is nil
	Scans      []*Scan // the reports that were asked, in the manifest's order
}

// Examine establishes the facts about one skill of the manifest: the folder of
// that name in the folder of skills. A nil ring knows no key. On an error nothing
// is known about the skill.
func (m *Manifest) Examine(skills, folder string, ring *Keyring) (*Facts, error) {
	entry := m.Skills[folder]
	if entry == nil {
		return nil, fmt.Errorf("%s: the manifest does not name it", folder)
	}
	dir := filepath.Join(skills, folder)
	switch info, err := os.Lstat(dir); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s: %w", dir, ErrMissing)
	case err != nil:
		return nil, err
	case !info.IsDir():
		return nil, fmt.Errorf("%s: %w: it is not a folder", dir, ErrTree)
	}
	tree, err := ReadTree(dir)
	if err != nil {
		return nil, err
	}
	f := &Facts{Digest: tree.Digest}
	f.sign(tree, ring)
	f.Provenance.SuccessCount, f.Provenance.FailCount = entry.SuccessCount, entry.FailCount
	for _, c := range m.reports {
		if c.base == "" {
			c.base = skills
		}
		if err := f.scan(c, tree, skills, dir, m.Min); err != nil {
			return nil, err
		}
	}
	for _, c := range entry.reports {
		if err := f.scan(c, tree, skills, dir, m.Min); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// sign establishes who signed the tree.
func (f *Facts) sign(t *Tree, ring *Keyring) {
	if ring == nil {
		ring = &Keyring{}
	}
	f.Key, f.Unsigned = ring.Verify(t)
	if f.Key != nil {
		f.Provenance.Signed, f.Provenance.SignerTrusted, f.Provenance.Source = true, f.Key.Trusted, f.Key.Source
	}
}

// scan adds what a report says.
func (f *Facts) scan(c reportConfig, t *Tree, skills, dir string, least Severity) error {
	if inside, err := Inside(skills, c.file); err != nil {
		return err
	} else if inside {
		return fmt.Errorf("%s: %w", c.file, ErrSelfServing)
	}
	report, err := c.open()
	if err != nil {
		return err
	}
	scan, err := report.Scan(t, Scope{Folder: dir, Base: c.base, Digest: c.digest, Min: least})
	if err != nil {
		return err
	}
	scan.Report = c.name
	f.Scans = append(f.Scans, scan)
	f.Provenance.Scanned = f.Provenance.Scanned || scan.State == Current
	f.Provenance.Vulnerabilities += scan.Findings
	return nil
}

// OpenReport is [ReadReport] for a file.
func OpenReport(file string) (*Report, error) {
	in, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }()
	report, err := ReadReport(in)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return report, nil
}

// Inside reports whether a file is in one of the folders in a folder of skills,
// or is one of them. The file must exist.
func Inside(skills, file string) (bool, error) {
	rel, err := within(skills, file)
	if err != nil || rel == "" || rel == "." {
		return false, err
	}
	if strings.ContainsRune(rel, filepath.Separator) {
		return true, nil
	}
	info, err := os.Stat(file)
	return err == nil && info.IsDir(), err
}

// within returns the path from a folder to a file, by their names or as they are
// behind symbolic links; "" if the file is not in the folder.
func within(folder, file string) (string, error) {
	var names, real [2]string
	for i, name := range []string{folder, file} {
		var err error
		if names[i], err = filepath.Abs(name); err != nil {
			return "", err
		}
		if real[i], err = filepath.EvalSymlinks(names[i]); err != nil {
			return "", err
		}
	}
	for _, pair := range [][2]string{names, real} {
		if rel, ok := below(pair[0], pair[1]); ok {
			return rel, nil
		}
	}
	return "", nil
}

// Belongs reports whether a file is in a skill's folder. The file must exist.
func Belongs(folder, file string) (bool, error) {
	rel, err := within(folder, file)
	return rel != "", err
}
