package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/opa-gate/opa-gate/wire"
)

// inputKey is this program's question among those of an input_required result.
const inputKey = "opa-gate/approval"

// The answers that a person chooses from.
const (
	approveOnce = "approve this call once"
	rejectIt    = "reject it"
)

// An askedBefore is what a call says to a question of this program that an
// input_required result asked.
type askedBefore struct {
	ours    bool
	pending string
	answer  answerKind
}

type answerKind uint8

const (
	unanswered answerKind = iota
	approved
	rejected
)

// answeredBefore reads the answer to a question of this program off a call, and
// takes it out of the params. A call whose requestState is a server's is left
// as it is.
func (s *session) answeredBefore(c *toolCall) (askedBefore, error) {
	state := lookup(c.members, "requestState")
	if state == nil {
		return askedBefore{}, nil
	}
	var text string
	if err := unmarshalString(state, &text); err != nil || !strings.HasPrefix(text, statePrefix) {
		return askedBefore{}, nil
	}
	digest, err := c.digest()
	if err != nil {
		return askedBefore{}, err
	}
	pending, err := s.g.states.open(text, digest, time.Now())
	if err != nil {
		return askedBefore{}, err
	}
	before := askedBefore{ours: true, pending: pending}
	if responses, err := readObject(lookup(c.members, "inputResponses")); err == nil {
		before.answer = readAnswer(json.RawMessage(lookup(responses, inputKey)))
	}
	c.members = without(c.members, "requestState", "inputResponses")
	return before, nil
}

// digest binds a question to the call that it is about.
func (c *toolCall) digest() ([32]byte, error) {
	arguments := jsontext.Value(c.Arguments).Clone()
	if err := arguments.Compact(); err != nil {
		return [32]byte{}, fmt.Errorf("the arguments: %w", err)
	}
	text := writeArray([]jsontext.Value{quote(c.Session), quote(c.Server), quote(c.Tool), arguments})
	return sha256.Sum256(text), nil
}

// escalate puts an escalation to a person. It returns the verdict that stands
// then, or a result that the client is answered with in place of the server's.
func (s *session) escalate(ctx context.Context, c *toolCall, v Verdict) (Verdict, json.RawMessage, error) {
	if v.Pending == nil {
		return v, nil, nil
	}
	if c.question.ours {
		if c.question.pending != v.Pending.ID {
			return v, nil, nil // what was asked is settled; this is another matter
		}
		return s.settle(ctx, c, v, c.question.answer)
	}
	if c.statesItself() {
		if showsForms(lookup(c.meta, metaCapabilities)) {
			result, err := s.inputRequired(c, v)
			return v, result, err
		}
	} else if s.asksForms() {
		answer, err := s.elicit(ctx, c, v)
		if err != nil {
			return v, nil, err
		}
		if answer == unanswered && s.g.config.Wait <= 0 {
			return s.again(ctx, c)
		}
		if answer != unanswered {
			return s.settle(ctx, c, v, answer)
		}
	}
	if s.g.config.Wait <= 0 {
		return v, nil, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.g.config.Wait, errTimeout)
	defer cancel()
	stop := s.keepAlive(c)
	err := s.g.gate.Await(ctx, v.Pending.ID)
	stop()
	if errors.Is(context.Cause(ctx), errTimeout) {
		return v, nil, nil
	}
	if err != nil {
		return v, nil, err
	}
	return s.again(ctx, c)
}

// The member of _meta in which a client states what it can do, per request.
const metaCapabilities = "io.modelcontextprotocol/clientCapabilities"

// statesItself reports whether the request states the client's capabilities, as
// every one does from 2026-07-28 on.
func (c *toolCall) statesItself() bool { return lookup(c.meta, metaCapabilities) != nil }

func (s *session) asksForms() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.canAsk
}

// settle records what a person said and decides the call with it.
func (s *session) settle(ctx context.Context, c *toolCall, v Verdict, answer answerKind) (Verdict, json.RawMessage, error) {
	if answer == unanswered {
		return v, nil, nil // it goes on waiting
	}
	if err := s.g.gate.Answer(ctx, v.Pending.ID, s.reviewer, answer == approved); err != nil {
		return v, nil, err
	}
	return s.again(ctx, c)
}

