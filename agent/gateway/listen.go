package gateway

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// Endpoint is the path at which a [Gateway.Handler] speaks MCP.
const Endpoint = "/mcp"

// The bounds of a handler: clients at once, and how long one may be silent.
const (
	MaxClients = 64
	IdleClient = 30 * time.Minute
)

// HTTPOptions say who may be a client over HTTP.
type HTTPOptions struct {
	Reviewer string // who the clients' user is; see [Gateway.ServeStdio]
	Token    string // that clients carry as a bearer; "" asks for none
	// Local says that only this machine can reach the handler. Requests must
	// then name it as localhost or a loopback address: others come of a web page
	// whose name was made to point here.
	Local bool
}

// Handler serves clients over streamable HTTP. Each has its own connections to
// the servers. They end with ctx.
func (g *Gateway) Handler(ctx context.Context, o HTTPOptions) http.Handler {
	h := &httpHandler{g: g, ctx: ctx, o: o, clients: make(map[string]*httpClient)}
	mux := http.NewServeMux()
	mux.Handle(Endpoint, h)
	return mux
}

type httpHandler struct {
	g   *Gateway
	ctx context.Context
	o   HTTPOptions

	mu      sync.Mutex
	clients map[string]*httpClient // by the id of the MCP session; nil while one is made
}

const sessionHeader = "Mcp-Session-Id"

// ServeHTTP implements http.Handler.
func (h *httpHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if status, problem := h.admit(r); problem != "" {
		h.g.log.Warn("refused an HTTP request", "problem", problem)
		if status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", "Bearer")
		}
		http.Error(w, problem, status)
		return
	}
	var message jsonrpc.Message
	switch r.Method {
	case http.MethodPost:
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(h.g.config.MaxMessage)))
		if err != nil {
			http.Error(w, fmt.Sprintf("the body cannot be read, or has more than %d bytes", h.g.config.MaxMessage), http.StatusRequestEntityTooLarge)
			return
		}
		if message, err = decodeMessage(bytes.TrimSpace(body)); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if r.Header.Get(sessionHeader) == "" {
			h.begin(w, r, message)
			return
		}
	case http.MethodGet, http.MethodDelete:
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		http.Error(w, "expected GET, POST or DELETE", http.StatusMethodNotAllowed)
		return
	}
	h.mu.Lock()
	c := h.clients[r.Header.Get(sessionHeader)]
	h.mu.Unlock()
	if c == nil {
		http.Error(w, "there is no such session", http.StatusNotFound)
		return
	}
	if r.Method == http.MethodDelete {
		_ = c.Close() // never fails
		w.WriteHeader(http.StatusNoContent)
		return
	}
	c.serve(w, r, message)
}

// serve answers a request of the session; message is the one that was posted.
func (c *httpClient) serve(w http.ResponseWriter, r *http.Request, message jsonrpc.Message) {
	c.idle.Stop()
	c.open.Add(1)
	defer func() {
		if c.open.Add(-1) == 0 {
			c.idle.Reset(IdleClient)
		}
	}()
	if r.Method == http.MethodGet {
		c.get(w, r)
		return
	}
	c.post(w, r, message)
}

// begin makes the session of a client that greets.
func (h *httpHandler) begin(w http.ResponseWriter, r *http.Request, message jsonrpc.Message) {
	if request, ok := message.(*jsonrpc.Request); !ok || request.Method != "initialize" || !request.IsCall() {
		http.Error(w, "a session begins with initialize; others name theirs in "+sessionHeader, http.StatusBadRequest)
		return
	}
	id := rand.Text()
	h.mu.Lock()
	full := len(h.clients) >= MaxClients
	if !full {
		h.clients[id] = nil
	}
	h.mu.Unlock()
	if full {
		http.Error(w, fmt.Sprintf("there are %d clients already", MaxClients), http.StatusServiceUnavailable)
		return
	}
	c, err := h.open(id)
	if err != nil {
		h.forget(id)
		h.g.log.Error("no session", "error", err.Error())
		http.Error(w, "no session can begin; the log of the gateway says why", http.StatusInternalServerError)
		return
	}
	h.mu.Lock()
	h.clients[id] = c
	h.mu.Unlock()
	c.serve(w, r, message)
}

func (h *httpHandler) open(id string) (*httpClient, error) {
	c := newHTTPClient(id)
	conversation := NewSessionID()
	if err := h.g.gate.Begin(h.ctx, conversation); err != nil {
		return nil, err
	}
	s, err := h.g.newSession(conversation, h.o.Reviewer, c)
	if err != nil {
		return nil, err
	}
	c.idle = time.AfterFunc(IdleClient, func() { _ = c.Close() })
	go func() {
		s.wait(h.ctx)
		c.idle.Stop()
		h.forget(id)
	}()
	return c, nil
}

func (h *httpHandler) forget(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.clients, id)
}

// admit reports why a request is refused; "" if it is not.
func (h *httpHandler) admit(r *http.Request) (status int, problem string) {
	if h.o.Local && !loopbackName(r.Host) {
		return http.StatusForbidden, "expected localhost or a loopback address as the host"
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		u, err := url.Parse(origin)
		if err != nil || u.Host == "" || !strings.EqualFold(u.Host, r.Host) && (!h.o.Local || !loopbackName(u.Host)) {
			return http.StatusForbidden, "web pages of other origins may not be clients"
		}
	}
	if h.o.Token == "" {
		return 0, ""
	}
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	want, got := sha256.Sum256([]byte(h.o.Token)), sha256.Sum256([]byte(given))
	if !ok || subtle.ConstantTimeCompare(want[:], got[:]) != 1 {
		return http.StatusUnauthorized, "expected the gateway's bearer token"
	}
	return 0, ""
}

// loopbackName reports whether host, with or without a port, is this machine by
// a name that nobody else can make point here.
func loopbackName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

var (
	errPlain  = errors.New("can be reached from other machines, which needs TLS and a token")
	errListen = errors.New("cannot be listened on")
)

// CheckAddress refuses to serve where others can reach without being known: an
// address that is not this machine's alone needs TLS and a token. It reports
// whether the address is this machine's alone.
func CheckAddress(addr string, tls, token bool) (local bool, err error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false, fmt.Errorf("%s %w: expected HOST:PORT", addr, errListen)
	}
	local = loopbackName(host)
	if !local && (!tls || !token) {
		return false, fmt.Errorf("%s %w", addr, errPlain)
	}
	return local, nil
}
