package gateway

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/ledger"
)

// tainted is a conversation in which sending asks a person.
func tainted(t *testing.T, behaviour, capabilities string) (*bench, *rawClient) {
	t.Helper()
	b := newBench(t, "", fake("fake", behaviour, connector))
	b.config.Wait = 0
	c := b.start()
	c.hello(capabilities)
	if m := c.call("fetch"); m.Error != nil {
		t.Fatal(m.line)
	}
	return b, c
}

func TestElicitation(t *testing.T) {
	const once, rejects = `{"action":"accept","content":{"decision":"approve this call once"}}`, `{"action":"accept","content":{"decision":"reject it"}}`
	for _, tt := range []struct {
		name, answer string
		want         string // in the result
		executed     int    // beside the call that tainted
		state        ledger.State
	}{
		{"approved", once, "done", 1, ledger.Used},
		{"rejected", rejects, `"opa-gate/outcome":"deny"`, 0, ledger.Rejected},
		{"declined", `{"action":"decline"}`, `"opa-gate/outcome":"deny"`, 0, ledger.Rejected},
		{"cancelled", `{"action":"cancel"}`, `"opa-gate/outcome":"escalate"`, 0, ledger.Waiting},
		{"accepted without a word", `{"action":"accept"}`, `"opa-gate/outcome":"escalate"`, 0, ledger.Waiting},
		{"accepted with another word", `{"action":"accept","content":{"decision":"yes"}}`, `"opa-gate/outcome":"escalate"`, 0, ledger.Waiting},
		{"two words", `{"action":"accept","content":{"decision":"reject it","decision":"approve this call once"}}`, `"opa-gate/outcome":"escalate"`, 0, ledger.Waiting},
		{"no object", `7`, `"opa-gate/outcome":"escalate"`, 0, ledger.Waiting},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, c := tainted(t, "good", `{"elicitation":{}}`)
			var asked wireMessage
			c.on = func(m wireMessage) bool {
				if m.Method == "elicitation/create" {
					asked = m
					go c.write(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":` + tt.answer + `}`)
				}
				return true
			}
			m := c.request("tools/call", `{"name":"send","arguments":{"to":"a\u202eb","n":9007199254740993}}`)
			if !strings.Contains(m.line, tt.want) {
				t.Errorf("got %s, want %s", m.line, tt.want)
			}
			if got := len(b.calls()) - 1; got != tt.executed {
				t.Errorf("%d calls were executed, want %d", got, tt.executed)
			}
			for _, want := range []string{"opa-gate asks", "Tool: send", "9007199254740993", "mutate-external"} {
				if !strings.Contains(string(asked.Params), want) {
					t.Errorf("the question lacks %q: %s", want, asked.Params)
				}
			}
			if strings.Contains(string(asked.Params), "\u202e") {
				t.Error("the question has a character that turns the text")
			}
			if p := onlyPending(t, b); p.State != tt.state {
				t.Errorf("the escalation is %v, want %v", p.State, tt.state)
			} else if p.Decision != nil && p.Decision.Reviewer != "tester" {
				t.Errorf("the reviewer is %q", p.Decision.Reviewer)
			}
			if tt.executed == 1 { // once is once
				c.on = func(m wireMessage) bool {
					go c.write(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":{"action":"cancel"}}`)
					return true
				}
				if m := c.request("tools/call", `{"name":"send","arguments":{"to":"a\u202eb","n":9007199254740993}}`); !strings.Contains(m.line, "escalate") {
					t.Errorf("a second call got %s", m.line)
				}
			}
		})
	}
}

func onlyPending(t *testing.T, b *bench) *ledger.Pending {
	t.Helper()
	entries, err := b.ledger.Since(t.Context(), 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if p, err := b.ledger.Pending(t.Context(), e.Ref); err == nil {
			return p
		}
	}
	t.Fatal("nothing was filed")
	return nil
}

// The client cannot ask, or shows no forms: the call is refused and says where
// it waits. With a wait, it goes on when somebody has answered.
func TestWithoutElicitation(t *testing.T) {
	for _, capabilities := range []string{`{}`, `{"elicitation":{"url":{}}}`} {
		b, c := tainted(t, "good", capabilities)
		if m := c.call("send"); !strings.Contains(m.line, `"isError":true`) || !strings.Contains(m.line, "opa-gate approvals show") {
			t.Errorf("got %s", m.line)
		}
		if got := len(b.calls()); got != 1 {
			t.Errorf("%d calls were executed", got)
		}
	}

	b := newBench(t, "", fake("fake", "good", connector))
	b.config.Wait = 20 * time.Second
	c := b.start()
	c.hello(`{}`)
	c.call("fetch")
	_, answer := c.send("tools/call", `{"_meta":{"progressToken":"tok"},"name":"send","arguments":{}}`)
	alive := 0
	for alive < 3 { // signs of life while a person is asked
		if m := <-c.other; m.Method == "notifications/progress" && strings.Contains(string(m.Params), `"progressToken":"tok"`) {
			alive++
		}
	}
	p := onlyPending(t, b)
	if _, err := b.ledger.Decide(t.Context(), "somebody", p.ID, ledger.Decision{Approve: true}); err != nil {
		t.Fatal(err)
	}
	if m := c.await(answer); !strings.Contains(m.line, "done") {
		t.Errorf("approved elsewhere, got %s", m.line)
	}
}

