package conformance

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/logging"

	"github.com/opa-gate/opa-gate/bundle"
	"github.com/opa-gate/opa-gate/internal/stockopa"
	"github.com/opa-gate/opa-gate/server"
)

// The whole suite, by every road from the policies to somebody who decides:
// each is a real server that fetches the built bundle from another.
func TestRoadsHoldTheSuite(t *testing.T) {
	built, err := bundle.Build(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	roads := []struct {
		name   string
		source func(t *testing.T, text []byte) (config string)
		reader func(t *testing.T, config string) *Server
	}{
		{"a stock OPA fed by opa-gate bundle serve", bundleServer, stockReader},
		{"a stock OPA fed by nginx", nginx, stockReader},
		{"a stock OPA fed by a registry", registry, stockReader},
		{"opa-gate serve fed by opa-gate bundle serve", bundleServer, gateReader},
		{"opa-gate serve fed by nginx", nginx, gateReader},
		{"opa-gate serve fed by a registry", registry, gateReader},
	}
	for _, road := range roads {
		t.Run(road.name, func(t *testing.T) {
			holdsWhole(t, road.reader(t, road.source(t, built.Bytes)).Engine())
		})
	}
}

// fetching is a configuration of OPA that fetches a bundle.
func fetching(url, service, resource string) string {
	return fmt.Sprintf(`
services:
  source:
    url: %s
    %s
bundles:
  gate:
    service: source
    resource: %s
    polling: {min_delay_seconds: 1, max_delay_seconds: 2}
`, url, service, resource)
}

// bundleServer serves a bundle with this module's own server.
func bundleServer(t *testing.T, text []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "gate.tar.gz")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s, err := bundle.NewServer(ctx, &bundle.ServerOptions{Bundles: []bundle.Source{{Name: "gate", Path: file}}})
	if err != nil {
		stop()
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		stop()
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return fetching("http://"+l.Addr().String(), "response_header_timeout_seconds: 10", "bundles/gate")
}

// required is the environment variable that makes a missing program a failure.
const required = "OPA_GATE_REQUIRE_SERVERS"

func program(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
		return path
	case os.Getenv(required) != "":
		t.Fatalf("there is no %s, and %s is set: %v", name, required, err)
	default:
		t.Skipf("there is no %s: %v", name, err)
	}
	return ""
}

// freeAddress is an address that was free a moment ago, for programs that cannot
// say which one they chose.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// answers waits until a server answers at all.
func answers(t *testing.T, url string) {
	t.Helper()
	for until := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		resp, err := http.Get(url)
		if err == nil {
			_ = resp.Body.Close()
			return
		}
		if time.Now().After(until) {
			t.Fatalf("%s does not answer: %v", url, err)
		}
	}
}

// nginx serves a bundle as a plain file.
func nginx(t *testing.T, text []byte) string {
	t.Helper()
	path := program(t, "nginx")
	dir, address := t.TempDir(), freeAddress(t)
	if err := os.MkdirAll(filepath.Join(dir, "www"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "www", "gate.tar.gz"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf(`
daemon off;
master_process off;
pid %[1]s/pid;
error_log stderr warn;
events {}
http {
  access_log off;
  client_body_temp_path %[1]s/body;
  proxy_temp_path %[1]s/proxy;
  fastcgi_temp_path %[1]s/fastcgi;
  uwsgi_temp_path %[1]s/uwsgi;
  scgi_temp_path %[1]s/scgi;
  types { application/gzip gz; }
  server {
    listen %[2]s;
    root %[1]s/www;
  }
}
`, dir, address)
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, path, "-p", dir, "-c", file, "-e", "stderr")
	answers(t, "http://"+address)
	return fetching("http://"+address, "response_header_timeout_seconds: 10", "gate.tar.gz")
}

// registry has a bundle in an OCI registry.
func registry(t *testing.T, text []byte) string {
	t.Helper()
	path := program(t, "docker-registry")
	dir, address := t.TempDir(), freeAddress(t)
	config := fmt.Sprintf(`
version: 0.1
log: {level: error}
storage: {filesystem: {rootdirectory: %s/data}}
http: {addr: %s}
`, dir, address)
	file := filepath.Join(dir, "config.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, path, "serve", file)
	answers(t, "http://"+address+"/v2/")
	if _, err := bundle.Push(t.Context(), text, address+"/policies/gate:v1", &bundle.RemoteOptions{PlainHTTP: bundle.PlainHTTPLoopback}); err != nil {
		t.Fatal(err)
	}
	return fetching("http://"+address, "type: oci", address+"/policies/gate:v1")
}

// stockReader is a stock OPA, once it has the bundle.
func stockReader(t *testing.T, config string) *Server {
	t.Helper()
	opa, address, dir := stockopa.Path(t), freeAddress(t), t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte(config+"persistence_directory: "+dir+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, opa, "run", "--server", "--disable-telemetry", "--addr", address, "--log-level", "error", "--config-file", file)
	awaitBundles(t, "http://"+address+"/health?bundles")
	return serverAt(t, "http://"+address, nil)
}

// gateReader is the gate's own server, once it has the bundle.
func gateReader(t *testing.T, config string) *Server {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte(config+"persistence_directory: "+dir+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	logger := logging.New()
	logger.SetLevel(logging.Error)
	ctx, stop := context.WithCancel(context.Background())
	s, err := server.New(ctx, &server.Options{Addrs: []string{"127.0.0.1:0"}, ConfigFile: file, Logger: logger, Grace: time.Minute})
	if err != nil {
		stop()
		t.Fatal(err)
	}
	listening, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- s.Serve(ctx, func() { close(listening) }) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-listening:
	case err := <-done:
		done <- nil
		t.Fatalf("the server does not listen: %v", err)
	}
	url := "http://" + s.Addrs()[0]
	awaitBundles(t, url+"/v1/gate/health")
	return serverAt(t, url, nil)
}

// awaitBundles waits until a server says that it has its bundles.
func awaitBundles(t *testing.T, url string) {
	t.Helper()
	for until := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		resp, err := http.Get(url)
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		if time.Now().After(until) {
			t.Fatalf("%s: there are no bundles: %v", url, err)
		}
	}
}
