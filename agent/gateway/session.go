package gateway

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/opa-gate/opa-gate/capability"
)

// A session is one client with its own connections to every server: nothing
// that a server keeps for one client is seen by another.
type session struct {
	g        *Gateway
	id       string
	start    string // begins the ids of calls: a conversation that goes on in another process has other ones
	reviewer string // who answers for the client
	log      *slog.Logger
	client   *link
	servers  []*upstream // in the operator's order
	ctx      context.Context
	cancel   context.CancelFunc

	tools     names // shown name ↔ server's name
	prompts   names
	resources owners
	tasks     tasks

	mu       sync.Mutex
	flights  map[jsonrpc.ID]*flight // requests of the client
	canAsk   bool                   // the client shows questions as forms
	warned   map[string]bool        // methods of which the log told once
	sequence atomic.Int64
}

// An upstream is one server in one session.
type upstream struct {
	*ServerConfig
	link *link
	book book

	mu      sync.Mutex
	flights map[jsonrpc.ID]int64 // requests of the server, and their numbers at the client
	down    atomic.Bool          // it did not come up
}

// A flight is a request of the client that has no answer.
type flight struct {
	request *jsonrpc.Request
	cancel  func(params []member) // called once, by the goroutine that reads from the client
}

// newSession connects to every server and serves client.
func (g *Gateway) newSession(id, reviewer string, client mcp.Connection) (*session, error) {
	s := &session{
		g: g, id: id, start: rand.Text()[:10], reviewer: reviewer, log: g.log.With("session", id),
		flights: make(map[jsonrpc.ID]*flight), warned: make(map[string]bool),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	for i := range g.config.Servers {
		cfg := &g.config.Servers[i]
		up := &upstream{ServerConfig: cfg, flights: make(map[jsonrpc.ID]int64)}
		up.book.reading = make(chan struct{}, 1)
		up.book.profile = func(tool string, declared capability.Profile) capability.Profile {
			return g.gate.Profile(cfg.Name, tool, declared)
		}
		up.book.shown = func(tool string) bool { return cfg.owns(tool) && g.config.viable(tool) }
		s.servers = append(s.servers, up)
	}
	room := queuedBytes * int64(g.config.MaxMessage)
	started := 0
	for _, up := range s.servers {
		conn, err := g.connect(s.ctx, up.ServerConfig, s.log)
		if err != nil {
			s.log.Error("server did not start", "server", up.Name, "error", err.Error())
			up.down.Store(true)
			continue
		}
		started++
		up.link = &link{
			name: fmt.Sprintf("server %q", up.Name), conn: conn, bound: g.config.InFlight, room: room, expiry: g.config.Timeout,
			log: s.log, request: func(r *jsonrpc.Request) { s.fromServer(up, r) },
		}
		up.link.start()
	}
	if started == 0 {
		s.cancel()
		return nil, fmt.Errorf("none of the %d servers could be started; the log says why", len(s.servers))
	}
	s.client = &link{
		name: "the client", conn: client, bound: g.config.InFlight, room: room, expiry: g.config.Timeout,
		log: s.log, request: s.fromClient, patient: true, idle: s.idle,
	}
	s.client.start()
	return s, nil
}

// gone is the error of a server that can be sent nothing any more.
func (up *upstream) gone() error {
	if up.down.Load() {
		return fmt.Errorf("server %q did not start", up.Name)
	}
	select {
	case <-up.link.done:
		return up.link.wrap(errEnded)
	default:
		return nil
	}
}

// wait returns when the client has gone, and ends the servers.
func (s *session) wait(ctx context.Context) {
	select {
	case <-s.client.done:
	case <-ctx.Done():
		s.client.end(ctx.Err())
	}
	s.cancel()
	var ending sync.WaitGroup
	for _, up := range s.live() {
		ending.Go(func() { up.link.end(context.Canceled) })
	}
	ending.Wait()
}

// idle reports whether the client waits for no answer.
func (s *session) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.flights) == 0
}

// live are the servers that came up.
func (s *session) live() []*upstream {
	out := make([]*upstream, 0, len(s.servers))
	for _, up := range s.servers {
		if !up.down.Load() {
			out = append(out, up)
		}
	}
	return out
}

