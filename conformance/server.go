package conformance

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// The engines of this package, as reports name them.
const (
	wasmEngine = "wasm"
	urlEngine  = "url"
)

// Errors of a [Server], which a *[ServerError] matches.
var (
	ErrNoAnswer   = errors.New("the server gave no answer")           // it cannot be reached, or took too long
	ErrBadRequest = errors.New("the server refuses the document")     // status 400 or 422
	ErrUndefined  = errors.New("the server has no such decision")     // no result: the rule is undefined there
	ErrAnswer     = errors.New("the server's answer is not a result") // another status, no JSON, too long
)

// ServerOptions say how a [Server] is asked. Its zero value is fit for use.
type ServerOptions struct {
	Token   string        // sent as a bearer token
	CA      []byte        // certificates in PEM form that are trusted in place of the system's
	Timeout time.Duration // of one question, answer included; 0 is ten seconds
	Workers int           // questions at the same time; 0 is four
}

const (
	defaultTimeout = 10 * time.Second
	defaultWorkers = 4

	maxAnswer    = 32 << 20 // bytes; a document has at most half of it
	maxComplaint = 300      // bytes of an error's body that are shown
	minSecret    = 6        // bytes; what is shorter is not looked for in what the server says
)

// A Server decides by OPA's Data API: a stock OPA with the policies, or whatever
// speaks as one. It implements [fixtures.Judge] and is safe for use by several
// goroutines. Documents are sent byte for byte.
type Server struct {
	shown   string // the address without credentials
	base    string
	user    *url.Userinfo
	token   string
	secrets []string
	client  *http.Client
	workers int
	timeout time.Duration
}

// A ServerError says why a server's answer is none. It matches one of
// [ErrNoAnswer], [ErrBadRequest], [ErrUndefined] and [ErrAnswer], and never
// contains credentials.
type ServerError struct {
	URL     string // without credentials
	Status  int    // of HTTP; 0 if it did not come to that
	Problem string
	kind    error
}

// Error implements error.
func (e *ServerError) Error() string { return e.URL + ": " + e.Problem }

// Unwrap returns the error that says of which sort it is.
func (e *ServerError) Unwrap() error { return e.kind }

// NewServer returns the server at an address such as http://localhost:8181, to
// which a path may be added that stands before /v1/data. Errors do not repeat
// the address, which may contain a password.
func NewServer(address string, opts *ServerOptions) (*Server, error) {
	if opts == nil {
		opts = &ServerOptions{}
	}
	const form = "expected http://HOST:PORT or https://HOST:PORT, and a path if there is one before /v1/data"
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Opaque != "" || u.Host == "" || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New(form)
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, errors.New(form + "; got a query or a fragment behind it")
	case opts.Token != "" && u.User != nil:
		return nil, errors.New("the address has a user, and there is a token: give one of them")
	case strings.ContainsFunc(opts.Token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return nil, errors.New("the token has a character that no header can carry: expected printable ASCII without blanks")
	}
	s := &Server{user: u.User, token: opts.Token, workers: opts.Workers, timeout: opts.Timeout}
	if s.workers < 1 {
		s.workers = defaultWorkers
	}
	if s.timeout <= 0 {
		s.timeout = defaultTimeout
	}
	u.User = nil
	s.base = strings.TrimRight(u.String(), "/")
	s.shown = s.base
	s.hide(s.token)
	if s.user != nil {
		password, _ := s.user.Password()
		s.hide(password)
		s.hide(s.user.Username())
		s.hide(base64.StdEncoding.EncodeToString([]byte(s.user.Username() + ":" + password)))
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if opts.CA != nil {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(opts.CA) {
			return nil, errors.New("there is no certificate among the authorities to trust: expected PEM")
		}
	}
	s.client = &http.Client{
		Timeout:       s.timeout,
		CheckRedirect: checkRedirect,
		Transport: &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			DialContext:         (&net.Dialer{Timeout: s.timeout}).DialContext,
			TLSClientConfig:     config,
			TLSHandshakeTimeout: s.timeout,
			MaxIdleConnsPerHost: s.workers,
			IdleConnTimeout:     time.Minute,
			ForceAttemptHTTP2:   true,
		},
	}
	return s, nil
}

func (s *Server) hide(secret string) {
	if len(secret) >= minSecret {
		s.secrets = append(s.secrets, secret)
	}
}

// redacted returns a text without the credentials that a server may repeat.
func (s *Server) redacted(text string) string {
	for _, secret := range s.secrets {
		text = strings.ReplaceAll(text, secret, "[hidden]")
	}
	return text
}

