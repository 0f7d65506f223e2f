package server

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/opa-gate/opa-gate/internal/race"
)

// secret is what no decision log may have.
const secret = "s3cr3t-of-a-person"

// rewriting is a call whose hook rewrites arguments.
const rewriting = `{"tool":{"name":"t","origin":"local-sandbox"},"taint":"clean","policy":{"transform":{"kind":"rewrite","arguments":{"to":"` + secret + `"}}}}`

const aSkill = `{"skill":"s","requested":"read_only","provenance":{"source":"unknown"}}`

// startLogging has a server fetch a bundle and log to a collector.
func startLogging(t *testing.T, body []byte, set ...string) (*running, *host, *collector) {
	t.Helper()
	h, c := newHost(t), newCollector(t)
	h.put(body)
	s := start(t, from(h, append(c.set(), set...)...))
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.log)
		}
	})
	if err := s.fetch(); err != nil {
		t.Fatal(err)
	}
	return s, h, c
}

// Each decision is an event, with the revision that decided it.
func TestEvents(t *testing.T) {
	s, _, c := startLogging(t, raw(t, "good", unchanged))
	for _, ask := range []struct{ path, body string }{
		{"/v1/gate/call", tainted},
		{"/v1/gate/call", "[" + clean + "," + tainted + "," + clean + "]"},
		{"/v1/gate/skill", aSkill},
		{"/v1/data/gate/call/decision", `{"input":` + tainted + `}`},
	} {
		if status, _, body := s.ask(t, http.MethodPost, ask.path, ask.body); status != 200 {
			t.Fatalf("status %d: %s", status, body)
		}
	}
	events, raw := c.events(t, 6)
	ids, batches, paths := map[string]bool{}, map[string]int{}, map[string]int{}
	for _, e := range events {
		ids[e.Decision] = true
		batches[e.Batch]++
		paths[e.Path]++
		if e.Bundles["gate"].Revision != "good" {
			t.Errorf("event %+v has another revision", e)
		}
		if e.Input == nil || e.Result == nil || e.Error != nil || e.Custom.Error != nil || len(e.Erased) > 0 {
			t.Errorf("event %+v", e)
		}
	}
	if len(ids) != 6 {
		t.Errorf("%d different ids, want 6: %s", len(ids), raw)
	}
	if want := map[string]int{"gate/call/decision": 5, "gate/skill/decision": 1}; fmt.Sprint(paths) != fmt.Sprint(want) {
		t.Errorf("paths %v, want %v", paths, want)
	}
	sizes := map[int]int{}
	for _, n := range batches {
		sizes[n]++
	}
	if sizes[3] != 1 || sizes[1] != 3 {
		t.Errorf("requests of %v events, want one of three", batches)
	}
}

// Arguments are kept out, however they get in and whatever was activated before.
func TestArgumentsAreMasked(t *testing.T) {
	at := func(format string) string { return fmt.Sprintf(format, `{"x":"`+secret+`"}`) }
	// What is no call is refused by the gate, and has an answer from OPA.
	documents := map[string]string{
		"where they belong":          rewriting,
		"in the tool":                at(`{"tool":{"name":"t","arguments":%s},"taint":"clean"}`),
		"beside everything":          at(`{"tool":{"name":"t"},"taint":"clean","arguments":%s}`),
		"in capitals":                at(`{"tool":{"name":"t"},"taint":"clean","policy":{"transform":{"kind":"rewrite","Arguments":%s}}}`),
		"in a list":                  at(`{"tool":{"name":"t"},"taint":"clean","policy":{"transform":[{"kind":"rewrite","arguments":%s}]}}`),
		"below an unusual name":      at(`{"tool":{"name":"t"},"taint":"clean","a/b c%%20\"é":{"arguments":%s}}`),
		"in arguments":               at(`{"tool":{"name":"t"},"taint":"clean","arguments":{"arguments":%s}}`),
		"as a text":                  `{"tool":{"name":"t","origin":"local-sandbox"},"taint":"clean","policy":{"transform":{"kind":"rewrite","arguments":"` + secret + `"}}}`,
		"twice":                      at(`{"tool":{"name":"t"},"taint":"clean","policy":{"transform":{"kind":"rewrite","arguments":{},"arguments":%s}}}`),
		"in a call without a taint":  strings.Replace(rewriting, `"taint":"clean",`, "", 1),
		"in a call of a wrong taint": strings.Replace(rewriting, `"clean"`, `"`+secret+`"`, 1),
	}
	// What is not JSON is not logged at all.
	texts := []string{strings.TrimSuffix(rewriting, "}"), rewriting + rewriting, secret, `"` + secret + `"`,
		"[" + rewriting + ",", "[" + rewriting + "]" + secret}
	asked := func(t *testing.T, s *running) {
		t.Helper()
		for name, doc := range documents {
			if name != "in a call of a wrong taint" { // there OPA logs what is no arguments
				s.ask(t, http.MethodPost, "/v1/data/gate/call/decision", `{"input":`+doc+`}`)
				s.ask(t, http.MethodPost, "/v1/data/gate/call", `{"input":`+doc+`}`)
				s.ask(t, http.MethodPost, "/v1/data", `{"input":`+doc+`}`)
				s.ask(t, http.MethodPost, "/v0/data/gate/call/decision", doc)
				s.ask(t, http.MethodPost, "/v1/query", `{"query":"x := data.gate.call.decision","input":`+doc+`}`)
				s.ask(t, http.MethodPost, "/v1/query", `{"query":"x := input.policy.transform.arguments.to","input":`+doc+`}`)
				for _, path := range []string{"/v1/data/gate/call/decision/arguments", "/v1/data/gate/call/decision/arguments/to", "/v1/data/gate/call/answer/arguments"} {
					s.ask(t, http.MethodPost, path, `{"input":`+doc+`}`)
				}
				s.ask(t, http.MethodPost, "/v1/data/gate/call/decision", `{"input":"`+secret+`"}`)
			}
			for _, path := range []string{"/v1/gate/call", "/v1/gate/skill"} {
				s.ask(t, http.MethodPost, path, doc)
				s.ask(t, http.MethodPost, path, "["+clean+","+doc+"]")
			}
		}
		for _, text := range texts {
			s.ask(t, http.MethodPost, "/v1/gate/call", text)
		}
	}
	for _, tt := range []struct{ name, roots string }{{"a bundle of the gate alone", "gate"}, {"a bundle that owns everything", ""}} {
		t.Run(tt.name, func(t *testing.T) {
			bundle := func(revision string) []byte {
				return raw(t, revision, func(f map[string]string) { replace(t, f, ".manifest", `["gate"]`, `["`+tt.roots+`"]`) })
			}
			s, h, c := startLogging(t, bundle("r1"))
			asked(t, s)
			for _, again := range []string{"r2", "r3"} {
				h.put(bundle(again))
				if err := s.fetch(); err != nil {
					t.Fatal(err)
				}
				asked(t, s)
			}
			// A document a path of OPA's; alone, and with one beside it, by the gate's
			// two. Of an array that breaks off, what came before was decided.
			n := 3 * ((len(documents)-1)*10 + len(documents)*6 + len(texts) - 2 + 2)
			events, raw := c.events(t, n)
			if at := strings.Index(raw, secret); at >= 0 {
				t.Errorf("the log has arguments: %s", raw[max(0, at-700):at+100])
			}
			masked, refused := 0, 0
			for _, e := range events {
				if len(e.Erased) > 0 {
					masked++
				}
				if e.Custom.Error != nil {
					refused++
					if e.Input != nil || e.Custom.Error.Code != "invalid_parameter" {
						t.Errorf("%+v", e)
					}
				}
			}
			if masked == 0 || refused == 0 {
				t.Errorf("%d events masked, %d of errors", masked, refused)
			}
		})
	}
}

