package conformance

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/bundle"
	"github.com/open-policy-agent/opa/v1/compile"

	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/internal/stockopa"
	"github.com/opa-gate/opa-gate/policies"
)

// build makes a bundle of the embedded policies for a target, as opa build does,
// and returns its file name.
func build(t *testing.T, target string) string {
	t.Helper()
	loader := bundle.NewFSLoaderWithRoot(policies.FS(), ".").
		WithFilter(func(path string, _ fs.FileInfo, _ int) bool { return strings.HasSuffix(path, "_test.rego") })
	b, err := bundle.NewCustomReader(loader).WithProcessAnnotations(true).Read()
	if err != nil {
		t.Fatal(err)
	}
	c := compile.New().WithBundle(&b).WithTarget(target).WithEntrypoints("gate/call/decision", "gate/skill/decision")
	evaluator.WhileCompiling(func() { err = c.Build(t.Context()) })
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := bundle.Write(&text, *c.Bundle()); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "bundle.tar.gz")
	if err := os.WriteFile(file, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// start runs a program until the test is over, and returns its standard output.
// What it says on its standard error is logged if the test fails.
func start(t *testing.T, name string, args ...string) io.Reader {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	program := exec.CommandContext(ctx, name, args...)
	var complaints bytes.Buffer
	program.Stderr = &complaints
	if _, err := program.StdinPipe(); err != nil { // open until the program is to end
		t.Fatal(err)
	}
	out, err := program.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = program.Wait()
		if t.Failed() {
			t.Logf("%s: %.4000s", name, &complaints)
		}
	})
	return out
}

// findNode returns Node.js, which must have what the runner needs; otherwise the
// test is skipped.
func findNode(t *testing.T) string {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skipf("there is no Node.js: %v", err)
	}
	if _, err := os.Stat(filepath.Join("node", "node_modules", "@open-policy-agent", "opa-wasm")); err != nil {
		t.Skipf("run npm ci in conformance/node first: %v", err)
	}
	return node
}

// The WebAssembly build in Node, with OPA's package for it.
func TestNodeHoldsTheSuite(t *testing.T) {
	node := findNode(t)
	s := startNode(t, node, build(t, compile.TargetWasm))
	holdsWhole(t, s.Engine())

	// Numbers pass as they are written, and an input is found wherever it stands.
	got, err := s.Call(t.Context(), []byte(`{"policy":{"transform":{"kind":"rewrite","arguments":{"n":[9007199254740993,1E+400,1.0]}}},
		"tool":{"name":"a}\\\",{","origin":"local-sandbox","read_only":true},"taint":"clean"}`))
	if err != nil || !strings.Contains(string(got), "[9007199254740993,1E+400,1.0]") {
		t.Errorf("got %s, %v", got, err)
	}
	for _, tt := range []struct {
		path, body, want string
		status           int
	}{
		{"/v1/data/gate/call/decision", `{"x": "\"}", "inpu\u0074": 7 , "y": [{}]}`, "breaks its schema: expected an object", 200},
		{"/v1/data/gate/call/decision", `{"input": 7, "input": {}}`, "breaks its schema at /taint", 200},
		{"/v1/data/gate/call/decision", `{"input": {}}}`, "not JSON", 400},
		{"/v1/data/gate/call/decision", "{\"input\": \"\xff\"}", "not JSON", 400},
		{"/v1/data/gate/call/decision", `[]`, "expected an object", 400},
		{"/v1/data/gate/call/decision", `{}`, "expected an object", 400},
		{"/v1/data/gate/call/toString", `{"input": {}}`, "{}", 200},
		{"/v1/data/toString", `{"input": {}}`, "{}", 200},
		{"/", `{"input": {}}`, "resource_not_found", 404},
	} {
		res, err := http.Post(s.base+tt.path, "application/json", strings.NewReader(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || res.StatusCode != tt.status || !strings.Contains(string(text), tt.want) {
			t.Errorf("%s %s: %d %s (%v)", tt.path, tt.body, res.StatusCode, text, err)
		}
	}
}

// startNode runs the runner with a bundle.
func startNode(t *testing.T, node, bundle string) *Server {
	t.Helper()
	address, err := bufio.NewReader(start(t, node, filepath.Join("node", "runner.mjs"), bundle)).ReadString('\n')
	if err != nil {
		t.Fatalf("the runner does not start: %v", err)
	}
	return serverAt(t, strings.TrimSpace(address), nil)
}

// A stock OPA with the policies: as the directory that they are, and as a bundle.
// Their WebAssembly build as a stock OPA makes it answers the same.
func TestStockHoldsTheSuite(t *testing.T) {
	opa := stockopa.Path(t)
	dir := filepath.Join("..", "policies")
	for name, given := range map[string]string{"directory": dir, "bundle": build(t, compile.TargetRego)} {
		t.Run(name, func(t *testing.T) { holdsWhole(t, startOPA(t, opa, given).Engine()) })
	}
	t.Run("other rules", func(t *testing.T) {
		edited := t.TempDir()
		if err := os.CopyFS(edited, policies.FS()); err != nil {
			t.Fatal(err)
		}
		edit(t, filepath.Join(edited, "gate", "taint", "taint.rego"), `+ facts.bit["mutate-external"] if`, "if")
		r := Run(t.Context(), whole(t), nil, Of(evaluator.Native{}, "native", 1), startOPA(t, opa, edited).Engine())
		if r.OK || !r.Engines[0].OK || r.Engines[1].Failed == 0 || len(r.Cases) != r.Engines[1].Failed {
			t.Errorf("nobody noticed: %+v", r.Engines[1].Counts)
		}
	})
	t.Run("its build in Node", func(t *testing.T) {
		node := findNode(t)
		file := filepath.Join(t.TempDir(), "bundle.tar.gz")
		made, err := exec.Command(opa, "build", "--target", "wasm", "--entrypoint", "gate/call/decision", "--entrypoint", "gate/skill/decision",
			"--ignore", "*_test.rego", "--bundle", dir, "--output", file).CombinedOutput()
		if err != nil {
			t.Fatalf("opa build: %v\n%s", err, made)
		}
		holdsWhole(t, startNode(t, node, file).Engine())
	})
}

// startOPA runs OPA's server on a port that was free a moment ago.
func startOPA(t *testing.T, opa, policies string) *Server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	start(t, opa, "run", "--server", "--skip-version-check", "--addr", address, "--log-level", "error", "--bundle", policies)
	end := time.Now().Add(20 * time.Second)
	for {
		res, err := http.Get("http://" + address + "/health?bundles")
		if err == nil {
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return serverAt(t, fmt.Sprintf("http://%s", address), nil)
			}
		}
		if time.Now().After(end) {
			t.Fatalf("OPA does not start: %v", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
