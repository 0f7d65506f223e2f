package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// lists are the methods whose results are joined, and the member that holds the
// list.
var lists = map[string]string{
	"tools/list": "tools", "prompts/list": "prompts", "tasks/list": "tasks",
	"resources/list": "resources", "resources/templates/list": "resourceTemplates",
}

// route takes a request of the client to several servers: to the one that owns
// what it names, or to all, whose answers are joined.
func (s *session) route(r *jsonrpc.Request) {
	switch r.Method {
	case "initialize":
		s.background(r, s.initializeAll)
	case "ping":
		s.answer(r, json.RawMessage("{}"), nil)
	case "tools/list", "prompts/list", "resources/list", "resources/templates/list", "tasks/list":
		s.background(r, s.listAll)
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		s.background(r, s.routeResource)
	case "prompts/get":
		s.background(r, s.routePrompt)
	case "completion/complete":
		s.background(r, s.routeCompletion)
	case "logging/setLevel":
		s.background(r, s.setLevels)
	case "tasks/result", "tasks/get", "tasks/cancel":
		t, ok := s.tasks.of(r.Params)
		switch {
		case !ok:
			s.refuse(r, jsonrpc.CodeInvalidParams, "there is no such task")
		case r.Method == "tasks/result", r.Method == "tasks/get":
			s.forwardTaskResult(t.up, r)
		default:
			s.forward(t.up, r, nil)
		}
	default:
		s.refuse(r, jsonrpc.CodeMethodNotFound, fmt.Sprintf("the method %q names nothing by which one of several servers could be told", r.Method))
	}
}

// allTime bounds how long the client waits for a server where it asked all of them:
// one that hangs must not stand before the others. It is less than the 30 seconds
// after which some clients give up.
const allTime = 20 * time.Second

// all asks every server that is there, at once. What each answered stands in the
// order of the servers; it is nil for one that did not.
func (s *session) all(ctx context.Context, ask func(context.Context, *upstream) (json.RawMessage, error)) ([]json.RawMessage, []error) {
	results := make([]json.RawMessage, len(s.servers))
	failures := make([]error, len(s.servers))
	ctx, cancel := context.WithTimeoutCause(ctx, min(s.g.config.Timeout, s.g.allTime), errTimeout)
	defer cancel()
	var asking sync.WaitGroup
	for i, up := range s.servers {
		if up.down.Load() {
			continue
		}
		asking.Go(func() {
			results[i], failures[i] = ask(ctx, up)
			if errors.Is(failures[i], errTimeout) {
				failures[i] = up.link.wrap(errTimeout)
			}
		})
	}
	asking.Wait()
	return results, failures
}

// askOne asks one server, and makes an error of an answer that is one.
func askOne(ctx context.Context, up *upstream, method string, params json.RawMessage) (json.RawMessage, error) {
	response, err := up.link.ask(ctx, method, params, 0)
	if err != nil {
		return nil, err
	}
	if response.Error != nil {
		return nil, fmt.Errorf("server %q: %s: %w", up.Name, method, response.Error)
	}
	return response.Result, nil
}

// initializeAll greets every server as the client greets this program, and
// answers with what they can do together. A server that does not answer is left
// out.
func (s *session) initializeAll(ctx context.Context, r *jsonrpc.Request) {
	results, failures := s.all(ctx, func(ctx context.Context, up *upstream) (json.RawMessage, error) {
		return askOne(ctx, up, r.Method, r.Params)
	})
	var capabilities json.RawMessage
	var version string
	var instructions strings.Builder
	greeted := 0
	for i, up := range s.servers {
		var one struct {
			Version      string          `json:"protocolVersion"`
			Capabilities json.RawMessage `json:"capabilities"`
			Instructions string          `json:"instructions"`
		}
		err := failures[i]
		if err == nil && !up.down.Load() {
			err = json.Unmarshal(results[i], &one)
		}
		if err != nil {
			s.log.Error("left out a server", "server", up.Name, "error", err.Error())
			up.down.Store(true)
			up.link.end(err)
		}
		if up.down.Load() {
			continue
		}
		greeted++
		capabilities = union(capabilities, one.Capabilities)
		if version == "" || one.Version < version {
			version = one.Version
		}
		if one.Instructions != "" {
			fmt.Fprintf(&instructions, "## Server %s\n\n%s\n\n", up.Name, one.Instructions)
		}
	}
	if greeted == 0 {
		s.failed(r, errors.New("no server answered; the log of the gateway says why"))
		return
	}
	if capabilities == nil {
		capabilities = json.RawMessage("{}")
	}
	result := []member{
		{"protocolVersion", quote(version)},
		{"capabilities", jsontext.Value(capabilities)},
		{"serverInfo", jsontext.Value(`{"name":"opa-gate","version":"1"}`)},
	}
	if instructions.Len() > 0 {
		result = append(result, member{"instructions", quote(strings.TrimSpace(instructions.String()))})
	}
	s.answer(r, writeObject(result), nil)
}