// An operator's own mask takes the place of the gate's, in whatever form, and
// goes again.
func TestOwnMask(t *testing.T) {
	own := map[string]map[string]string{
		"a set":             {"system/log/mask.rego": "package system.log\n\nmask contains \"/input/tool/name\"\n"},
		"a value":           {"system/log/mask.rego": "package system.log\n\nmask := [\"/input/tool/name\"]\n"},
		"a package above":   {"system/mask.rego": "package system\n\nlog.mask contains \"/input/tool/name\"\n"},
		"all of the log":    {"system/mask.rego": "package system\n\nlog := {\"mask\": [\"/input/tool/name\"], \"drop\": false}\n"},
		"a document":        {"system/log/data.json": `{"mask": ["/input/tool/name"]}`},
		"nothing is masked": {"system/log/mask.rego": "package system.log\n\nmask := []\n"},
	}
	for name, files := range own {
		t.Run(name, func(t *testing.T) {
			s, h, c := startLogging(t, raw(t, "before", unchanged))
			for i, mine := range []bool{false, true, false} {
				if i > 0 {
					h.put(raw(t, fmt.Sprint("r", i), func(f map[string]string) {
						replace(t, f, ".manifest", `["gate"]`, `["gate", "system"]`)
						for file, text := range files {
							if mine {
								f[file] = text
							}
						}
					}))
					if err := s.fetch(); err != nil {
						t.Fatal(err)
					}
				}
				if status, _, body := s.ask(t, http.MethodPost, "/v1/gate/call", rewriting); status != 200 || !strings.Contains(body, secret) {
					t.Fatalf("status %d: %s", status, body)
				}
			}
			events, _ := c.events(t, 3)
			for i, e := range events {
				if got, want := strings.Contains(fmt.Sprint(e.Input), secret), i == 1; got != want {
					t.Errorf("event %d: arguments in the log: %v, want %v: %+v", i, got, want, e)
				}
				if got, want := strings.Contains(fmt.Sprint(e.Input), "name"), i != 1 || name == "nothing is masked"; got != want {
					t.Errorf("event %d: the name in the log: %v, want %v: %+v", i, got, want, e)
				}
			}
		})
	}
}

// Masks are evaluated while policies come and go.
func TestEventsUnderActivations(t *testing.T) {
	rounds := 40
	if testing.Short() || race.Enabled {
		rounds = 10
	}
	s, h, c := startLogging(t, raw(t, "r0", unchanged))
	batch := "[" + strings.Repeat(rewriting+",", 9) + rewriting + "]"
	stop := make(chan struct{})
	var work sync.WaitGroup
	for range 4 {
		work.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				resp, err := http.Post(s.url+"/v1/gate/call", "application/json", strings.NewReader(batch))
				if err != nil {
					t.Error(err)
					return
				}
				_ = resp.Body.Close()
				if resp.StatusCode != 200 {
					t.Errorf("status %d", resp.StatusCode)
				}
			}
		})
	}
	for i := range rounds {
		h.put(raw(t, fmt.Sprint("r", i+1), unchanged))
		if err := s.fetch(); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	work.Wait()
	var raw string
	eventually(t, "the events", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		raw = strings.Join(c.logs, "")
		return strings.Contains(raw, "gate/call/decision")
	})
	if strings.Contains(raw, secret) {
		t.Errorf("the log of %d bytes has arguments", len(raw))
	}
}
