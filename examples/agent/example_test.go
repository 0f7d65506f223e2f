// Package example holds the test of the worked example.
package example

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// What the README prints is what the script prints.
func TestExample(t *testing.T) {
	if testing.Short() {
		t.Skip("other programs do the work, which this one's race detector does not see")
	}
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("no bash")
	}
	bin := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", bin, "../../cmd/opa-gate").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	cmd := exec.Command("bash", "run.sh")
	cmd.Env = append(os.Environ(), "BIN="+bin)
	var stderr strings.Builder
	cmd.Stderr = &stderr // has progress, on a slow machine
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("run.sh: %v\n%s%s", err, out, stderr.String())
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, ok := strings.Cut(string(readme), "a test holds it against this text.\n")
	if !ok {
		t.Fatal("README.md does not show what run.sh prints")
	}
	var want strings.Builder
	for line := range strings.Lines(shown) {
		want.WriteString(strings.TrimRight(strings.TrimPrefix(line, "    "), " \n") + "\n")
	}
	trimmed := func(text string) string { return strings.Trim(text, "\n") }
	if got := trimmed(string(out)); got != trimmed(want.String()) {
		t.Errorf("run.sh prints\n%s\nand README.md says\n%s", got, want.String())
	}
}
