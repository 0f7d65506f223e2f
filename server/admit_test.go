package server

import (
	"context"
	"crypto/ed25519"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opa-gate/opa-gate/approvals"
	"github.com/opa-gate/opa-gate/ledger"
	"github.com/opa-gate/opa-gate/skill"
)

// staffed is a server over a ledger, and the token of one who approves.
func staffed(t *testing.T, opts *Options) (*running, *ledger.Ledger, string) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	keys := &ledger.Keyring{}
	keys.Sign(key)
	l, err := ledger.Open(context.Background(), filepath.Join(t.TempDir(), "l.db"), &ledger.Options{Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	token, tokens := approvals.OneToken(approvals.Holder{Name: "ann", Role: approvals.Approver})
	opts.Ledger, opts.Approvals = l, approvals.New(&approvals.Options{Ledger: l, Tokens: tokens})
	return start(t, opts), l, token
}

func (r *running) send(t *testing.T, method, path, token, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(method, r.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

const admission = `{"call":` + tainted + `,"arguments":{"url":"the argument"},"session":"s"}`

// A call waits, is approved over HTTP, passes once, and asks again.
func TestAdmit(t *testing.T) {
	s, l, token := staffed(t, local())
	status, body := s.send(t, "POST", "/v1/gate/admit", "", admission)
	if status != 200 || !strings.Contains(body, `"outcome":"escalate"`) || !strings.Contains(body, `"state":"waiting"`) {
		t.Fatalf("status %d: %s", status, body)
	}
	waiting, _, err := l.Waiting(context.Background(), 9)
	if err != nil || len(waiting) != 1 || !strings.HasPrefix(waiting[0].Revision, "sha256:") {
		t.Fatal(waiting, err)
	}
	path := "/v1/gate/approvals/" + waiting[0].ID + "/decision"
	if status, body := s.send(t, "POST", path, "", `{"decision":"approve"}`); status != 401 {
		t.Errorf("without a token: status %d: %s", status, body)
	}
	if status, body := s.send(t, "POST", path, token, `{"decision":"approve"}`); status != 200 {
		t.Fatalf("status %d: %s", status, body)
	}
	status, body = s.send(t, "POST", "/v1/gate/admit", "", "["+admission+","+admission+`,{"call":`+clean+`},{}]`)
	if status != 200 || strings.Count(body, `"outcome":"allow"`) != 2 || strings.Count(body, `"outcome":"escalate"`) != 1 ||
		!strings.Contains(body, `"reviewer":"token:ann"`) || !strings.Contains(body, ledger.ErrUsed.Error()) || !strings.Contains(body, `"index":3`) {
		t.Errorf("status %d: %s", status, body)
	}
	if status, body := s.send(t, "GET", "/approvals", "", ""); status != 200 || !strings.Contains(body, "<title>Approvals") {
		t.Errorf("the page: status %d", status)
	}
	if log := s.log.String(); strings.Contains(log, token) || strings.Contains(log, "the argument") {
		t.Errorf("the log has a secret: %s", log)
	}
}

// A ledger that is away: what needs a person is an escalation with an error, what
// does not goes on.
func TestAdmitWithoutLedger(t *testing.T) {
	s, l, token := staffed(t, local())
	health := func(want string) {
		t.Helper()
		if status, body := s.send(t, "GET", "/v1/gate/health", "", ""); status != 200 || !strings.Contains(body, `"ready": true`) || !strings.Contains(body, want) {
			t.Errorf("health, %d: %s; want %s", status, body, want)
		}
	}
	health(`"available": true`)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	health(`"available": false`)
	status, body := s.send(t, "POST", "/v1/gate/admit", "", admission)
	if status != 503 || !strings.Contains(body, `"outcome":"escalate"`) || !strings.Contains(body, `"error":"`) || strings.Contains(body, `"allow"`) {
		t.Errorf("status %d: %s", status, body)
	}
	if status, body := s.send(t, "POST", "/v1/gate/admit", "", `{"call":`+clean+`}`); status != 200 || !strings.Contains(body, `"outcome":"allow"`) {
		t.Errorf("a call that needs nobody: status %d: %s", status, body)
	}
	if status, body := s.send(t, "POST", "/v1/gate/skill", "", `{"skill":"s","requested":"read_only"}`); status != 503 || strings.Contains(body, `"deploy":true`) {
		t.Errorf("a skill that is denied: status %d: %s", status, body)
	}
	if status, body := s.send(t, "GET", "/v1/gate/approvals", token, ""); status != 503 {
		t.Errorf("approvals: status %d: %s", status, body)
	}
}

// What a person decided about a skill counts, and a document that says it itself is
// refused.
func TestSkillsAreLookedUp(t *testing.T) {
	s, l, _ := staffed(t, local())
	const asked = `{"skill":"a:b","requested":"sandbox_edit"}`
	const claims = `{"skill":"a:b","requested":"sandbox_edit","approval":"approved"}`
	for _, step := range []struct {
		verdict skill.Verdict
		want    string
	}{{skill.NoVerdict, `"deploy":false`}, {skill.Approved, `"deploy":true`}, {skill.Rejected, `"blocked":true`}} {
		if step.verdict != skill.NoVerdict {
			if _, err := l.Record(context.Background(), "ann", skill.Ruling{Fingerprint: skill.Fingerprint("a:b", skill.SandboxEdit),
				RequiredTier: skill.SandboxEdit, Decision: step.verdict}); err != nil {
				t.Fatal(err)
			}
		}
		if status, body := s.send(t, "POST", "/v1/gate/skill", "", asked); status != 200 || !strings.Contains(body, step.want) {
			t.Errorf("%v: status %d: %s", step.verdict, status, body)
		}
		if status, body := s.send(t, "POST", "/v1/gate/skill", "", claims); status != 400 || !strings.Contains(body, `"/approval"`) {
			t.Errorf("%v, and the document says so itself: status %d: %s", step.verdict, status, body)
		}
	}
}

// OPA's authorization sees the request, and the role is looked at all the same.
func TestApprovalsBehindAuthorization(t *testing.T) {
	b := raw(t, "authz", func(files map[string]string) {
		replace(t, files, ".manifest", `["gate"]`, `["gate", "system/authz"]`)
		files["system/authz/authz.rego"] = `package system.authz
default allow := false
allow if input.path[0] == "approvals"
allow if { input.path == ["v1", "gate", "approvals"]; input.identity }
`
	})
	opts := &Options{Local: given(b), LocalName: "local", Authentication: "token", Authorization: "basic"}
	s, _, token := staffed(t, opts)
	for _, tt := range []struct {
		path, token string
		want        int
	}{
		{"/approvals", "", 200}, {"/approvals/page.js", "", 200}, {"/v1/gate/approvals", token, 200},
		{"/v1/gate/approvals", "", 401},
		{"/v1/gate/approvals", approvals.NewToken(), 401}, // that OPA lets through
		{"/v1/gate/approvals/audit", token, 401},          // that OPA does not
	} {
		if status, body := s.send(t, "GET", tt.path, tt.token, ""); status != tt.want {
			t.Errorf("%s: status %d, want %d: %.100s", tt.path, status, tt.want, body)
		}
	}
}
