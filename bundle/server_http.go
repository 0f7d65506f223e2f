package bundle

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/opa-gate/opa-gate/wire"
)

// mediaType is how OPA knows a server that holds requests. Anything else, a
// parameter behind it too, makes it poll at intervals.
const mediaType = "application/vnd.openpolicyagent.bundles"

// Handler returns what answers requests: /bundles/NAME, /health and /metrics.
func (s *Server) Handler() http.Handler {
	metrics := s.metrics.handler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := &answer{ResponseWriter: w, control: http.NewResponseController(w), began: time.Now()}
		defer s.record(a, r)
		a.deadlines(0)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		name, isBundle := strings.CutPrefix(r.URL.Path, "/bundles/")
		switch {
		case r.ContentLength != 0: // it would have to be read to the end
			w.Header().Set("Connection", "close")
			_ = a.control.SetReadDeadline(time.Now().Add(headerTime))
			refuseRequest(a, http.StatusRequestEntityTooLarge, "a request has no body here")
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			refuseRequest(a, http.StatusMethodNotAllowed, "expected GET or HEAD")
		case r.URL.Path == "/health":
			s.health(a, r)
		case !s.allowed(r):
			w.Header().Set("WWW-Authenticate", `Bearer realm="opa-gate"`)
			refuseRequest(a, http.StatusUnauthorized, "expected Authorization: Bearer and a token that this server knows")
		case r.URL.Path == "/metrics":
			metrics.ServeHTTP(a, r)
		case isBundle:
			s.bundle(a, r, name)
		default:
			refuseRequest(a, http.StatusNotFound, "there are /bundles/NAME, /health and /metrics")
		}
	})
}

// refuseRequest answers with a status and a sentence.
func refuseRequest(w http.ResponseWriter, code int, text string) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text + "\n"))
}

// allowed reports whether a request has a token that is known. All of them are
// compared, and the time that this takes tells nothing about them.
func (s *Server) allowed(r *http.Request) bool {
	if len(s.tokens) == 0 {
		return true
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	sum := sha256.Sum256([]byte(strings.Trim(token, " ")))
	known := 0
	for i := range s.tokens {
		known |= subtle.ConstantTimeCompare(sum[:], s.tokens[i][:])
	}
	return known == 1 && strings.EqualFold(scheme, "Bearer")
}

// bundle answers a request for a bundle.
func (s *Server) bundle(a *answer, r *http.Request, name string) {
	var b *shelf
	for _, one := range s.shelves {
		if one.name == name {
			b = one
		}
	}
	if b == nil {
		var names []string
		for _, one := range s.shelves {
			names = append(names, "/bundles/"+one.name)
		}
		refuseRequest(a, http.StatusNotFound, "there is no such bundle; there is "+strings.Join(names, ", "))
		return
	}
	a.bundle = b.name
	client := parseIfNoneMatch(r.Header.Values("If-None-Match"))
	wants := parsePrefer(r.Header.Values("Prefer"))
	if r.Method == http.MethodHead {
		wants.wait = 0
	}
	e, held := s.await(r.Context(), a, b, client, min(wants.wait, s.opts.MaxWait))
	if r.Context().Err() != nil {
		a.code = statusGone
		return
	}
	switch {
	case !held:
		a.Header().Set("Retry-After", "5")
		refuseRequest(a, http.StatusServiceUnavailable, "too many requests wait for something new")
	case e == nil:
		a.Header().Set("Retry-After", "5")
		refuseRequest(a, http.StatusServiceUnavailable, "there is no good bundle of that name yet; /health tells why")
	default:
		s.send(a, r, b, e, client, wants)
	}
}

// statusGone is what is noted of a client that went away.
const statusGone = 499

// await waits until there is something that the client does not have, for some
// time, and returns what is served then. Held is false if there is no room to
// wait: a client that is told at once that there is nothing new asks again at
// once. A client that lists the tags of what it had before has asked not to be
// sent that again either, and waits.
func (s *Server) await(ctx context.Context, a *answer, b *shelf, client condition, wait time.Duration) (e *edition, held bool) {
	e, changed := b.now()
	if wait <= 0 || s.ending() || e != nil && !client.met(e.etag) {
		return e, true
	}
	select {
	case s.slots <- struct{}{}:
	default:
		return e, false
	}
	began := time.Now()
	s.metrics.held.Inc()
	a.deadlines(-1)
	timer := time.NewTimer(wait)
	defer func() {
		timer.Stop()
		s.metrics.held.Dec()
		<-s.slots
		a.held = time.Since(began)
	}()
	for {
		select {
		case <-ctx.Done():
			return e, true
		case <-s.closing:
			e, _ = b.now()
			return e, true
		case <-timer.C:
			e, _ = b.now()
			return e, true
		case <-changed:
		}
		if e, changed = b.now(); e != nil && !client.met(e.etag) {
			return e, true
		}
	}
}

// send sends an edition to a client, or that it has it.
func (s *Server) send(a *answer, r *http.Request, b *shelf, e *edition, client condition, wants preference) {
	h := a.Header()
	h["ETag"] = []string{e.etag} // as it is written everywhere, which Set would change
	h.Set("Content-Type", mediaType)
	h.Set("Cache-Control", "private, no-cache")
	h.Set("Vary", "Prefer, Authorization")
	a.etag = e.etag
	if s.ending() {
		h.Set("Connection", "close")
	}
	if client.met(e.etag) {
		a.deadlines(0)
		a.WriteHeader(http.StatusNotModified)
		return
	}
	body, kind := e.body, "snapshot"
	if wants.delta && r.Method == http.MethodGet {
		if d := b.delta(client.base(), e); d != nil && s.given.first(r.RemoteAddr, b.name, client.base(), e.etag) {
			body, kind = d, "delta"
		}
	}
	a.kind = kind
	h.Set("Content-Length", strconv.Itoa(len(body)))
	a.deadlines(len(body))
	a.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return
	}
	n, _ := a.Write(body)
	s.metrics.bytes.WithLabelValues(b.name, kind).Add(float64(n))
}