// union joins two values of capabilities: objects member by member, and what is
// true in one of them is true.
func union(a, b json.RawMessage) json.RawMessage {
	x, errX := readObject(a, lenient...)
	y, errY := readObject(b, lenient...)
	switch {
	case errY != nil:
		if string(b) == "true" || len(a) == 0 {
			return b
		}
		return a
	case errX != nil:
		return b
	}
	for _, m := range y {
		x = with(x, m.name, jsontext.Value(union(json.RawMessage(lookup(x, m.name)), json.RawMessage(m.value))))
	}
	return writeObject(x)
}

// listAll answers a list with those of all servers, on one page.
func (s *session) listAll(ctx context.Context, r *jsonrpc.Request) {
	var meta json.RawMessage
	if members, err := readObject(r.Params, lenient...); err == nil {
		if lookup(members, "cursor") != nil {
			s.refuse(r, jsonrpc.CodeInvalidParams, "the list has one page")
			return
		}
		meta = json.RawMessage(lookup(members, "_meta"))
	}
	elements, err := s.gather(ctx, r.Method, meta)
	if err != nil {
		s.failed(r, err)
		return
	}
	s.answer(r, writeObject([]member{{lists[r.Method], writeArray(elements)}}), nil)
}

// An element is one of a list, with the server that it comes from.
type element struct {
	up   *upstream
	text json.RawMessage
	key  string // its name or URI
}

// maxListBytes is how much of one list of one server is kept, in longest messages.
const maxListBytes = 4

// gather reads a list of every server. The elements are named as the client
// sees them. A server that fails is left out, and the log says so.
func (s *session) gather(ctx context.Context, method string, meta json.RawMessage) ([]jsontext.Value, error) {
	found := make([][]element, len(s.servers))
	_, failures := s.all(ctx, func(ctx context.Context, up *upstream) (json.RawMessage, error) {
		i := s.position(up)
		if method == "tools/list" {
			unlock, err := up.book.lock(ctx)
			if err != nil {
				return nil, err
			}
			defer unlock()
			up.book.beginReading()
		}
		size := 0
		err := s.pages(ctx, up, method, meta, func(result json.RawMessage) error {
			if size += len(result); size > maxListBytes*s.g.config.MaxMessage {
				return fmt.Errorf("server %q: %s: more than %d bytes", up.Name, method, maxListBytes*s.g.config.MaxMessage)
			}
			page, err := s.page(up, method, result)
			found[i] = append(found[i], page...)
			if len(found[i]) > maxResources {
				return fmt.Errorf("server %q: %s: more than %d elements", up.Name, method, maxResources)
			}
			return err
		})
		if err != nil && method == "tools/list" {
			up.book.stale()
		}
		return nil, err
	})
	var all []element
	failed := 0
	for i, err := range failures {
		if err != nil {
			failed++
			s.log.Warn("a list without those of a server", "server", s.servers[i].Name, "method", method, "error", err.Error())
			continue
		}
		all = append(all, found[i]...)
	}
	if failed > 0 && failed == len(s.live()) {
		return nil, errors.Join(failures...)
	}
	return s.shownElements(method, all)
}

func (s *session) position(up *upstream) int {
	for i := range s.servers {
		if s.servers[i] == up {
			return i
		}
	}
	panic("a server of another session")
}

// page reads the elements of one page.
func (s *session) page(up *upstream, method string, result json.RawMessage) ([]element, error) {
	if method == "tools/list" {
		declarations, _, _, err := s.declared(up, result)
		if err != nil {
			return nil, err
		}
		out := make([]element, len(declarations))
		for i, d := range declarations {
			out[i] = element{up, d.text, d.name}
		}
		return out, nil
	}
	members, err := readObject(result, lenient...)
	if err == nil {
		err = onceEach(members)
	}
	var texts []jsontext.Value
	if err == nil {
		texts, err = readArray(lookup(members, lists[method]), lenient...)
	}
	if err != nil {
		return nil, fmt.Errorf("server %q: %s: %w", up.Name, method, err)
	}
	key := map[string]string{
		"prompts/list": "name", "resources/list": "uri", "resources/templates/list": "uriTemplate", "tasks/list": "taskId",
	}[method]
	out := make([]element, 0, len(texts))
	for _, text := range texts {
		_, value, err := textMember(json.RawMessage(text), key)
		if err != nil {
			s.log.Warn("left out an element of a list", "server", up.Name, "method", method, "error", err.Error())
			continue
		}
		out = append(out, element{up, json.RawMessage(text), value})
	}
	return out, nil
}

