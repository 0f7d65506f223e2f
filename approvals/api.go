package approvals

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/opa-gate/opa-gate/ledger"
	"github.com/opa-gate/opa-gate/skill"
	"github.com/opa-gate/opa-gate/wire"
)

// Options say what a [Handler] serves, and to whom.
type Options struct {
	Ledger *ledger.Ledger
	Tokens *Tokens
	// Log is told what goes wrong, without a token or an argument in it; nil is
	// told nothing.
	Log func(format string, args ...any)
	// Streams bounds how many streams are open at the same time, and a quarter of
	// it those of one token; 0 is 1,000.
	Streams int
}

// A Handler serves the approvals of one ledger. Make one with [New].
type Handler struct {
	ledger    *ledger.Ledger
	tokens    *Tokens
	log       func(format string, args ...any)
	origins   *http.CrossOriginProtection
	strangers strangers
	hub       *hub
	auditing  chan struct{} // has room for one
	mux       *http.ServeMux
	routes    []Route
}

// A Route is a part of a [Handler], for a server with routes of its own.
type Route struct {
	Pattern string // as [http.ServeMux] has them
	Name    string // for metrics
	Serve   http.HandlerFunc
}

// New makes a handler. Close ends its streams.
func New(opts *Options) *Handler {
	h := &Handler{ledger: opts.Ledger, tokens: opts.Tokens, log: opts.Log, origins: http.NewCrossOriginProtection(),
		strangers: strangers{seen: map[string]*failures{}}, auditing: make(chan struct{}, 1), mux: http.NewServeMux()}
	if h.log == nil {
		h.log = func(string, ...any) {}
	}
	streams := opts.Streams
	if streams <= 0 {
		streams = 1000
	}
	h.hub = newHub(h.ledger, h.log, streams)
	const api, name = "/v1/gate/approvals", "v1/gate/approvals"
	h.routes = append(pageRoutes(),
		Route{"GET " + api, name, h.guard(Viewer, h.list)},
		Route{"GET " + api + "/{id}", name, h.guard(Viewer, h.show)},
		Route{"POST " + api + "/{id}/decision", name, h.guard(Approver, h.decide)},
		Route{"POST " + api + "/{id}/withdraw", name, h.guard(Approver, h.withdraw)},
		Route{"GET " + api + "/events", name + "/events", h.guard(Viewer, h.events)},
		Route{"GET " + api + "/audit", name + "/audit", h.guard(Viewer, h.audit)},
	)
	for _, r := range h.routes {
		h.mux.HandleFunc(r.Pattern, r.Serve)
	}
	return h
}

// Routes are the parts of h.
func (h *Handler) Routes() []Route { return h.routes }

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, req *http.Request) { h.mux.ServeHTTP(w, req) }

// Close ends all streams. What else is asked goes on; the ledger stays open.
func (h *Handler) Close() { h.hub.close() }

// list answers one page of what waits, or of all there is.
func (h *Handler) list(w http.ResponseWriter, req *http.Request, who Holder) {
	filter, err := filterOf(req)
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	// The head first: what comes after it is in the stream, and perhaps here, too.
	head, _, err := h.ledger.Head(req.Context())
	if err != nil {
		h.failed(w, err)
		return
	}
	page, err := h.ledger.Escalations(req.Context(), filter)
	if err != nil {
		h.failed(w, err)
		return
	}
	_, waiting, err := h.ledger.Waiting(req.Context(), 0)
	if err != nil {
		h.failed(w, err)
		return
	}
	for _, p := range page.Pending {
		withoutToken(p)
	}
	if page.Pending == nil {
		page.Pending = []*ledger.Pending{}
	}
	answer(w, http.StatusOK, struct {
		Approvals []*ledger.Pending `json:"approvals"`      // newest first
		Next      int64             `json:"next,omitempty"` // before of the next page
		Waiting   int               `json:"waiting"`        // how many wait
		Head      int64             `json:"head"`           // Last-Event-ID for what comes after this
		Now       time.Time         `json:"now"`            // of the server
		You       you               `json:"you"`
	}{page.Pending, page.Next, waiting, head, time.Now().UTC(), youOf(who)})
}

type you struct {
	Name string `json:"name"`
	Role string `json:"role"`
}

func youOf(who Holder) you { return you{who.Name, who.Role.String()} }

// withoutToken takes the signed approval out: who reads must not be able to hand
// it to a gate.
func withoutToken(p *ledger.Pending) {
	if p.Decision != nil {
		d := *p.Decision
		d.Token = ""
		p.Decision = &d
	}
}

