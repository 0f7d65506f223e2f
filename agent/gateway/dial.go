package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// An httpConn talks to a server over streamable HTTP: the SDK's transport, and
// beside it the stream on which the server speaks first, which the transport
// opens for the SDK's own client only.
type httpConn struct {
	inner    mcp.Connection
	client   *http.Client
	endpoint string
	limit    int
	log      *slog.Logger
	ctx      context.Context
	cancel   context.CancelFunc
	incoming chan jsonrpc.Message
	failed   chan error

	mu        sync.Mutex
	greeting  jsonrpc.ID // of the initialize request
	version   string     // that the server answered it with
	listening bool
	sending   map[jsonrpc.ID]context.CancelFunc // requests whose answers are awaited
}

// dial returns a connection to a server at a URL. Nothing is sent yet.
func (g *Gateway) dial(c *ServerConfig, log *slog.Logger) (mcp.Connection, error) {
	target, err := url.Parse(c.URL)
	if err != nil {
		return nil, errors.New("the url cannot be read")
	}
	h := &httpConn{endpoint: c.URL, limit: g.config.MaxMessage, log: log.With("server", c.Name), incoming: make(chan jsonrpc.Message), failed: make(chan error, 1),
		sending: make(map[jsonrpc.ID]context.CancelFunc)}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	h.client = &http.Client{
		Transport: &headerAdder{base: http.DefaultTransport.(*http.Transport).Clone(), conn: h, target: target, headers: c.Headers},
		// Elsewhere the operator vouched for nothing, and the headers are not meant for it.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	transport := &mcp.StreamableClientTransport{Endpoint: c.URL, HTTPClient: h.client, MaxEventSize: g.config.MaxMessage}
	if h.inner, err = transport.Connect(h.ctx); err != nil {
		h.cancel()
		return nil, err
	}
	go h.pump()
	return h, nil
}

// A headerAdder sends the headers of one server to it, and to nobody else.
type headerAdder struct {
	base    http.RoundTripper
	conn    *httpConn
	target  *url.URL
	headers map[string]string
}

// RoundTrip implements http.RoundTripper.
func (a *headerAdder) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != a.target.Scheme || r.URL.Host != a.target.Host {
		return nil, fmt.Errorf("refused to send to %s://%s, which is not the server", r.URL.Scheme, r.URL.Host)
	}
	r = r.Clone(r.Context())
	for name, value := range a.headers {
		r.Header.Set(name, value)
	}
	a.conn.mu.Lock()
	version := a.conn.version
	a.conn.mu.Unlock()
	if version != "" && r.Header.Get("Mcp-Protocol-Version") == "" {
		r.Header.Set("Mcp-Protocol-Version", version)
	}
	response, err := a.base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if kind != "text/event-stream" {
		response.Body = &limited{ReadCloser: response.Body, left: a.conn.limit}
	}
	if r.Context().Value(callKey{}) == nil {
		return response, nil
	}
	if err := readable(response, kind); err != nil {
		return nil, errors.Join(err, response.Body.Close())
	}
	return response, nil
}

// callKey marks the context of a request that is to be answered with a message.
type callKey struct{}

// errUnreadable is wrapped by the errors of an answer that is none.
var errUnreadable = errors.New("the server answered")

// readable is an error if an answer to a call is none that the transport can read: it
// would end the connection, and with it what the server keeps for the session, where
// the one call fails. That there is no such session any more is for the transport.
func readable(response *http.Response, kind string) error {
	switch code := response.StatusCode; {
	case code == http.StatusNotFound, code == http.StatusOK && kind == "text/event-stream":
		return nil
	case code >= 300 && code < 400:
		return fmt.Errorf("%w %d, and redirections are not followed", errUnreadable, code)
	case code == http.StatusOK && kind != "application/json":
		return fmt.Errorf("%w with content of the type %q", errUnreadable, kind)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("%w %d: %w", errUnreadable, response.StatusCode, err)
	}
	message, err := decodeMessage(bytes.TrimSpace(body))
	if _, ok := message.(*jsonrpc.Response); err == nil && !ok {
		err = fmt.Errorf("%w: it is no answer", errNotMessage)
	}
	if err != nil {
		return fmt.Errorf("%w %d: %w", errUnreadable, response.StatusCode, err)
	}
	response.Body = struct {
		io.Reader
		io.Closer
	}{bytes.NewReader(body), response.Body}
	return nil
}

// A limited body ends with an error where it becomes too long.
type limited struct {
	io.ReadCloser
	left int
}

func (l *limited) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, fmt.Errorf("%w: an answer longer than the bound", errNotMessage)
	}
	n, err := l.ReadCloser.Read(p[:min(len(p), l.left)])
	l.left -= n
	return n, err
}

// pump takes what the transport reads.
func (h *httpConn) pump() {
	for {
		message, err := h.inner.Read(h.ctx)
		if err != nil {
			h.failed <- err
			return
		}
		if answer, ok := message.(*jsonrpc.Response); ok {
			h.mu.Lock()
			if h.greeting.IsValid() && answer.ID == h.greeting && answer.Error == nil {
				if _, version, err := textMember(answer.Result, "protocolVersion"); err == nil {
					h.version = version
				}
			}
			h.mu.Unlock()
			h.over(answer.ID)
		}
		h.deliver(message)
	}
}

