package server

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const token = "t0ken-of-a-client"

// authz lets a token ask, and everybody look at OPA's health.
const authz = `package system.authz

default allow := false

allow if input.identity == "` + token + `"

allow if input.path == ["health"]
`

// withAuthz is the bundle of the embedded policies and of who may ask.
func withAuthz(t *testing.T, revision string) []byte {
	return raw(t, revision, func(f map[string]string) {
		replace(t, f, ".manifest", `["gate"]`, `["gate", "system/authz"]`)
		f["system/authz/authz.rego"] = authz
	})
}

func (r *running) askAs(t *testing.T, client *http.Client, bearer, method, path, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(method, r.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// asks are one request of each sort.
var asks = []struct{ method, path, body string }{
	{http.MethodPost, "/v1/gate/call", clean},
	{http.MethodPost, "/v1/gate/call", "[" + clean + "]"},
	{http.MethodPost, "/v1/gate/skill", aSkill},
	{http.MethodGet, "/v1/gate/health", ""},
	{http.MethodPost, "/v1/data/gate/call/decision", `{"input":` + clean + `}`},
	{http.MethodPost, "/v0/data/gate/call/decision", clean},
	{http.MethodPost, "/v1/query", `{"query":"data.gate.call.decision","input":` + clean + `}`},
	{http.MethodPost, "/", clean},
	{http.MethodGet, "/v1/policies", ""},
	{http.MethodPut, "/v1/policies/mine", "package mine\n"},
	{http.MethodGet, "/metrics", ""},
}

func TestTokens(t *testing.T) {
	h, c := newHost(t), newCollector(t)
	o := from(h, c.set()...)
	o.Authentication, o.Authorization = "token", "basic"
	s := start(t, o)
	ask := func(bearer string) map[string]int {
		got := map[string]int{}
		for _, a := range asks {
			status, body := s.askAs(t, http.DefaultClient, bearer, a.method, a.path, a.body)
			got[a.path] = status
			if status != 200 && (strings.Contains(body, "outcome") || strings.Contains(body, "revision")) {
				t.Errorf("%s %s: status %d with an answer: %s", a.method, a.path, status, body)
			}
		}
		return got
	}
	for _, bearer := range []string{"", token} { // nobody says yet who may ask
		for path, status := range ask(bearer) {
			if status < 400 {
				t.Errorf("before there are policies: %s has status %d", path, status)
			}
		}
	}
	h.put(withAuthz(t, "r1"))
	if err := s.fetch(); err != nil {
		t.Fatal(err)
	}
	for _, bearer := range []string{"", "another", token + "x", strings.ToUpper(token)} {
		for path, status := range ask(bearer) {
			if status != http.StatusUnauthorized {
				t.Errorf("with token %q %s has status %d", bearer, path, status)
			}
		}
	}
	for path, status := range ask(token) {
		if path == "/" { // OPA's default decision, which is undefined here
			continue
		}
		if status != 200 {
			t.Errorf("with the token %s has status %d", path, status)
		}
	}
	if status, body := s.askAs(t, http.DefaultClient, "", http.MethodGet, "/health", ""); status != 200 {
		t.Errorf("/health: %d: %s", status, body)
	}
	// What is refused leaves who may ask as it was.
	h.put(raw(t, "bad", func(f map[string]string) {
		replace(t, f, ".manifest", `["gate"]`, `["gate", "system/authz"]`)
		f["system/authz/authz.rego"] = "package system.authz\n\nallow := true\n"
		f["gate/call/call.rego"] = "package gate.call\n\ndecision := true\n"
	}))
	if err := s.fetch(); err == nil {
		t.Error("a bundle whose answers are no decisions was activated")
	}
	for path, status := range ask("") {
		if status != http.StatusUnauthorized {
			t.Errorf("after a refused bundle, without a token: %s has status %d", path, status)
		}
	}
	eventually(t, "events", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.logs) > 0
	})
	c.mu.Lock()
	logs := strings.Join(c.logs, "") + strings.Join(c.statuses, "")
	c.mu.Unlock()
	for where, text := range map[string]string{"log": s.log.String(), "decision log or status": logs} {
		if strings.Contains(text, token) {
			t.Errorf("the %s has the token", where)
		}
	}
}

// certificates are files of an authority, and of what it signs.
type certificates struct {
	dir  string
	pool *x509.CertPool
	key  *ecdsa.PrivateKey
	root *x509.Certificate
}

func newCertificates(t *testing.T) *certificates {
	t.Helper()
	c := &certificates{dir: t.TempDir(), pool: x509.NewCertPool()}
	c.issue(t, "ca", true)
	c.pool.AddCert(c.root)
	return c
}

func (c *certificates) file(name string) string { return filepath.Join(c.dir, name) }

