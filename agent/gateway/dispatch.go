package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// dispatch takes one request of the client. It waits for nothing: what has to
// wait does so in a goroutine of its own.
func (s *session) dispatch(r *jsonrpc.Request) {
	switch r.Method {
	case "tools/call":
		s.background(r, s.callTool)
		return
	case "initialize":
		s.greet(r.Params)
	}
	if !s.single() {
		s.route(r)
		return
	}
	up := s.servers[0]
	switch {
	case r.Method == "tools/list":
		s.forward(up, r, func(response *jsonrpc.Response) error { return s.readTools(up, response) })
	case r.Method == "resources/read", r.Method == "prompts/get":
		s.forward(up, r, s.tainting(up, r.Method))
	case r.Method == "tasks/result", r.Method == "tasks/get":
		s.forwardTaskResult(up, r)
	case concernsTools(r.Method):
		s.refuse(r, jsonrpc.CodeMethodNotFound, fmt.Sprintf("the method %q is not known, and what concerns tools is not passed on unknown", r.Method))
	default:
		if knownMethods[r.Method] {
			s.forward(up, r, nil)
			return
		}
		s.logOnce("passing on a method that is not known", r.Method)
		s.forward(up, r, s.tainting(up, r.Method)) // nobody knows what its result carries
	}
}

// concernsTools reports whether a server that is careless about case, about what
// shows as nothing, or about what stands between words and around them could take a
// method for one of tools.
func concernsTools(method string) bool {
	shows := strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.Cf, unicode.Cc) {
			return -1
		}
		return r
	}, method)
	between := func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }
	return slices.ContainsFunc(strings.FieldsFunc(shows, between), func(word string) bool {
		return strings.EqualFold(word, "tools") || strings.EqualFold(word, "tool")
	})
}

// knownMethods are those that pass without a word in the log.
var knownMethods = map[string]bool{
	"initialize": true, "ping": true, "completion/complete": true, "logging/setLevel": true,
	"prompts/list": true, "resources/list": true, "resources/templates/list": true,
	"resources/subscribe": true, "resources/unsubscribe": true,
	"tasks/list": true, "tasks/cancel": true,
	"server/discover": true, "subscriptions/listen": true,
}

// background runs f for r with a context that ends when the client cancels r.
func (s *session) background(r *jsonrpc.Request, f func(context.Context, *jsonrpc.Request)) {
	ctx, cancel := context.WithCancelCause(s.ctx)
	s.onCancel(r, func(params []member) { cancel(&cancelled{params}) })
	go func() {
		defer cancel(nil)
		defer func() {
			if p := recover(); p != nil {
				s.log.Error("panic", "method", r.Method, "value", fmt.Sprint(p))
				s.failed(r, errors.New("a fault in the gateway; the call was not made, or its result was withheld"))
			}
		}()
		f(ctx, r)
	}()
}