// filterOf reads a query. What it does not know it refuses: a filter that was
// misspelt would find more than was asked for.
func filterOf(req *http.Request) (ledger.Filter, error) {
	f := ledger.Filter{State: ledger.Waiting}
	for name, values := range req.URL.Query() {
		value := values[0]
		if len(values) > 1 {
			return f, fmt.Errorf("%s is given %d times", name, len(values))
		}
		switch name {
		case "state":
			if value == "all" {
				f.State = 0
			} else if err := f.State.UnmarshalText([]byte(value)); err != nil {
				return f, fmt.Errorf("state: expected all or one of %v, got %.64q", ledger.States(), value)
			}
		case "session":
			f.Session = value
		case "q":
			f.Text = value
		case "before", "limit":
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil || n < 1 {
				return f, fmt.Errorf("%s: expected a whole number from 1, got %.64q", name, value)
			}
			if name == "before" {
				f.Before = n
			} else {
				f.Limit = int(min(n, ledger.MaxPage+1))
			}
		default:
			return f, fmt.Errorf("there is no parameter %.64q; expected state, session, q, before or limit", name)
		}
		if !utf8.ValidString(value) {
			return f, fmt.Errorf("%s: expected UTF-8", name)
		}
	}
	return f, nil
}

// show answers one escalation; to an approver with the signed approval, for a gate
// that cannot ask this ledger.
func (h *Handler) show(w http.ResponseWriter, req *http.Request, who Holder) {
	p, err := h.ledger.Pending(req.Context(), req.PathValue("id"))
	if err != nil {
		h.failed(w, err)
		return
	}
	if who.Role < Approver {
		withoutToken(p)
	}
	answer(w, http.StatusOK, p)
}

// maxBody bounds the body of a request: a comment, each character of it escaped.
const maxBody = 8 * ledger.MaxComment

var (
	decisionSchema = must(wire.CompileSchema("decision", []byte(`{"type": "object", "additionalProperties": false,
  "required": ["decision"],
  "properties": {
    "decision": {"type": "string", "enum": ["approve", "reject"]},
    "scope": {"type": "string", "enum": ["once", "session"]},
    "comment": {"type": "string"},
    "lifetime_seconds": {"type": "integer", "minimum": 1, "maximum": 2592000},
    "digest": {"type": "string", "pattern": "^[0-9a-f]{64}$"}}}`)))
	withdrawSchema = must(wire.CompileSchema("withdrawal", []byte(`{"type": "object", "additionalProperties": false,
  "properties": {"reason": {"type": "string"}}}`)))
)

// decide records a decision of who asks.
func (h *Handler) decide(w http.ResponseWriter, req *http.Request, who Holder) {
	var body struct {
		Decision string  `json:"decision"`
		Scope    string  `json:"scope"`
		Comment  string  `json:"comment"`
		Lifetime float64 `json:"lifetime_seconds"` // the schema wants a whole number, which may be written 6e1
		Digest   string  `json:"digest"`           // of the call that was looked at; may be left out
	}
	if !read(w, req, decisionSchema, &body) {
		return
	}
	id := req.PathValue("id")
	d := ledger.Decision{Approve: body.Decision == "approve", Comment: body.Comment, Lifetime: time.Duration(body.Lifetime) * time.Second}
	d.Scope, _ = ledger.ParseScope(body.Scope)
	if !d.Approve && body.Scope != "" {
		refuse(w, http.StatusBadRequest, "scope is for an approval; a rejection is of this call alone")
		return
	}
	if body.Digest != "" {
		p, err := h.ledger.Pending(req.Context(), id)
		if err != nil {
			h.failed(w, err)
			return
		}
		if p.Digest.String() != body.Digest {
			refuse(w, http.StatusConflict, "the call is not the one with that digest: look at it again")
			return
		}
	}
	p, err := h.ledger.Decide(req.Context(), who.Reviewer(), id, d)
	if err != nil {
		h.failed(w, err)
		return
	}
	h.hub.nudge()
	answer(w, http.StatusOK, p)
}

// withdraw takes back what waits, or an approval.
func (h *Handler) withdraw(w http.ResponseWriter, req *http.Request, who Holder) {
	var body struct {
		Reason string `json:"reason"`
	}
	if !read(w, req, withdrawSchema, &body) {
		return
	}
	p, err := h.ledger.Withdraw(req.Context(), who.Reviewer(), req.PathValue("id"), body.Reason)
	if err != nil {
		h.failed(w, err)
		return
	}
	h.hub.nudge()
	answer(w, http.StatusOK, p)
}