// shownElements gives elements the names under which they are shown, and leaves
// out those that another server has.
func (s *session) shownElements(method string, all []element) ([]jsontext.Value, error) {
	out := make([]jsontext.Value, 0, len(all))
	var n *names
	switch method {
	case "tools/list":
		n = &s.tools
	case "prompts/list":
		n = &s.prompts
	}
	if n != nil {
		found := make([]target, len(all))
		for i, e := range all {
			found[i] = target{e.up, e.key}
		}
		n.assign(found, s.servers)
	}
	for _, e := range all {
		switch {
		case n != nil:
			name, ok := n.nameOf(target{e.up, e.key})
			if !ok {
				s.log.Warn("hid what has no name of its own", "server", e.up.Name, "method", method, "name", e.key)
				continue
			}
			if name == e.key {
				break
			}
			members, err := readObject(e.text, lenient...)
			if err != nil {
				return nil, err
			}
			e.text = writeObject(with(members, "name", quote(name)))
		case method == "tasks/list":
		default:
			if !s.resources.claim(e.up, e.key, method == "resources/templates/list") {
				s.log.Warn("hid a resource that another server has", "server", e.up.Name, "uri", e.key)
				continue
			}
		}
		out = append(out, jsontext.Value(e.text))
	}
	return out, nil
}

// The methods below find the server that a request is for.

func (s *session) routeResource(ctx context.Context, r *jsonrpc.Request) {
	_, uri, err := textMember(r.Params, "uri")
	if err != nil {
		s.refuse(r, jsonrpc.CodeInvalidParams, err.Error())
		return
	}
	up, err := s.findOwner(ctx, uri)
	if err != nil {
		s.refuse(r, jsonrpc.CodeInvalidParams, err.Error())
		return
	}
	var after func(*jsonrpc.Response) error
	if r.Method == "resources/read" {
		after = s.tainting(up, r.Method)
	}
	s.forward(up, r, after)
}

func (s *session) routePrompt(ctx context.Context, r *jsonrpc.Request) {
	members, name, err := textMember(r.Params, "name")
	if err == nil {
		var t target
		if t, err = s.findShown(ctx, &s.prompts, "prompts/list", name); err == nil {
			if t.name != name {
				r.Params = writeObject(with(members, "name", quote(t.name)))
			}
			s.forward(t.up, r, s.tainting(t.up, r.Method))
			return
		}
	}
	s.refuse(r, jsonrpc.CodeInvalidParams, err.Error())
}

func (s *session) routeCompletion(ctx context.Context, r *jsonrpc.Request) {
	up, err := s.completionOwner(ctx, r)
	if err != nil {
		s.refuse(r, jsonrpc.CodeInvalidParams, err.Error())
		return
	}
	s.forward(up, r, nil)
}

func (s *session) completionOwner(ctx context.Context, r *jsonrpc.Request) (*upstream, error) {
	members, err := readObject(r.Params)
	if err != nil {
		return nil, err
	}
	about := json.RawMessage(lookup(members, "ref"))
	if _, uri, err := textMember(about, "uri"); err == nil {
		return s.findOwner(ctx, uri)
	}
	ref, name, err := textMember(about, "name")
	if err != nil {
		return nil, fmt.Errorf("ref: %w", err)
	}
	t, err := s.findShown(ctx, &s.prompts, "prompts/list", name)
	if err != nil {
		return nil, err
	}
	if t.name != name {
		r.Params = writeObject(with(members, "ref", jsontext.Value(writeObject(with(ref, "name", quote(t.name))))))
	}
	return t.up, nil
}

// setLevels tells every server. One that keeps no log says so, which is no
// matter of the client's.
func (s *session) setLevels(ctx context.Context, r *jsonrpc.Request) {
	_, failures := s.all(ctx, func(ctx context.Context, up *upstream) (json.RawMessage, error) {
		return askOne(ctx, up, r.Method, r.Params)
	})
	var first error
	failed := 0
	for _, err := range failures {
		if err != nil {
			first = err
			failed++
		}
	}
	if first != nil && failed == len(s.live()) {
		s.failed(r, first)
		return
	}
	s.answer(r, json.RawMessage("{}"), nil)
}
