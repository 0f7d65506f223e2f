package provenance

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// skillsFolder has the skills pdf and docx, and a file of its own.
var skillsFolder = files{"pdf/SKILL.md": "# PDF\n", "pdf/scripts/run.py": "print(1)\n", "docx/SKILL.md": "# DOCX\n", "README.md": "x\n"}

// listed is the artifacts of a run: names as URIs, each with the hash of a text.
func listed(f files) string {
	var list []string
	for name, text := range f {
		list = append(list, `{"location":{"uri":"`+name+`"},"hashes":{"sha-256":"`+sum(text)+`"}}`)
	}
	return `"artifacts":[` + strings.Join(list, ",") + `]`
}

func at(uri string) string {
	return `"locations":[{"physicalLocation":{"artifactLocation":{"uri":"` + uri + `"}}}]`
}

func scanOf(t testing.TB, text string, s Scope) *Scan {
	t.Helper()
	tree, err := ReadTree(s.Folder)
	if err != nil {
		t.Fatal(err)
	}
	scan, err := read(t, text).Scan(tree, s)
	if err != nil {
		t.Fatal(err)
	}
	return scan
}

func TestStates(t *testing.T) {
	dir := skillsFolder.write(t)
	pdf := filepath.Join(dir, "pdf")
	tree, err := ReadTree(pdf)
	if err != nil {
		t.Fatal(err)
	}
	other := tree.Digest
	other[0]++
	whole := files{"pdf/SKILL.md": "# PDF\n", "pdf/scripts/run.py": "print(1)\n"}
	const good = `"invocations":[{"executionSuccessful":true}]`
	run := func(members ...string) string { return `{"tool":{"driver":{"name":"s"}}` + joined(members) + `}` }
	tests := []struct {
		name   string
		text   string
		digest *Digest
		want   ScanState
	}{
		{"lists every file", sarif(results(), listed(whole)), nil, Current},
		{"and others'", sarif(results(), listed(files{"pdf/SKILL.md": "# PDF\n", "pdf/scripts/run.py": "print(1)\n", "docx/SKILL.md": "?", "README.md": ""})), nil, Current},
		{"and the signature", sarif(results(), listed(files{"pdf/SKILL.md": "# PDF\n", "pdf/scripts/run.py": "print(1)\n", "pdf/SIGNATURE.json": ""})), nil, Current},
		{"the operator says so", sarif(results()), &tree.Digest, Current},
		{"both do", sarif(results(), listed(whole)), &tree.Digest, Current},
		{"lists a part, and the operator says so", sarif(results(), listed(files{"pdf/SKILL.md": "# PDF\n"})), &tree.Digest, Current},
		{"nobody does", sarif(results()), nil, Uncovered},
		{"lists a part", sarif(results(), listed(files{"pdf/SKILL.md": "# PDF\n"})), nil, Uncovered},
		{"lists other skills", sarif(results(), listed(files{"docx/SKILL.md": "# DOCX\n"})), nil, Uncovered},
		{"lists no hashes", sarif(results(), `"artifacts":[{"location":{"uri":"pdf/SKILL.md"}},{"location":{"uri":"pdf/scripts/run.py"}}]`), nil, Uncovered},
		{"other hashes alone", sarif(results(), `"artifacts":[{"location":{"uri":"pdf/SKILL.md"},"hashes":{"md5":"x"}},{"location":{"uri":"pdf/scripts/run.py"},"hashes":{"md5":"x"}}]`), nil, Uncovered},
		{"two runs list one half each", sarifRuns(run(good, results(), listed(files{"pdf/SKILL.md": "# PDF\n"})), run(good, results(), listed(files{"pdf/scripts/run.py": "print(1)\n"}))), nil, Uncovered},
		{"another file", sarif(results(), listed(files{"pdf/SKILL.md": "# PDG\n", "pdf/scripts/run.py": "print(1)\n"})), nil, Stale},
		{"a file that is gone", sarif(results(), listed(files{"pdf/SKILL.md": "# PDF\n", "pdf/scripts/run.py": "print(1)\n", "pdf/gone": ""})), nil, Stale},
		{"another digest", sarif(results()), &other, Stale},
		{"another digest, these hashes", sarif(results(), listed(whole)), &other, Stale},
		{"this digest, another file", sarif(results(), listed(files{"pdf/SKILL.md": "# PDG\n"})), &tree.Digest, Stale},
		{"no invocations", sarifRuns(run(results(), listed(whole))), &tree.Digest, Failed},
		{"empty invocations", sarifRuns(run(`"invocations":[]`, results(), listed(whole))), &tree.Digest, Failed},
		{"not successful", sarifRuns(run(`"invocations":[{"executionSuccessful":false}]`, results(), listed(whole))), &tree.Digest, Failed},
		{"not the second time", sarifRuns(run(`"invocations":[{"executionSuccessful":true},{"executionSuccessful":false}]`, results(), listed(whole))), &tree.Digest, Failed},
		{"no results", sarif(listed(whole)), &tree.Digest, Failed},
		{"null results", sarif(`"results":null`, listed(whole)), &tree.Digest, Failed},
		{"the second run failed", sarifRuns(run(good, results(), listed(whole)), run(results())), nil, Failed},
		{"failed and stale", sarifRuns(run(results())), &other, Stale},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			scan := scanOf(t, tt.text, Scope{Folder: pdf, Base: dir, Digest: tt.digest, Min: Low})
			if scan.State != tt.want || scan.Reason == "" || scan.Findings != 0 {
				t.Errorf("got %+v, want %v", scan, tt.want)
			}
		})
	}
}

