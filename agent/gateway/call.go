package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/opa-gate/opa-gate/capability"
)

// capabilityUnset is a declaration that says nothing.
var capabilityUnset capability.Profile

// A toolCall is a tools/call request on its way.
type toolCall struct {
	request *jsonrpc.Request
	members []member // of the params
	up      *upstream
	Call
	meta     []member // of params._meta
	question askedBefore
}

// callTool decides a tools/call request and makes the call if it may be made.
func (s *session) callTool(ctx context.Context, r *jsonrpc.Request) {
	c, code, err := s.readCall(ctx, r)
	if err != nil {
		s.refuse(r, code, err.Error())
		return
	}
	verdict, err := s.decide(ctx, c)
	if err != nil {
		s.undecided(r, c, err)
		return
	}
	if verdict.Outcome.Kind == capability.Escalate {
		var result json.RawMessage
		if verdict, result, err = s.escalate(ctx, c, verdict); err != nil {
			s.undecided(r, c, err)
			return
		}
		if result != nil {
			s.answer(r, result, nil)
			return
		}
	}
	params := c.members
	note := ""
	switch o := &verdict.Outcome; o.Kind {
	case capability.Allow:
	case capability.Modify:
		params = with(params, "arguments", jsontext.Value(o.Arguments))
	case capability.Inject:
		note = o.Note
	default:
		s.log.Info("not made", "server", c.Server, "tool", c.Tool, "outcome", o.Kind.String())
		s.answer(r, refusedResult(c, verdict), nil)
		return
	}
	if ctx.Err() != nil {
		return // cancelled while it was decided
	}
	forwarded := r.Params
	if !same(params, c.members) || c.changed() {
		forwarded = writeObject(c.rename(params))
	}
	response, err := c.up.link.ask(ctx, r.Method, forwarded, 0)
	if _, gone := errors.AsType[*cancelled](err); gone {
		return
	}
	if err != nil {
		s.failed(r, err)
		return
	}
	if err := s.deliver(c, response, note); err != nil {
		s.failed(r, err)
		return
	}
	s.answer(r, response.Result, response.Error)
}

func same(a, b []member) bool { return len(a) > 0 && len(b) > 0 && &a[0] == &b[0] && len(a) == len(b) }

// changed reports whether the params as they came are not those to send.
func (c *toolCall) changed() bool {
	return c.question.ours || lookup(c.members, "name") == nil || c.shownName() != c.Tool
}

// shownName is the name under which the client called the tool.
func (c *toolCall) shownName() string {
	var name string
	_ = unmarshalString(lookup(c.members, "name"), &name) // it was read before
	return name
}

// rename gives the params the server's own name of the tool.
func (c *toolCall) rename(params []member) []member {
	return with(params, "name", quote(c.Tool))
}

// readCall reads a tools/call request and finds out what it calls.
func (s *session) readCall(ctx context.Context, r *jsonrpc.Request) (*toolCall, int64, error) {
	c := &toolCall{request: r}
	var err error
	if c.members, err = readObject(r.Params); err != nil {
		// A name that stands twice is one thing to this program and another to the server.
		return nil, jsonrpc.CodeInvalidParams, fmt.Errorf("the call cannot be read in one way only: %w", err)
	}
	if err := readOneWay(c.members, meaningful...); err != nil {
		return nil, jsonrpc.CodeInvalidParams, err
	}
	var name string
	if err := unmarshalString(lookup(c.members, "name"), &name); err != nil || name == "" {
		return nil, jsonrpc.CodeInvalidParams, errors.New("the call names no tool")
	}
	arguments := lookup(c.members, "arguments")
	switch arguments.Kind() {
	case 0:
		arguments = jsontext.Value("{}")
	case '{':
	default:
		return nil, jsonrpc.CodeInvalidParams, errors.New("the arguments are no object")
	}
	if meta := lookup(c.members, "_meta"); meta != nil {
		if c.meta, err = readObject(meta); err != nil {
			return nil, jsonrpc.CodeInvalidParams, fmt.Errorf("_meta: %w", err)
		}
	}
	up, tool, profile, err := s.findTool(ctx, name, c.ownMeta())
	if err != nil {
		if errors.Is(err, errNoTool) {
			return nil, jsonrpc.CodeInvalidParams, err
		}
		return nil, jsonrpc.CodeInternalError, err
	}
	c.up = up
	c.Call = Call{
		Session: s.id, ID: s.start + "-" + strconv.FormatInt(s.sequence.Add(1), 10), Server: up.Name, Tool: tool, Profile: profile,
		Arguments: json.RawMessage(bytes.Clone(arguments)),
	}
	if c.question, err = s.answeredBefore(c); err != nil {
		return nil, jsonrpc.CodeInvalidParams, err
	}
	return c, 0, nil
}

// meaningful are the members of tools/call params that mean something.
var meaningful = []string{"name", "arguments", "_meta", "task", "inputResponses", "requestState"}

// ownMeta is the _meta that a request of this program's own goes with when one of
// the client's is its reason: from 2026-07-28 on each request states protocol,
// client and capabilities.
func (c *toolCall) ownMeta() json.RawMessage {
	var own []member
	for _, m := range c.meta {
		if strings.HasPrefix(m.name, "io.modelcontextprotocol/") {
			own = append(own, m)
		}
	}
	if own == nil {
		return nil
	}
	return writeObject(own)
}

var errNoTool = errors.New("there is no tool of this name")