const (
	answerTime = 30 * time.Second
	slowest    = 32 << 10 // bytes a second that a client has to take
)

// An answer is a response, and what is noted about it.
type answer struct {
	http.ResponseWriter
	control *http.ResponseController
	began   time.Time
	held    time.Duration
	code    int
	bytes   int
	bundle  string // "" if it is about none
	kind    string // snapshot, delta or nothing
	etag    string
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(code int) {
	if a.code == 0 {
		a.code = code
	}
	a.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (a *answer) Write(text []byte) (int, error) {
	if a.code == 0 {
		a.code = http.StatusOK
	}
	n, err := a.ResponseWriter.Write(text)
	a.bytes += n
	return n, err
}

// deadlines bounds how long an answer of some bytes takes. A request that is held
// has none, of fewer than 0.
func (a *answer) deadlines(bytes int) {
	if bytes < 0 {
		_ = a.control.SetWriteDeadline(time.Time{})
		return
	}
	_ = a.control.SetWriteDeadline(time.Now().Add(answerTime + time.Duration(bytes/slowest)*time.Second))
}

const maxLogged = 256

// bounded is the beginning of a text that a client chose, with whatever could act
// on a terminal escaped.
func bounded(text string) string {
	if len(text) <= maxLogged {
		return wire.Printable(text)
	}
	cut := maxLogged
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return wire.Printable(text[:cut]) + "…"
}

// record writes the line of one request, and counts it. Neither headers nor what
// stands behind the path are in it: a token could be there.
func (s *Server) record(a *answer, r *http.Request) {
	if a.code == 0 {
		a.code = http.StatusOK
	}
	s.metrics.requests.WithLabelValues(a.bundle, strconv.Itoa(a.code)).Inc()
	attrs := []any{
		"remote", r.RemoteAddr, "method", bounded(r.Method), "path", bounded(r.URL.Path), "code", a.code, "bytes", a.bytes,
		"ms", time.Since(a.began).Milliseconds(),
	}
	if a.held > 0 {
		attrs = append(attrs, "held_ms", a.held.Milliseconds())
	}
	if a.kind != "" {
		attrs = append(attrs, "kind", a.kind)
	}
	if a.etag != "" {
		attrs = append(attrs, "etag", a.etag)
	}
	attrs = append(attrs, "agent", bounded(r.UserAgent()))
	s.access.Info("request", attrs...)
}
