package provenance

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opa-gate/opa-gate/skill"
)

// operator is a folder of what an operator has: skills, reports, a manifest.
func operator(t *testing.T, more files) string {
	t.Helper()
	all := files{}
	for name, text := range skillsFolder {
		all["skills/"+name] = text
	}
	for name, text := range more {
		all[name] = text
	}
	return all.write(t)
}

func manifestOf(t *testing.T, dir string) *Manifest {
	t.Helper()
	m, err := ReadManifest(filepath.Join(dir, "skills.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestManifestErrors(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0", 64)
	tests := map[string][2]string{ // the text, and what the error has
		"empty":                   {"", "it is empty"},
		"no skills":               {"min_severity: low\n", "expected at least one skill in skills"},
		"a list":                  {"- a\n", "line 1: expected a mapping, got a list"},
		"not YAML":                {"skills: [\n", "the manifest cannot be used: line"},
		"two documents":           {"skills: {a: {requested: read_only}}\n---\n{}\n", "expected one YAML document"},
		"a member that is none":   {"skills: {a: {requested: read_only, trusted: true}}\n", "line 1: there is no member trusted"},
		"says that it is signed":  {"skills: {a: {requested: read_only, signed: true}}\n", "line 1: there is no member signed"},
		"a skill twice":           {"skills:\n  a: {requested: read_only}\n  a: {requested: full_access}\n", "already defined"},
		"a name twice":            {"skills: {a: {requested: read_only}, b: {name: a, requested: read_only}}\n", `skills: b: it has the name of a, "a"`},
		"nothing said of a skill": {"skills: {a: }\n", "skills: a: expected what tier is requested"},
		"no tier":                 {"skills: {a: {}}\n", `requested: expected read_only, sandbox_edit or full_access, got ""`},
		"a tier that is none":     {"skills: {a: {requested: readonly}}\n", `got "readonly"`},
		"a way":                   {"skills: {a/b: {requested: read_only}}\n", "expected the name of a folder, without the way there"},
		"a way up":                {"skills: {..: {requested: read_only}}\n", "expected the name of a folder"},
		"the folder itself":       {"skills: {.: {requested: read_only}}\n", "expected the name of a folder"},
		"no folder":               {`skills: {"": {requested: read_only}}`, "expected the name of a folder"},
		"a negative count":        {"skills: {a: {requested: read_only, fail_count: -1}}\n", "expected a whole number from 0 to 18446744073709551615"},
		"a count too large":       {"skills: {a: {requested: read_only, fail_count: 18446744073709551616}}\n", "expected a whole number"},
		"a count with a point":    {"skills: {a: {requested: read_only, fail_count: 1.5}}\n", "line 1: expected a whole number"},
		"a count as text":         {"skills: {a: {requested: read_only, fail_count: '1'}}\n", "expected a whole number"},
		"a count of many":         {"skills: {a: {requested: read_only, fail_count: [1]}}\n", "expected a whole number"},
		"a severity":              {"min_severity: info\nskills: {a: {requested: read_only}}\n", "min_severity: expected low, medium, high, critical"},
		"a report without a file": {"skills: {a: {requested: read_only, reports: [{base: x}]}}\n", "reports[0]: expected the name of a file"},
		"a digest":                {"skills: {a: {requested: read_only, reports: [{file: x, digest: y}]}}\n", "reports[0]: digest: not a digest"},
		"a digest of all":         {"reports: [{file: x, digest: '" + digest + "'}]\nskills: {a: {requested: read_only}}\n", "a digest is that of one skill"},
	}
	for name, tt := range tests {
		dir := files{"skills.yaml": tt[0]}.write(t)
		m, err := ReadManifest(filepath.Join(dir, "skills.yaml"))
		if m != nil || !errors.Is(err, ErrManifest) || !strings.Contains(err.Error(), tt[1]) {
			t.Errorf("%s: got %v, %v, want %q", name, m, err, tt[1])
		}
	}
	if _, err := ReadManifest(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if _, err := ReadManifest(filepath.Join(files{"m": strings.Repeat("#", maxConfig+1)}.write(t), "m")); err == nil {
		t.Error("a manifest without end was read")
	}
}

func TestExamine(t *testing.T) {
	private, public := pair(t)
	dir := operator(t, files{
		"skills.yaml": `
min_severity: medium
reports: [{file: reports/all.sarif}]
skills:
  pdf: {name: "pdf: tools", requested: full_access, success_count: 18446744073709551615, fail_count: 3}
  docx: {requested: read_only, reports: [{file: reports/docx.sarif, digest: "` + files{"SKILL.md": "# DOCX\n"}.tree(t).Digest.String() + `"}]}
`,
		"reports/all.sarif": sarif(results("{"+at("docx/SKILL.md")+`,"level":"note"},{`+at("docx/SKILL.md")+`,"level":"error"}`),
			listed(files{"pdf/SKILL.md": "# PDF\n", "pdf/scripts/run.py": "print(1)\n"})),
		"reports/docx.sarif": sarif(results("{" + at("SKILL.md") + `,"level":"warning"}`)),
		"keys/release.pem":   public,
		"keys/keyring.yaml":  "release: {trusted: true, source: first_party}\n",
	})
	skills := filepath.Join(dir, "skills")
	tree, err := ReadTree(filepath.Join(skills, "pdf"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(skills, "pdf", SignatureFile), signed(t, tree, private), 0o644); err != nil {
		t.Fatal(err)
	}
	ring, err := ReadKeyring(filepath.Join(dir, "keys"))
	if err != nil {
		t.Fatal(err)
	}
	m := manifestOf(t, dir)
	facts, err := m.Examine(skills, "pdf", ring)
	want := skill.Provenance{Signed: true, SignerTrusted: true, Scanned: true, SuccessCount: 1<<64 - 1, FailCount: 3, Source: skill.FirstParty}
	if err != nil || facts.Provenance != want || facts.Key.Name != "release" || facts.Unsigned != nil || facts.Digest != tree.Digest || len(facts.Scans) != 1 {
		t.Errorf("got %+v, %v", facts, err)
	}
	if m.Skills["pdf"].Name != "pdf: tools" || m.Skills["docx"].Name != "docx" || m.Skills["docx"].Requested != skill.ReadOnly {
		t.Errorf("got %+v, %+v", m.Skills["pdf"], m.Skills["docx"])
	}
	// The findings of all reports count, and one report that covers it is enough.
	facts, err = m.Examine(skills, "docx", ring)
	if err != nil || facts.Provenance != (skill.Provenance{Scanned: true, Vulnerabilities: 2}) || !errors.Is(facts.Unsigned, ErrNoSignature) ||
		len(facts.Scans) != 2 || facts.Scans[0].State != Uncovered || facts.Scans[0].Below != 1 || facts.Scans[1].State != Current {
		t.Errorf("got %+v, %v", facts, err)
	}
	// A key that is known need not be trusted, and its skills need not be anybody's.
	known := ringOf(t, files{"release.pem": public})
	facts, err = m.Examine(skills, "pdf", known)
	if err != nil || !facts.Provenance.Signed || facts.Provenance.SignerTrusted || facts.Provenance.Source != skill.UnknownSource {
		t.Errorf("got %+v, %v", facts, err)
	}
	// A report that does not cover it leaves it unscanned, and its findings count.
	if err := os.WriteFile(filepath.Join(dir, "skills.yaml"), []byte("reports: [{file: reports/all.sarif}]\nskills: {docx: {requested: read_only}}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	facts, err = manifestOf(t, dir).Examine(skills, "docx", ring)
	if err != nil || facts.Provenance != (skill.Provenance{Vulnerabilities: 2}) || facts.Scans[0].State != Uncovered {
		t.Errorf("got %+v, %v", facts, err)
	}
	// Without a keyring nobody is known.
	facts, err = m.Examine(skills, "pdf", nil)
	if err != nil || facts.Provenance.Signed || facts.Provenance.SignerTrusted || facts.Provenance.Source != skill.UnknownSource || !errors.Is(facts.Unsigned, ErrUnknownKey) {
		t.Errorf("got %+v, %v", facts, err)
	}
	// One byte, and neither signature nor scan is this skill's.
	if err := os.WriteFile(filepath.Join(skills, "pdf", "SKILL.md"), []byte("# PDG\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	facts, err = m.Examine(skills, "pdf", ring)
	if err != nil || facts.Provenance.Signed || facts.Provenance.SignerTrusted || facts.Provenance.Scanned || facts.Provenance.Source != skill.UnknownSource ||
		!errors.Is(facts.Unsigned, ErrOtherFiles) || facts.Scans[0].State != Stale {
		t.Errorf("got %+v, %v", facts, err)
	}
	if unnamed, err := m.Unnamed(skills); err != nil || len(unnamed) != 0 {
		t.Errorf("got %q, %v", unnamed, err)
	}
}

func TestExamineErrors(t *testing.T) {
	good := sarif(results())
	dir := operator(t, files{
		"skills.yaml": `
skills:
  gone: {requested: read_only}
  README.md: {requested: read_only}
  link: {requested: read_only}
  linked: {requested: read_only}
  broken: {requested: read_only, reports: [{file: reports/broken.sarif}]}
  none: {requested: read_only, reports: [{file: reports/none.sarif}]}
  own: {requested: read_only, reports: [{file: skills/own/scan.sarif}]}
  another: {requested: read_only, reports: [{file: skills/own/scan.sarif}]}
  borrowed: {requested: read_only, reports: [{file: reports/way.sarif}]}
  lent: {requested: read_only, reports: [{file: skills/linked/way.sarif}]}
  baseless: {requested: read_only, reports: [{file: reports/good.sarif, base: none}]}
  fine: {requested: read_only, reports: [{file: skills/beside.sarif}]}
`,
		"reports/broken.sarif": good[:40], "reports/good.sarif": good,
		"skills/own/scan.sarif": good, "skills/own/SKILL.md": "", "skills/another/SKILL.md": "", "skills/broken/SKILL.md": "", "skills/none/SKILL.md": "",
		"skills/linked/SKILL.md": "", "skills/borrowed/SKILL.md": "", "skills/lent/SKILL.md": "", "skills/baseless/SKILL.md": "", "skills/fine/SKILL.md": "", "skills/beside.sarif": good,
	})
	skills := filepath.Join(dir, "skills")
	for to, name := range map[string]string{
		filepath.Join(skills, "pdf"):                   filepath.Join(skills, "link"),
		filepath.Join(dir, "reports/good.sarif"):       filepath.Join(skills, "linked/way.sarif"),
		filepath.Join(skills, "own", "scan.sarif"):     filepath.Join(dir, "reports/way.sarif"),
		filepath.Join(dir, "reports", "nowhere.sarif"): filepath.Join(skills, "dangling"),
	} {
		if err := os.Symlink(to, name); err != nil {
			t.Fatal(err)
		}
	}
	m := manifestOf(t, dir)
	for folder, want := range map[string]error{
		"gone": ErrMissing, "README.md": ErrTree, "link": ErrTree, "linked": ErrTree, "broken": ErrReport, "none": fs.ErrNotExist,
		"own": ErrSelfServing, "another": ErrSelfServing, "borrowed": ErrSelfServing, "lent": ErrSelfServing, "baseless": fs.ErrNotExist, "fine": nil,
	} {
		if facts, err := m.Examine(skills, folder, nil); !errors.Is(err, want) || (facts == nil) != (want != nil) {
			t.Errorf("%s: got %+v, %v, want %v", folder, facts, err, want)
		}
	}
	if facts, err := m.Examine(skills, "pdf", nil); facts != nil || err == nil {
		t.Errorf("a skill that is not named: %+v, %v", facts, err)
	}
	unnamed, err := m.Unnamed(skills)
	if got := strings.Join(unnamed, " "); err != nil || got != "dangling docx pdf" {
		t.Errorf("got %q, %v", got, err)
	}
}
