package conformance

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A decider is a right server: it answers as the reference does to the document
// as it is, and as policies on a stock OPA do to a broken one.
func decider(t testing.TB) http.Handler {
	t.Helper()
	w, err := NewWasm(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var one sync.Mutex
	return http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		var in struct{ Input json.RawMessage }
		if err := json.NewDecoder(req.Body).Decode(&in); err != nil {
			http.Error(rw, err.Error(), http.StatusBadRequest)
			return
		}
		decide := map[string]func(context.Context, []byte) ([]byte, error){
			"/v1/data/gate/call/decision": w.Call, "/v1/data/gate/skill/decision": w.Skill,
		}[req.URL.Path]
		if decide == nil || req.Method != http.MethodPost {
			_, _ = io.WriteString(rw, "{}")
			return
		}
		one.Lock()
		got, err := decide(req.Context(), in.Input)
		one.Unlock()
		if err != nil {
			http.Error(rw, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = fmt.Fprintf(rw, `{"decision_id": "1", "result": %s}`, got)
	})
}

func serverAt(t testing.TB, address string, opts *ServerOptions) *Server {
	t.Helper()
	s, err := NewServer(address, opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestServerHoldsTheSuite(t *testing.T) {
	var connections atomic.Int32
	h := httptest.NewUnstartedServer(http.StripPrefix("/some/prefix", decider(t)))
	h.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	h.Start()
	defer h.Close()
	s := serverAt(t, h.URL+"/some/prefix/", nil)
	holdsWhole(t, s.Engine())
	if n := connections.Load(); n > defaultWorkers*2 {
		t.Errorf("%d connections for %d workers: they are not kept", n, defaultWorkers)
	}
}

// The document goes out byte for byte, and the answer comes back so.
func TestServerKeepsBytes(t *testing.T) {
	const doc = ` {"a" : 9007199254740993, "b": 1E+400, "c": 1.0, "d": "\u0041 é"} `
	var got []byte
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		got, _ = io.ReadAll(req.Body)
		_, _ = io.WriteString(w, `{"result": {"n": 9007199254740993, "x": 1E+400}}`)
	}))
	defer h.Close()
	answer, err := serverAt(t, h.URL, nil).Call(t.Context(), []byte(doc))
	if err != nil || string(answer) != `{"n": 9007199254740993, "x": 1E+400}` {
		t.Errorf("got %s, %v", answer, err)
	}
	if string(got) != `{"input":`+doc+`}` {
		t.Errorf("sent %s", got)
	}
	got = nil
	if _, err := serverAt(t, h.URL, nil).Call(t.Context(), []byte(`{}},"x":{`)); err == nil || got != nil {
		t.Errorf("a text that is another request was sent: %s (%v)", got, err)
	}
}