// again decides a call once more, after a person was waited for: by what is
// believed of the tool now. Its server may have declared it anew meanwhile, and
// what was approved is the call as it was declared then.
func (s *session) again(ctx context.Context, c *toolCall) (Verdict, json.RawMessage, error) {
	if err := c.up.gone(); err != nil { // an approval that counts once stays for another try
		return Verdict{}, nil, err
	}
	if err := s.refresh(ctx, c.up, c.ownMeta()); err != nil {
		return Verdict{}, nil, fmt.Errorf("the list of tools cannot be read: %w", err)
	}
	profile, ok := c.up.book.believed(c.Tool)
	if !ok {
		return Verdict{}, nil, fmt.Errorf("%w: %q", errNoTool, c.Tool)
	}
	c.Profile = profile
	v, err := s.decide(ctx, c)
	return v, nil, err
}

// elicit asks the person through the client, until there is an answer, from
// wherever.
func (s *session) elicit(ctx context.Context, c *toolCall, v Verdict) (answerKind, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.g.config.Timeout, errTimeout)
	defer cancel()
	elsewhere := make(chan struct{})
	go func() {
		if s.g.gate.Await(ctx, v.Pending.ID) == nil {
			close(elsewhere)
			cancel()
		}
	}()
	stop := s.keepAlive(c)
	defer stop()
	response, err := s.client.ask(ctx, "elicitation/create", question(c, v), -1)
	select {
	case <-elsewhere:
		return unanswered, nil // on record already
	default:
	}
	if _, gone := errors.AsType[*cancelled](err); gone {
		return unanswered, err
	}
	if err != nil || response.Error != nil {
		s.log.Warn("the client did not ask the person", "tool", c.Tool, "pending", v.Pending.ID)
		return unanswered, nil
	}
	return readAnswer(response.Result), nil
}

// readAnswer reads the result of a question. What is not clearly one of the two
// answers is none.
func readAnswer(result []byte) answerKind {
	members, err := readObject(result)
	if err != nil {
		return unanswered
	}
	var action, decision string
	if unmarshalString(lookup(members, "action"), &action) != nil {
		return unanswered
	}
	switch action {
	case "decline":
		return rejected
	case "accept":
	default:
		return unanswered
	}
	content, err := readObject(lookup(members, "content"))
	if err != nil || unmarshalString(lookup(content, "decision"), &decision) != nil {
		return unanswered
	}
	switch decision {
	case approveOnce:
		return approved
	case rejectIt:
		return rejected
	}
	return unanswered
}

// maxShownArguments is how much of the arguments a question shows, in bytes.
const maxShownArguments = 4000

// question is the params of elicitation/create about a call.
func question(c *toolCall, v Verdict) json.RawMessage {
	o := &v.Outcome
	var text strings.Builder
	text.WriteString("opa-gate asks before a tool is called.\n")
	reason := o.Reason
	if reason == "" {
		reason = "A person has to confirm this call."
	}
	text.WriteString(wire.Printable(reason) + "\n\n")
	fmt.Fprintf(&text, "Server: %s\nTool: %s\n", wire.Printable(c.Server), wire.Printable(c.Tool))
	if !o.Missing.Empty() {
		fmt.Fprintf(&text, "It would need: %s\n", strings.Join(o.Missing.DisplayNames(), ", "))
	}
	arguments := wire.Printable(string(c.Arguments))
	if len(arguments) > maxShownArguments {
		arguments = strings.ToValidUTF8(arguments[:maxShownArguments], "") +
			fmt.Sprintf("… (%d bytes in all; the rest is shown where the approvals are)", len(c.Arguments))
	}
	fmt.Fprintf(&text, "Arguments: %s\n", arguments)
	fmt.Fprintf(&text, "It waits as %s.", v.Pending.ID)
	const schema = `{"type":"object","properties":{"decision":{"type":"string","title":"Decision","enum":["` + approveOnce + `","` + rejectIt + `"]}},"required":["decision"]}`
	return writeObject([]member{{"message", quote(text.String())}, {"requestedSchema", jsontext.Value(schema)}})
}

