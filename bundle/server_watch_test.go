package bundle

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestServerFollowsADirectory(t *testing.T) {
	dir := policyDir(t)
	r := serve(t, ServerOptions{Bundles: gateOf(dir)})
	first := r.one()
	if !first.Ready || first.Revision == "" {
		t.Fatalf("health: %+v\n%s", first, r.log)
	}
	served := func(what string) BundleHealth {
		t.Helper()
		var now BundleHealth
		eventually(t, what, func() bool { now = r.one(); return now.ETag != first.ETag && now.Error == "" })
		first = now
		return now
	}
	refused := func(what string, says ...string) {
		t.Helper()
		var now BundleHealth
		eventually(t, what+" is refused", func() bool {
			now = r.one()
			for _, text := range says {
				if !strings.Contains(now.Error, text) {
					return false
				}
			}
			return true
		})
		if now.ETag != first.ETag || !now.Ready || now.ErrorAt == nil {
			t.Errorf("%s: what was served is not any more: %+v", what, now)
		}
		for _, text := range append(says, "level=ERROR", "an edit is refused") {
			if !strings.Contains(r.log.String(), text) {
				t.Errorf("%s: the log does not say %q", what, text)
			}
		}
	}

	write(t, dir, "gate/limits/data.json", limits(2))
	served("new data is served")

	write(t, dir, "gate/more/more.rego", "package gate.more\n\nx := 1\n")
	served("a new directory is served")
	write(t, dir, "gate/more/more.rego", "package gate.more\n\nx := 2\n")
	served("a file in a new directory is served")

	write(t, dir, "gate/more/more.rego", "package gate.more\n\nx := ]\n")
	refused("what does not parse", filepath.Join(dir, "gate/more/more.rego")+":3:")
	write(t, dir, "gate/more/more.rego", "package gate.more\n\nx := input.tool.nmae\n")
	refused("a misspelt path", filepath.Join(dir, "gate/more/more.rego")+":3:", "nmae")
	write(t, dir, "gate/limits/data.json", limits(5000))
	write(t, dir, "gate/more/more.rego", "package gate.more\n\nx := 2\n")
	refused("what fails its tests", filepath.Join(dir, "gate/limits/limits_test.rego")+":3", "data.gate.limits_test.test_limit", "1 of ")
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	refused("what went away", "no such file")
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	refused("what came back", "1 of ")

	write(t, dir, "gate/limits/data.json", limits(3))
	served("what is good again is served")
	metrics := string(r.ask(t, "GET", "/metrics").body)
	for _, line := range []string{
		`opa_gate_bundle_rebuilds_total{bundle="gate",result="ok"} 5`,
		`opa_gate_bundle_rebuilds_total{bundle="gate",result="failed"} `,
		`revision="` + first.Revision + `"} 1`,
		"opa_gate_bundle_held_polls 0",
		"go_goroutines ",
	} {
		if !strings.Contains(metrics, line) {
			t.Errorf("metrics do not say %s\n%s", line, metrics)
		}
	}
	if strings.Count(metrics, "opa_gate_bundle_info{") != 1 {
		t.Errorf("there is more than one revision in the metrics:\n%s", metrics)
	}
}

func TestServerWaitsForPolicies(t *testing.T) {
	dir := policyDir(t)
	write(t, dir, "gate/more/more.rego", "package gate.more\n\nx := ]\n")
	r := serve(t, ServerOptions{Bundles: []Source{{"gate", dir}, {"fine", builtFile(t, 1)}}})
	if got := r.ask(t, "GET", "/health"); got.code != 503 || !strings.Contains(string(got.body), "more.rego:3") {
		t.Errorf("health: %d, %s", got.code, got.body)
	}
	if got := r.ask(t, "GET", "/bundles/gate"); got.code != 503 || got.header.Get("Retry-After") == "" {
		t.Errorf("status %d, want 503", got.code)
	}
	if got := r.ask(t, "GET", "/bundles/fine"); got.code != 200 {
		t.Errorf("the other bundle: status %d, want 200", got.code)
	}
	replies := make(chan reply, 1)
	go func() {
		got, err := r.try(t.Context(), "GET", "/bundles/gate", "Prefer", longWait)
		if err != nil {
			t.Error(err)
		}
		replies <- got
	}()
	eventually(t, "a request is held", func() bool { return len(r.slots) == 1 })
	if err := os.Remove(filepath.Join(dir, "gate/more/more.rego")); err != nil {
		t.Fatal(err)
	}
	if got := <-replies; got.code != 200 {
		t.Errorf("status %d, want 200", got.code)
	}
	if got := r.ask(t, "GET", "/health"); got.code != 200 {
		t.Errorf("health: %d, %s", got.code, got.body)
	}
}

