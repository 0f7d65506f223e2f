// Package stockopa builds and runs an unchanged OPA of the version that this
// module depends on, for tests that show what such an OPA makes of something.
package stockopa

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/version"
	"github.com/rogpeppe/go-internal/lockedfile"
)

// Required is the name of the environment variable that, if set, makes a test
// fail that would be skipped because there is no OPA.
const Required = "OPA_GATE_REQUIRE_STOCK_OPA"

// buildTime bounds how long a build may take.
const buildTime = 5 * time.Minute

var built = sync.OnceValues(build)

// Path returns the file name of the program opa, and builds it first if nobody
// has done so yet on this machine: a minute, once. It is made of OPA's own
// module with the dependencies that OPA chose, so nothing of this module is in
// it. If it cannot be built, for example because a module is neither in the
// cache nor to be had, the test is skipped, or fails if [Required] is set.
func Path(t testing.TB) string {
	t.Helper()
	path, err := built()
	switch {
	case err == nil:
		return path
	case os.Getenv(Required) != "":
		t.Fatalf("there is no stock OPA, and %s is set: %v", Required, err)
	default:
		t.Skipf("there is no stock OPA: %v", err)
	}
	return ""
}

// Program is [Path] for programs: it returns an error where there is no OPA.
func Program() (string, error) { return built() }

func build() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	dir := filepath.Join(cache, "opa-gate", "stock-opa-"+version.Version+"-"+runtime.GOOS+"-"+runtime.GOARCH)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	program := filepath.Join(dir, "opa")
	if runtime.GOOS == "windows" {
		program += ".exe"
	}
	// The tests of several packages run at the same time, and one build is enough.
	unlock, err := lockedfile.MutexAt(filepath.Join(dir, "lock")).Lock()
	if err != nil {
		return "", err
	}
	defer unlock()
	if info, err := os.Stat(program); err == nil && info.Mode().IsRegular() {
		return program, nil
	}
	fresh, err := os.MkdirTemp(dir, "build")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(fresh) }()
	ctx, cancel := context.WithTimeout(context.Background(), buildTime)
	defer cancel()
	install := exec.CommandContext(ctx, "go", "install", "github.com/open-policy-agent/opa@v"+version.Version)
	install.Dir = fresh
	install.Env = append(os.Environ(), "GOBIN="+fresh, "GOFLAGS=", "GO111MODULE=on", "GOOS=", "GOARCH=", "CGO_ENABLED=0")
	var said bytes.Buffer
	install.Stdout, install.Stderr = &said, &said
	if err := install.Run(); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("not done after %v", buildTime)
		}
		lines := strings.Split(strings.TrimSpace(said.String()), "\n")
		return "", errors.Join(fmt.Errorf("go install: %w", err), errors.New(lines[len(lines)-1]))
	}
	// What was built is put in its place whole, or not at all.
	if err := os.Rename(filepath.Join(fresh, filepath.Base(program)), program); err != nil {
		return "", err
	}
	return program, nil
}