func (h *httpConn) deliver(message jsonrpc.Message) {
	select {
	case h.incoming <- message:
	case <-h.ctx.Done():
	}
}

// Read implements mcp.Connection.
func (h *httpConn) Read(context.Context) (jsonrpc.Message, error) {
	select {
	case message := <-h.incoming:
		return message, nil
	case err := <-h.failed:
		return nil, err
	case <-h.ctx.Done():
		return nil, io.EOF
	}
}

// noticeTimeout bounds the sending of what has no answer.
const noticeTimeout = 30 * time.Second

// Write implements mcp.Connection. A request is sent beside others, as its
// sending lasts until the server begins to answer; what goes wrong is its answer.
func (h *httpConn) Write(_ context.Context, message jsonrpc.Message) error {
	r, ok := message.(*jsonrpc.Request)
	if !ok || !r.IsCall() {
		ctx, cancel := context.WithTimeout(h.ctx, noticeTimeout)
		defer cancel()
		err := h.inner.Write(ctx, message)
		if ok && r.Method == "notifications/initialized" && err == nil {
			h.listen()
		}
		if ok && r.Method == "notifications/cancelled" {
			if _, id, err := readCancelled(r.Params); err == nil {
				h.over(id)
			}
		}
		return err
	}
	if r.Method == "initialize" {
		h.mu.Lock()
		h.greeting = r.ID
		h.mu.Unlock()
	}
	ctx, cancel := context.WithCancel(context.WithValue(h.ctx, callKey{}, true))
	h.mu.Lock()
	h.sending[r.ID] = cancel
	h.mu.Unlock()
	go func() {
		if err := h.inner.Write(ctx, r); err != nil {
			if ctx.Err() != nil {
				return // nobody waits any more
			}
			h.over(r.ID)
			h.log.Warn("not sent", "method", r.Method, "error", err.Error())
			problem := "the request could not be sent to the server"
			if errors.Is(err, errUnreadable) {
				problem = "the server did not answer the request, and may have done what it asks for"
			}
			h.deliver(&jsonrpc.Response{ID: r.ID, Error: refusal(jsonrpc.CodeInternalError, problem+"; the log of the gateway says why")})
		}
	}()
	return nil
}

// over ends the HTTP request of a request that was answered, or that nobody waits for:
// a server that never answers would hold a connection for each.
func (h *httpConn) over(id jsonrpc.ID) {
	h.mu.Lock()
	cancel := h.sending[id]
	delete(h.sending, id)
	h.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

// Close implements mcp.Connection.
func (h *httpConn) Close() error {
	err := h.inner.Close() // bounded by the SDK
	h.cancel()
	h.client.CloseIdleConnections()
	return err
}

// SessionID implements mcp.Connection.
func (h *httpConn) SessionID() string { return h.inner.SessionID() }

// listen opens the stream on which the server speaks first, once.
func (h *httpConn) listen() {
	h.mu.Lock()
	first := !h.listening && h.version < "2026-07-28" // later ones have no such stream
	h.listening = true
	h.mu.Unlock()
	if !first {
		return
	}
	go func() {
		last := ""
		for delay := time.Second; h.ctx.Err() == nil; delay = min(2*delay, 30*time.Second) {
			again, err := h.stream(&last)
			if err != nil && h.ctx.Err() == nil {
				h.log.Info("the server's own stream ended", "error", err.Error())
			}
			if !again {
				return
			}
			select {
			case <-time.After(delay):
			case <-h.ctx.Done():
			}
		}
	}()
}

// stream reads the server's own stream to its end. It reports whether to open it
// again.
func (h *httpConn) stream(last *string) (again bool, err error) {
	r, err := http.NewRequestWithContext(h.ctx, http.MethodGet, h.endpoint, nil)
	if err != nil {
		return false, err
	}
	r.Header.Set("Accept", "text/event-stream")
	if id := h.inner.SessionID(); id != "" {
		r.Header.Set("Mcp-Session-Id", id)
	}
	if *last != "" {
		r.Header.Set("Last-Event-ID", *last)
	}
	response, err := h.client.Do(r)
	if err != nil {
		return true, err
	}
	defer func() { _ = response.Body.Close() }()
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if response.StatusCode != http.StatusOK || kind != "text/event-stream" {
		return response.StatusCode >= 500, nil // a server need not have one
	}
	return true, readEvents(response.Body, h.limit, func(id string, data []byte) error {
		if id != "" {
			*last = id
		}
		if len(data) == 0 {
			return nil
		}
		message, err := decodeMessage(data)
		if err != nil {
			return err
		}
		h.deliver(message)
		return nil
	})
}

// readEvents reads server-sent events: of each the id and the data.
func readEvents(body io.Reader, limit int, event func(id string, data []byte) error) error {
	lines := newLineConn(body, nil, limit, nil)
	var id string
	var data []byte
	for {
		line, err := lines.line()
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if len(line) == 0 {
			if err := event(id, data); err != nil {
				return err
			}
			id, data = "", nil
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "data":
			if len(data)+len(value) > limit {
				return fmt.Errorf("%w: an event longer than %d bytes", errNotMessage, limit)
			}
			if data != nil {
				data = append(data, '\n')
			}
			data = append(data, value...)
		case "id":
			id = string(value)
		}
	}
}