// single reports whether there is one server, whose answers stand as they are.
func (s *session) single() bool { return len(s.servers) == 1 }

// fromClient takes a request or notification of the client. It must not wait for
// anything but the client's reading.
func (s *session) fromClient(r *jsonrpc.Request) {
	if !r.IsCall() {
		s.clientNotifies(r)
		return
	}
	s.mu.Lock()
	_, twice := s.flights[r.ID]
	full := len(s.flights) >= s.g.config.InFlight
	if !twice && !full {
		s.flights[r.ID] = &flight{request: r}
	}
	s.mu.Unlock()
	switch {
	case twice:
		// Not by s.answer: the one in flight is still to be answered.
		s.client.reply(r.ID, nil, refusal(jsonrpc.CodeInvalidRequest, "a request with this id is in flight"))
	case full:
		s.client.reply(r.ID, nil, refusal(jsonrpc.CodeInternalError, fmt.Sprintf("more than %d requests are in flight; try again later", s.g.config.InFlight)))
	default:
		s.dispatch(r)
	}
}

// refusal is an error that the client is answered with.
func refusal(code int64, message string) error {
	return &jsonrpc.Error{Code: code, Message: "opa-gate: " + message}
}

// refuse answers a request of the client with what this program has to say.
func (s *session) refuse(r *jsonrpc.Request, code int64, message string) {
	s.log.Warn("refused", "method", r.Method, "error", message)
	s.answer(r, nil, refusal(code, message))
}

// failed answers a request of the client whose server did not.
func (s *session) failed(r *jsonrpc.Request, err error) {
	s.refuse(r, jsonrpc.CodeInternalError, err.Error())
}

// answer ends a flight. A flight that was cancelled has ended, and is answered
// no more, even if another one has its id by now.
func (s *session) answer(r *jsonrpc.Request, result json.RawMessage, failure error) {
	s.mu.Lock()
	f := s.flights[r.ID]
	flies := f != nil && f.request == r
	if flies {
		delete(s.flights, r.ID)
	}
	s.mu.Unlock()
	if flies {
		s.client.reply(r.ID, result, failure)
	}
}

// onCancel says what to do when the client gives up on a request.
func (s *session) onCancel(r *jsonrpc.Request, cancel func(params []member)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.flights[r.ID]; f != nil && f.request == r {
		f.cancel = cancel
	}
}

// forward sends a request to a server and answers the client with what it said.
// After, if there is one, sees the answer before the client and may change it;
// it runs in a goroutine of its own.
func (s *session) forward(up *upstream, r *jsonrpc.Request, after func(*jsonrpc.Response) error) {
	if err := up.gone(); err != nil {
		s.failed(r, err)
		return
	}
	expiry := s.g.config.Timeout
	if r.Method == "subscriptions/listen" {
		expiry = -1
	}
	n, err := up.link.call(r.Method, r.Params, expiry, func(response *jsonrpc.Response, err error) {
		switch {
		case err != nil:
			s.failed(r, err)
		case after == nil:
			s.answer(r, response.Result, response.Error)
		default:
			go s.finish(r, response, after)
		}
	})
	if err != nil {
		s.failed(r, err)
		return
	}
	s.onCancel(r, func(params []member) { up.link.abandon(n, params) })
}

func (s *session) finish(r *jsonrpc.Request, response *jsonrpc.Response, after func(*jsonrpc.Response) error) {
	if err := after(response); err != nil {
		s.failed(r, err)
		return
	}
	s.answer(r, response.Result, response.Error)
}

// notifications is what the methods of all notifications begin with.
const notifications = "notifications/"

// clientNotifies passes a notification of the client on. A request that was sent
// without an id is none: some servers do what it says all the same, and nobody
// would have decided it.
func (s *session) clientNotifies(r *jsonrpc.Request) {
	if !strings.HasPrefix(r.Method, notifications) || concernsTools(r.Method) {
		s.log.Warn("dropped a request without an id", "method", r.Method)
		return
	}
	if r.Method != "notifications/cancelled" {
		for _, up := range s.live() {
			up.link.notify(r.Method, r.Params)
		}
		return
	}
	members, id, err := readCancelled(r.Params)
	if err != nil {
		s.log.Warn("a cancellation that names no request", "error", err.Error())
		return
	}
	s.mu.Lock()
	f := s.flights[id]
	delete(s.flights, id)
	s.mu.Unlock()
	if f != nil && f.cancel != nil {
		f.cancel(members)
	}
}