// inputRequired is the result that has the client ask, from 2026-07-28 on.
func (s *session) inputRequired(c *toolCall, v Verdict) (json.RawMessage, error) {
	digest, err := c.digest()
	if err != nil {
		return nil, err
	}
	until := time.Now().Add(time.Hour)
	if e := v.Pending.Expires; !e.IsZero() && e.Before(until) {
		until = e
	}
	state, err := s.g.states.seal(v.Pending.ID, digest, until)
	if err != nil {
		return nil, err
	}
	ask := writeObject([]member{{"method", quote("elicitation/create")}, {"params", jsontext.Value(question(c, v))}})
	return writeObject([]member{
		{"resultType", quote("input_required")},
		{"inputRequests", jsontext.Value(writeObject([]member{{inputKey, jsontext.Value(ask)}}))},
		{"requestState", quote(state)},
	}), nil
}

func isInputRequired(members []member) bool {
	return says(lookup(members, "resultType"), "input_required")
}

// says reports whether a value is that text, however it is written: characters
// may be escaped.
func says(value jsontext.Value, text string) bool {
	var said string
	return unmarshalString(value, &said) == nil && said == text
}

// markInputs names the server in the questions of an input_required result.
func (s *session) markInputs(up *upstream, response *jsonrpc.Response) error {
	if response.Error != nil {
		return nil
	}
	members, err := readObject(response.Result, lenient...)
	if err != nil {
		return nil // as it came; there is no question in it
	}
	if err := readOneWay(members, "resultType", "inputRequests", "requestState"); err != nil {
		return fmt.Errorf("server %q: its result: %w", up.Name, err)
	}
	requests := lookup(members, "inputRequests")
	if requests.Kind() != '{' {
		return nil
	}
	asked, err := readObject(requests)
	if err != nil {
		return fmt.Errorf("server %q: the questions of its result: %w", up.Name, err)
	}
	for i, a := range asked {
		request, err := readObject(a.value)
		if err != nil {
			return fmt.Errorf("server %q: a question of its result: %w", up.Name, err)
		}
		if err := readOneWay(request, "method", "params"); err != nil {
			return fmt.Errorf("server %q: a question of its result: %w", up.Name, err)
		}
		if !says(lookup(request, "method"), "elicitation/create") {
			continue
		}
		marked, err := markElicitation(up.Name, json.RawMessage(lookup(request, "params")))
		if err != nil {
			return fmt.Errorf("server %q: %w", up.Name, err)
		}
		asked[i].value = jsontext.Value(writeObject(with(request, "params", jsontext.Value(marked))))
	}
	response.Result = writeObject(with(members, "inputRequests", jsontext.Value(writeObject(asked))))
	return nil
}

// keepAliveEvery is the time between two signs of life while a person is asked:
// many clients give up after 60 seconds without one.
const keepAliveEvery = 10 * time.Second

// keepAlive sends progress notifications for a call, if the client asked for
// progress, until stop is called. Their numbers stay below those that a server
// begins with.
func (s *session) keepAlive(c *toolCall) (stop func()) {
	token := lookup(c.meta, "progressToken")
	if token == nil {
		return func() {}
	}
	done := make(chan struct{})
	go func() {
		ticker := time.NewTicker(s.g.keepAliveEvery)
		defer ticker.Stop()
		for n := 1; ; n++ {
			params := writeObject([]member{
				{"progressToken", token},
				{"progress", jsontext.Value(fmt.Sprintf("%.6f", float64(n)/1e6))},
				{"message", quote("waiting for a person to decide")},
			})
			s.client.notify("notifications/progress", params)
			select {
			case <-ticker.C:
			case <-done:
				return
			case <-s.ctx.Done():
				return
			}
		}
	}()
	return func() { close(done) }
}
