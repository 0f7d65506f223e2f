package server

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/opa-gate/opa-gate/fixtures"
)

// OPA's API for policies and documents works, but for what would leave the gate
// without policies that decide.
func TestWrites(t *testing.T) {
	own := files(t)
	h := newHost(t) // which has nothing: the policies come by the API
	s := start(t, from(h))
	put := func(name, text string) (int, string) {
		status, _, body := s.ask(t, http.MethodPut, "/v1/policies/"+name, text)
		return status, body
	}
	decides := func(want string) {
		t.Helper()
		status, _, body := s.ask(t, http.MethodPost, "/v1/gate/call", clean)
		if want == "" {
			if status != http.StatusServiceUnavailable {
				t.Errorf("status %d: %s", status, body)
			}
			return
		}
		if status != 200 || !strings.Contains(body, `"outcome":"`+want+`"`) {
			t.Errorf("status %d, want %s: %s", status, want, body)
		}
	}
	decides("")
	if status, body := put("bad", "package gate.call\n\ndecision := true\n"); status < 400 {
		t.Errorf("policies that do not decide: status %d: %s", status, body)
	}
	decides("")
	// One file after the other cannot be: on its own, none decides.
	for name, text := range own {
		if strings.HasSuffix(name, ".rego") {
			if status, body := put(name, text); status >= 500 && !strings.Contains(body, "refused") {
				t.Errorf("%s: status %d: %s", name, status, body)
			}
		}
	}
	decides("")

	s = start(t, local())
	decides("allow")
	for _, tt := range []struct{ method, path, body string }{
		{http.MethodPut, "/v1/policies/gate/call/call.rego", "package gate.call\n\ndecision := true\n"},
		{http.MethodPut, "/v1/policies/mine", "package gate.call\n\ndecision := true\n"},
		{http.MethodPut, "/v1/policies/mine", "package gate\n\ncall := true\n"},
		{http.MethodPut, "/v1/policies/mine", "package mine\n\nx := y\n"},
		{http.MethodPut, "/v1/policies/opa-gate/default_mask.rego", "package system.log\n\nmask contains \"/input/nothing\" if false\n"},
		{http.MethodDelete, "/v1/policies/gate/call/call.rego", ""},
		{http.MethodDelete, "/v1/policies/call.rego", ""},
		{http.MethodPut, "/v1/data", `{}`},
		{http.MethodPut, "/v1/data/gate", `{}`},
		{http.MethodPut, "/v1/data/gate/facts", `{}`},
		{http.MethodPut, "/v1/data/gate/settings/system", `"mine"`},
		{http.MethodDelete, "/v1/data/gate/facts", ""},
		{http.MethodPatch, "/v1/data/gate/facts", `[{"op": "remove", "path": "/masks"}]`},
		{http.MethodPatch, "/v1/data", `[{"op": "remove", "path": "/gate"}]`},
		{http.MethodPatch, "/v1/data", `[{"op": "replace", "path": "/gate/facts", "value": {}}]`},
	} {
		if status, _, body := s.ask(t, tt.method, tt.path, tt.body); status < 400 {
			t.Errorf("%s %s: status %d: %s", tt.method, tt.path, status, body)
		}
		decides("allow")
		if status, _, body := s.ask(t, http.MethodGet, "/v1/gate/health", ""); status != 200 {
			t.Errorf("%s %s: health %d: %s", tt.method, tt.path, status, body)
		}
	}
	for _, tt := range []struct {
		method, path, body string
	}{
		{http.MethodPut, "/v1/policies/mine", "package mine\n\nx := 1\n"},
		{http.MethodDelete, "/v1/policies/mine", ""},
		{http.MethodPut, "/v1/data/mine", `{"x": 1}`},
		{http.MethodPatch, "/v1/data/mine", `[{"op": "add", "path": "/y", "value": 2}]`},
		{http.MethodDelete, "/v1/data/mine", ""},
		{http.MethodPut, "/v1/policies/log", "package system.log\n\nmask contains \"/input/tool\"\n"},
		{http.MethodDelete, "/v1/policies/log", ""},
	} {
		if status, _, body := s.ask(t, tt.method, tt.path, tt.body); status >= 300 {
			t.Errorf("%s %s: status %d: %s", tt.method, tt.path, status, body)
		}
		decides("allow")
	}
	// The mask of the gate's cannot be taken out.
	for range 2 {
		if status, _, body := s.ask(t, http.MethodDelete, "/v1/policies/"+maskID, ""); status >= 500 {
			t.Errorf("status %d: %s", status, body)
		}
		if status, _, body := s.ask(t, http.MethodGet, "/v1/policies/"+maskID, ""); status != 200 || !strings.Contains(body, "system.log") {
			t.Errorf("the default mask: status %d: %s", status, body)
		}
	}
}

