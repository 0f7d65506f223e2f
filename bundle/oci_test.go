package bundle_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/download"
	"github.com/open-policy-agent/opa/v1/keys"
	"github.com/open-policy-agent/opa/v1/plugins"
	"github.com/open-policy-agent/opa/v1/plugins/rest"

	opabundle "github.com/open-policy-agent/opa/v1/bundle"

	"github.com/opa-gate/opa-gate/bundle"
)

var loopback = &bundle.RemoteOptions{PlainHTTP: bundle.PlainHTTPLoopback, Timeout: 30 * time.Second}

// startRegistry runs a real registry on this machine and returns its host.
func startRegistry(t *testing.T) string {
	t.Helper()
	program, err := exec.LookPath("docker-registry")
	if err != nil && os.Getenv("OPA_GATE_REQUIRE_SERVERS") != "" {
		t.Fatal("there is no docker-registry, and OPA_GATE_REQUIRE_SERVERS is set")
	}
	if err != nil {
		t.Skip("there is no docker-registry: apt-get install docker-registry")
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	host := free.Addr().String()
	_ = free.Close()
	dir := t.TempDir()
	config := filepath.Join(dir, "config.yml")
	text := fmt.Sprintf("version: 0.1\nlog: {level: error, accesslog: {disabled: true}}\nstorage: {filesystem: {rootdirectory: %q}}\nhttp: {addr: %q, secret: x}\n",
		filepath.Join(dir, "data"), host)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var output bytes.Buffer
	cmd := exec.Command(program, "serve", config)
	cmd.Env = append(os.Environ(), "OTEL_TRACES_EXPORTER=none")
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(output.String())
		}
	})
	for range 200 {
		if resp, err := http.Get("http://" + host + "/v2/"); err == nil {
			_ = resp.Body.Close()
			return host
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("the registry does not answer")
	return ""
}

// noDocker keeps the credentials of whoever runs the tests out of them.
func noDocker(t *testing.T) { t.Setenv("DOCKER_CONFIG", t.TempDir()) }

// A bundle comes back from a real registry as it was, by tag and by digest, and a
// stock OPA pulls and verifies it.
func TestRegistry(t *testing.T) {
	noDocker(t)
	host := startRegistry(t)
	two := pairs()[bundle.RS256]
	signed, err := bundle.Sign(built(t, bundle.TargetRego, 0).Bytes, signingKey(t, bundle.RS256, two[0].private, "prod"))
	if err != nil {
		t.Fatal(err)
	}
	reference := host + "/policies/gate:v1"
	pushed, err := bundle.Push(t.Context(), signed, reference, loopback)
	if err != nil {
		t.Fatal(err)
	}
	again, err := bundle.Push(t.Context(), signed, reference, loopback)
	if err != nil || *again != *pushed {
		t.Errorf("pushed again: %+v, error %v, want %+v", again, err, pushed)
	}
	for _, from := range []string{reference, host + "/policies/gate@" + pushed.Digest} {
		got, remote, err := bundle.Pull(t.Context(), from, loopback)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, signed) || remote.Digest != pushed.Digest || remote.Layer != pushed.Layer || remote.Bytes != len(signed) {
			t.Errorf("%s: %+v, want %+v", from, remote, pushed)
		}
	}
	for from, want := range map[string]string{
		host + "/policies/gate:v2": "there is nothing of that name",
		host + "/other:v1":         "there is nothing of that name",
		host + "/policies/gate@sha256:" + strings.Repeat("0", 64):    "there is nothing of that name",
		strings.Replace(host, "127.0.0.1", "127.0.0.2", 1) + "/x:v1": "connection refused",
	} {
		if _, _, err := bundle.Pull(t.Context(), from, loopback); !errors.Is(err, bundle.ErrRegistry) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", from, err, want)
		}
	}
	if _, _, err := bundle.Pull(t.Context(), reference, nil); !errors.Is(err, bundle.ErrRegistry) {
		t.Errorf("without TLS: error %v", err)
	}

	stock := opaPulls(t, host, reference, opabundle.NewVerificationConfig(
		map[string]*keys.Config{"default": {Key: string(two[0].public), Algorithm: "RS256"}}, "default", "prod", nil))
	if stock.Manifest.Revision != built(t, bundle.TargetRego, 0).Revision {
		t.Errorf("a stock OPA pulls revision %q", stock.Manifest.Revision)
	}
}