// What stands in the signature's place and is none is a file of the skill like any
// other: a report that lists it with its hash covers it, and one with another hash
// is about another version.
func TestStatesWithAFileInTheSignaturesPlace(t *testing.T) {
	dir := files{"pdf/SKILL.md": "# PDF\n", "pdf/" + SignatureFile: "no signature"}.write(t)
	for text, want := range map[string]ScanState{"no signature": Current, "another text": Stale} {
		report := sarif(results(), listed(files{"pdf/SKILL.md": "# PDF\n", "pdf/" + SignatureFile: text}))
		scan := scanOf(t, report, Scope{Folder: filepath.Join(dir, "pdf"), Base: dir, Min: Low})
		if scan.State != want {
			t.Errorf("listed with the hash of %q: got %+v, want %v", text, scan, want)
		}
	}
}

// Where a finding is, as a report of the whole folder and as one of the skill
// alone says it; and whether it counts for pdf.
func TestPlaces(t *testing.T) {
	dir := skillsFolder.write(t)
	pdf := filepath.Join(dir, "pdf")
	url := "file://" + filepath.ToSlash(dir)
	bases := `"originalUriBaseIds":{"ROOT":{"uri":"` + url + `/"},"SKILL":{"uri":"pdf/","uriBaseId":"ROOT"},"LOOP":{"uri":"x/","uriBaseId":"LOOP"},"OPEN":{}}`
	based := func(uri, id string) string {
		return `"locations":[{"physicalLocation":{"artifactLocation":{"uri":"` + uri + `","uriBaseId":"` + id + `"}}}]`
	}
	const not, counts, unplaced = "0 0", "1 0", "1 1" // findings and unplaced
	tests := []struct {
		name, result string
		whole, own   string // base is the folder of skills, or the skill's own
	}{
		{"in pdf", at("pdf/scripts/run.py"), counts, counts}, // from pdf it is pdf/pdf/scripts/run.py
		{"in a file of pdf that is gone", at("pdf/gone.py"), counts, counts},
		{"in docx", at("docx/SKILL.md"), not, counts},
		{"in a file of docx that is gone", at("docx/gone.md"), unplaced, counts},
		{"in pdf, from there", at("SKILL.md"), unplaced, counts},
		{"in the folder's own file", at("README.md"), not, counts},
		{"in the folder itself", at("pdf"), counts, counts},
		{"in another folder", at("docx"), unplaced, counts},
		{"roundabout", at("docx/../pdf/SKILL.md"), counts, counts},
		{"escaped", at("pdf/SKILL%2Emd"), counts, counts},
		{"above", at("../x"), unplaced, unplaced},
		{"beside, from pdf", at("../docx/SKILL.md"), unplaced, unplaced},
		{"no location", `"message":{"text":"m"}`, unplaced, unplaced},
		{"an empty list", `"locations":[]`, unplaced, unplaced},
		{"an empty location", `"locations":[{}]`, unplaced, unplaced},
		{"on the web", at("https://example.org/docx/SKILL.md"), unplaced, unplaced},
		{"on another machine", at("file://host/" + filepath.ToSlash(dir) + "/docx/SKILL.md"), unplaced, unplaced},
		{"no URI", at("%zz"), unplaced, unplaced},
		{"absolute", at(url + "/pdf/SKILL.md"), counts, counts},
		{"absolute, docx", at(url + "/docx/SKILL.md"), not, unplaced},
		{"absolute without a scheme", at(filepath.ToSlash(dir) + "/docx/SKILL.md"), not, unplaced},
		{"exists elsewhere on the machine", at("file:///etc/passwd"), unplaced, unplaced},
		{"on a drive", at("C:/skills/docx/SKILL.md"), unplaced, unplaced},
		{"from a base", based("pdf/SKILL.md", "ROOT"), counts, counts},
		{"docx from a base", based("docx/SKILL.md", "ROOT"), not, unplaced},
		{"from a base of a base", based("SKILL.md", "SKILL"), counts, counts},
		{"from a base that is nowhere", based("docx/SKILL.md", "%SRCROOT%"), not, counts},
		{"from a base that is open", based("docx/SKILL.md", "OPEN"), not, counts},
		{"from bases in a circle", based("docx/SKILL.md", "LOOP"), unplaced, unplaced},
		{"by number", `"locations":[{"physicalLocation":{"artifactLocation":{"index":1}}}]`, not, counts},
		{"packed in a file of docx", `"locations":[{"physicalLocation":{"artifactLocation":{"index":2}}}]`, not, counts},
		{"packed in itself", `"locations":[{"physicalLocation":{"artifactLocation":{"index":3}}}]`, unplaced, unplaced},
		{"by a number that is none", `"locations":[{"physicalLocation":{"artifactLocation":{"index":9}}}]`, unplaced, unplaced},
		{"in docx and in pdf", `"locations":[{"physicalLocation":{"artifactLocation":{"uri":"docx/SKILL.md"}}},{"physicalLocation":{"artifactLocation":{"uri":"pdf/SKILL.md"}}}]`, counts, counts},
		{"in docx and anywhere", `"locations":[{"physicalLocation":{"artifactLocation":{"uri":"docx/SKILL.md"}}},{}]`, unplaced, counts},
	}
	artifacts := `"artifacts":[{"location":{"uri":"pdf/SKILL.md"}},{"location":{"uri":"docx/SKILL.md"}},{"location":{"uri":"/in.txt"},"parentIndex":1},{"parentIndex":3}]`
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text := sarif(bases, artifacts, results("{"+tt.result+"}"))
			for base, want := range map[string]string{dir: tt.whole, pdf: tt.own, "": tt.own} {
				scan := scanOf(t, text, Scope{Folder: pdf, Base: base, Min: Low})
				got := string(rune('0'+scan.Findings)) + " " + string(rune('0'+scan.Unplaced))
				if got != want {
					t.Errorf("base %q: got %s, want %s", base, got, want)
				}
			}
		})
	}
	// By another name of the folder it is the same skill.
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	text := sarif(results("{" + at(url+"/pdf/SKILL.md") + "}"))
	if scan := scanOf(t, text, Scope{Folder: filepath.Join(link, "pdf"), Base: link}); scan.Findings != 1 || scan.Unplaced != 0 {
		t.Errorf("through a link: %+v", scan)
	}
	tree, _ := ReadTree(pdf)
	if _, err := read(t, text).Scan(tree, Scope{Folder: pdf, Base: filepath.Join(dir, "none")}); !os.IsNotExist(err) {
		t.Errorf("a base that is not there: %v", err)
	}
}