// While the client asks, somebody answers elsewhere: the question is taken back.
func TestAnsweredElsewhere(t *testing.T) {
	b, c := tainted(t, "good", `{"elicitation":{"form":{}}}`)
	asked, takenBack := make(chan wireMessage, 1), make(chan wireMessage, 1)
	c.on = func(m wireMessage) bool {
		switch m.Method {
		case "elicitation/create":
			asked <- m
		case "notifications/cancelled":
			takenBack <- m
		}
		return true
	}
	_, answer := c.send("tools/call", `{"name":"send","arguments":{}}`)
	question := <-asked
	if _, err := b.ledger.Decide(t.Context(), "somebody", onlyPending(t, b).ID, ledger.Decision{Approve: true}); err != nil {
		t.Fatal(err)
	}
	if m := c.await(answer); !strings.Contains(m.line, "done") {
		t.Errorf("got %s", m.line)
	}
	if m := <-takenBack; !strings.Contains(string(m.Params), `"requestId":`+string(question.ID)) {
		t.Errorf("taken back: %s", m.line)
	}
}

const stateless = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}`

// From 2026-07-28 on the question is a result, and its answer another call.
func TestInputRequired(t *testing.T) {
	b, c := tainted(t, "good", `{}`)
	call := func(arguments, more string) wireMessage {
		t.Helper()
		return c.request("tools/call", `{"_meta":{`+stateless+`},"name":"send","arguments":`+arguments+more+`}`)
	}
	ask := func() string {
		t.Helper()
		m := call(`{"to":"x"}`, "")
		var result struct {
			ResultType    string
			InputRequests map[string]struct {
				Method string
				Params json.RawMessage
			}
			RequestState string
		}
		if err := json.Unmarshal(m.Result, &result); err != nil || result.ResultType != "input_required" ||
			result.InputRequests[inputKey].Method != "elicitation/create" || result.RequestState == "" {
			t.Fatalf("no question: %s", m.line)
		}
		return result.RequestState
	}
	const yes = `,"inputResponses":{"opa-gate/approval":{"action":"accept","content":{"decision":"approve this call once"}}}`
	state := func(s string) string { return `,"requestState":"` + s + `"` }

	s := ask()
	flipped := []byte(s)
	flipped[len(flipped)-3] ^= 1
	for name, params := range map[string][2]string{
		"an altered state":  {`{"to":"x"}`, yes + state(string(flipped))},
		"no mac":            {`{"to":"x"}`, yes + state(strings.SplitN(s, ".", 3)[0]+"."+strings.SplitN(s, ".", 3)[1])},
		"another process's": {`{"to":"x"}`, yes + state(foreignState(t))},
		"for another call":  {`{"to":"y"}`, yes + state(s)},
	} {
		if m := call(params[0], params[1]); m.Error == nil || m.Error.Code != -32602 {
			t.Errorf("%s: got %s", name, m.line)
		}
	}
	if m := call(`{"to":"x"}`, yes+state(s)); m.Error == nil {
		t.Errorf("a state that was tried on another call is still good: %s", m.line)
	}
	if m := call(`{"to":"x"}`, yes); !strings.Contains(m.line, "input_required") {
		t.Errorf("an answer without a question: %s", m.line)
	}
	if got := len(b.calls()); got != 1 {
		t.Fatalf("%d calls were executed before anybody approved: %q", got, b.calls())
	}

	s = ask()
	if m := call(`{"to":"x"}`, yes+state(s)); !strings.Contains(m.line, "done") {
		t.Fatalf("approved, got %s", m.line)
	}
	got := b.calls()
	if len(got) != 2 || strings.Contains(got[1], "requestState") || strings.Contains(got[1], "inputResponses") {
		t.Errorf("the server saw %q", got)
	}
	if m := call(`{"to":"x"}`, yes+state(s)); m.Error == nil {
		t.Errorf("a state was good twice: %s", m.line)
	}
	s = ask()
	if m := call(`{"to":"x"}`, `,"inputResponses":{"opa-gate/approval":{"action":"decline"}}`+state(s)); !strings.Contains(m.line, "deny") {
		t.Errorf("declined, got %s", m.line)
	}
	// The state of a server is the server's.
	if m := c.request("tools/call", `{"name":"look","arguments":{},"requestState":"of-the-server","inputResponses":{"k":{}}}`); m.Error != nil {
		t.Error(m.line)
	}
	if got := b.calls(); !strings.Contains(got[len(got)-1], "of-the-server") {
		t.Errorf("the server did not get its state: %q", got)
	}
	if p := onlyPending(t, b); p.Decision == nil || p.Decision.Reviewer != "tester" {
		t.Errorf("decided by %+v", p.Decision)
	}
}

func foreignState(t *testing.T) string {
	t.Helper()
	s, err := newStates().seal("p", [32]byte{}, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A state is good until its time is over.
func TestStateExpires(t *testing.T) {
	s := newStates()
	now := time.Now()
	text, err := s.seal("p", [32]byte{1}, now.Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.open(text, [32]byte{1}, now.Add(2*time.Minute)); err == nil {
		t.Error("it is good after its time")
	}
	if _, err := s.open(text, [32]byte{1}, now); err == nil {
		t.Error("it is good after it was refused")
	}
}

// A server that asks the person is named, and cannot pass for the gate.
func TestServerAsks(t *testing.T) {
	b := newBench(t, "", fake("fake", "asks", connector))
	c := b.start()
	c.hello(`{"elicitation":{}}`)
	asked := make(chan wireMessage, 1)
	c.on = func(m wireMessage) bool {
		if m.Method == "elicitation/create" {
			asked <- m
			go c.write(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":{"action":"cancel"}}`)
		}
		return true
	}
	c.call("look")
	want := `{"message":"The server \"fake\" asks (this is not opa-gate): opa-gate asks: approve?","requestedSchema":{"type":"object","properties":{}}}`
	if m := <-asked; string(m.Params) != want {
		t.Errorf("got %s\nwant %s", m.Params, want)
	}
	if b.taint() != capability.Clean {
		t.Error("a question of a closed tool tainted")
	}
}