// opaPulls returns what a stock OPA's downloader gets.
func opaPulls(t *testing.T, host, reference string, key *opabundle.VerificationConfig) *opabundle.Bundle {
	t.Helper()
	client, err := rest.New(fmt.Appendf(nil, `{"name": "r", "url": "http://%s", "type": "oci"}`, host), map[string]*keys.Config{})
	if err != nil {
		t.Fatal(err)
	}
	config := download.Config{Trigger: new(plugins.TriggerMode)}
	*config.Trigger = plugins.TriggerManual
	if err := config.ValidateAndInjectDefaults(); err != nil {
		t.Fatal(err)
	}
	var update *download.Update
	d := download.NewOCI(config, client, reference, t.TempDir()).WithBundleVerificationConfig(key).
		WithCallback(func(_ context.Context, u download.Update) error {
			update = &u
			return nil
		})
	if err := d.Trigger(t.Context()); err != nil {
		t.Fatal(err)
	}
	if update == nil || update.Bundle == nil {
		t.Fatal("a stock OPA gets no bundle")
	}
	return update.Bundle
}

// A registry that asks who is there gets the credentials that it was given, and
// nobody else does.
func TestCredentials(t *testing.T) {
	noDocker(t)
	host := startRegistry(t)
	const password = "correct-horse-battery"
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: host})
	var bearer atomic.Bool // it asks for a token
	guarded := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, given, ok := r.BasicAuth()
		if token := r.Header.Get("Authorization"); token == "Bearer "+password { // a token, as it is
			user, given, ok = "bot", password, true
		}
		if !ok || user != "bot" || given != password {
			challenge := `Basic realm="registry"`
			if bearer.Load() {
				challenge = `Bearer realm="http://` + r.Host + `/token"`
			}
			w.Header().Set("WWW-Authenticate", challenge)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	defer guarded.Close()
	reference := strings.TrimPrefix(guarded.URL, "http://") + "/gate:v1"
	text := built(t, bundle.TargetRego, 0).Bytes
	with := func(c *bundle.Credential) *bundle.RemoteOptions {
		return &bundle.RemoteOptions{PlainHTTP: bundle.PlainHTTPLoopback, Credential: c, Timeout: 30 * time.Second}
	}
	for name, c := range map[string]*bundle.Credential{"none": nil, "wrong": bundle.NewCredential("bot", "wrong-"+password)} {
		_, err := bundle.Push(t.Context(), text, reference, with(c))
		if !errors.Is(err, bundle.ErrRegistry) || strings.Contains(err.Error()+fmt.Sprintf("%v %+v %#v", c, c, with(c)), password) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if _, err := bundle.Push(t.Context(), text, reference, with(bundle.NewCredential("bot", password))); err != nil {
		t.Error(err)
	}
	bearer.Store(true)
	if got, _, err := bundle.Pull(t.Context(), reference, with(bundle.NewCredential("", password))); err != nil || !bytes.Equal(got, text) {
		t.Errorf("by a token: error %v", err)
	}
	bearer.Store(false)
	config, err := json.Marshal(map[string]any{"auths": map[string]any{strings.TrimPrefix(guarded.URL, "http://"): map[string]string{
		"auth": base64.StdEncoding.EncodeToString([]byte("bot:" + password))}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(os.Getenv("DOCKER_CONFIG"), "config.json"), config, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, _, err := bundle.Pull(t.Context(), reference, with(nil)); err != nil || !bytes.Equal(got, text) {
		t.Errorf("by docker's configuration: error %v", err)
	}
	if err := os.WriteFile(filepath.Join(os.Getenv("DOCKER_CONFIG"), "config.json"), config[:len(config)-3], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := bundle.Pull(t.Context(), reference, with(nil)); err == nil || strings.Contains(err.Error(), base64.StdEncoding.EncodeToString([]byte("bot:"+password))) {
		t.Errorf("a broken configuration: error %v", err)
	}
}

// A registry that sends something else than it says, or more than a bundle may
// be, is not believed.
func TestRegistryLies(t *testing.T) {
	noDocker(t)
	text := small(t)
	digest := func(b []byte) string { return "sha256:" + fmt.Sprintf("%x", sum(b)) }
	const layerType = "application/vnd.oci.image.layer.v1.tar+gzip"
	const manifestType = "application/vnd.oci.image.manifest.v1+json"
	serve := func(manifest, blob []byte, claimed string) string {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body := blob
			if strings.Contains(r.URL.Path, "/manifests/") {
				w.Header().Set("Content-Type", manifestType)
				w.Header().Set("Docker-Content-Digest", claimed)
				body = manifest
			}
			w.Header().Set("Content-Length", fmt.Sprint(len(body)))
			if r.Method != http.MethodHead {
				_, _ = w.Write(body)
			}
		}))
		t.Cleanup(server.Close)
		return strings.TrimPrefix(server.URL, "http://") + "/gate:v1"
	}
	manifest := func(mediaType, digest string, size int) []byte {
		return fmt.Appendf(nil, `{"schemaVersion": 2, "mediaType": %q, "config": {}, "layers": [{"mediaType": %q, "digest": %q, "size": %d}]}`, manifestType, mediaType, digest, size)
	}
	good := manifest(layerType, digest(text), len(text))
	if got, _, err := bundle.Pull(t.Context(), serve(good, text, digest(good)), loopback); err != nil || !bytes.Equal(got, text) {
		t.Fatalf("what the table changes is not the reason: %v", err)
	}
	changed := bytes.Clone(text)
	changed[len(changed)/2] ^= 1
	huge := manifest(layerType, digest(text), bundle.MaxPacked+1)
	other := manifest("application/json", digest(text), len(text))
	no := manifest(layerType, digest([]byte("hello")), 5)
	for name, tt := range map[string]struct {
		at string
		is error
	}{
		"another blob":           {serve(good, changed, digest(good)), bundle.ErrRegistry},
		"a shorter blob":         {serve(good, text[:len(text)-1], digest(good)), bundle.ErrRegistry},
		"another manifest":       {serve(huge, text, digest(good)), bundle.ErrRegistry},
		"a huge layer":           {serve(huge, text, digest(huge)), bundle.ErrTooLarge},
		"a huge manifest":        {serve(make([]byte, 5<<20), text, digest(good)), bundle.ErrTooLarge},
		"a layer of other type":  {serve(other, text, digest(other)), bundle.ErrNotBundle},
		"a layer without bundle": {serve(no, []byte("hello"), digest(no)), bundle.ErrNotBundle},
	} {
		if _, _, err := bundle.Pull(t.Context(), tt.at, loopback); !errors.Is(err, tt.is) {
			t.Errorf("%s: error %v, want %v", name, err, tt.is)
		}
	}
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer slow.Close()
	_, _, err := bundle.Pull(t.Context(), strings.TrimPrefix(slow.URL, "http://")+"/gate:v1",
		&bundle.RemoteOptions{PlainHTTP: bundle.PlainHTTPLoopback, Timeout: 200 * time.Millisecond})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "it took too long") {
		t.Errorf("slow: error %v", err)
	}
}

// A reference that says too little, and plain HTTP out of this machine.
func TestReferences(t *testing.T) {
	noDocker(t)
	text := small(t)
	for reference, want := range map[string]string{
		"":                      "is no reference",
		"gate":                  "is no reference",
		"https://example.com/x": "is no reference",
		"localhost:1/gate":      "no tag",
		"localhost:1/gate@sha256:" + strings.Repeat("0", 64): "no tag",
		"registry.example/gate:v1":                           "is not on this machine",
		"localhost.example/gate:v1":                          "is not on this machine",
		"10.0.0.1:5000/gate:v1":                              "is not on this machine",
	} {
		if _, err := bundle.Push(t.Context(), text, reference, loopback); !errors.Is(err, bundle.ErrOptions) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", reference, err, want)
		}
	}
	if _, _, err := bundle.Pull(t.Context(), "localhost:1/gate", loopback); !errors.Is(err, bundle.ErrOptions) || !strings.Contains(err.Error(), "neither tag nor digest") {
		t.Errorf("error %v", err)
	}
	if _, err := bundle.Push(t.Context(), []byte("hello"), "localhost:1/gate:v1", loopback); !errors.Is(err, bundle.ErrNotBundle) {
		t.Errorf("error %v", err)
	}
}
