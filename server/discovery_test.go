package server

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/plugins/discovery"
)

// naming is a discovery bundle that names bundles by their hosts.
func naming(t *testing.T, revision string, hosts map[string]*host) []byte {
	t.Helper()
	var bundles []string
	for name := range maps.Keys(hosts) {
		bundles = append(bundles, fmt.Sprintf(`"%s": {"service": "%[1]s", "resource": "%[1]s.tar.gz", "trigger": "manual"}`, name))
	}
	return tarball(t, map[string]string{
		".manifest": `{"revision": "` + revision + `", "roots": ["config"]}`,
		"data.json": `{"config": {"bundles": {` + strings.Join(bundles, ", ") + `}}}`,
	})
}

// Discovery names the gate's bundle, takes it away, and names it again: nothing
// decides in between, and the process lives.
func TestDiscovery(t *testing.T) {
	disco, gate, lists := newHost(t), newHost(t), newHost(t)
	gate.put(raw(t, "rules", func(f map[string]string) { // they need the documents of another bundle
		replace(t, f, "gate/call/call.rego", `answer := {"outcome": "deny", "reason": input.policy.veto} if {`,
			"answer := {\"outcome\": \"deny\", \"reason\": \"not now\"} if {\n\tcount(data.closed.tools) < 0\n} else := {\"outcome\": \"deny\", \"reason\": input.policy.veto} if {")
		f["gate/call/needs.rego"] = "package gate.call\n\nneeded := data.closed.tools\n"
	}))
	lists.put(tarball(t, map[string]string{".manifest": `{"revision": "lists", "roots": ["closed"]}`, "closed/data.json": `{"tools": []}`}))
	s := start(t, &Options{ConfigSet: []string{
		"services.disco.url=" + disco.URL, "services.gate.url=" + gate.URL, "services.lists.url=" + lists.URL,
		"discovery.resource=disco.tar.gz", "discovery.service=disco", "discovery.trigger=manual", "discovery.decision=config",
	}})
	if got := s.Status(); got != "nothing is decided yet: OPA waits for its discovery bundle" {
		t.Errorf("it says %q", got)
	}
	discover := func(revision string, hosts map[string]*host) {
		t.Helper()
		disco.put(naming(t, revision, hosts))
		if err := discovery.Lookup(s.runtime.Manager).Trigger(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(hosts) > 0 {
			if err := s.fetch(); err != nil {
				t.Fatal(err)
			}
		}
	}
	decides := func(revision string) {
		t.Helper()
		status, header, body := s.ask(t, http.MethodPost, "/v1/gate/call", clean)
		opaStatus, _, opaBody := s.ask(t, http.MethodPost, "/v1/data/gate/call/decision", `{"input":`+clean+`}`)
		healthStatus, _, health := s.ask(t, http.MethodGet, "/v1/gate/health", "")
		if revision != "" {
			if status != 200 || header.Get(RevisionHeader) != revision || !strings.Contains(body, `"allow"`) || opaStatus != 200 || healthStatus != 200 {
				t.Errorf("statuses %d, %d, %d, revision %s: %s\n%s", status, opaStatus, healthStatus, header.Get(RevisionHeader), body, health)
			}
			return
		}
		if status != 503 || opaStatus != 503 || healthStatus != 503 || strings.Contains(body+opaBody, "outcome") || !strings.Contains(health, `"ready": false`) {
			t.Errorf("statuses %d, %d, %d: %s%s%s", status, opaStatus, healthStatus, body, opaBody, health)
		}
	}
	both := map[string]*host{"gate": gate, "lists": lists}
	const active = `gate="rules", lists="lists"`
	decides("")
	discover("d1", both)
	decides(active)
	discover("d2", map[string]*host{"lists": lists}) // the gate's is taken away
	decides("")
	discover("d3", both)
	decides(active)
	discover("d4", nil) // all of it
	decides("")
	discover("d5", both)
	decides(active)
	for _, state := range []string{"Policies are active: gate=", "No policies are active any more"} {
		if !strings.Contains(s.log.String(), state) {
			t.Errorf("the log lacks %q:\n%s", state, s.log)
		}
	}
	eventually(t, "the health to know the bundles", func() bool {
		_, _, health := s.ask(t, http.MethodGet, "/v1/gate/health", "")
		return strings.Contains(health, `"lists": {`) && strings.Contains(health, `"gate": {`)
	})
}

// What discovery leaves may be less than the rules need. Nothing decides then;
// and the mask of a bundle that goes is the gate's again.
func TestDiscoveryTakesWhatRulesNeed(t *testing.T) {
	disco, gate, rules := newHost(t), newHost(t), newHost(t)
	gate.put(raw(t, "gate", func(f map[string]string) {
		f["gate/call/call.rego"] = strings.Replace(f["gate/call/call.rego"], "missing := bits.and(", "missing := data.shared.both(", 1)
	}))
	rules.put(tarball(t, map[string]string{".manifest": `{"revision": "rules", "roots": ["shared", "system/log"]}`,
		"shared/shared.rego": "package shared\n\nboth(a, b) := bits.and(a, b)\n",
		"system/log/x.rego":  "package system.log\n\nmask contains \"/input/tool\"\n"}))
	s := start(t, &Options{ConfigSet: []string{
		"services.disco.url=" + disco.URL, "services.gate.url=" + gate.URL, "services.rules.url=" + rules.URL,
		"discovery.resource=disco.tar.gz", "discovery.service=disco", "discovery.trigger=manual", "discovery.decision=config",
	}})
	for i, hosts := range []map[string]*host{{"rules": rules}, {"rules": rules, "gate": gate}, {"gate": gate}, {"gate": gate, "rules": rules}} {
		disco.put(naming(t, fmt.Sprint("d", i), hosts))
		if err := discovery.Lookup(s.runtime.Manager).Trigger(t.Context()); err != nil {
			t.Fatal(err)
		}
		_ = s.fetch() // without the rules the gate's bundle cannot be activated again
		want := 503
		if len(hosts) == 2 {
			want = 200
			for s.fetch() != nil { // the rules before the gate
				continue
			}
		}
		status, _, body := s.ask(t, http.MethodPost, "/v1/gate/call", tainted)
		if status != want || (want == 200) != strings.Contains(body, `"escalate"`) {
			t.Errorf("step %d: status %d, want %d: %s", i, status, want, body)
		}
		if status, _, body := s.ask(t, http.MethodPost, "/v1/data/gate/call/decision", `{"input":`+tainted+`}`); status != want {
			t.Errorf("step %d: OPA's API: status %d, want %d: %s", i, status, want, body)
		}
	}
	if log := s.log.String(); !strings.Contains(log, "what is left does not decide") {
		t.Errorf("the log does not say why: %s", log)
	}
}
