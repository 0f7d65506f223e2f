package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// An httpClient is a client over streamable HTTP, as an mcp.Connection. The SDK's
// own transport of a server refuses methods that it does not know, and ties
// notifications to requests in its own server alone.
//
// What is said in answer to a request goes onto the stream that the request
// opened: its progress, and its answer at last. The rest goes onto the stream that
// the client opened for it, or, until there is one, onto any other.
type httpClient struct {
	id       string // of the MCP session
	idle     *time.Timer
	open     atomic.Int64 // HTTP requests
	incoming chan jsonrpc.Message
	done     chan struct{}
	closing  sync.Once

	mu      sync.Mutex
	streams map[jsonrpc.ID]*stream // by the request that opened it
	own     *stream                // that no request opened
	changed chan struct{}          // closed when a stream is added
}

// A stream is one HTTP response of server-sent events.
type stream struct {
	token  string      // of the progress of its request; "" if it has none
	events chan []byte // what is to be written; nil is the end
	gone   <-chan struct{}
}

func newHTTPClient(id string) *httpClient {
	return &httpClient{
		id: id, incoming: make(chan jsonrpc.Message, 16), done: make(chan struct{}),
		streams: make(map[jsonrpc.ID]*stream), changed: make(chan struct{}),
	}
}

// SessionID implements mcp.Connection.
func (c *httpClient) SessionID() string { return c.id }

// Close implements mcp.Connection.
func (c *httpClient) Close() error {
	c.closing.Do(func() { close(c.done) })
	return nil
}

// Read implements mcp.Connection.
func (c *httpClient) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case m := <-c.incoming:
		return m, nil
	case <-c.done:
		return nil, io.EOF
	}
}

var errNoStream = errors.New("the client has no stream open on which it could be told")

// patience is how long something that a server says first waits for a stream.
const patience = time.Second

// Write implements mcp.Connection.
func (c *httpClient) Write(_ context.Context, message jsonrpc.Message) error {
	text, err := encodeMessage(message)
	if err != nil {
		return err
	}
	if r, ok := message.(*jsonrpc.Response); ok {
		c.mu.Lock()
		s := c.streams[r.ID]
		delete(c.streams, r.ID)
		c.mu.Unlock()
		if s == nil || !s.put(text, c.done) || !s.put(nil, c.done) {
			return errNoStream
		}
		return nil
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		s, changed := c.streamFor(message.(*jsonrpc.Request))
		if s != nil && s.put(text, c.done) {
			return nil
		}
		select {
		case <-changed:
		case <-late.C:
			return errNoStream
		case <-c.done:
			return io.EOF
		}
	}
}

// put hands an event to whoever writes the stream.
func (s *stream) put(event []byte, done <-chan struct{}) bool {
	select {
	case <-s.gone:
		return false
	default:
	}
	select {
	case s.events <- event:
		return true
	case <-s.gone:
	case <-done:
	}
	return false
}

// streamFor picks the stream for something that is no answer.
func (c *httpClient) streamFor(r *jsonrpc.Request) (*stream, <-chan struct{}) {
	token := ""
	if r.Method == "notifications/progress" {
		if members, err := readObject(r.Params, lenient...); err == nil {
			token = string(lookup(members, "progressToken"))
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var any *stream
	for _, s := range c.streams {
		if token != "" && s.token == token {
			return s, c.changed
		}
		any = s
	}
	if c.own != nil {
		return c.own, c.changed
	}
	return any, c.changed
}

// add registers a stream: for the request with an id, or without one. It reports
// whether there was none.
func (c *httpClient) add(s *stream, id jsonrpc.ID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !id.IsValid() && c.own != nil, id.IsValid() && c.streams[id] != nil:
		return false
	case !id.IsValid():
		c.own = s
	default:
		c.streams[id] = s
	}
	close(c.changed)
	c.changed = make(chan struct{})
	return true
}

func (c *httpClient) remove(s *stream, id jsonrpc.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.own == s {
		c.own = nil
	}
	if c.streams[id] == s {
		delete(c.streams, id)
	}
}

// progressToken is the token that a request names for its progress.
func progressToken(params json.RawMessage) string {
	members, err := readObject(params, lenient...)
	if err != nil {
		return ""
	}
	meta, err := readObject(lookup(members, "_meta"), lenient...)
	if err != nil {
		return ""
	}
	return string(lookup(meta, "progressToken"))
}

// post takes a message that came by POST, and answers with a stream if it is a
// request.
func (c *httpClient) post(w http.ResponseWriter, r *http.Request, message jsonrpc.Message) {
	request, ok := message.(*jsonrpc.Request)
	if !ok || !request.IsCall() {
		if c.take(w, r, message) {
			w.WriteHeader(http.StatusAccepted)
		}
		return
	}
	s := &stream{token: progressToken(request.Params), events: make(chan []byte, 64), gone: r.Context().Done()}
	if !c.add(s, request.ID) {
		http.Error(w, "a request with this id is in flight", http.StatusBadRequest)
		return
	}
	defer c.remove(s, request.ID)
	if request.Method == "initialize" {
		w.Header().Set(sessionHeader, c.id)
	}
	if c.take(w, r, message) {
		c.stream(w, s)
	}
}

// take passes a message on to the session.
func (c *httpClient) take(w http.ResponseWriter, r *http.Request, message jsonrpc.Message) bool {
	select {
	case c.incoming <- message:
		return true
	case <-c.done:
		http.Error(w, "the session has ended", http.StatusNotFound)
	case <-r.Context().Done():
	}
	return false
}

// get serves the stream that no request opened.
func (c *httpClient) get(w http.ResponseWriter, r *http.Request) {
	s := &stream{events: make(chan []byte, 64), gone: r.Context().Done()}
	if !c.add(s, jsonrpc.ID{}) {
		http.Error(w, "the session has such a stream already", http.StatusConflict)
		return
	}
	defer c.remove(s, jsonrpc.ID{})
	c.stream(w, s)
}

// signOfLife is the time after which a stream without events has a comment, so
// that nobody on the way takes it for dead.
const signOfLife = 15 * time.Second

// stream writes the events of s until they, the client or the session end.
func (c *httpClient) stream(w http.ResponseWriter, s *stream) {
	out := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache, no-transform")
	w.WriteHeader(http.StatusOK)
	if out.Flush() != nil {
		return
	}
	alive := time.NewTicker(signOfLife)
	defer alive.Stop()
	for {
		var err error
		select {
		case event := <-s.events:
			if event == nil {
				return
			}
			_, err = fmt.Fprintf(w, "event: message\ndata: %s\n\n", event)
		case <-alive.C:
			_, err = io.WriteString(w, ": waiting\n\n")
		case <-s.gone:
			return
		case <-c.done:
			return
		}
		if err != nil || out.Flush() != nil {
			return
		}
	}
}