// readCancelled reads which request a cancellation is about.
func readCancelled(params json.RawMessage) ([]member, jsonrpc.ID, error) {
	members, err := readObject(params)
	if err != nil {
		return nil, jsonrpc.ID{}, err
	}
	id, err := parseID(lookup(members, "requestId"))
	return members, id, err
}

// fromServer takes a request or notification of a server.
func (s *session) fromServer(up *upstream, r *jsonrpc.Request) {
	switch {
	case r.IsCall():
		s.serverAsks(up, r)
	case r.Method == "notifications/cancelled":
		members, id, err := readCancelled(r.Params)
		if err != nil {
			s.log.Warn("a cancellation that names no request", "server", up.Name, "error", err.Error())
			return
		}
		up.mu.Lock()
		n, ok := up.flights[id]
		delete(up.flights, id)
		up.mu.Unlock()
		if ok {
			s.client.abandon(n, members)
		}
	default:
		if r.Method == "notifications/tools/list_changed" {
			up.book.stale()
		}
		s.client.notify(r.Method, r.Params)
	}
}

// serverAsks passes a request of a server (sampling, roots, elicitation, ping)
// on to the client.
func (s *session) serverAsks(up *upstream, r *jsonrpc.Request) {
	params := r.Params
	if r.Method == "elicitation/create" {
		marked, err := markElicitation(up.Name, params)
		if err != nil {
			up.link.reply(r.ID, nil, refusal(jsonrpc.CodeInvalidParams, err.Error()))
			return
		}
		params = marked
	}
	up.mu.Lock()
	_, twice := up.flights[r.ID]
	full := len(up.flights) >= s.g.config.InFlight
	if !twice && !full {
		up.flights[r.ID] = 0
	}
	up.mu.Unlock()
	if twice || full {
		s.log.Warn("refused a request of a server", "server", up.Name, "method", r.Method, "twice", twice)
		up.link.reply(r.ID, nil, refusal(jsonrpc.CodeInvalidRequest, "too many requests, or one with an id that is in flight"))
		return
	}
	n, err := s.client.call(r.Method, params, 0, func(response *jsonrpc.Response, err error) {
		up.mu.Lock()
		_, asked := up.flights[r.ID]
		delete(up.flights, r.ID)
		up.mu.Unlock()
		switch {
		case !asked: // given up by the server
		case err != nil:
			up.link.reply(r.ID, nil, refusal(jsonrpc.CodeInternalError, err.Error()))
		default:
			up.link.reply(r.ID, response.Result, response.Error)
		}
	})
	up.mu.Lock()
	defer up.mu.Unlock()
	if _, waits := up.flights[r.ID]; waits && err == nil {
		up.flights[r.ID] = n
	} else if err != nil {
		delete(up.flights, r.ID)
		up.link.reply(r.ID, nil, refusal(jsonrpc.CodeInternalError, err.Error()))
	}
}

// markElicitation says in a question to the person which server asks: the text
// is the server's own, and could pretend to be anybody's.
func markElicitation(server string, params []byte) (json.RawMessage, error) {
	members, err := readObject(params)
	if err != nil {
		return nil, fmt.Errorf("elicitation/create: %w", err)
	}
	if err := readOneWay(members, "message"); err != nil {
		return nil, fmt.Errorf("elicitation/create: %w", err)
	}
	var message string
	if m := lookup(members, "message"); m != nil {
		if err := unmarshalString(m, &message); err != nil {
			return nil, fmt.Errorf("elicitation/create: message: %w", err)
		}
	}
	marked := fmt.Sprintf("The server %q asks (this is not opa-gate): %s", server, message)
	return writeObject(with(members, "message", quote(marked))), nil
}

// logOnce tells of something the first time that it happens with that name.
func (s *session) logOnce(message, name string) {
	s.mu.Lock()
	told := s.warned[name] || len(s.warned) > 1000
	s.warned[name] = true
	s.mu.Unlock()
	if !told {
		s.log.Warn(message, "name", name)
	}
}
