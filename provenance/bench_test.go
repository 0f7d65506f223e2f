package provenance

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// A skill of 100 files of 10 kB each, and a report with 1,000 findings in it.
func benchmarkSkill(b *testing.B) (folder, report string) {
	b.Helper()
	f := files{}
	var list []string
	for i := range 100 {
		f["scripts/"+strconv.Itoa(i)+".py"] = strings.Repeat("print(1)\n\n", 1000)
	}
	for i := range 1000 {
		list = append(list, `{"ruleId":"r`+strconv.Itoa(i%50)+`","level":"error",`+at("scripts/"+strconv.Itoa(i%100)+".py")+`}`)
	}
	return f.write(b), sarif(results(list...))
}

func BenchmarkReadTree(b *testing.B) {
	folder, _ := benchmarkSkill(b)
	b.SetBytes(1_000_000)
	for b.Loop() {
		if _, err := ReadTree(folder); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReadReport(b *testing.B) {
	_, text := benchmarkSkill(b)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		read(b, text)
	}
}

func BenchmarkScan(b *testing.B) {
	folder, text := benchmarkSkill(b)
	tree, err := ReadTree(folder)
	if err != nil {
		b.Fatal(err)
	}
	r := read(b, text)
	for b.Loop() {
		if _, err := r.Scan(tree, Scope{Folder: folder, Base: filepath.Dir(folder)}); err != nil {
			b.Fatal(err)
		}
	}
}
