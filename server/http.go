package server

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/opa-gate/opa-gate/wire"
)

// maxBody bounds the body of a request, once it is unpacked.
const maxBody = 32 << 20

// maxDocuments bounds the documents of one request.
const maxDocuments = 100_000

// RevisionHeader is the header with the revisions of the bundles that an answer
// was decided by, a dictionary of strings by bundle name (RFC 8941).
const RevisionHeader = "Opa-Gate-Revision"

// route is one of the gate's APIs that decide.
type route struct {
	decide func(p *policies, ctx context.Context, doc []byte) ([]byte, error)
	entry  string // the path of the rule that decides
	counts func(c *counts) map[string]prometheus.Counter
	// logged is what decision logs get of a document and its answer, where that is
	// not all of both; nil is all.
	logged func(doc, answer []byte) (input, result []byte)
}

var (
	callRoute = route{
		decide: func(p *policies, ctx context.Context, doc []byte) ([]byte, error) { return p.documents.Call(ctx, doc) },
		entry:  "gate/call/decision",
		counts: func(c *counts) map[string]prometheus.Counter { return c.calls },
	}
	skillRoute = route{
		decide: func(p *policies, ctx context.Context, doc []byte) ([]byte, error) { return p.documents.Skill(ctx, doc) },
		entry:  "gate/skill/decision",
		counts: func(c *counts) map[string]prometheus.Counter { return c.skills },
	}
)

// unavailable tells why nothing is decided now, or "" if the policies in force
// decide.
func (g *gate) unavailable(p *policies) string {
	if p == nil {
		return "no policies are active"
	}
	if name, age, stale := g.stale(); stale {
		return fmt.Sprintf("the policies of bundle %s were last known to be current %s ago, and --max-staleness allows %s",
			strconv.Quote(name), age.Round(time.Second), g.maxStaleness)
	}
	return ""
}

// handler answers one document, or an array of them with an array of answers.
// What cannot be decided has an error in place of its answer, as on the command
// line: an error is never an allow.
func (g *gate) handler(r route, events *events) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		p := g.active.Load()
		if why := g.unavailable(p); why != "" {
			refuse(w, http.StatusServiceUnavailable, problem{Message: why})
			return
		}
		body, status, err := readBody(w, req)
		if err != nil {
			refuse(w, status, problem{Message: err.Error()})
			return
		}
		log := events.begin(req, p, r)
		w.Header().Set(RevisionHeader, p.revision)
		if first := bytes.TrimLeft(body, " \t\r\n"); len(first) > 0 && first[0] == '[' {
			g.answerAll(w, req, r, p, log, body)
			return
		}
		answer, err := g.decide(req.Context(), r, p, log, body)
		var u *unsettled
		switch {
		case errors.As(err, &u):
			write(w, u.status(), append(u.answer, '\n'))
			return
		case err != nil:
			refuse(w, statusOf(err), problemOf(err))
			return
		}
		write(w, http.StatusOK, append(answer, '\n'))
	}
}

// decide decides, logs and counts one document.
func (g *gate) decide(ctx context.Context, r route, p *policies, log *eventLog, doc []byte) ([]byte, error) {
	answer, err := r.decide(p, ctx, doc)
	input, result := doc, answer
	if r.logged != nil && log != nil {
		input, result = r.logged(doc, answer)
	}
	if err == nil {
		err = log.decided(ctx, input, result)
	}
	if err != nil {
		answer = nil
		log.failed(ctx, input, err)
	}
	count(r.counts(g.counts), answer)
	return answer, err
}

// answerAll answers an array.
func (g *gate) answerAll(w http.ResponseWriter, req *http.Request, r route, p *policies, log *eventLog, body []byte) {
	d := jsontext.NewDecoder(bytes.NewBuffer(body), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	_, _ = d.ReadToken() // the bracket that was seen
	out := make([]byte, 0, min(len(body)*2, 1<<20))
	out = append(out, '[')
	lines := lineCounter{text: body}
	for i := 0; ; i++ {
		if req.Context().Err() != nil {
			return // nobody waits for the rest
		}
		if d.PeekKind() == ']' {
			break
		}
		at := d.InputOffset()
		doc, err := d.ReadValue()
		if err == nil && i >= maxDocuments {
			refuse(w, http.StatusRequestEntityTooLarge, problem{Message: fmt.Sprintf("expected at most %d documents in a request", maxDocuments)})
			return
		}
		if err != nil {
			refuse(w, http.StatusBadRequest, problem{Line: lines.at(at), Index: &i,
				Message: "expected an array of documents; element " + strconv.Itoa(i) + " is not JSON"})
			return
		}
		if i > 0 {
			out = append(out, ',')
		}
		answer, err := g.decide(req.Context(), r, p, log, doc)
		var u *unsettled
		if errors.As(err, &u) {
			answer = u.answer
		} else if err != nil {
			e := problemOf(err)
			e.Index = &i
			e.Line += lines.at(d.InputOffset()-int64(len(doc))) - 1
			answer = e.text()
		}
		out = append(out, answer...)
	}
	_, err := d.ReadToken()
	if err == nil {
		if _, err = d.ReadToken(); err == io.EOF {
			write(w, http.StatusOK, append(out, ']', '\n'))
			return
		}
	}
	refuse(w, http.StatusBadRequest, problem{Line: lines.at(d.InputOffset()),
		Message: "expected one document or one array of them, and nothing behind it"})
}

// A lineCounter tells the line of one offset after the other, going forward.
type lineCounter struct {
	text   []byte
	seen   int64
	before int // line breaks
}

func (l *lineCounter) at(offset int64) int {
	l.before += bytes.Count(l.text[l.seen:offset], []byte{'\n'})
	l.seen = offset
	return l.before + 1
}

// readBody reads a request's body, which may be packed with gzip.
func readBody(w http.ResponseWriter, req *http.Request) (body []byte, status int, err error) {
	var from io.Reader = http.MaxBytesReader(w, req.Body, maxBody)
	var buf bytes.Buffer
	if strings.Contains(req.Header.Get("Content-Encoding"), "gzip") {
		var z *gzip.Reader
		if z, err = gzip.NewReader(from); err == nil {
			from = io.LimitReader(z, maxBody+1)
		}
	} else if n := req.ContentLength; n > 0 { // what is announced need not come
		buf.Grow(int(min(n, 64<<10)) + bytes.MinRead)
	}
	if err == nil {
		_, err = buf.ReadFrom(from)
	}
	body = buf.Bytes()
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge), len(body) > maxBody:
		return nil, http.StatusRequestEntityTooLarge, fmt.Errorf("expected a body of at most %d bytes", maxBody)
	case err != nil:
		return nil, http.StatusBadRequest, fmt.Errorf("the body could not be read: %w", err)
	case len(bytes.TrimSpace(body)) == 0:
		return nil, http.StatusBadRequest, errors.New("expected a document or an array of them, got an empty body")
	}
	return body, 0, nil
}