// issue writes NAME.crt and NAME.key.
func (c *certificates) issue(t *testing.T, name string, ca bool) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, IsCA: ca, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if ca {
		c.key, c.root = key, cert
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, c.root, &key.PublicKey, c.key)
	if err != nil {
		t.Fatal(err)
	}
	if ca {
		if c.root, err = x509.ParseCertificate(der); err != nil {
			t.Fatal(err)
		}
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	save(t, c.file(name+".crt"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	save(t, c.file(name+".key"), string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private})))
	pair, err := tls.LoadX509KeyPair(c.file(name+".crt"), c.file(name+".key"))
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func TestTLS(t *testing.T) {
	certs, strangers := newCertificates(t), newCertificates(t)
	certs.issue(t, "server", false)
	client, stranger := certs.issue(t, "client", false), strangers.issue(t, "client", false)
	for _, tt := range []struct {
		name           string
		authentication string
		certificate    *tls.Certificate
		fails          bool
	}{
		{name: "no certificate is asked for"},
		{name: "client certificates", authentication: "tls", certificate: &client},
		{name: "no client certificate", authentication: "tls", fails: true},
		{name: "a stranger's client certificate", authentication: "tls", certificate: &stranger, fails: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := local()
			o.CertFile, o.KeyFile = certs.file("server.crt"), certs.file("server.key")
			if o.Authentication = tt.authentication; o.Authentication != "" {
				o.CAFile = certs.file("ca.crt")
			}
			s := start(t, o)
			config := &tls.Config{RootCAs: certs.pool}
			if tt.certificate != nil { // whatever the server says that it takes
				config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return tt.certificate, nil }
			}
			transport := &http.Transport{TLSClientConfig: config}
			defer transport.CloseIdleConnections()
			url := "https://" + strings.TrimPrefix(s.url, "http://")
			resp, err := (&http.Client{Transport: transport}).Post(url+"/v1/gate/call", "application/json", strings.NewReader(tainted))
			if tt.fails {
				if err == nil {
					_ = resp.Body.Close()
					t.Fatalf("status %d without a certificate that holds", resp.StatusCode)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			body, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != 200 || !strings.Contains(string(body), `"escalate"`) {
				t.Errorf("%v, %s, status %d: %s", err, resp.Proto, resp.StatusCode, body)
			}
			if status, _, body := s.ask(t, http.MethodPost, "/v1/gate/call", clean); status == 200 || strings.Contains(body, "outcome") {
				t.Errorf("without TLS: status %d: %s", status, body)
			}
		})
	}
}

// What cannot be as it is asked for is said before anything listens.
func TestOptionsThatDoNotGo(t *testing.T) {
	certs := newCertificates(t)
	certs.issue(t, "server", false)
	addr := []string{"127.0.0.1:0"}
	empty := certs.file("empty")
	save(t, empty, "")
	for name, tt := range map[string]struct {
		says string
		opts Options
	}{
		"no address":                      {"address", Options{}},
		"a certificate without its key":   {"missing", Options{Addrs: addr, CertFile: certs.file("server.crt")}},
		"a key of another":                {"private key does not match", Options{Addrs: addr, CertFile: certs.file("server.crt"), KeyFile: certs.file("ca.key")}},
		"no such certificate":             {"no such file", Options{Addrs: addr, CertFile: certs.file("x"), KeyFile: certs.file("server.key")}},
		"authorities without any":         {"found none", Options{Addrs: addr, CAFile: empty}},
		"client certificates without TLS": {"needs a certificate", Options{Addrs: addr, Authentication: "tls", CAFile: certs.file("ca.crt")}},
		"tokens that nobody looks at":     {"authorization basic", Options{Addrs: addr, Authentication: "token"}},
		"another authentication":          {"authentication off", Options{Addrs: addr, Authentication: "magic"}},
		"another authorization":           {"authorization off", Options{Addrs: addr, Authorization: "magic"}},
		"no such configuration":           {"no such file", Options{Addrs: addr, ConfigFile: certs.file("x")}},
		"a configuration that is none":    {"config error", Options{Addrs: addr, ConfigFile: certs.file("server.key")}},
		"a service that is missing":       {"missing", Options{Addrs: addr, ConfigSet: []string{"bundles.gate.service=missing"}}},
		"storage on disk":                 {"storage.disk", Options{Addrs: addr, ConfigSet: []string{"storage.disk.directory=" + t.TempDir()}}},
		"nothing that decides":            {"no local policies", Options{Addrs: addr}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := New(context.Background(), &tt.opts); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error %v, want one that says %q", err, tt.says)
			}
		})
	}
	if entries, err := os.ReadDir(certs.dir); err != nil || len(entries) != 5 {
		t.Errorf("%v: something was written: %v", err, entries)
	}
}