// auditTime bounds an audit.
const auditTime = 10 * time.Minute

// audit goes through the whole ledger. It takes long, so there is one at a time.
func (h *Handler) audit(w http.ResponseWriter, req *http.Request, _ Holder) {
	var seen []ledger.Mark
	for name, values := range req.URL.Query() {
		if name != "seen" || len(values) > 100 {
			refuse(w, http.StatusBadRequest, "expected no parameter but seen, as SEQ:HASH, up to 100 times")
			return
		}
		for _, text := range values {
			m, err := ledger.ParseMark(text)
			if err != nil {
				refuse(w, http.StatusBadRequest, "seen: "+err.Error())
				return
			}
			seen = append(seen, m)
		}
	}
	select {
	case h.auditing <- struct{}{}:
		defer func() { <-h.auditing }()
	default:
		w.Header().Set("Retry-After", "10")
		refuse(w, http.StatusTooManyRequests, "the ledger is being audited already")
		return
	}
	ctx, cancel := context.WithTimeout(req.Context(), auditTime)
	defer cancel()
	a, err := h.ledger.Audit(ctx, seen, nil)
	if err != nil {
		h.failed(w, err)
		return
	}
	answer(w, http.StatusOK, struct {
		Sound      bool           `json:"sound"`
		Entries    int64          `json:"entries"`
		Head       string         `json:"head"` // to be kept, and given as seen later on
		Broken     *ledger.Fault  `json:"broken,omitempty"`
		Forged     []ledger.Fault `json:"forged,omitempty"`
		Unverified []ledger.Fault `json:"unverified,omitempty"`
	}{a.Sound(), a.Entries, a.Head.String(), a.Broken, a.Forged, a.Unverified})
}

// read reads a body of JSON. It answers the request itself if it is none.
func read(w http.ResponseWriter, req *http.Request, schema *wire.Schema, into any) bool {
	if kind, _, err := mime.ParseMediaType(req.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		refuse(w, http.StatusUnsupportedMediaType, "expected the header Content-Type: application/json")
		return false
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		refuse(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("expected a body of at most %d bytes", maxBody))
		return false
	case err != nil:
		refuse(w, http.StatusBadRequest, "the body could not be read")
		return false
	}
	_, err = schema.Decode(text)
	if err == nil {
		err = json.Unmarshal(text, into) // which has been looked at strictly
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return false
	}
	return true
}

// failed answers with what a ledger said.
func (h *Handler) failed(w http.ResponseWriter, err error) {
	var decided *ledger.DecidedError
	switch {
	case errors.As(err, &decided):
		p := problem{Message: decided.Error(), State: decided.State, Reviewer: decided.Reviewer, At: decided.At}
		answer(w, http.StatusConflict, map[string]problem{"error": p})
	case errors.Is(err, ledger.ErrNotFound):
		refuse(w, http.StatusNotFound, err.Error())
	case errors.Is(err, ledger.ErrScope), errors.Is(err, ledger.ErrInvalid), errors.Is(err, skill.ErrReviewer):
		refuse(w, http.StatusBadRequest, err.Error())
	case errors.Is(err, ledger.ErrKey):
		h.log("approvals: %v", err)
		refuse(w, http.StatusInternalServerError, "the server has no key to sign approvals with; its log says why")
	case errors.Is(err, context.Canceled):
		refuse(w, http.StatusServiceUnavailable, "the request was given up")
	default:
		h.log("approvals: %v", err)
		refuse(w, http.StatusServiceUnavailable, "the ledger cannot be asked now; the server's log says why")
	}
}

// A problem stands in place of an answer.
type problem struct {
	Message  string       `json:"message"`
	State    ledger.State `json:"state,omitzero"` // and who was first, if somebody was
	Reviewer string       `json:"reviewer,omitempty"`
	At       time.Time    `json:"at,omitzero"`
}

func refuse(w http.ResponseWriter, status int, message string) {
	answer(w, status, map[string]problem{"error": {Message: message}})
}

func answer(w http.ResponseWriter, status int, value any) {
	text, err := encode(value)
	if err != nil {
		status, text = http.StatusInternalServerError, []byte(`{"error":{"message":"the answer cannot be written"}}`)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(text)+1))
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // who does not read an answer has none
}

// encode is encoding/json without its escapes for HTML: arguments are shown as
// they are.
func encode(value any) ([]byte, error) {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	err := e.Encode(value)
	return bytes.TrimSpace(buf.Bytes()), err
}
