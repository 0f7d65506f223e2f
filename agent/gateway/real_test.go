package gateway

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// The reference servers, by the official client, with the gateway before them
// and without: the same comes of everything.
func TestRealServers(t *testing.T) {
	if testing.Short() {
		t.Skip("takes two minutes")
	}
	required := os.Getenv("OPA_GATE_REQUIRE_SERVERS") != ""
	node, err := exec.LookPath("node")
	if err == nil {
		_, err = os.Stat(filepath.Join("node", "node_modules", "@modelcontextprotocol", "server-everything"))
	}
	if err != nil {
		if required {
			t.Fatalf("OPA_GATE_REQUIRE_SERVERS is set, and there are none: %v; run npm ci --prefix agent/gateway/node", err)
		}
		t.Skipf("no servers: %v; run npm ci --prefix agent/gateway/node", err)
	}
	program := buildGate(t)
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), node, filepath.Join("node", "compare.mjs"), program, t.TempDir())
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	t.Logf("%s", out.Bytes())
	if err != nil {
		t.Fatalf("compare.mjs: %v", err)
	}
	if got := len(regexp.MustCompile(`(?m)^same  `).FindAll(out.Bytes(), -1)); got != 6 {
		t.Errorf("%d comparisons came out the same, want 6", got)
	}
}

// buildGate builds the program.
func buildGate(t testing.TB) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "opa-gate")
	if out, err := exec.Command("go", "build", "-o", program, "../../cmd/opa-gate").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return program
}