// Whatever is not exactly a result is an error of its kind, in which the address
// stands without credentials; and none of these servers is ever OK.
func TestWrongServers(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("another host was asked")
	}))
	t.Cleanup(other.Close) // behind the tests below, which are parallel
	say := func(status int, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, text)
		}
	}
	redirect := func(status int, to string) http.HandlerFunc {
		return func(w http.ResponseWriter, req *http.Request) { http.Redirect(w, req, to, status) }
	}
	tests := []struct {
		name    string
		handler http.HandlerFunc
		want    error // nil: an answer, but a wrong one
		words   string
	}{
		{"another answer", say(200, `{"result": {"outcome": "allow"}}`), nil, ""},
		{"true", say(200, `{"result": true}`), nil, ""},
		{"null", say(200, `{"result": null}`), nil, ""},
		{"undefined", say(200, `{}`), ErrUndefined, "the decision is undefined there"},
		{"undefined, with a decision's number", say(200, `{"decision_id": "1", "warning": {}}`), ErrUndefined, "the decision is undefined there"},
		{"500 in OPA's words", say(500, `{"code": "internal_error", "message": "it broke"}`), ErrAnswer, "500 Internal Server Error: it broke, expected 200 OK"},
		{"500 with a result", say(500, `{"result": {}}`), ErrAnswer, "500"},
		{"401", say(401, `{"code": "unauthorized", "message": "request rejected by administrative policy"}`), ErrAnswer, "401 Unauthorized: request rejected"},
		{"404", say(404, `404 page not found`), ErrAnswer, "404 Not Found: 404 page not found"},
		{"204", say(204, ``), ErrAnswer, "204"},
		{"400", say(400, `{"message": "bad"}`), ErrBadRequest, "400 Bad Request: bad"},
		{"garbage", say(200, `<html>`), ErrAnswer, "not JSON"},
		{"nothing", say(200, ``), ErrAnswer, "not JSON"},
		{"half", say(200, `{"result": {"outcome": "al`), ErrAnswer, "not JSON"},
		{"two values", say(200, `{"result": {}} {}`), ErrAnswer, "not JSON"},
		{"two results", say(200, `{"result": {}, "result": {}}`), ErrAnswer, "member twice"},
		{"an array", say(200, `[{"result": {}}]`), ErrAnswer, "not an object"},
		{"endless", func(w http.ResponseWriter, req *http.Request) {
			_, _ = io.Copy(io.Discard, req.Body)
			block := []byte(strings.Repeat(" ", 1<<20))
			for req.Context().Err() == nil {
				if _, err := w.Write(block); err != nil {
					return
				}
			}
		}, ErrAnswer, "more than 33554432 bytes"},
		{"slow", func(_ http.ResponseWriter, req *http.Request) {
			_, _ = io.Copy(io.Discard, req.Body) // or nobody tells that the client has left
			<-req.Context().Done()
		}, ErrNoAnswer, "no answer within 300ms"},
		{"slow in the middle", func(w http.ResponseWriter, req *http.Request) {
			_, _ = io.Copy(io.Discard, req.Body)
			_, _ = io.WriteString(w, `{"result": `)
			_ = http.NewResponseController(w).Flush()
			<-req.Context().Done()
		}, ErrNoAnswer, "no answer within 300ms"},
		{"breaks off", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, `{"result": {}}`)
		}, ErrNoAnswer, "broke off"},
		{"hangs up", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, ErrNoAnswer, "EOF"},
		{"307 to another host", redirect(307, other.URL+"/v1/data?token=secret-of-theirs"), ErrNoAnswer, "redirects to another host, " + strings.TrimPrefix(other.URL, "http://")},
		{"302 to another host", redirect(302, other.URL), ErrNoAnswer, "redirects to another host"},
		{"302 on this host", redirect(302, "/elsewhere"), ErrNoAnswer, "redirects without the document"},
		{"307 round and round", redirect(307, "/elsewhere"), ErrNoAnswer, "redirects again and again"},
		{"says what it was sent", func(w http.ResponseWriter, req *http.Request) {
			user, password, _ := req.BasicAuth()
			w.WriteHeader(500)
			_, _ = fmt.Fprint(w, user, password, req.Header)
		}, ErrAnswer, "[hidden]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := httptest.NewServer(tt.handler)
			defer h.Close()
			for _, credentials := range []string{"", "some-user:secret-word@"} {
				opts := &ServerOptions{Timeout: 300 * time.Millisecond, Token: "secret-token"}
				if tt.name == "endless" {
					opts.Timeout = 20 * time.Second
				}
				if credentials != "" {
					opts.Token = ""
				}
				s := serverAt(t, strings.Replace(h.URL, "://", "://"+credentials, 1), opts)
				answer, err := s.Call(t.Context(), []byte(`{}`))
				var told *ServerError
				switch {
				case tt.want == nil && err != nil:
					t.Fatal(err)
				case tt.want != nil && (!errors.Is(err, tt.want) || !errors.As(err, &told) || answer != nil):
					t.Fatalf("got %s, %v, want %v", answer, err, tt.want)
				case tt.want != nil && (!strings.Contains(told.Problem, tt.words) || !strings.HasPrefix(err.Error(), h.URL+"/v1/data/gate/call/decision: ")):
					t.Errorf("got %q, want %q in it", err, tt.words)
				}
				if err != nil && strings.Contains(err.Error(), "secret") {
					t.Errorf("it tells: %v", err)
				}
				if tt.name == "endless" {
					return // once is enough
				}
				r := Run(t.Context(), suiteOf(t, "a.json", veto("good"), "i.json", invalidFile), nil, s.Engine())
				e := r.Engines[0]
				if want := 3; r.OK || tt.want != ErrBadRequest && e.Failed != want || tt.want == ErrBadRequest && e.Failed != 1 {
					t.Errorf("OK %v, %d failed", r.OK, e.Failed)
				}
				if text := textOf(t, r, nil); strings.Contains(text, "secret") {
					t.Errorf("it tells:\n%s", text)
				}
			}
		})
	}
}