// Documents that rules look into change what is decided, at once.
func TestPatchedDocument(t *testing.T) {
	h := newHost(t)
	h.put(raw(t, "rules", func(f map[string]string) {
		replace(t, f, "gate/call/call.rego", `answer := {"outcome": "deny", "reason": input.policy.veto} if {`,
			"answer := {\"outcome\": \"deny\", \"reason\": \"not now\"} if {\n\tinput.tool.name in data.closed.tools\n} else := {\"outcome\": \"deny\", \"reason\": input.policy.veto} if {")
	}))
	s := start(t, from(h))
	if err := s.fetch(); err != nil {
		t.Fatal(err)
	}
	for i, tt := range []struct{ method, path, body, want string }{
		{http.MethodPut, "/v1/data/closed", `{"tools": []}`, "allow"},
		{http.MethodPatch, "/v1/data/closed", `[{"op": "add", "path": "/tools/-", "value": "web_fetch"}]`, "deny"},
		{http.MethodPatch, "/v1/data/closed", `[{"op": "remove", "path": "/tools/0"}]`, "allow"},
		{http.MethodPut, "/v1/data/closed/tools", `["web_fetch"]`, "deny"},
		{http.MethodDelete, "/v1/data/closed", ``, "allow"},
	} {
		if status, _, body := s.ask(t, tt.method, tt.path, tt.body); status >= 300 {
			t.Fatalf("step %d: status %d: %s", i, status, body)
		}
		for range 3 { // by OPA, and by a table
			if _, _, body := s.ask(t, http.MethodPost, "/v1/gate/call", clean); !strings.Contains(body, `"`+tt.want+`"`) {
				t.Errorf("step %d: want %s: %s", i, tt.want, body)
			}
		}
	}
}

// Policies that cannot be refreshed decide for as long as is allowed, by the
// clock, and again once they can.
func TestStaleByTheClock(t *testing.T) {
	h := newHost(t)
	h.put(raw(t, "r1", unchanged))
	o := from(h)
	o.MaxStaleness = 2 * time.Second
	s := start(t, o)
	if err := s.fetch(); err != nil {
		t.Fatal(err)
	}
	h.fail(true)
	at := func(status int) func() bool {
		return func() bool {
			got, _, body := s.ask(t, http.MethodGet, "/v1/gate/health", "")
			if strings.Contains(body, `"ready": true`) != (got == 200) {
				t.Errorf("status %d: %s", got, body)
			}
			return got == status
		}
	}
	eventually(t, "the policies to be stale", at(http.StatusServiceUnavailable))
	for _, ask := range asks[:3] {
		if status, _, body := s.ask(t, ask.method, ask.path, ask.body); status != 503 || !strings.Contains(body, "--max-staleness allows 2s") {
			t.Errorf("%s: status %d: %s", ask.path, status, body)
		}
	}
	if err := s.fetch(); err == nil {
		t.Error("no error from a host that is away")
	}
	if !at(http.StatusServiceUnavailable)() {
		t.Error("a request that failed refreshed the policies")
	}
	h.fail(false)
	eventually(t, "the policies to be fresh", func() bool { // what is not modified is
		if err := s.fetch(); err != nil {
			t.Fatal(err)
		}
		return at(http.StatusOK)()
	})
}

// OPA's own health and metrics are there, with the gate's among them.
func TestMetrics(t *testing.T) {
	s := start(t, local())
	for range 3 {
		s.ask(t, http.MethodPost, "/v1/gate/call", "["+clean+","+tainted+",5]")
	}
	s.ask(t, http.MethodPost, "/v1/gate/call", "{}")
	s.ask(t, http.MethodPost, "/v1/gate/skill", aSkill)
	s.ask(t, http.MethodPut, "/v1/policies/mine", "package gate.call\n\ndecision := true\n")
	if err := activateLocal(t.Context(), s.runtime.Store, "built-in", raw(t, "bad", func(f map[string]string) {
		f["gate/call/call.rego"] = "package gate.call\n\ndecision := true\n"
	})); err == nil {
		t.Error("policies that do not decide are active")
	}
	if status, _, body := s.ask(t, http.MethodGet, "/health", ""); status != 200 || strings.TrimSpace(body) != "{}" {
		t.Errorf("/health: status %d: %s", status, body)
	}
	_, _, metrics := s.ask(t, http.MethodGet, "/metrics", "")
	for _, want := range []string{
		`http_request_duration_seconds_count\{code="200",handler="v1/gate/call",method="post"\} 3`,
		`http_request_duration_seconds_count\{code="400",handler="v1/gate/call",method="post"\} 1`,
		`http_request_duration_seconds_count\{code="200",handler="v1/gate/skill",method="post"\} 1`,
		`opa_gate_decisions_total\{api="call",outcome="allow"\} 3`,
		`opa_gate_decisions_total\{api="call",outcome="escalate"\} 3`,
		`opa_gate_decisions_total\{api="call",outcome="error"\} 4`,
		`opa_gate_decisions_total\{api="skill",outcome="deny"\} 1`,
		`opa_gate_decisions_total\{api="skill",outcome="other"\} 0`,
		`opa_gate_refused_total 1`,
		`opa_gate_policies_info\{bundle="built-in",revision="[0-9a-f]+"\} 1`,
	} {
		if !regexp.MustCompile(`(?m)^` + want + `$`).MatchString(metrics) {
			t.Errorf("the metrics lack %s:\n%s", want, regexp.MustCompile(`(?m)^(opa_gate|http_request_duration_seconds_count).*$`).FindAllString(metrics, -1))
		}
	}
}

