package stockopa

import (
	"net/http"
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

func TestStart(t *testing.T) {
	s := Start(t, "labels: {who: a test}\n")
	if code, body, err := s.Do(t.Context(), http.MethodPut, "/v1/policies/p", []byte("package p\n\nx := input.y + 1")); code != 200 || err != nil {
		t.Fatalf("%d, %s, %v", code, body, err)
	}
	for input, want := range map[any]any{1: 2.0, "a": nil} {
		got, err := s.Data(t.Context(), "p/x", map[string]any{"y": input})
		if err != nil || got != want {
			t.Errorf("of %v it is %v, %v, want %v", input, got, err, want)
		}
	}
	if !strings.Contains(s.Log(), `"req_path":"/v1/data/p/x"`) {
		t.Errorf("the log does not tell of requests: %s", s.Log())
	}
}