// findTool finds the tool that is shown under a name. Its server's list is read
// if it is not known, or may have changed.
func (s *session) findTool(ctx context.Context, name string, meta json.RawMessage) (*upstream, string, capability.Profile, error) {
	var up *upstream
	tool := name
	if s.single() {
		up = s.servers[0]
	} else {
		t, err := s.findShown(ctx, &s.tools, "tools/list", name)
		if err != nil {
			return nil, "", capabilityUnset, err
		}
		up, tool = t.up, t.name
	}
	if err := up.gone(); err != nil { // no person is to be asked about what cannot be done
		return nil, "", capabilityUnset, fmt.Errorf("the call was not made: %w", err)
	}
	if err := s.refresh(ctx, up, meta); err != nil {
		return nil, "", capabilityUnset, fmt.Errorf("the call was not made: the list of tools cannot be read: %w", err)
	}
	profile, ok := up.book.believed(tool)
	if !ok {
		return nil, "", capabilityUnset, fmt.Errorf("%w: %q", errNoTool, name)
	}
	return up, tool, profile, nil
}

// decide asks the gate. Whatever it cannot answer is an error.
func (s *session) decide(ctx context.Context, c *toolCall) (Verdict, error) {
	v, err := s.g.gate.Decide(ctx, &c.Call)
	switch {
	case err != nil:
		return Verdict{}, err
	case !v.Outcome.Kind.Valid():
		return Verdict{}, fmt.Errorf("the answer is no decision: %v", v.Outcome.Kind)
	}
	return v, nil
}

// undecided answers a call that the gate could not decide.
func (s *session) undecided(r *jsonrpc.Request, c *toolCall, err error) {
	if _, gone := errors.AsType[*cancelled](err); gone {
		return
	}
	s.log.Error("not decided", "server", c.Server, "tool", c.Tool, "error", err.Error())
	if errors.Is(err, errEnded) {
		s.failed(r, fmt.Errorf("the call was not made: %w", err))
		return
	}
	s.failed(r, errors.New("the call was not made: it could not be decided; the log of the gateway says why"))
}

// deliver makes the answer to a call that was made ready for the client: first
// of all it is on record that the call returned.
func (s *session) deliver(c *toolCall, response *jsonrpc.Response, note string) error {
	if err := s.returned(&c.Call, response); err != nil {
		return err
	}
	if response.Error != nil {
		return nil
	}
	if err := s.markInputs(c.up, response); err != nil {
		return err
	}
	members, err := readObject(response.Result, lenient...)
	if err != nil {
		if note == "" {
			return nil // as it came; nothing in it is for this program
		}
		return fmt.Errorf("the result is no object, so the note that goes with it has no place; it was withheld")
	}
	if task := lookup(members, "task"); task.Kind() == '{' {
		return s.tasks.started(c, task, note)
	}
	if note == "" || isInputRequired(members) {
		return nil
	}
	response.Result, err = withNote(members, note)
	return err
}

// returned puts on record that a call returned.
func (s *session) returned(c *Call, response *jsonrpc.Response) error {
	// Whoever gave up on the call does not undo that content may have come in.
	if err := s.g.gate.Returned(context.WithoutCancel(s.ctx), c, response.Error != nil); err != nil {
		s.log.Error("result withheld", "server", c.Server, "tool", c.Tool, "error", err.Error())
		return errors.New("the call was made, and its result was withheld: that it came in could not be put on record; the log of the gateway says why")
	}
	return nil
}

// withNote adds a text for the model to a result.
func withNote(members []member, note string) (json.RawMessage, error) {
	var content []jsontext.Value
	if old := lookup(members, "content"); old != nil {
		var err error
		if content, err = readArray(old, lenient...); err != nil {
			return nil, fmt.Errorf("the content of the result is no list, so the note that goes with it has no place; it was withheld: %w", err)
		}
	}
	return writeObject(with(members, "content", writeArray(append(content, textContent(note))))), nil
}

func textContent(text string) jsontext.Value {
	return jsontext.Value(writeObject([]member{{"type", quote("text")}, {"text", quote(text)}}))
}

// refusedResult tells the model that a call was not made, and what it can do.
func refusedResult(c *toolCall, v Verdict) json.RawMessage {
	o := &v.Outcome
	reason := o.Reason
	if reason == "" && o.Kind == capability.Escalate {
		reason = "A person has to confirm this call."
	}
	var text strings.Builder
	fmt.Fprintf(&text, "The call of %q was not made.", c.shownName())
	if reason != "" {
		text.WriteString(" " + reason)
	}
	meta := []member{{"opa-gate/outcome", quote(o.Kind.String())}}
	if o.Kind == capability.Deny {
		text.WriteString(" It is denied by policy, and no approval changes that: do not try it again, and go on without it.")
	} else {
		if v.Pending != nil {
			fmt.Fprintf(&text, " It waits for a person as %s", v.Pending.ID)
			if v.Pending.Where != "" {
				fmt.Fprintf(&text, " (%s)", v.Pending.Where)
			}
			text.WriteString(".")
			meta = append(meta, member{"opa-gate/pending", quote(v.Pending.ID)})
		}
		text.WriteString(" Tell the user. Once it is approved, make the very same call again, with the same arguments; until then go on without it.")
	}
	return writeObject([]member{
		{"content", writeArray([]jsontext.Value{textContent(text.String())})},
		{"isError", jsontext.Value("true")},
		{"_meta", jsontext.Value(writeObject(meta))},
	})
}