func TestServerFollowsAFile(t *testing.T) {
	file := builtFile(t, 1)
	r := serve(t, ServerOptions{Bundles: gateOf(file)})
	first := r.one()
	for name, text := range map[string]string{
		"no bundle": "text",
		"cut off":   string(r.ask(t, "GET", "/bundles/gate").body[:100]),
		"a patch":   string(deltaBetween(editionOf(t, `{"gate": {"n": 1}}`, "", "gate"), editionOf(t, `{"gate": {"n": 2}}`, "", "gate"))),
		"what does not compile": string(editionOf(t, `{"gate": {"n": 2}}`,
			"package gate\n\nx := data.gate.f(1)\n\ny := x\n\nx := 2\n", "gate").body),
	} {
		write(t, filepath.Dir(file), filepath.Base(file), text)
		var now BundleHealth
		eventually(t, name+" is refused", func() bool { now = r.one(); return now.Error != "" })
		if now.ETag != first.ETag || !strings.Contains(now.Error, file) {
			t.Errorf("%s: %+v", name, now)
		}
		fill(t, file, 1)
		eventually(t, "the first one is good again", func() bool { return r.one().Error == "" })
	}
	fill(t, file, 2)
	eventually(t, "another one is served", func() bool { return r.one().ETag != first.ETag })
}

// TestServerVerifies serves no file that is not signed with the key.
func TestServerVerifies(t *testing.T) {
	const secret = "a secret that is long enough for HS256"
	signing, err := NewSigningKey(HS256, []byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	verification, err := NewVerificationKey(HS256, []byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	file := builtFile(t, 1)
	sign := func(key *SigningKey) {
		t.Helper()
		text, err := os.ReadFile(file)
		if err == nil {
			text, err = Sign(text, key)
		}
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Dir(file), filepath.Base(file), string(text))
	}
	r := serve(t, ServerOptions{Bundles: gateOf(file), Verification: verification})
	if r.one().Ready || r.one().Error == "" {
		t.Errorf("without a signature: %+v", r.one())
	}
	sign(signing)
	eventually(t, "it is served with a signature", func() bool { return r.one().Ready && r.one().Error == "" })
	other, err := NewSigningKey(HS256, []byte("another secret, which is not known"))
	if err != nil {
		t.Fatal(err)
	}
	sign(other)
	eventually(t, "another signature is refused", func() bool { return r.one().Ready && r.one().Error != "" })
}

// TestServerFollowsAVolume swaps a directory as Kubernetes does: the files are
// links through one that is replaced.
func TestServerFollowsAVolume(t *testing.T) {
	top := t.TempDir()
	for i, version := range []string{"..1", "..2"} {
		if err := os.Mkdir(filepath.Join(top, version), 0o755); err != nil {
			t.Fatal(err)
		}
		fill(t, filepath.Join(top, version, "bundle.tar.gz"), i)
	}
	link := func(to, name string) {
		t.Helper()
		if err := os.Symlink(to, filepath.Join(top, name+".new")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(top, name+".new"), filepath.Join(top, name)); err != nil {
			t.Fatal(err)
		}
	}
	link("..1", "..data")
	link(filepath.Join("..data", "bundle.tar.gz"), "bundle.tar.gz")
	r := serve(t, ServerOptions{Bundles: gateOf(filepath.Join(top, "bundle.tar.gz"))})
	first := r.one()
	link("..2", "..data")
	eventually(t, "the other version is served", func() bool { return r.one().ETag != first.ETag && r.one().Error == "" })
}

// TestServerFollowsALink has a link lead to one directory and then to another, in
// each of which files change.
func TestServerFollowsALink(t *testing.T) {
	one, two := policyDir(t), policyDir(t)
	write(t, two, "gate/limits/data.json", limits(2))
	top := t.TempDir()
	link := filepath.Join(top, "current")
	lead := func(to string) {
		t.Helper()
		if err := os.Symlink(to, link+".new"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(link+".new", link); err != nil {
			t.Fatal(err)
		}
	}
	lead(one)
	r := serve(t, ServerOptions{Bundles: gateOf(link), Rescan: time.Hour})
	for i, change := range []func(){
		func() { write(t, one, "gate/limits/data.json", limits(3)) },
		func() { lead(two) },
		func() { write(t, two, "gate/limits/data.json", limits(4)) },
	} {
		tag := r.one().ETag
		change()
		eventually(t, fmt.Sprintf("change %d is served", i), func() bool { return r.one().ETag != tag })
	}
}

// TestServerLooksAgain looks at files as it is done now and then, with nothing that
// tells of changes.
func TestServerLooksAgain(t *testing.T) {
	file := builtFile(t, 1)
	log := &syncBuffer{}
	s, err := NewServer(t.Context(), &ServerOptions{Bundles: gateOf(file), Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	first := s.Health().Bundles[0].ETag
	fill(t, file, 2)
	s.refresh(t.Context(), s.shelves[0])
	if now := s.Health().Bundles[0]; now.ETag == first {
		t.Errorf("the change was not seen: %+v", now)
	}
	if err := os.WriteFile(file, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		s.refresh(t.Context(), s.shelves[0])
	}
	if n := strings.Count(log.String(), "level=ERROR"); n != 1 {
		t.Errorf("what is refused is told %d times, want once:\n%s", n, log)
	}
}
