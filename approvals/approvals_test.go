package approvals

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/ledger"
)

// A desk is a handler over a ledger, with a viewer and two approvers.
type desk struct {
	*Handler
	t                *testing.T
	ledger           *ledger.Ledger
	url, file        string
	viewer, ann, ben string // tokens
	mu               sync.Mutex
	log              bytes.Buffer
}

func (d *desk) logf(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, _ = fmt.Fprintf(&d.log, format+"\n", args...)
}

var testKeys = sync.OnceValue(func() *ledger.Keyring {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		panic(err)
	}
	keys := &ledger.Keyring{}
	keys.Sign(key)
	return keys
})

func openLedger(t *testing.T, name string) *ledger.Ledger {
	t.Helper()
	l, err := ledger.Open(context.Background(), name, &ledger.Options{Keys: testKeys()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func newDesk(t *testing.T, name string) *desk {
	t.Helper()
	d := &desk{t: t, ledger: openLedger(t, name), file: filepath.Join(t.TempDir(), "tokens")}
	for _, h := range []struct {
		token *string
		name  string
		role  Role
	}{{&d.viewer, "vera", Viewer}, {&d.ann, "ann", Approver}, {&d.ben, "ben", Approver}} {
		var err error
		if *h.token, err = AddToken(d.file, Holder{h.name, h.role}); err != nil {
			t.Fatal(err)
		}
	}
	tokens, err := OpenTokens(d.file)
	if err != nil {
		t.Fatal(err)
	}
	d.serve(tokens, 0)
	return d
}

// serve has a new handler serve, as after a restart.
func (d *desk) serve(tokens *Tokens, streams int) {
	d.Handler = New(&Options{Ledger: d.ledger, Tokens: tokens, Log: d.logf, Streams: streams})
	s := httptest.NewServer(d.Handler)
	d.url = s.URL
	h := d.Handler
	d.t.Cleanup(func() { h.Close(); s.Close() })
}

func (d *desk) add(tool, arguments, session string, missing capability.Set) *ledger.Pending {
	d.t.Helper()
	return file(d.t, d.ledger, tool, arguments, session, missing)
}

func file(t *testing.T, l *ledger.Ledger, tool, arguments, session string, missing capability.Set) *ledger.Pending {
	t.Helper()
	a, err := l.Admit(context.Background(), &ledger.Escalation{
		Call:    ledger.Call{Tool: tool, Arguments: json.RawMessage(arguments), Session: session, Revision: "r"},
		Outcome: capability.Outcome{Kind: capability.Escalate, Missing: missing, Required: missing, Reason: "why"},
	})
	if err != nil || a.Pending == nil {
		t.Fatal(a, err)
	}
	return a.Pending
}

const egress = capability.Set(8)

// ask sends a request; headers come in pairs, and replace those of a program
// that does it right.
func (d *desk) ask(method, path, token, body string, headers ...string) (int, http.Header, string) {
	d.t.Helper()
	req, err := http.NewRequest(method, d.url+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(text)
}

const api = "/v1/gate/approvals"

// Who may do what: every route, asked by everybody.
func TestRoles(t *testing.T) {
	d := newDesk(t, "memory:")
	for _, tt := range []struct {
		name, method, path, body string
		viewer, approver         int
	}{
		{"list", "GET", api, "", 200, 200},
		{"show", "GET", api + "/ID", "", 200, 200},
		{"audit", "GET", api + "/audit", "", 200, 200},
		{"approve", "POST", api + "/ID/decision", `{"decision":"approve"}`, 403, 200},
		{"reject", "POST", api + "/ID/decision", `{"decision":"reject"}`, 403, 200},
		{"withdraw", "POST", api + "/ID/withdraw", `{}`, 403, 200},
		{"the wrong method", "GET", api + "/ID/decision", "", 405, 405},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := d.add(tt.name, `{}`, "", egress)
			path := strings.Replace(tt.path, "ID", p.ID, 1)
			for _, who := range []struct {
				token string
				want  int
			}{{"", 401}, {NewToken(), 401}, {d.viewer, tt.viewer}, {d.ann, tt.approver}} {
				if tt.viewer == 405 {
					who.want = 405
				}
				d.strangers.seen = map[string]*failures{} // none of this is about waiting
				status, h, body := d.ask(tt.method, path, who.token, tt.body)
				if status != who.want {
					t.Errorf("status %d, want %d: %s", status, who.want, body)
				}
				if status != 405 && (h.Get("Cache-Control") != "no-store" || h.Get("X-Content-Type-Options") != "nosniff" || !json.Valid([]byte(body))) {
					t.Errorf("headers %v: %s", h, body)
				}
				if now, err := d.ledger.Pending(context.Background(), p.ID); err != nil || who.want != 200 && now.State != ledger.Waiting {
					t.Errorf("it is %v after status %d, %v", now.State, status, err)
				}
			}
		})
	}
}

func TestReviewerIsWhoAuthenticated(t *testing.T) {
	d := newDesk(t, "memory:")
	p := d.add("t", `{"n":9007199254740993,"<b>":"&"}`, "s", egress)
	status, _, body := d.ask("POST", api+"/"+p.ID+"/decision", d.ann,
		`{"decision":"approve","scope":"session","comment":"yes","lifetime_seconds":60,"digest":"`+p.Digest.String()+`"}`)
	if status != 200 || !strings.Contains(body, `"reviewer":"token:ann"`) || !strings.Contains(body, `"scope":"session"`) {
		t.Fatalf("status %d: %s", status, body)
	}
	now, err := d.ledger.Pending(context.Background(), p.ID)
	if err != nil || now.Decision == nil || now.Decision.Comment != "yes" || now.Decision.Expires.Sub(now.Decision.At).Round(time.Second) > 60*time.Second {
		t.Fatalf("%+v, %v", now.Decision, err)
	}
	if _, _, body := d.ask("GET", api+"/"+p.ID, d.viewer, ""); strings.Contains(body, now.Decision.Token) {
		t.Error("a viewer gets the signed approval")
	}
	if _, _, body := d.ask("GET", api+"/"+p.ID, d.ben, ""); !strings.Contains(body, now.Decision.Token) {
		t.Error("an approver does not get the signed approval")
	}
	_, _, body = d.ask("GET", api+"?state=all", d.ben, "")
	if strings.Contains(body, now.Decision.Token) || !strings.Contains(body, `{"n":9007199254740993,"<b>":"&"}`) {
		t.Errorf("the list: %s", body)
	}
}

// What is not a decision decides nothing.
func TestHostileDecisions(t *testing.T) {
	d := newDesk(t, "memory:")
	p := d.add("t", `{}`, "", egress)
	const approve = `{"decision":"approve"}`
	for _, tt := range []struct {
		name, body string
		want       int
		headers    []string
	}{
		{"nothing", " ", 400, nil},
		{"no JSON", "approve", 400, nil},
		{"an array", "[" + approve + "]", 400, nil},
		{"two", approve + approve, 400, nil},
		{"no decision", `{}`, 400, nil},
		{"another decision", `{"decision":"allow"}`, 400, nil},
		{"in capitals", `{"Decision":"approve"}`, 400, nil},
		{"null", `{"decision":null}`, 400, nil},
		{"twice", `{"decision":"reject","decision":"approve"}`, 400, nil},
		{"a reviewer", `{"decision":"approve","reviewer":"token:ben"}`, 400, nil},
		{"a token", `{"decision":"approve","token":"x"}`, 400, nil},
		{"no UTF-8", "{\"decision\":\"approve\",\"comment\":\"\xff\"}", 400, nil},
		{"a comment that is too long", `{"decision":"approve","comment":"` + strings.Repeat("x", ledger.MaxComment+1) + `"}`, 400, nil},
		{"a body that is too long", `{"decision":"approve","comment":"` + strings.Repeat("x", maxBody) + `"}`, 413, nil},
		{"no time", `{"decision":"approve","lifetime_seconds":0}`, 400, nil},
		{"a part of a second", `{"decision":"approve","lifetime_seconds":1.5}`, 400, nil},
		{"for ever", `{"decision":"approve","lifetime_seconds":1e30}`, 400, nil},
		{"a session that is none", `{"decision":"approve","scope":"session"}`, 400, nil},
		{"a scope that is none", `{"decision":"approve","scope":"all"}`, 400, nil},
		{"a rejection with a scope", `{"decision":"reject","scope":"session"}`, 400, nil},
		{"of another call", `{"decision":"approve","digest":"` + strings.Repeat("0", 64) + `"}`, 409, nil},
		{"a form", approve, 415, []string{"Content-Type", "text/plain"}},
		{"no type", approve, 415, []string{"Content-Type", ""}},
		{"another origin", approve, 403, []string{"Origin", "https://evil.example"}},
		{"no origin that can be named", approve, 403, []string{"Origin", "null"}},
		{"another site", approve, 403, []string{"Sec-Fetch-Site", "cross-site"}},
		{"another port", approve, 403, []string{"Sec-Fetch-Site", "same-site"}},
		{"another scheme of authentication", approve, 401, []string{"Authorization", "Basic " + d.ann}},
		{"the token as a cookie", approve, 401, []string{"Authorization", "", "Cookie", "token=" + d.ann}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d.strangers.seen = map[string]*failures{}
			status, _, body := d.ask("POST", api+"/"+p.ID+"/decision", d.ann, tt.body, tt.headers...)
			if status != tt.want {
				t.Errorf("status %d, want %d: %s", status, tt.want, body)
			}
			if now, err := d.ledger.Pending(context.Background(), p.ID); err != nil || now.State != ledger.Waiting {
				t.Fatalf("it is %v, %v", now, err)
			}
		})
	}
	if status, _, body := d.ask("POST", api+"/nobody/decision", d.ann, approve); status != 404 {
		t.Errorf("status %d: %s", status, body)
	}
	marker := d.add("invite", `{}`, "s", capability.Set(32))
	if status, _, body := d.ask("POST", api+"/"+marker.ID+"/decision", d.ann, `{"decision":"approve","scope":"session"}`); status != 400 {
		t.Errorf("never granted, for a session: status %d: %s", status, body)
	}
	// The same request, as the page sends it.
	if status, _, body := d.ask("POST", api+"/"+p.ID+"/decision", d.ann, approve, "Origin", d.url, "Sec-Fetch-Site", "same-origin"); status != 200 {
		t.Errorf("status %d: %s", status, body)
	}
}

func TestTwoApprovers(t *testing.T) {
	d := newDesk(t, filepath.Join(t.TempDir(), "l.db"))
	for i := range 20 {
		p := d.add("t", fmt.Sprintf(`{"i":%d}`, i), "", egress)
		type answer struct {
			status int
			body   string
		}
		answers := make(chan answer, 2)
		for token, decision := range map[string]string{d.ann: "approve", d.ben: "reject"} {
			go func() {
				status, _, body := d.ask("POST", api+"/"+p.ID+"/decision", token, `{"decision":"`+decision+`"}`)
				answers <- answer{status, body}
			}()
		}
		a, b := <-answers, <-answers
		if a.status > b.status {
			a, b = b, a
		}
		if a.status != 200 || b.status != 409 {
			t.Fatalf("%v and %v", a, b)
		}
		winner := "token:ann"
		if strings.Contains(a.body, "token:ben") {
			winner = "token:ben"
		}
		if !strings.Contains(b.body, `"reviewer":"`+winner+`"`) {
			t.Fatalf("the loser is told %s, and %s won", b.body, winner)
		}
	}
}

func TestList(t *testing.T) {
	d := newDesk(t, "memory:")
	for i := range 5 {
		d.add(fmt.Sprint("tool", i), `{}`, fmt.Sprint("s", i%2), egress)
	}
	if _, err := d.ledger.Decide(context.Background(), "x", d.add("done", `{}`, "", egress).ID, ledger.Decision{}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		query string
		want  int
		tools string
	}{
		{"", 200, "tool4 tool3 tool2 tool1 tool0"},
		{"?state=all&limit=2", 200, "done tool4"},
		{"?state=rejected", 200, "done"},
		{"?session=s1", 200, "tool3 tool1"},
		{"?q=OOL2", 200, "tool2"},
		{"?before=3", 200, "tool1 tool0"},
		{"?state=gone", 400, ""},
		{"?stat=all", 400, ""},
		{"?state=all&state=waiting", 400, ""},
		{"?limit=0", 400, ""},
		{"?limit=501", 400, ""},
		{"?limit=9223372036854775808", 400, ""},
		{"?before=x", 400, ""},
		{"?q=%ff", 400, ""},
		{"?q=" + strings.Repeat("x", 70<<10), 400, ""},
	} {
		status, _, body := d.ask("GET", api+tt.query, d.viewer, "")
		var answer struct {
			Approvals []ledger.Pending
			Waiting   int
			Head      int64
			You       struct{ Name, Role string }
		}
		if err := json.Unmarshal([]byte(body), &answer); err != nil || status != tt.want {
			t.Errorf("%.40s: status %d, %v: %.200s", tt.query, status, err, body)
			continue
		}
		var tools []string
		for _, p := range answer.Approvals {
			tools = append(tools, p.Tool)
		}
		if got := strings.Join(tools, " "); got != tt.tools {
			t.Errorf("%s: %s, want %s", tt.query, got, tt.tools)
		}
		if status == 200 && (answer.Waiting != 5 || answer.Head != 7 || answer.You.Name != "vera" || answer.You.Role != "viewer") {
			t.Errorf("%s: %+v", tt.query, answer)
		}
	}
}

func TestAudit(t *testing.T) {
	d := newDesk(t, "memory:")
	d.add("t", `{}`, "", egress)
	_, _, body := d.ask("GET", api+"/audit", d.viewer, "")
	var a struct {
		Sound bool
		Head  string
	}
	if err := json.Unmarshal([]byte(body), &a); err != nil || !a.Sound || !strings.HasPrefix(a.Head, "1:") {
		t.Fatalf("%v: %s", err, body)
	}
	if status, _, body := d.ask("GET", api+"/audit?seen="+a.Head, d.viewer, ""); status != 200 || !strings.Contains(body, `"sound":true`) {
		t.Errorf("status %d: %s", status, body)
	}
	if _, _, body := d.ask("GET", api+"/audit?seen=1:"+strings.Repeat("0", 64), d.viewer, ""); !strings.Contains(body, `"sound":false`) {
		t.Errorf("another head: %s", body)
	}
	for _, query := range []string{"?seen=1", "?sen=1:00"} {
		if status, _, body := d.ask("GET", api+"/audit"+query, d.viewer, ""); status != 400 {
			t.Errorf("%s: status %d: %s", query, status, body)
		}
	}
	d.auditing <- struct{}{}
	if status, _, body := d.ask("GET", api+"/audit", d.viewer, ""); status != 429 {
		t.Errorf("a second one: status %d: %s", status, body)
	}
	<-d.auditing
}

// A ledger that fails is an error, and nothing else.
func TestLedgerAway(t *testing.T) {
	d := newDesk(t, filepath.Join(t.TempDir(), "l.db"))
	p := d.add("t", `{"secret":"in the arguments"}`, "", egress)
	if err := d.ledger.Close(); err != nil {
		t.Fatal(err)
	}
	for _, r := range []struct{ method, path, body string }{
		{"GET", api, ""}, {"GET", api + "/" + p.ID, ""}, {"GET", api + "/events", ""}, {"GET", api + "/audit", ""},
		{"POST", api + "/" + p.ID + "/decision", `{"decision":"approve"}`}, {"POST", api + "/" + p.ID + "/withdraw", `{}`},
	} {
		if status, _, body := d.ask(r.method, r.path, d.ann, r.body); status != 503 || !strings.Contains(body, `"error"`) {
			t.Errorf("%s %s: status %d: %s", r.method, r.path, status, body)
		}
	}
	if status, _, _ := d.ask("GET", "/approvals", "", ""); status != 200 {
		t.Errorf("the page: status %d", status)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	log := d.log.String()
	if !strings.Contains(log, ledger.ErrUnavailable.Error()) || strings.Contains(log, d.ann) || strings.Contains(log, "in the arguments") {
		t.Errorf("the log: %s", log)
	}
}

func TestDecisionNeedsKey(t *testing.T) {
	l, err := ledger.Open(context.Background(), "memory:", nil)
	if err != nil {
		t.Fatal(err)
	}
	token, tokens := OneToken(Holder{"ann", Approver})
	d := &desk{t: t, ledger: l}
	d.serve(tokens, 0)
	p := d.add("t", `{}`, "", egress)
	if status, _, body := d.ask("POST", api+"/"+p.ID+"/decision", token, `{"decision":"approve"}`); status != 500 {
		t.Errorf("status %d: %s", status, body)
	}
	if now, err := l.Pending(context.Background(), p.ID); err != nil || now.State != ledger.Waiting {
		t.Errorf("%v, %v", now, err)
	}
}
