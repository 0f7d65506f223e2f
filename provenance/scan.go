package provenance

import (
	"encoding/hex"
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// A ScanState says what a report is worth for a skill.
type ScanState uint8

// The states. Only a Current report makes a skill a scanned one.
const (
	Uncovered ScanState = iota // nothing says that it is about this version of the skill
	Failed                     // the scanner does not say that it has ended well
	Stale                      // it is about another version of the skill
	Current
)

var stateNames = [...]string{Uncovered: "uncovered", Failed: "failed", Stale: "stale", Current: "current"}

// String returns the name of s.
func (s ScanState) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("ScanState(%d)", uint8(s))
}

// MarshalText writes what String returns.
func (s ScanState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// A Scan is what a report says of one skill.
type Scan struct {
	Report      string    `json:"report"` // the file, as messages call it
	Tools       []string  `json:"tools"`
	State       ScanState `json:"state"`
	Reason      string    `json:"reason"`       // why it is in this state
	Findings    uint64    `json:"findings"`     // that count as vulnerabilities
	Unplaced    uint64    `json:"unplaced"`     // of Findings: in no place that is known to be in the skill
	SelfExcused uint64    `json:"self_excused"` // of Findings: suppressed in the skill's own source, which has no effect
	Below       uint64    `json:"below"`        // less severe than what counts
	Suppressed  uint64    `json:"suppressed"`   // by a decision that is not the skill's own, and not counted
	Outdated    uint64    `json:"outdated"`     // of another version of the skill, and not counted
}

// A Scope says what a report is to be asked about a skill.
type Scope struct {
	Folder string   // the skill's
	Base   string   // what its relative paths start from; "" is Folder
	Digest *Digest  // which version was scanned, if the operator says so
	Min    Severity // the least that counts; NoSeverity is everything
}

// Scan counts the report's findings for the skill in a folder. A finding counts
// unless it is in another file that exists under the base: one without a place,
// or with a place that is not known here, counts.
//
// The report covers the version of the skill that the operator says it does, or
// else the one whose files it lists, every one, with their SHA-256. The
// error is that of a folder that does not exist.
func (r *Report) Scan(t *Tree, s Scope) (*Scan, error) {
	p, err := newPlaces(s)
	if err != nil {
		return nil, err
	}
	scan := &Scan{}
	var stale, failed, uncovered string
	covered := s.Digest != nil
	other := covered && *s.Digest != t.Digest
	if other {
		stale = fmt.Sprintf("it is about %s, and the skill is %s", s.Digest, t.Digest)
	}
	for i := range r.runs {
		run := &r.runs[i]
		scan.Tools = append(scan.Tools, run.Tool.Driver.Name)
		differs, missing := p.compare(run, t)
		outdated := other || differs != ""
		if stale == "" {
			stale = differs
		}
		covered = covered || missing == ""
		uncovered = missing
		if why := run.failure(); why != "" && failed == "" {
			failed = fmt.Sprintf("%s: %s", cut(run.Tool.Driver.Name), why)
		}
		if run.Results != nil {
			for i := range *run.Results {
				p.count(scan, run, &(*run.Results)[i], s.Min, outdated)
			}
		}
	}
	switch {
	case stale != "":
		scan.State, scan.Reason = Stale, stale
	case failed != "":
		scan.State, scan.Reason = Failed, failed
	case !covered:
		scan.State, scan.Reason = Uncovered, uncovered
	default:
		scan.State, scan.Reason = Current, "it is about "+t.Digest.String()
	}
	return scan, nil
}

// failure says why a run does not count as one that has looked; "" if it does.
func (r *run) failure() string {
	if len(r.Invocations) == 0 {
		return "the report does not say that the scan was successful (invocations)"
	}
	for _, i := range r.Invocations {
		if !*i.ExecutionSuccessful {
			return "the report says that the scan was not successful"
		}
	}
	if r.Results == nil {
		return "the report has no results, not even an empty list"
	}
	return ""
}

// places tells where the locations of a report are, as seen from a skill.
type places struct {
	base    string
	folders []string // the skill's, by all its names
}

func newPlaces(s Scope) (*places, error) {
	folder, err := filepath.Abs(s.Folder)
	if err != nil {
		return nil, err
	}
	p := &places{base: folder, folders: []string{folder}}
	if s.Base != "" {
		if p.base, err = filepath.Abs(s.Base); err != nil {
			return nil, err
		}
	}
	if _, err := os.Stat(p.base); err != nil {
		return nil, err
	}
	real, err := filepath.EvalSymlinks(folder)
	if err != nil {
		return nil, err
	}
	if real != folder {
		p.folders = append(p.folders, real)
	}
	return p, nil
}

// A place is where a location is, as seen from a skill.
type place uint8

const (
	unknown   place = iota
	inSkill         // in its folder
	elsewhere       // surely not
)

// find tells where a location is, and in the skill's folder also its path there.
func (p *places) find(r *run, l artifactLocation) (place, string) {
	file, ok := r.resolve(l, p.base)
	if !ok {
		return unknown, ""
	}
	for _, folder := range p.folders {
		if rel, ok := below(folder, file); ok {
			return inSkill, filepath.ToSlash(rel)
		}
	}
	if _, ok := below(p.base, file); ok {
		if info, err := os.Lstat(file); err == nil && info.Mode().IsRegular() {
			return elsewhere, ""
		}
	}
	return unknown, ""
}

// below returns the path from a folder to a file in it.
func below(folder, file string) (string, bool) {
	rel, err := filepath.Rel(folder, file)
	return rel, err == nil && filepath.IsLocal(rel)
}

// maxBases bounds the bases of bases, which could go round in a circle.
const maxBases = 16

// resolve returns the path of a location. It is not known if the location has
// none, or one that is no file's.
func (r *run) resolve(l artifactLocation, base string) (string, bool) {
	if l.URI == "" && l.Index != nil {
		a := r.artifact(*l.Index)
		if a == nil {
			return "", false
		}
		l = a.Location
	}
	if l.URI == "" {
		return "", false
	}
	rel := ""
	for range maxBases {
		u, err := url.Parse(l.URI)
		switch {
		case err != nil, u.Opaque != "", u.Scheme != "" && u.Scheme != "file", u.Host != "" && u.Host != "localhost":
			return "", false
		case u.Scheme == "file", path.IsAbs(u.Path):
			return filepath.FromSlash(path.Join("/", u.Path, rel)), true
		}
		rel = path.Join(u.Path, rel)
		next, known := r.OriginalURIBaseIDs[l.URIBaseID]
		if l.URIBaseID == "" || !known || next.URI == "" {
			return filepath.Join(base, filepath.FromSlash(rel)), true
		}
		l = next
	}
	return "", false
}

// artifact returns the artifact with an index, or the outermost that it is packed
// in; nil if there is none.
func (r *run) artifact(index int) *artifact {
	for range maxBases {
		if index < 0 || index >= len(r.Artifacts) {
			return nil
		}
		a := &r.Artifacts[index]
		if a.ParentIndex == nil || *a.ParentIndex < 0 {
			return a
		}
		index = *a.ParentIndex
	}
	return nil
}

// compare holds the files that a run lists against those of the tree. Differs
// says what makes the two different versions, missing what the run does not list
// of this one; each is "" if there is nothing.
func (p *places) compare(r *run, t *Tree) (differs, missing string) {
	want := make(map[string]File, len(t.Files))
	for _, f := range t.Files {
		want[f.Path] = f
	}
	seen := make(map[string]bool, len(t.Files))
	for i := range r.Artifacts {
		a := &r.Artifacts[i]
		hash, ok := a.Hashes["sha-256"]
		if !ok || a.ParentIndex != nil && *a.ParentIndex >= 0 {
			continue
		}
		where, name := p.find(r, a.Location)
		if where != inSkill || name == SignatureFile {
			continue
		}
		f, ok := want[name]
		if !ok {
			return fmt.Sprintf("it lists %s, which the skill does not have", cut(name)), "it lists other files"
		}
		if !strings.EqualFold(hash, hex.EncodeToString(f.SHA256[:])) {
			return fmt.Sprintf("it is about another %s than the skill has", cut(name)), "it lists other files"
		}
		seen[name] = true
	}
	for _, f := range t.Files {
		if !seen[f.Path] {
			return "", fmt.Sprintf("it does not list %s with its hash (%d of %d files are listed), and nobody says what digest the skill had when it was scanned",
				cut(f.Path), len(seen), len(t.Files))
		}
	}
	return "", ""
}

// count adds a finding to a scan.
func (p *places) count(s *Scan, r *run, f *result, least Severity, outdated bool) {
	switch {
	case f.Kind == "pass", f.Kind == "notApplicable", f.Kind == "informational", f.BaselineState == "absent":
		return // nothing was found, or is no longer there
	}
	placed, outside := false, len(f.Locations) > 0
	for _, l := range f.Locations {
		where, _ := p.find(r, l.PhysicalLocation.ArtifactLocation)
		placed = placed || where == inSkill
		outside = outside && where == elsewhere
	}
	severity := r.severity(f)
	excused, suppressed := f.suppression()
	switch {
	case outside:
	case outdated:
		s.Outdated++
	case suppressed:
		s.Suppressed++
	case severity != NoSeverity && severity < least:
		s.Below++
	default:
		s.Findings++
		if !placed {
			s.Unplaced++
		}
		if excused {
			s.SelfExcused++
		}
	}
}

// suppression tells whether the skill's own source suppresses a finding, and
// whether somebody else does. Whoever writes a skill writes the comments in it, so
// that only the second counts.
func (f *result) suppression() (excused, suppressed bool) {
	others := 0
	suppressed = true
	for _, s := range f.Suppressions {
		if s.Kind == "inSource" {
			excused = true
			continue
		}
		others++
		suppressed = suppressed && (s.Status == "" || s.Status == "accepted")
	}
	return excused, suppressed && others > 0
}