func TestWhatCounts(t *testing.T) {
	dir := skillsFolder.write(t)
	pdf := filepath.Join(dir, "pdf")
	finding := func(members string) string { return "{" + at("SKILL.md") + "," + members + "}" }
	tests := []struct {
		name, result string
		want         Scan // its numbers, with medium as the least
	}{
		{"error", `"level":"error"`, Scan{Findings: 1}},
		{"warning", `"level":"warning"`, Scan{Findings: 1}},
		{"note", `"level":"note"`, Scan{Below: 1}},
		{"no severity", `"level":"none"`, Scan{Findings: 1}},
		{"open", `"kind":"open","level":"none"`, Scan{Findings: 1}},
		{"passed", `"kind":"pass","level":"none"`, Scan{}},
		{"not applicable", `"kind":"notApplicable"`, Scan{}},
		{"informational", `"kind":"informational","level":"note"`, Scan{}},
		{"no longer there", `"baselineState":"absent","level":"error"`, Scan{}},
		{"as before", `"baselineState":"unchanged","level":"error"`, Scan{Findings: 1}},
		{"suppressed", `"level":"error","suppressions":[{"kind":"external"}]`, Scan{Suppressed: 1}},
		{"suppressed and accepted", `"level":"error","suppressions":[{"kind":"external","status":"accepted"}]`, Scan{Suppressed: 1}},
		{"under review", `"level":"error","suppressions":[{"kind":"external","status":"underReview"}]`, Scan{Findings: 1}},
		{"rejected", `"level":"error","suppressions":[{"kind":"external","status":"rejected"}]`, Scan{Findings: 1}},
		{"accepted and rejected", `"level":"error","suppressions":[{"kind":"external"},{"kind":"external","status":"rejected"}]`, Scan{Findings: 1}},
		{"by the skill itself", `"level":"error","suppressions":[{"kind":"inSource"}]`, Scan{Findings: 1, SelfExcused: 1}},
		{"by the skill itself, accepted", `"level":"error","suppressions":[{"kind":"inSource","status":"accepted"}]`, Scan{Findings: 1, SelfExcused: 1}},
		{"by both", `"level":"error","suppressions":[{"kind":"inSource"},{"kind":"external"}]`, Scan{Suppressed: 1}},
		{"by nobody", `"level":"error","suppressions":[]`, Scan{Findings: 1}},
		{"null", `"level":"error","suppressions":null`, Scan{Findings: 1}},
	}
	var all []string
	for _, tt := range tests {
		all = append(all, finding(tt.result))
		scan := scanOf(t, sarif(results(finding(tt.result))), Scope{Folder: pdf, Min: Medium})
		got := Scan{Findings: scan.Findings, Below: scan.Below, Suppressed: scan.Suppressed, SelfExcused: scan.SelfExcused, Unplaced: scan.Unplaced, Outdated: scan.Outdated}
		if g, w := asJSON(t, got), asJSON(t, tt.want); g != w {
			t.Errorf("%s: got %s, want %s", tt.name, g, w)
		}
	}
	// Of another version they all say nothing.
	scan := scanOf(t, sarif(results(all...)), Scope{Folder: pdf, Min: Medium, Digest: &Digest{}})
	if scan.State != Stale || scan.Findings != 0 || scan.Outdated != uint64(len(tests)-4) {
		t.Errorf("stale: %+v", scan)
	}
	// Two runs, one of them of another version: the other one's count.
	run := func(hash, more string) string {
		return `{"tool":{"driver":{"name":"s"}},"invocations":[{"executionSuccessful":true}],"artifacts":[{"location":{"uri":"SKILL.md"},"hashes":{"sha-256":"` +
			sum(hash) + `"}}],` + results(finding(`"level":"error"`)+more) + `}`
	}
	scan = scanOf(t, sarifRuns(run("old", ","+finding(`"level":"error"`)), run("# PDF\n", "")), Scope{Folder: pdf})
	if scan.State != Stale || scan.Findings != 1 || scan.Outdated != 2 {
		t.Errorf("two versions: %+v", scan)
	}
}

