package main

import (
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/opa-gate/opa-gate/conformance"
	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/fixtures"
)

const vetoCase = `{"about": "A veto is a deny.", "kind": "call", "cases": [
  {"name": "veto", "call": {"tool": {"name": "t", "origin": "local-sandbox", "read_only": true}, "taint": "clean", "grant": {"base": []}, "policy": {"veto": "no"}},
   "want": {"outcome": "deny", "reason": "no", "missing": [], "missing_mask": 0, "required": ["local-read"], "required_mask": 1, "granted": [], "granted_mask": 0}}
]}`

const vetoed = `{"result": {"outcome": "deny", "reason": "no", "missing": [], "missing_mask": 0, "required": ["local-read"], "required_mask": 1, "granted": [], "granted_mask": 0}}`

// The rounds of a single case reach the table that it fills.
func TestConformReachesTables(t *testing.T) {
	suite, err := fixtures.Load(fstest.MapFS{"a.json": {Data: []byte(vetoCase)}})
	if err != nil {
		t.Fatal(err)
	}
	e, err := evaluator.New(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if r := conformance.Run(t.Context(), suite, nil, conformance.Of(e, engineAuto, autoRounds)); !r.OK {
		t.Errorf("got %+v", r)
	}
	if s := e.Stats(); s.Compiled != 1 || s.Evaluations >= autoRounds {
		t.Errorf("no round was answered from a table: %+v", s)
	}
}

// runConform runs the command on one case.
func runConform(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "a.json")
	if err := os.WriteFile(file, []byte(vetoCase), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, complaints strings.Builder
	code = run(append([]string{"conform", file}, args...), strings.NewReader(""), &out, &complaints)
	return code, out.String(), complaints.String()
}

func TestConformServer(t *testing.T) {
	var authorization string
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		authorization = req.Header.Get("Authorization")
		if req.URL.Path != "/opa/v1/data/gate/call/decision" {
			http.NotFound(w, req)
			return
		}
		_, _ = io.WriteString(w, vetoed)
	}))
	defer h.Close()
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("secret-token\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	engine := "url=" + h.URL + "/opa"
	code, stdout, stderr := runConform(t, "--engine", "native,"+engine, "--url-token-file", token)
	if code != exitDone || stderr != "" || authorization != "Bearer secret-token" ||
		!strings.Contains(stdout, "\n"+engine+"\n  call       1 case\n  total      1 case\n") {
		t.Errorf("%d %q %q\n%s", code, authorization, stderr, stdout)
	}
	t.Setenv(tokenVariable, "token-of-the-environment")
	if code, _, _ := runConform(t, "--engine", engine); code != exitDone || authorization != "Bearer token-of-the-environment" {
		t.Errorf("%d %q", code, authorization)
	}
	if code, _, _ := runConform(t, "--engine", engine, "--url-token-file", token); code != exitDone || authorization != "Bearer secret-token" {
		t.Errorf("the file does not come before the environment: %d %q", code, authorization)
	}
	t.Setenv(tokenVariable, "")
	withUser := strings.Replace(h.URL, "://", "://some-user:secret-word@", 1)
	code, stdout, stderr = runConform(t, "--engine", "url="+withUser) // another path: not found
	if code != exitCheck || strings.Contains(stdout+stderr, "secret") || strings.Contains(stdout+stderr, "some-user") ||
		!strings.HasPrefix(authorization, "Basic ") || !strings.Contains(stdout, h.URL+"/v1/data/gate/call/decision: 404 Not Found") {
		t.Errorf("%d %q %q\n%s", code, authorization, stderr, stdout)
	}
}

