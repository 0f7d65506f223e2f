package provenance

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/opa-gate/opa-gate/skill"
)

// maxSkills bounds a manifest.
const maxSkills = 10_000

// ErrManifest is wrapped by the errors of [ReadManifest] about what is in one.
var ErrManifest = errors.New("the manifest cannot be used")

// A Manifest is what an operator says about the skills in a folder.
type Manifest struct {
	Skills  map[string]*Entry // by the name of their folder
	Min     Severity          // the least severe finding that counts
	reports []reportConfig    // about all skills
}

// An Entry is what an operator says about one skill.
type Entry struct {
	Name         string // what the skill is called where it is decided
	Requested    skill.Tier
	SuccessCount uint64
	FailCount    uint64
	reports      []reportConfig
}

// A reportConfig is a report as a manifest names it.
type reportConfig struct {
	name   string // as the manifest has it
	file   string
	base   string // "" is the skill's folder, or for a report about all that of the skills
	digest *Digest
	open   func() (*Report, error)
}

// The manifest as it is written.
type manifestYAML struct {
	MinSeverity string                `yaml:"min_severity"`
	Reports     []reportYAML          `yaml:"reports"`
	Skills      map[string]*entryYAML `yaml:"skills"`
}

type entryYAML struct {
	Name         string       `yaml:"name"`
	Requested    string       `yaml:"requested"`
	SuccessCount count        `yaml:"success_count"`
	FailCount    count        `yaml:"fail_count"`
	Reports      []reportYAML `yaml:"reports"`
}

// A count is a whole number of 64 bits, written in digits. The YAML library
// would take other numbers too, and one that is too large for another.
type count uint64

// UnmarshalYAML implements yaml.Unmarshaler.
func (c *count) UnmarshalYAML(node *yaml.Node) error {
	n, err := strconv.ParseUint(node.Value, 10, 64)
	if err != nil || node.ShortTag() != "!!int" && node.ShortTag() != "!!float" {
		return fmt.Errorf("line %d: expected a whole number from 0 to %d, got %q", node.Line, uint64(math.MaxUint64), cut(node.Value))
	}
	*c = count(n)
	return nil
}

type reportYAML struct {
	File   string `yaml:"file"`
	Base   string `yaml:"base"`
	Digest string `yaml:"digest"`
}

// ReadManifest reads a manifest in YAML:
//
//	min_severity: medium                # the least that counts; default: low, everything
//	reports:                            # about all skills; paths in them start from the skills' folder
//	  - file: reports/all.sarif
//	skills:
//	  pdf:                              # the folder
//	    name: pdf-tools                 # default: the folder's name
//	    requested: sandbox_edit
//	    success_count: 12
//	    fail_count: 1
//	    reports:                        # about this skill; paths in them start from its folder
//	      - file: reports/pdf.sarif
//	        base: skills                # or from here
//	        digest: sha256:…            # the version that was scanned, if the report does not say
//
// Files are named from the manifest's folder. A member that is not among these
// is an error. Errors about what is in the manifest wrap ErrManifest, the others
// are those of the file system.
func ReadManifest(file string) (*Manifest, error) {
	text, err := readFile(file, maxConfig)
	if err != nil {
		return nil, err
	}
	var y manifestYAML
	if err := decodeYAML(text, &y); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", file, ErrManifest, err)
	}
	m, err := y.manifest(filepath.Dir(file))
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", file, ErrManifest, err)
	}
	return m, nil
}

func (y *manifestYAML) manifest(dir string) (*Manifest, error) {
	m := &Manifest{Skills: make(map[string]*Entry, len(y.Skills)), Min: Low}
	if len(y.Skills) == 0 {
		return nil, errors.New("expected at least one skill in skills")
	}
	if len(y.Skills) > maxSkills {
		return nil, fmt.Errorf("expected at most %d skills, got %d", maxSkills, len(y.Skills))
	}
	if y.MinSeverity != "" {
		var ok bool
		if m.Min, ok = ParseSeverity(y.MinSeverity); !ok {
			return nil, fmt.Errorf("min_severity: expected %s, got %q", strings.Join(Severities(), ", "), cut(y.MinSeverity))
		}
	}
	var err error
	if m.reports, err = reports(dir, y.Reports); err != nil {
		return nil, err
	}
	for i, r := range m.reports {
		m.reports[i].open = sync.OnceValues(r.open) // once for all skills
		if r.digest != nil {
			return nil, fmt.Errorf("reports: %s: a digest is that of one skill; name the report there", r.name)
		}
	}
	folders := make(map[string]string) // by name
	for _, folder := range slices.Sorted(maps.Keys(y.Skills)) {
		e, err := y.Skills[folder].entry(dir, folder)
		if err != nil {
			return nil, fmt.Errorf("skills: %s: %w", cut(folder), err)
		}
		if other, twice := folders[e.Name]; twice { // they would share the decisions of people
			return nil, fmt.Errorf("skills: %s: it has the name of %s, %q; expected a name of its own", cut(folder), cut(other), cut(e.Name))
		}
		folders[e.Name], m.Skills[folder] = folder, e
	}
	return m, nil
}

func (y *entryYAML) entry(dir, folder string) (*Entry, error) {
	if !filepath.IsLocal(folder) || folder == "." || strings.ContainsAny(folder, `/\`) || !utf8.ValidString(folder) {
		return nil, errors.New("expected the name of a folder, without the way there")
	}
	if y == nil {
		return nil, errors.New("expected what tier is requested, as in requested: read_only")
	}
	tier, ok := skill.ParseTier(y.Requested)
	if !ok {
		return nil, fmt.Errorf("requested: expected read_only, sandbox_edit or full_access, got %q", cut(y.Requested))
	}
	list, err := reports(dir, y.Reports)
	if err != nil {
		return nil, err
	}
	e := &Entry{Name: y.Name, Requested: tier, SuccessCount: uint64(y.SuccessCount), FailCount: uint64(y.FailCount), reports: list}
	if e.Name == "" {
		e.Name = folder
	}
	return e, nil
}

func reports(dir string, list []reportYAML) ([]reportConfig, error) {
	from := func(name string) string {
		if name == "" || filepath.IsAbs(name) {
			return name
		}
		return filepath.Join(dir, filepath.FromSlash(name))
	}
	var configs []reportConfig
	for i, y := range list {
		if y.File == "" {
			return nil, fmt.Errorf("reports[%d]: expected the name of a file in file", i)
		}
		c := reportConfig{name: y.File, file: from(y.File), base: from(y.Base)}
		if y.Digest != "" {
			d, err := ParseDigest(y.Digest)
			if err != nil {
				return nil, fmt.Errorf("reports[%d]: digest: %w", i, err)
			}
			c.digest = &d
		}
		c.open = func() (*Report, error) { return OpenReport(c.file) }
		configs = append(configs, c)
	}
	return configs, nil
}

// Unnamed returns the folders in the folder of skills that the manifest does
// not name, symbolic links among them, sorted. Hidden folders count: an agent may
// read them.
func (m *Manifest) Unnamed(skills string) ([]string, error) {
	entries, err := os.ReadDir(skills)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if (e.IsDir() || e.Type()&os.ModeSymlink != 0) && m.Skills[e.Name()] == nil {
			names = append(names, e.Name())
		}
	}
	return names, nil
}