// A server that is not there is asked some questions, not all of them.
func TestServerThatIsNotThere(t *testing.T) {
	h := httptest.NewServer(http.NotFoundHandler())
	h.Close()
	r := Run(t.Context(), whole(t), nil, serverAt(t, h.URL, nil).Engine())
	e := r.Engines[0]
	if r.OK || e.Total > maxSilence+defaultWorkers || !strings.Contains(e.Stopped, "5 questions in a row had no answer, the last one: "+h.URL) || !strings.Contains(e.Stopped, "refused") {
		t.Errorf("%d were judged, stopped: %s", e.Total, e.Stopped)
	}
}

// A redirect on the same host that keeps the document is followed.
func TestServerRedirect(t *testing.T) {
	var authorization string
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !strings.HasPrefix(req.URL.Path, "/moved") {
			http.Redirect(w, req, "/moved"+req.URL.Path, http.StatusPermanentRedirect)
			return
		}
		authorization = req.Header.Get("Authorization")
		body, _ := io.ReadAll(req.Body)
		_, _ = fmt.Fprintf(w, `{"result": %s}`, body)
	}))
	defer h.Close()
	got, err := serverAt(t, h.URL, &ServerOptions{Token: "abcdefg"}).Skill(t.Context(), []byte(`7`))
	if err != nil || string(got) != `{"input":7}` || authorization != "Bearer abcdefg" {
		t.Errorf("got %s, %v, %q", got, err, authorization)
	}
}

func TestServerCredentials(t *testing.T) {
	var authorization string
	h := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		authorization = req.Header.Get("Authorization")
		_, _ = io.WriteString(w, `{"result": {}}`)
	}))
	h.Config.ErrorLog = log.New(io.Discard, "", 0)
	h.StartTLS()
	defer h.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw})
	if _, err := serverAt(t, h.URL, &ServerOptions{CA: ca, Token: "t"}).Call(t.Context(), []byte(`{}`)); err != nil || authorization != "Bearer t" {
		t.Errorf("got %v, %q", err, authorization)
	}
	s := serverAt(t, strings.Replace(h.URL, "://", "://user:p%40ss@", 1), &ServerOptions{CA: ca})
	if _, err := s.Call(t.Context(), []byte(`{}`)); err != nil || authorization != "Basic dXNlcjpwQHNz" {
		t.Errorf("got %v, %q", err, authorization)
	}
	if name := s.Engine().Name; name != "url="+h.URL {
		t.Errorf("got %q", name)
	}
	authorization = ""
	if _, err := serverAt(t, h.URL, &ServerOptions{Token: "t"}).Call(t.Context(), []byte(`{}`)); !errors.Is(err, ErrNoAnswer) ||
		!strings.Contains(err.Error(), "certificate") || authorization != "" {
		t.Errorf("an authority that is not trusted: %v", err)
	}
}

func TestNewServerRefuses(t *testing.T) {
	tests := []struct {
		name, address string
		opts          *ServerOptions
		words         string
	}{
		{"nothing", "", nil, "expected http://HOST:PORT"},
		{"no scheme", "localhost:8181", nil, "expected http://HOST:PORT"},
		{"another scheme", "ftp://user:secret@h", nil, "expected http://HOST:PORT"},
		{"no host", "http:///v1", nil, "expected http://HOST:PORT"},
		{"no host but a port", "http://:1", nil, "expected http://HOST:PORT"},
		{"a port that is none", "http://user:secret@h:x", nil, "expected http://HOST:PORT"},
		{"broken escape", "http://user:secret%zz@h", nil, "expected http://HOST:PORT"},
		{"a query", "http://h/?token=secret", nil, "got a query or a fragment"},
		{"a fragment", "http://h/#secret", nil, "got a query or a fragment"},
		{"user and token", "http://user:secret@h", &ServerOptions{Token: "t"}, "give one of them"},
		{"a token of two lines", "http://h", &ServerOptions{Token: "secret\nsecret"}, "a character that no header can carry"},
		{"no certificate", "http://h", &ServerOptions{CA: []byte("secret")}, "there is no certificate"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := NewServer(tt.address, tt.opts)
			if err == nil || !strings.Contains(err.Error(), tt.words) || strings.Contains(err.Error(), "secret") {
				t.Errorf("got %v", err)
			}
		})
	}
}
