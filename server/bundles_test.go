package server

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	builtin "github.com/opa-gate/opa-gate/policies"
)

// files are the embedded policies without tests, by name.
func files(t testing.TB) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := fs.WalkDir(builtin.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasSuffix(name, "_test.rego") {
			return err
		}
		text, err := fs.ReadFile(builtin.FS(), name)
		out[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func edited(t testing.TB, edit func(map[string]string)) fs.FS {
	all := files(t)
	edit(all)
	tree := fstest.MapFS{}
	for name, text := range all {
		tree[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return tree
}

// tarball packs files as a bundle, whatever is in them.
func tarball(t testing.TB, files map[string]string) []byte {
	t.Helper()
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	w := tar.NewWriter(z)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := w.WriteHeader(&tar.Header{Name: "/" + name, Mode: 0o644, Size: int64(len(files[name]))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(files[name])); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// raw packs the embedded policies after an edit, which need not be sound.
func raw(t testing.TB, revision string, edit func(map[string]string)) []byte {
	all := files(t)
	all[".manifest"] = `{"revision": "` + revision + `", "roots": ["gate"]}`
	edit(all)
	return tarball(t, all)
}

func replace(t testing.TB, files map[string]string, name, old, text string) {
	t.Helper()
	if !strings.Contains(files[name], old) {
		t.Fatalf("%s lacks %q", name, old)
	}
	files[name] = strings.Replace(files[name], old, text, 1)
}

func unchanged(map[string]string) {}

// What is refused leaves the policies before it in force, and says so where
// people look: in the health, in OPA's status and in the log.
func TestRefused(t *testing.T) {
	good := raw(t, "good", unchanged)
	for _, tt := range []struct {
		name string
		body []byte
		set  []string
		says string
	}{
		{name: "a truncated download", body: good[:len(good)/2], says: "EOF"},
		{name: "no bundle at all", body: []byte("<html>"), says: "archive read failed"},
		{name: "a policy that does not compile", says: "call.rego", body: raw(t, "bad", func(f map[string]string) {
			replace(t, f, "gate/call/call.rego", "missing := bits.and(", "missing := bitz.and(")
		})},
		{name: "a path that the document does not have", says: "taynt", body: raw(t, "bad", func(f map[string]string) {
			f["gate/call/more.rego"] = "package gate.call\n\n# METADATA\n# schemas:\n#   - input: schema.call\nmore if input.taynt == \"clean\"\n"
		})},
		{name: "an entrypoint that is missing", says: "data.gate.call.decision", body: raw(t, "bad", func(f map[string]string) {
			f["gate/call/call.rego"] = strings.ReplaceAll(f["gate/call/call.rego"], "decision :=", "verdict :=")
		})},
		{name: "a skill entrypoint that is missing", says: "data.gate.skill.decision", body: raw(t, "bad", func(f map[string]string) {
			f["gate/skill/skill.rego"] = strings.ReplaceAll(f["gate/skill/skill.rego"], "decision :=", "verdict :=")
		})},
		{name: "an answer of another shape", says: "not a decision", body: raw(t, "bad", func(f map[string]string) {
			f["gate/call/call.rego"] = "package gate.call\n\ndecision := true\n"
		})},
		{name: "facts of another taxonomy", says: "data.gate.facts", body: raw(t, "bad", func(f map[string]string) {
			f["gate/facts/data.json"] = `{"masks": {}}`
		})},
		{name: "no policy", says: "no policy in package gate", body: tarball(t, map[string]string{
			".manifest": `{"revision": "bad", "roots": ["gate"]}`, "gate/settings/data.json": "{}"})},
		{name: "a delta that would erase everything", says: "no policy in package gate", body: tarball(t, map[string]string{
			"patch.json": `{"data": []}`})},
		{name: "a bundle past the size limit", says: "size_limit_bytes", set: []string{"bundles.gate.size_limit_bytes=100000"},
			body: raw(t, "bad", func(f map[string]string) {
				f["gate/settings/data.json"] = `{"x": "` + strings.Repeat(" ", 1<<20) + `"}`
			})},
		{name: "no signature where one is required", says: "signature",
			set:  []string{"keys.k.algorithm=HS256", "keys.k.key=secret", "bundles.gate.signing.keyid=k"},
			body: good},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost(t)
			set := tt.set
			signed := strings.Contains(tt.name, "signature")
			if signed { // the first bundle has no signature either
				set = nil
			}
			s := start(t, from(h, set...))
			h.put(good)
			if err := s.fetch(); err != nil {
				t.Fatalf("%v\n%s", err, s.log)
			}
			if signed {
				s = start(t, from(h, tt.set...))
			}
			h.put(tt.body)
			if err := s.fetch(); err == nil {
				t.Fatal("it was activated")
			}
			status, header, body := s.ask(t, http.MethodPost, "/v1/gate/call", tainted)
			if signed {
				if status != http.StatusServiceUnavailable || strings.Contains(body, "outcome") {
					t.Errorf("status %d: %s", status, body)
				}
			} else if status != 200 || header.Get(RevisionHeader) != `gate="good"` || !strings.Contains(body, `"escalate"`) {
				t.Errorf("status %d, revision %s: %s", status, header.Get(RevisionHeader), body)
			}
			_, _, health := s.ask(t, http.MethodGet, "/v1/gate/health", "")
			for where, text := range map[string]string{"health": health, "log": s.log.String()} {
				if !strings.Contains(text, tt.says) {
					t.Errorf("the %s does not say %q:\n%s", where, tt.says, text)
				}
			}
			if !strings.Contains(health, `"failing_since"`) || strings.Contains(health, `"ready": true`) == signed {
				t.Errorf("health: %s", health)
			}
			h.put(raw(t, "better", unchanged)) // and it goes on from there
			if err := s.fetch(); (err != nil) != signed {
				t.Errorf("the next bundle: %v", err)
			}
			if _, header, _ := s.ask(t, http.MethodPost, "/v1/gate/call", tainted); !signed && header.Get(RevisionHeader) != `gate="better"` {
				t.Errorf("revision %s", header.Get(RevisionHeader))
			}
		})
	}
}

func TestRootsCollide(t *testing.T) {
	one, two := newHost(t), newHost(t)
	one.put(raw(t, "good", unchanged))
	two.put(raw(t, "other", unchanged))
	s := start(t, from(one, "services.two.url="+two.URL, "bundles.more.service=two", "bundles.more.resource=x", "bundles.more.trigger=manual"))
	if err := s.fetch(); err == nil || !strings.Contains(err.Error(), "root") {
		t.Errorf("error %v", err)
	}
	status, header, _ := s.ask(t, http.MethodPost, "/v1/gate/call", tainted)
	if got := header.Get(RevisionHeader); status != 200 || got != `gate="good"` && got != `more="other"` {
		t.Errorf("status %d, revision %s", status, got)
	}
}

// A second bundle may bring documents that the gate's rules look into.
func TestDataOfAnotherBundle(t *testing.T) {
	one, two := newHost(t), newHost(t)
	one.put(raw(t, "rules", func(f map[string]string) {
		replace(t, f, "gate/call/call.rego", `answer := {"outcome": "deny", "reason": input.policy.veto} if {`,
			"answer := {\"outcome\": \"deny\", \"reason\": \"not now\"} if {\n\tinput.tool.name in data.closed.tools\n} else := {\"outcome\": \"deny\", \"reason\": input.policy.veto} if {")
	}))
	two.put(tarball(t, map[string]string{".manifest": `{"revision": "d1", "roots": ["closed"]}`, "closed/data.json": `{"tools": []}`}))
	s := start(t, from(one, "services.two.url="+two.URL, "bundles.more.service=two", "bundles.more.resource=x", "bundles.more.trigger=manual"))
	if err := s.fetch(); err != nil {
		t.Fatal(err)
	}
	for i, tt := range []struct{ tools, want string }{{"", "allow"}, {`"web_fetch"`, "deny"}, {`"other"`, "allow"}} {
		two.put(tarball(t, map[string]string{".manifest": fmt.Sprintf(`{"revision": "d%d", "roots": ["closed"]}`, i+2),
			"closed/data.json": `{"tools": [` + tt.tools + `]}`}))
		if err := s.fetch(); err != nil {
			t.Fatal(err)
		}
		for range 3 { // by OPA, and by a table
			_, header, body := s.ask(t, http.MethodPost, "/v1/gate/call", clean)
			if want := fmt.Sprintf(`gate="rules", more="d%d"`, i+2); header.Get(RevisionHeader) != want || !strings.Contains(body, `"`+tt.want+`"`) {
				t.Errorf("%s: %s, want %s: %s", header.Get(RevisionHeader), tt.want, want, body)
			}
		}
	}
}

// The server that bundles come from may be away: at the start the bundle on
// disk decides, and later the one in force, for as long as the operator allows.
func TestHostAway(t *testing.T) {
	dir := t.TempDir()
	h := newHost(t)
	h.put(raw(t, "kept", unchanged))
	set := []string{"bundles.gate.persist=true", "persistence_directory=" + dir}
	first := start(t, from(h, set...))
	if status, _, body := first.ask(t, http.MethodPost, "/v1/gate/call", clean); status != 503 || !strings.Contains(body, "no policies are active") {
		t.Errorf("before there is a bundle: status %d: %s", status, body)
	}
	if status, _, body := first.ask(t, http.MethodGet, "/v1/gate/health", ""); status != 503 || !strings.Contains(body, `"ready": false`) {
		t.Errorf("before there is a bundle: status %d: %s", status, body)
	}
	if err := first.fetch(); err != nil {
		t.Fatal(err)
	}
	h.fail(true)
	if err := first.fetch(); err == nil {
		t.Fatal("no error from a host that is away")
	}
	decides := func(s *running, status int) {
		t.Helper()
		got, header, body := s.ask(t, http.MethodPost, "/v1/gate/call", clean)
		if got != status || status == 200 && header.Get(RevisionHeader) != `gate="kept"` || status != 200 && strings.Contains(body, "outcome") {
			t.Errorf("status %d, want %d: %s", got, status, body)
		}
		got, _, body = s.ask(t, http.MethodPost, "/v1/data/gate/call/decision", `{"input":`+clean+`}`)
		if got != status {
			t.Errorf("OPA's API: status %d, want %d: %s", got, status, body)
		}
		if got, _, body = s.ask(t, http.MethodGet, "/v1/gate/health", ""); got != status {
			t.Errorf("health %d, want %d: %s", got, status, body)
		}
	}
	decides(first, 200)
	if _, _, body := first.ask(t, http.MethodGet, "/v1/gate/health", ""); !strings.Contains(body, `"failing_since"`) || !strings.Contains(body, "Service Unavailable") {
		t.Errorf("the health does not tell since when the host is away: %s", body)
	}

	second := start(t, from(h, set...))
	decides(second, 200)

	o := from(h, set...)
	o.MaxStaleness = time.Hour
	third := start(t, o)
	decides(third, 200)
	now := time.Now().Add(time.Hour + time.Minute)
	third.gate.mu.Lock()
	third.gate.now = func() time.Time { return now }
	third.gate.mu.Unlock()
	decides(third, 503)
	h.fail(false)
	if err := third.fetch(); err != nil {
		t.Fatal(err)
	}
	decides(third, 200)

	if matches, err := filepath.Glob(dir + "/bundles/gate/*"); err != nil || len(matches) == 0 {
		t.Errorf("nothing persists: %v, %v", matches, err)
	}
}

// Many activations, while clients ask: each answer is wholly of one revision.
func TestActivationsUnderLoad(t *testing.T) {
	const clients = 8
	rounds := 200
	if testing.Short() {
		rounds = 30
	}
	h := newHost(t)
	revision := func(i int) []byte {
		return raw(t, fmt.Sprintf("r%d", i), func(f map[string]string) {
			f["gate/settings/data.json"] = fmt.Sprintf(`{"system": "system %d"}`, i)
		})
	}
	h.put(revision(0))
	o := from(h)
	o.LogLevel = "error" // the log of each request would be most of the heap
	s := start(t, o)
	if err := s.fetch(); err != nil {
		t.Fatal(err)
	}
	const invite = `{"tool":{"name":"invite","origin":"access-grant"},"taint":"clean"}`
	var stop atomic.Bool
	var answers, lost atomic.Int64
	var work sync.WaitGroup
	for range clients {
		work.Go(func() {
			for !stop.Load() {
				resp, err := http.Post(s.url+"/v1/gate/call", "application/json", strings.NewReader("["+invite+","+invite+"]"))
				if err != nil {
					lost.Add(1)
					continue
				}
				var body bytes.Buffer
				_, _ = body.ReadFrom(resp.Body)
				_ = resp.Body.Close()
				n := strings.TrimSuffix(strings.TrimPrefix(resp.Header.Get(RevisionHeader), `gate="r`), `"`)
				if resp.StatusCode != 200 || strings.Count(body.String(), "into system "+n+",") != 2 {
					lost.Add(1)
					t.Errorf("status %d, revision %s: %s", resp.StatusCode, n, body.String())
					return
				}
				answers.Add(1)
			}
		})
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var early uint64
	for i := range rounds {
		h.put(revision(i + 1))
		if err := s.fetch(); err != nil {
			t.Fatal(err)
		}
		if i == rounds/4 {
			early = heap()
		}
	}
	late := heap()
	stop.Store(true)
	work.Wait()
	t.Logf("%d activations, %d answers, %d lost; heap %d KiB after a quarter, %d KiB after all", rounds, answers.Load(), lost.Load(), early>>10, late>>10)
	if lost.Load() > 0 || answers.Load() == 0 {
		t.Errorf("%d answers, %d lost", answers.Load(), lost.Load())
	}
	if late > early+early/2 {
		t.Errorf("the heap grew from %d to %d", early, late)
	}
}

func TestLocalPoliciesThatDoNotDecide(t *testing.T) {
	_, err := New(context.Background(), &Options{Addrs: []string{"127.0.0.1:0"}, LocalName: "local",
		Local: given(raw(t, "bad", func(f map[string]string) { f["gate/call/call.rego"] = "package gate.call\n\ndecision := true\n" }))})
	if !errors.Is(err, ErrRefused) {
		t.Errorf("error %v", err)
	}
}
