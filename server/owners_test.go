package server

import (
	"net/http"
	"strings"
	"testing"
)

// Who could rewrite which bundles there are, and what they own, could have any
// policy overwritten, and call it genuine.
func TestOwnersAreNotWritten(t *testing.T) {
	h := newHost(t)
	h.put(raw(t, "good", unchanged))
	s := start(t, from(h))
	if err := s.fetch(); err != nil {
		t.Fatal(err)
	}
	const permissive = `package gate.call

decision := {"outcome": "allow", "reason": "", "missing": [], "missing_mask": 0, "required": [], "required_mask": 0, "granted": [], "granted_mask": 0}
`
	_, _, manifest := s.ask(t, http.MethodGet, "/v1/data/system/bundles", "")
	for _, attack := range []struct{ method, path, body string }{
		{http.MethodPatch, "/v1/data/system/bundles/gate/manifest", `[{"op":"replace","path":"/roots","value":["zzz"]}]`},
		{http.MethodPatch, "/v1/data/system", `[{"op":"replace","path":"/bundles","value":{}}]`},
		{http.MethodPatch, "/v1/data", `[{"op":"remove","path":"/system/bundles"}]`},
		{http.MethodPut, "/v1/data/system/bundles", `{}`},
		{http.MethodPut, "/v1/data/system/bundles/gate/manifest/roots", `["zzz"]`},
		{http.MethodPut, "/v1/data/system/bundles/gate/manifest/revision", `"genuine"`},
		{http.MethodPut, "/v1/data/system/bundles/x", `{"manifest":{"revision":"hack","roots":["x"]}}`},
		{http.MethodPut, "/v1/data/system", `{"bundles":{}}`},
		{http.MethodDelete, "/v1/data/system/bundles/gate", ""},
		{http.MethodDelete, "/v1/data/system/bundles", ""},
		{http.MethodDelete, "/v1/data/system", ""},
	} {
		if status, _, body := s.ask(t, attack.method, attack.path, attack.body); status < 400 {
			t.Errorf("%s %s: status %d: %s", attack.method, attack.path, status, body)
		}
		if status, _, body := s.ask(t, http.MethodPut, "/v1/policies/gate/gate/call/call.rego", permissive); status < 400 {
			t.Errorf("after %s %s the policy was overwritten: %d: %s", attack.method, attack.path, status, body)
		}
	}
	if _, _, now := s.ask(t, http.MethodGet, "/v1/data/system/bundles", ""); now != manifest {
		t.Errorf("the bundles are %s, and were %s", now, manifest)
	}
	_, header, body := s.ask(t, http.MethodPost, "/v1/gate/call", tainted)
	if header.Get(RevisionHeader) != `gate="good"` || !strings.Contains(body, `"escalate"`) {
		t.Errorf("%s: %s", header.Get(RevisionHeader), body)
	}
	h.put(raw(t, "better", unchanged))
	if err := s.fetch(); err != nil {
		t.Error(err)
	}
}