// greet notes what the client says of itself in initialize.
func (s *session) greet(params json.RawMessage) {
	members, err := readObject(params, lenient...)
	if err != nil {
		return // the server will say so
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.canAsk = showsForms(lookup(members, "capabilities"))
}

// showsForms reports whether client capabilities include questions as forms: an
// elicitation member that is empty, as it was at first, or names them.
func showsForms(capabilities []byte) bool {
	members, err := readObject(capabilities)
	if err != nil {
		return false
	}
	elicitation, err := readObject(lookup(members, "elicitation"))
	if err != nil {
		return false
	}
	return len(elicitation) == 0 || lookup(elicitation, "form") != nil
}

// tainting returns what is done with an answer of a server that carries content
// and is no tool's: it is on record before the client has it.
func (s *session) tainting(up *upstream, method string) func(*jsonrpc.Response) error {
	return func(response *jsonrpc.Response) error {
		c := &Call{Session: s.id, Server: up.Name, Tool: method, Profile: s.g.gate.Profile(up.Name, method, capabilityUnset)}
		if err := s.returned(c, response); err != nil {
			return err
		}
		return s.markInputs(up, response)
	}
}

// readTools takes the tools of a tools/list result into account, and takes out
// those that the client is not to see.
func (s *session) readTools(up *upstream, response *jsonrpc.Response) error {
	if response.Error != nil {
		return nil
	}
	declarations, members, all, err := s.declared(up, response.Result)
	if err != nil {
		return err
	}
	if len(declarations) == all {
		return nil
	}
	shown := make([]jsontext.Value, len(declarations))
	for i, d := range declarations {
		shown[i] = jsontext.Value(d.text)
	}
	response.Result = writeObject(with(members, "tools", writeArray(shown)))
	return nil
}

// declared reads a tools/list result. It returns the tools to be shown, the
// members of the result, and how many tools stand in it.
func (s *session) declared(up *upstream, result json.RawMessage) ([]declaration, []member, int, error) {
	members, err := readObject(result, jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
	if err == nil {
		err = onceEach(members)
	}
	var elements []jsontext.Value
	if err == nil {
		elements, err = readArray(lookup(members, "tools"), lenient...)
	}
	if err != nil {
		return nil, nil, 0, fmt.Errorf("server %q: tools/list: %w", up.Name, err)
	}
	shown := make([]declaration, 0, len(elements))
	for _, e := range elements {
		d, err := up.book.declare(json.RawMessage(e))
		if err != nil {
			s.log.Warn("hid a tool", "server", up.Name, "error", err.Error())
			continue
		}
		if !up.book.shown(d.name) {
			s.log.Debug("hid a tool that is not owned or not viable", "server", up.Name, "tool", d.name)
			continue
		}
		shown = append(shown, d)
	}
	return shown, members, len(elements), nil
}

// onceEach is an error if a member stands twice.
func onceEach(members []member) error {
	seen := make(map[string]bool, len(members))
	for _, m := range members {
		if seen[m.name] {
			return fmt.Errorf("the member %q stands twice", m.name)
		}
		seen[m.name] = true
	}
	return nil
}

// maxPages is how many pages of one list are read.
const maxPages = 1000

// pages reads a list of a server from its first page to its last. Meta is the
// _meta that goes with each request, or nil.
func (s *session) pages(ctx context.Context, up *upstream, method string, meta json.RawMessage, page func(json.RawMessage) error) error {
	var params []member
	if meta != nil {
		params = append(params, member{"_meta", jsontext.Value(meta)})
	}
	for range maxPages {
		response, err := up.link.ask(ctx, method, writeObject(params), 0)
		if err != nil {
			return err
		}
		if failure, ok := errors.AsType[*jsonrpc.Error](response.Error); ok {
			if failure.Code == jsonrpc.CodeMethodNotFound {
				return nil // a server without such things
			}
			return fmt.Errorf("server %q: %s: %w", up.Name, method, failure)
		}
		if err := page(response.Result); err != nil {
			return err
		}
		members, err := readObject(response.Result, lenient...)
		if err != nil {
			return fmt.Errorf("server %q: %s: %w", up.Name, method, err)
		}
		cursor := lookup(members, "nextCursor")
		if cursor == nil || cursor.Kind() == 'n' {
			return nil
		}
		params = with(params, "cursor", cursor)
	}
	return fmt.Errorf("server %q: %s: more than %d pages", up.Name, method, maxPages)
}

// refresh reads the tools of a server unless what is known is fresh.
func (s *session) refresh(ctx context.Context, up *upstream, meta json.RawMessage) error {
	ctx, cancel := context.WithTimeoutCause(ctx, min(s.g.config.Timeout, time.Minute), up.link.wrap(errTimeout))
	defer cancel()
	unlock, err := up.book.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if !up.book.beginReading() {
		return nil
	}
	err = s.pages(ctx, up, "tools/list", meta, func(result json.RawMessage) error {
		_, _, _, err := s.declared(up, result)
		return err
	})
	if err != nil {
		up.book.stale()
	}
	return err
}
