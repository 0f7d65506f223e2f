package stockopa

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/version"
)

func TestPath(t *testing.T) {
	path := Path(t)
	out, err := exec.Command(path, "version").Output()
	if err != nil {
		t.Fatalf("%s version: %v", path, err)
	}
	if want := "Version: " + version.Version + "\n"; !strings.HasPrefix(string(out), want) {
		t.Errorf("opa version says %q, want it to begin with %q", out, want)
	}
	if again := Path(t); again != path {
		t.Errorf("asked again, the path is %s, and was %s", again, path)
	}
}