// What is packed is bounded by what it unpacks to, and lines are told right.
func TestBodies(t *testing.T) {
	s := start(t, local())
	packed := func(parts ...string) string {
		var buf bytes.Buffer
		z := gzip.NewWriter(&buf)
		for _, part := range parts {
			if _, err := io.WriteString(z, part); err != nil {
				t.Fatal(err)
			}
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		return buf.String()
	}
	blanks := strings.Repeat(" ", maxBody)
	for _, tt := range []struct {
		name, body string
		status     int
		says       string
	}{
		{"a document", packed(tainted), 200, `"escalate"`},
		{"an array", packed("[" + tainted + "]"), 200, `"escalate"`},
		{"a document in blanks", packed("["+blanks[:maxBody-len(clean)-2], clean, "]"), 200, `"allow"`},
		{"one byte too many", packed("["+blanks[:maxBody-len(clean)-1], clean, "]"), 413, "at most"},
		{"much too many", packed(blanks, blanks, blanks, blanks, clean), 413, "at most"},
		{"not packed", clean, 400, "could not be read"},
		{"cut off", packed(clean)[:40], 400, "could not be read"},
		{"changed", packed(clean)[:60] + "x" + packed(clean)[61:], 400, "could not be read"},
		{"nothing", "", 400, "could not be read"},
	} {
		req, err := http.NewRequest(http.MethodPost, s.url+"/v1/gate/call", strings.NewReader(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Encoding", "gzip")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != tt.status || !strings.Contains(string(body), tt.says) {
			t.Errorf("%s: %v, status %d, want %d: %s", tt.name, err, resp.StatusCode, tt.status, body)
		}
	}
	// Each of very many wrong documents is told with its line, and in time.
	const wrong = 50_000
	_, _, body := s.ask(t, http.MethodPost, "/v1/gate/call", "["+strings.Repeat("5,\n", wrong-1)+strings.Repeat(" ", 1<<20)+"5]")
	var answers []struct {
		Error struct{ Line, Index int }
	}
	if err := json.Unmarshal([]byte(body), &answers); err != nil || len(answers) != wrong {
		t.Fatalf("%v, %d answers", err, len(answers))
	}
	for i, a := range answers {
		if a.Error.Line != i+1 || a.Error.Index != i {
			t.Fatalf("element %d: %+v", i, a)
		}
	}
}

// A judge puts documents to one of a server's APIs.
type judge struct {
	url    string
	inputs bool // OPA's, with the document as input
}

func (j judge) Call(ctx context.Context, doc []byte) ([]byte, error) { return j.ask(ctx, "call", doc) }
func (j judge) Skill(ctx context.Context, doc []byte) ([]byte, error) {
	return j.ask(ctx, "skill", doc)
}

func (j judge) ask(ctx context.Context, api string, doc []byte) ([]byte, error) {
	url, body := j.url+"/v1/gate/"+api, string(doc)
	if j.inputs {
		url, body = j.url+"/v1/data/gate/"+api+"/decision", `{"input":`+body+`}`
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%w, status %d: %s", err, resp.StatusCode, text)
	}
	if !j.inputs {
		return text, nil
	}
	var answer struct{ Result json.RawMessage }
	return answer.Result, json.Unmarshal(text, &answer)
}

// Every case of the conformance suite is answered as it must be, by policies
// that came as a bundle.
func TestConformance(t *testing.T) {
	suite, err := fixtures.Load(os.DirFS("../fixtures/cases"), ".")
	if err != nil {
		t.Fatal(err)
	}
	h := newHost(t)
	h.put(builtIn())
	s := start(t, from(h))
	if err := s.fetch(); err != nil {
		t.Fatal(err)
	}
	for name, j := range map[string]judge{"the gate's API": {s.url, false}, "OPA's API": {s.url, true}} {
		t.Run(name, func(t *testing.T) {
			report := fixtures.Run(t.Context(), j, suite)
			if total, failed := report.Total(); !report.OK() || total < 100 {
				t.Errorf("%d of %d cases failed: %+v", failed, total, report.Differences)
			}
		})
	}
}
