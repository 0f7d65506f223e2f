package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

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
	cmd := exec.Command(program, "serve", config)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
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

// bundleRun runs opa-gate, expects an exit code, and looks for the secret in all
// that it says.
func bundleRun(t *testing.T, code int, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, complaints bytes.Buffer
	if got := run(append([]string{"bundle"}, args...), strings.NewReader(""), &out, &complaints); got != code {
		t.Fatalf("bundle %q: exit code %d, want %d\n%s%s", args, got, code, &out, &complaints)
	}
	if all := out.String() + complaints.String(); strings.Contains(all, bundleSecret) {
		t.Errorf("bundle %q: the secret is in what it says: %s", args, all)
	}
	return out.String(), complaints.String()
}

const bundleSecret = "a-secret-that-nobody-may-ever-see-0123"

// From policies into a registry and out of it again, and what is not verified is
// not written.
func TestBundlePushPull(t *testing.T) {
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	t.Setenv("BUNDLE_SECRET", bundleSecret)
	host := startRegistry(t)
	t.Chdir(t.TempDir())
	hmac := []string{"--algorithm", "HS256"}
	sign := append([]string{"--signing-key-env", "BUNDLE_SECRET", "--scope", "prod"}, hmac...)
	check := append([]string{"--verification-key-env", "BUNDLE_SECRET", "--plain-http"}, hmac...)
	with := func(args []string, more ...string) []string { return append(more, args...) }
	bundleRun(t, exitDone, with(sign, "build")...)
	reference := host + "/policies/gate:v1"
	out, _ := bundleRun(t, exitDone, "push", "bundle.tar.gz", reference, "--plain-http", "--format", "json")
	var pushed struct{ Reference, Digest, Layer string }
	if err := json.Unmarshal([]byte(out), &pushed); err != nil || pushed.Reference != reference || !strings.HasPrefix(pushed.Digest, "sha256:") {
		t.Fatalf("%s: error %v", out, err)
	}
	for _, from := range []string{reference, host + "/policies/gate@" + pushed.Digest} {
		out, _ = bundleRun(t, exitDone, with(check, "pull", from, "--scope", "prod", "-o", "pulled.tar.gz")...)
		if !strings.Contains(out, "verified: HS256, key id default, scope prod") || !strings.Contains(out, pushed.Digest) {
			t.Errorf("%s", out)
		}
		want, err := os.ReadFile("bundle.tar.gz")
		if got, err2 := os.ReadFile("pulled.tar.gz"); err != nil || err2 != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: what was pulled is not what was pushed; errors %v, %v", from, err, err2)
		}
		if err := os.Remove("pulled.tar.gz"); err != nil {
			t.Fatal(err)
		}
	}
	out, _ = bundleRun(t, exitDone, "pull", reference, "--plain-http", "-o", "pulled.tar.gz")
	if !strings.Contains(out, "signature  not verified: give --verification-key") {
		t.Errorf("%s", out)
	}
	before, err := os.ReadFile("pulled.tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	out, _ = bundleRun(t, exitCheck, with(check, "pull", reference, "--scope", "test", "-o", "new.tar.gz")...)
	if !strings.Contains(out, `the signature is for another scope: it has "prod", expected "test"`) {
		t.Errorf("%s", out)
	}
	bundleRun(t, exitCheck, with(check, "pull", reference, "-o", "pulled.tar.gz", "--format", "json")...)
	bundleRun(t, exitInput, "pull", host+"/policies/gate:v2", "--plain-http", "-o", "new.tar.gz")
	bundleRun(t, exitInput, "pull", reference, "--plain-http", "--username", "me", "--password-env", "NOTHING", "-o", "new.tar.gz")
	bundleRun(t, exitDone, "pull", reference, "--plain-http", "--username", "me", "--password-env", "BUNDLE_SECRET", "-o", "-")
	after, err := os.ReadFile("pulled.tar.gz")
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("what was refused was written; error %v", err)
	}
	if _, err := os.Stat("new.tar.gz"); !os.IsNotExist(err) {
		t.Errorf("new.tar.gz: error %v", err)
	}
	onlyBundles(t, ".")
}

// onlyBundles fails if something half done was left behind.
func onlyBundles(t *testing.T, dir string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if strings.HasPrefix(f.Name(), ".") {
			t.Errorf("%s was left behind", f.Name())
		}
	}
}

// An output is written whole or not at all.
func TestWriteWhole(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "b.tar.gz")
	read := func() string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if err := writeWhole(file, []byte("one")); err != nil || read() != "one" {
		t.Fatalf("%q, error %v", read(), err)
	}
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(file, link); err != nil {
		t.Skip(err)
	}
	if err := writeWhole(link, []byte("two")); err != nil || read() != "two" {
		t.Errorf("through a link: %q, error %v", read(), err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode().IsRegular() {
		t.Errorf("the link was replaced; error %v", err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the mode is %v, error %v", info.Mode(), err)
	}
	if err := writeWhole(filepath.Join(dir, "no", "b"), []byte("three")); err == nil {
		t.Error("a folder that is not there was written to")
	}
	if err := writeWhole(dir, []byte("three")); err == nil || !strings.Contains(err.Error(), "directory") {
		t.Errorf("a directory: error %v", err)
	}
	onlyBundles(t, dir)
}

// On a disk with no room left, what was there before stays.
func TestFullDisk(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("a full disk is made with Linux's tmpfs")
	}
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("no file system can be mounted here: %s", bytes.TrimSpace(out))
	}
	t.Cleanup(func() { _ = exec.Command("umount", dir).Run() })
	file := filepath.Join(dir, "b.tar.gz")
	if err := os.WriteFile(file, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, stderr := bundleRun(t, exitInput, "build", "-o", file)
	if !strings.Contains(stderr, file+" was not written: ") || !strings.Contains(stderr, "no space left on device") {
		t.Errorf("%s", stderr)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "before" {
		t.Errorf("%q, error %v", text, err)
	}
	onlyBundles(t, dir)
}