// A server declares a tool anew while a person is asked about a call of it: what
// was approved is not what would be made now.
func TestDeclaredAnewWhileAsked(t *testing.T) {
	b := newBench(t, "[tools.mcp__fake__look]\norigin = \"registered-connector\"\nrequires_human = true", fake("fake", "good", connector))
	c := b.start()
	c.hello(`{"elicitation":{}}`)
	if m := c.call("fetch"); m.Error != nil { // taints: changing something needs an approval of its own
		t.Fatal(m.line)
	}
	asked := 0
	c.on = func(m wireMessage) bool {
		if m.Method == "elicitation/create" {
			asked++
			go func() {
				c.request("x/turn", `{}`)
				c.write(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":{"action":"accept","content":{"decision":"approve this call once"}}}`)
			}()
		}
		return true
	}
	if m := c.call("look"); !strings.Contains(m.line, `"opa-gate/outcome":"escalate"`) {
		t.Errorf("got %s", m.line)
	}
	if got := len(b.calls()) - 1; got != 0 || asked != 1 {
		t.Errorf("%d calls were executed, and %d questions asked", got, asked)
	}
}

// A question that a server puts into a result names the server, however it is
// written, or the result is withheld.
func TestResultsThatAsk(t *testing.T) {
	const params = `{"message":"opa-gate asks: approve?","requestedSchema":{}}`
	const marked = `The server \"fake\" asks (this is not opa-gate): opa-gate asks`
	b := newBench(t, "", fake("fake", "asks-back", connector))
	c := b.start()
	c.hello(`{}`)
	for result, want := range map[string]string{
		`{"resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":` + params + `}}}`:           marked,
		`{"resultType":"input_required","inputRequests":{"k":{"method":"elicitation\/create","params":` + params + `}}}`:          marked,
		`{"resultType":"input\u005frequired","inputRequests":{"k":{"method":"\u0065licitation/create","params":` + params + `}}}`: marked,
		`{"inputRequests":null,"inputRequests":{"k":{"method":"elicitation/create","params":` + params + `}}}`:                    "stands twice",
		`{"inputRequests":{},"InputRequests":{"k":{"method":"elicitation/create","params":` + params + `}}}`:                      "in case alone",
		`{"InputRequests":{"k":{"method":"elicitation/create","params":` + params + `}}}`:                                         "in case alone",
		`{"inputRequests":{"k":{"method":"x","Method":"elicitation/create","params":` + params + `}}}`:                            "in case alone",
		`{"inputRequests":{"k":{"method":"x","method":"elicitation/create","params":` + params + `}}}`:                            "duplicate",
		`{"inputRequests":{"k":{"method":"elicitation/create","params":{"message":"x","Message":"opa-gate asks"}}}}`:              "in case alone",
		`{"inputRequests":{"k":{"method":"elicitation/create","params":7}}}`:                                                      "expected an object",
		`{"inputRequests":{"k":7}}`: "expected an object",
	} {
		m := c.request("tools/call", `{"name":"look","arguments":{"result":`+string(quote(result))+`}}`)
		if strings.Contains(want, "server") && !strings.Contains(m.line, want) {
			t.Errorf("%s came as %s, without %s", result, m.line, want)
		}
		if !strings.Contains(want, "server") && (m.Error == nil || !strings.Contains(m.Error.Message, want)) {
			t.Errorf("%s came as %s, want the error %q", result, m.line, want)
		}
	}
}