// problem is what stands in place of an answer, as on the command line.
type problem struct {
	Line    int    `json:"line,omitempty"`
	Pointer string `json:"pointer,omitempty"`
	Message string `json:"message"`
	Index   *int   `json:"index,omitempty"`
}

func (p problem) text() []byte {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	_ = e.Encode(map[string]problem{"error": p}) // texts and numbers can be written
	return bytes.TrimSpace(buf.Bytes())
}

func problemOf(err error) problem {
	var e *wire.Error
	if errors.As(err, &e) {
		return problem{Line: e.Line, Pointer: e.Pointer, Message: e.Message()}
	}
	return problem{Line: 1, Message: err.Error()}
}

// statusOf tells a document that breaks the rules from one that was not decided.
func statusOf(err error) int {
	var e *wire.Error
	if errors.As(err, &e) {
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}

func refuse(w http.ResponseWriter, status int, p problem) { write(w, status, append(p.text(), '\n')) }

func write(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(body) // who does not read an answer has none
}

// ledgerPatience is how long the ledger may take to show that it is there.
const ledgerPatience = 2 * time.Second

// ledgerHealth asks the ledger for its last entry; it is nil if there is no ledger.
// Calls that need nobody are decided without one, so it is no part of being ready.
func (g *gate) ledgerHealth(ctx context.Context) *ledgerReport {
	if g.ledger == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, ledgerPatience)
	defer cancel()
	_, _, err := g.ledger.Head(ctx)
	return &ledgerReport{Available: err == nil}
}

// A ledgerReport is what anybody may know of the ledger: why it is away, the log
// says where somebody is refused for it.
type ledgerReport struct {
	Available bool `json:"available"`
}

// health answers whether the gate decides, and from what.
func (g *gate) health(w http.ResponseWriter, req *http.Request) {
	p := g.active.Load()
	why := g.unavailable(p)
	state := struct {
		Ready    bool              `json:"ready"`
		Reason   string            `json:"reason,omitempty"` // why not
		Revision map[string]string `json:"revision,omitempty"`
		Since    time.Time         `json:"since,omitzero"`
		Bundles  map[string]report `json:"bundles,omitempty"` // that OPA fetches
		Refused  *refusal          `json:"refused,omitempty"` // the last change, if it was
		Ledger   *ledgerReport     `json:"ledger,omitempty"`
	}{Ready: why == "", Reason: why, Ledger: g.ledgerHealth(req.Context())}
	if p != nil {
		state.Revision = map[string]string{}
		for name, b := range p.bundles {
			state.Revision[name] = b.Revision
		}
		state.Since = p.since.UTC()
	}
	g.mu.Lock()
	state.Bundles = make(map[string]report, len(g.refreshes))
	for name, r := range g.refreshes {
		state.Bundles[name] = r.overdue(g.now(), g.patience[name])
	}
	state.Refused = g.refusal
	g.mu.Unlock()
	status := http.StatusOK
	if !state.Ready {
		status = http.StatusServiceUnavailable
	}
	text, err := json.MarshalIndent(state, "", "  ")
	if err != nil { // times before year 0 or after 9999
		status, text = http.StatusInternalServerError, problem{Message: err.Error()}.text()
	}
	write(w, status, append(text, '\n'))
}

// closed has OPA's own APIs that decide refuse as well while no policies are
// active, or stale ones. What tells of the state goes on, and so do writes.
func (g *gate) closed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		// Without a pattern nobody has looked yet at who asks.
		if req.Pattern != "" && decides(req.Method, req.URL.Path) {
			if why := g.unavailable(g.active.Load()); why != "" {
				refuse(w, http.StatusServiceUnavailable, problem{Message: why})
				return
			}
		}
		next.ServeHTTP(w, req)
	})
}

// decides tells whether a request of OPA's APIs evaluates policies.
func decides(method, path string) bool {
	switch {
	case method == http.MethodPut || method == http.MethodPatch || method == http.MethodDelete:
		return false
	case path == "/":
		return true
	}
	for _, api := range []string{"/v0/data", "/v1/data", "/v1/query", "/v1/compile"} {
		if rest, ok := strings.CutPrefix(path, api); ok && (rest == "" || rest[0] == '/') {
			return true
		}
	}
	return false
}