// checkRedirect follows a server that wants the same question elsewhere on the
// same host. Another host would be told what it has no right to know.
func checkRedirect(next *http.Request, via []*http.Request) error {
	first := via[0]
	switch {
	case next.URL.Scheme != first.URL.Scheme || next.URL.Host != first.URL.Host:
		return fmt.Errorf("it redirects to another host, %s, which is not followed", next.URL.Host)
	case next.Method != first.Method:
		return errors.New("it redirects without the document, which is not followed")
	case len(via) > 3:
		return errors.New("it redirects again and again")
	}
	return nil
}

// Engine returns s as a run asks it: url= and the address without credentials.
func (s *Server) Engine() Engine {
	return Engine{Name: urlEngine + "=" + s.shown, Judge: s, Workers: s.workers, Outside: true}
}

// Call implements [fixtures.Judge].
func (s *Server) Call(ctx context.Context, doc []byte) ([]byte, error) {
	return s.ask(ctx, "/v1/data/gate/call/decision", doc)
}

// Skill implements [fixtures.Judge].
func (s *Server) Skill(ctx context.Context, doc []byte) ([]byte, error) {
	return s.ask(ctx, "/v1/data/gate/skill/decision", doc)
}

// ask asks for one decision.
func (s *Server) ask(ctx context.Context, path string, doc []byte) ([]byte, error) {
	fail := func(kind error, status int, format string, args ...any) ([]byte, error) {
		return nil, &ServerError{s.shown + path, status, s.redacted(fmt.Sprintf(format, args...)), kind}
	}
	if !json.Valid(doc) { // it could become another request
		return fail(ErrAnswer, 0, "the document is not JSON, so it was not sent")
	}
	body := make([]byte, 0, len(doc)+len(`{"input":}`))
	body = append(append(append(body, `{"input":`...), doc...), '}')
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.base+path, bytes.NewReader(body))
	if err != nil {
		return fail(ErrNoAnswer, 0, "%v", reason(err))
	}
	req.Header.Set("Content-Type", "application/json")
	switch {
	case s.token != "":
		req.Header.Set("Authorization", "Bearer "+s.token)
	case s.user != nil:
		password, _ := s.user.Password()
		req.SetBasicAuth(s.user.Username(), password)
	}
	res, err := s.client.Do(req)
	if err != nil {
		return fail(ErrNoAnswer, 0, "%s", s.silence(err))
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case err != nil:
		return fail(ErrNoAnswer, res.StatusCode, "the answer broke off: %s", s.silence(err))
	case len(text) > maxAnswer:
		return fail(ErrAnswer, res.StatusCode, "the answer has more than %d bytes", maxAnswer)
	case res.StatusCode == http.StatusBadRequest || res.StatusCode == http.StatusUnprocessableEntity:
		return fail(ErrBadRequest, res.StatusCode, "%s%s", res.Status, complaint(text))
	case res.StatusCode != http.StatusOK:
		return fail(ErrAnswer, res.StatusCode, "%s%s, expected 200 OK", res.Status, complaint(text))
	case !jsontext.Value(text).IsValid(): // strictly: of two results a person would trust the wrong one
		return fail(ErrAnswer, res.StatusCode, "the answer is not JSON, or has a member twice%s", complaint(text))
	}
	var answer map[string]json.RawMessage
	if err := json.Unmarshal(text, &answer); err != nil {
		return fail(ErrAnswer, res.StatusCode, "the answer is not an object%s", complaint(text))
	}
	result, ok := answer["result"]
	if !ok {
		return fail(ErrUndefined, res.StatusCode, "the answer has no result: the decision is undefined there; does it have the policies?")
	}
	return []byte(s.redacted(string(result))), nil
}

// silence words why there is no answer, without the address that the HTTP
// client puts before it.
func (s *Server) silence(err error) string {
	var slow interface{ Timeout() bool }
	if errors.As(err, &slow) && slow.Timeout() {
		return fmt.Sprintf("no answer within %v", s.timeout)
	}
	return reason(err).Error()
}

// reason returns what is wrong, without the address.
func reason(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// complaint is what the server said beside an error: OPA's message if it has one.
func complaint(text []byte) string {
	var told struct{ Message string }
	said := strings.TrimSpace(string(text[:min(len(text), maxComplaint)]))
	if json.Unmarshal(text, &told) == nil && told.Message != "" {
		said = told.Message[:min(len(told.Message), maxComplaint)]
	}
	if said == "" {
		return ""
	}
	return ": " + strings.ToValidUTF8(said, "\uFFFD")
}