func TestConformUsage(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const server = "url=http://127.0.0.1:1"
	for _, tt := range []struct {
		args  []string
		words string
	}{
		{[]string{"--engine", "url=ftp://u:secret@h"}, "--engine url=URL: expected http://HOST:PORT"},
		{[]string{"--engine", "http://u:secret@h"}, "--engine: a server is written url=URL"},
		{[]string{"--engine", "url="}, "--engine url=URL: expected http://HOST:PORT"},
		{[]string{"--engine", "wasn"}, `expected auto, opa, native, both, wasm or url=URL, got "wasn"; did you mean "wasm"?`},
		{[]string{"--engine", ""}, "expected auto, opa"},
		{[]string{"--engine", "url=http://a@h,url=http://b@h"}, "--engine: url=http://h is listed twice"},
		{[]string{"--engine", server, "--url-token-file", file("empty", "\n")}, "is empty, expected a token"},
		{[]string{"--engine", server, "--url-token-file", file("lines", "secret\nsecret")}, "a character that no header can carry"},
		{[]string{"--engine", server, "--url-token-file", filepath.Join(dir, "none")}, "--url-token-file: open "},
		{[]string{"--engine", "url=http://u:secret@h", "--url-token-file", file("token", "secret")}, "give one of them"},
		{[]string{"--engine", server, "--url-ca-file", file("ca", "")}, "expected certificates in PEM form"},
		{[]string{"--engine", server, "--url-ca-file", file("other-ca", "secret")}, "expected PEM"},
		{[]string{"--engine", server, "--url-timeout", "0s"}, "--url-timeout: expected more than nothing"},
		{[]string{"--engine", "native", "--url-token-file", "x"}, "--url-token-file has no effect without a server"},
		{[]string{"--engine", "native," + server, "--policies", dir}, "--policies has no effect"},
		{[]string{"--engine", "wasm", "--policies", ""}, "expected a directory, got an empty name"},
		{[]string{"--engine", "wasm", "--policies", dir}, "there is no .rego file"},
		{[]string{"--baseline", filepath.Join(dir, "none.json")}, "--baseline: open "},
		{[]string{"--baseline", ""}, "--baseline: open "},
		{[]string{"--baseline", file("b.json", `{"gaps": [{"engine": "wasm"}]}`)}, "/gaps/0/"},
		{[]string{"--output", filepath.Join(dir, "no", "folder")}, "--output: open "},
		{[]string{"--output", ""}, "--output: open "},
		{[]string{"--format", "xml"}, "expected text, json or junit"},
	} {
		code, stdout, stderr := runConform(t, tt.args...)
		if code != exitInput || stdout != "" || !strings.Contains(stderr, tt.words) || strings.Contains(stderr, "secret") || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%q: %d %q %q, want %q", tt.args, code, stdout, stderr, tt.words)
		}
	}
}

func TestConformReports(t *testing.T) {
	dir := t.TempDir()
	baseline := filepath.Join(dir, "baseline.yaml")
	report := filepath.Join(dir, "report.xml")
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, strings.Replace(vetoed, "deny", "allow", 1))
	}))
	defer h.Close()
	for _, tt := range []struct {
		gaps string
		code int
		xml  string // in the report
	}{
		{"gaps: []\n", exitCheck, "<failure message="},
		{"gaps:\n- {engine: url, file: a.json, case: veto, reason: It never denies.}\n", exitDone, `<skipped message="known gap: It never denies.">`},
		{"gaps:\n- {engine: native, file: a.json, case: veto, reason: It is slow.}\n- {engine: url, file: a.json, case: veto, reason: r}\n", exitCheck, `message="stale: native answers this case as it is wanted`},
	} {
		if err := os.WriteFile(baseline, []byte(tt.gaps), 0o600); err != nil {
			t.Fatal(err)
		}
		code, stdout, stderr := runConform(t, "--engine", "native,url="+h.URL, "--baseline", baseline, "--format", "junit", "--output", report)
		if code != tt.code || stdout+stderr != "" {
			t.Errorf("%s: %d %q %q", tt.gaps, code, stdout, stderr)
		}
		text, err := os.ReadFile(report)
		if err != nil {
			t.Fatal(err)
		}
		var suites struct {
			Tests  int        `xml:"tests,attr"`
			Suites []struct{} `xml:"testsuite"`
		}
		if err := xml.Unmarshal(text, &suites); err != nil || suites.Tests < 2 || len(suites.Suites) < 2 || !strings.Contains(string(text), tt.xml) {
			t.Errorf("%s: %v\n%s", tt.gaps, err, text)
		}
	}
}