func asJSON(t testing.TB, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// What Cisco's skill scanner found in public skills, by its counts: it writes
// CRITICAL and HIGH as error, MEDIUM as warning, LOW and INFO as note, paths
// from the skill's folder with a base that is nowhere, and no hashes. Severities
// that share a level are taken for the worse one.
func TestARealScannersCounts(t *testing.T) {
	skills := []struct {
		name                              string
		critical, high, medium, low, info int
		want                              map[Severity]uint64
	}{
		{"1inch", 0, 0, 2, 0, 0, map[Severity]uint64{Low: 2, Medium: 2, High: 0, Critical: 0}},
		{"2captcha", 1, 2, 0, 0, 0, map[Severity]uint64{Low: 3, Medium: 3, High: 3, Critical: 3}},
		{"data-processor", 5, 2, 3, 0, 0, map[Severity]uint64{Low: 10, Medium: 10, High: 7, Critical: 7}},
		{"credentials", 1, 0, 0, 0, 1, map[Severity]uint64{Low: 2, Medium: 1, High: 1, Critical: 1}},
		{"clean", 0, 0, 0, 0, 0, map[Severity]uint64{Low: 0, Medium: 0, High: 0, Critical: 0}},
	}
	for _, s := range skills {
		var list []string
		for level, n := range map[string]int{"error": s.critical + s.high, "warning": s.medium, "note": s.low + s.info} {
			for range n {
				list = append(list, `{"ruleId":"R","level":"`+level+`","locations":[{"physicalLocation":{"artifactLocation":{"uri":"SKILL.md","uriBaseId":"%SRCROOT%"},"region":{"startLine":1}}}]}`)
			}
		}
		dir := files{"SKILL.md": s.name}.write(t)
		tree, err := ReadTree(dir)
		if err != nil {
			t.Fatal(err)
		}
		for least, want := range s.want {
			scan := scanOf(t, sarif(results(list...)), Scope{Folder: dir, Digest: &tree.Digest, Min: least})
			if scan.State != Current || scan.Findings != want || scan.Findings+scan.Below != s.want[Low] || scan.Unplaced != 0 {
				t.Errorf("%s from %v: got %+v, want %d", s.name, least, scan, want)
			}
		}
	}
}

// Another reader, of any JSON, must see a reason for every good word that the
// strict one has for a skill.
func FuzzReport(f *testing.F) {
	dir := skillsFolder.write(f)
	pdf := filepath.Join(dir, "pdf")
	tree, err := ReadTree(pdf)
	if err != nil {
		f.Fatal(err)
	}
	whole := listed(files{"pdf/SKILL.md": "# PDF\n", "pdf/scripts/run.py": "print(1)\n"})
	f.Add(sarif(results(), whole))
	f.Add(sarif(results("{"+at("pdf/SKILL.md")+`,"level":"error","suppressions":[{"kind":"inSource"}]}`), whole))
	f.Add(sarif(`"originalUriBaseIds":{"A":{"uri":"pdf/","uriBaseId":"B"},"B":{"uri":"file:///x/"}}`, results(`{"kind":"open"}`)))
	f.Add(severities("error", "9.1")["at the extension's rule"])
	f.Add(sarifRuns(`{"tool":{"driver":{"name":"s"}},"results":null}`))
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ReadReport(strings.NewReader(text))
		if (r == nil) == (err == nil) {
			t.Fatalf("%v, %v", r, err)
		}
		if err != nil {
			return
		}
		var doc struct {
			Runs []map[string]any `json:"runs"`
		}
		if err := json.Unmarshal([]byte(strings.TrimPrefix(text, "\ufeff")), &doc); err != nil || len(doc.Runs) == 0 {
			t.Fatalf("read what is no JSON, or has no runs: %v", err)
		}
		total, last := 0, ^uint64(0)
		for _, run := range doc.Runs {
			list, _ := run["results"].([]any)
			total += len(list)
		}
		for _, digest := range []*Digest{nil, &tree.Digest} {
			for least := Low; least <= Critical; least++ {
				scan, err := r.Scan(tree, Scope{Folder: pdf, Base: dir, Min: least, Digest: digest})
				if err != nil {
					t.Fatal(err)
				}
				if n := scan.Findings + scan.Below + scan.Suppressed + scan.Outdated; n > uint64(total) || scan.Unplaced > scan.Findings || scan.SelfExcused > scan.Findings {
					t.Fatalf("%d findings: %+v", total, scan)
				}
				if least > Low && scan.Findings > last {
					t.Fatalf("more findings from %v than from a lower one", least)
				}
				last = scan.Findings
				if scan.State != Current {
					continue
				}
				for _, run := range doc.Runs {
					list, _ := run["invocations"].([]any)
					for _, i := range list {
						if i.(map[string]any)["executionSuccessful"] != true {
							t.Fatal("current, though the scan was not successful")
						}
					}
					if _, ok := run["results"].([]any); !ok || len(list) == 0 {
						t.Fatal("current without results or invocations")
					}
				}
			}
		}
	})
}
