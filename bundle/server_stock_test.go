package bundle

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opa-gate/opa-gate/internal/race"
	"github.com/opa-gate/opa-gate/internal/stockopa"
)

// inTime is how soon an edit has to reach an OPA here, the fastest of several. It
// takes a fraction of a second where nothing else is done; tests share their
// machine.
const inTime = 5 * time.Second

// configFor is the configuration of an OPA that takes the bundle gate of a server.
func configFor(url, polling, more string) string {
	return fmt.Sprintf(`
services:
  - name: gate
    url: %s
bundles:
  gate:
    service: gate
    polling: {%s}
    %s
status: {console: true}
`, url, polling, more)
}

const waits30 = "long_polling_timeout_seconds: 30"

// reaches waits until an OPA says of a path what it should, and returns how long
// that took.
func reaches(t *testing.T, opa *stockopa.Server, path string, input, want any) time.Duration {
	t.Helper()
	began := time.Now()
	var got any
	for time.Since(began) < 2*time.Minute {
		var err error
		if got, err = opa.Data(t.Context(), path, input); err != nil {
			t.Fatal(err)
		}
		if got == want {
			return time.Since(began)
		}
		time.Sleep(2 * time.Millisecond)
	}
	t.Fatalf("data.%s is %v, want %v", path, got, want)
	return 0
}

// TestStockOPAGetsEdits shows how soon an edit of a file changes what an OPA decides.
func TestStockOPAGetsEdits(t *testing.T) {
	race.SkipSlow(t)
	dir := policyDir(t)
	r := serve(t, ServerOptions{Bundles: gateOf(dir)})
	opa := stockopa.Start(t, configFor(r.url, waits30, ""))
	call := map[string]any{"tool": map[string]any{"name": "pay_invoice", "origin": "local-sandbox"}, "taint": "clean"}
	reaches(t, opa, "gate/call/decision/outcome", call, "allow")

	original, err := os.ReadFile(filepath.Join(dir, "gate/call/call.rego"))
	if err != nil {
		t.Fatal(err)
	}
	payments := string(original) + "\nasks_for_person if startswith(input.tool.name, \"pay_\")\n"
	slowest, fastest := time.Duration(0), time.Hour
	edit := func(what, name, text, path string, want any) {
		t.Helper()
		eventually(t, "OPA waits for something new", func() bool { return len(r.slots) == 1 })
		write(t, dir, name, text)
		took := reaches(t, opa, path, call, want)
		t.Logf("%s: %v", what, took.Round(time.Millisecond))
		slowest, fastest = max(slowest, took), min(fastest, took)
	}
	for n := range 3 {
		edit("policy", "gate/call/call.rego", payments, "gate/call/decision/outcome", "escalate")
		edit("policy, back", "gate/call/call.rego", string(original), "gate/call/decision/outcome", "allow")
		edit("data", "gate/limits/data.json", limits(n+2), "gate/limits/n", float64(n+2))
	}
	t.Logf("fastest %v, slowest %v", fastest.Round(time.Millisecond), slowest.Round(time.Millisecond))
	if fastest > inTime && !race.Enabled {
		t.Errorf("no edit took less than %v, want %v at most", fastest, inTime)
	}
	if n := strings.Count(r.access.String(), `"kind":"delta"`); n != 3 {
		t.Errorf("%d deltas were sent, want one for each edit of data\n%s", n, r.access)
	}
	if n := strings.Count(opa.Log(), `"type":"delta"`); n == 0 {
		t.Error("OPA's status tells of no delta")
	}

	// What is refused here never gets there.
	eventually(t, "OPA waits for something new", func() bool { return len(r.slots) == 1 })
	write(t, dir, "gate/call/call.rego", payments+"\nx := ]\n")
	eventually(t, "the edit is refused", func() bool { return r.one().Error != "" })
	write(t, dir, "gate/limits/data.json", limits(5000))
	write(t, dir, "gate/call/call.rego", payments)
	eventually(t, "the edit is refused", func() bool { return strings.Contains(r.one().Error, "limits_test.rego:3") })
	reaches(t, opa, "gate/call/decision/outcome", call, "allow")
	reaches(t, opa, "gate/limits/n", call, 4.0)
	eventually(t, "OPA waits for something new", func() bool { return len(r.slots) == 1 })
	write(t, dir, "gate/limits/data.json", limits(7))
	reaches(t, opa, "gate/call/decision/outcome", call, "escalate")
	reaches(t, opa, "gate/limits/n", call, 7.0)
}

// TestStockOPAAsksOnceAWait counts what an OPA that has everything asks for.
func TestStockOPAAsksOnceAWait(t *testing.T) {
	r := serve(t, ServerOptions{Bundles: gateOf(builtFile(t, 2))})
	opa := stockopa.Start(t, configFor(r.url, "long_polling_timeout_seconds: 1", ""))
	reaches(t, opa, "gate/allow", nil, true)
	eventually(t, "OPA waits for something new", func() bool { return len(r.slots) == 1 })
	count := func() int { return strings.Count(r.access.String(), `"msg":"request"`) }
	began, before := time.Now(), count()
	const periods = 4
	eventually(t, "some waits are over", func() bool { return count() >= before+periods })
	if took := time.Since(began); took < (periods-1)*time.Second {
		t.Errorf("%d requests in %v, want no more than one a second", periods, took)
	}
	if n := strings.Count(r.access.String(), `"code":200`); n != 1 {
		t.Errorf("the bundle was sent %d times, want once", n)
	}
}

// TestStockOPAThatTakesNoDelta has an OPA that keeps bundles on its disk: it cannot
// use a delta, says so nowhere, and must get the data all the same.
func TestStockOPAThatTakesNoDelta(t *testing.T) {
	file := builtFile(t, 1)
	r := serve(t, ServerOptions{Bundles: gateOf(file)})
	opa := stockopa.Start(t, configFor(r.url, waits30, "persist: true"))
	for n := 1; n < 4; n++ {
		fill(t, file, n)
		reaches(t, opa, "gate/n", nil, float64(n))
	}
	if !strings.Contains(opa.Log(), "persisting delta bundle to disk is not supported") {
		t.Error("OPA took the delta: this test shows nothing")
	}
}

// TestStockOPAListsTags has an OPA that sends the tags of what it had before, too.
func TestStockOPAListsTags(t *testing.T) {
	file := builtFile(t, 1)
	r := serve(t, ServerOptions{Bundles: gateOf(file)})
	opa := stockopa.Start(t, configFor(r.url, waits30+", superseded_etag_ttl_seconds: 3600", ""))
	for n := 1; n < 4; n++ {
		fill(t, file, n)
		reaches(t, opa, "gate/n", nil, float64(n))
	}
	if n := strings.Count(r.access.String(), `"kind":"delta"`); n != 2 {
		t.Errorf("%d deltas were sent, want 2:\n%s", n, r.access)
	}
}

// TestStockOPAVerifies has an OPA that demands a signature follow a signed file.
func TestStockOPAVerifies(t *testing.T) {
	opaPath := stockopa.Path(t)
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "bundle.tar.gz")
	const key = "a secret that the two share, of some length"
	build := func(n int, key string) {
		t.Helper()
		write(t, dir, "gate/data.json", limits(n))
		write(t, dir, "gate/p.rego", "package gate\n\nallow := data.gate.n > 1\n")
		args := []string{"build", "--bundle", dir, "--output", file + "~"}
		if key != "" {
			args = append(args, "--signing-alg", "HS256", "--signing-key", key)
		}
		if out, err := exec.CommandContext(t.Context(), opaPath, args...).CombinedOutput(); err != nil {
			t.Fatalf("opa build: %v\n%s", err, out)
		}
		if err := os.Rename(file+"~", file); err != nil {
			t.Fatal(err)
		}
	}
	build(1, key)
	r := serve(t, ServerOptions{Bundles: gateOf(file)})
	opa := stockopa.Start(t, configFor(r.url, waits30, "signing: {keyid: shared, scope: \"\"}")+
		fmt.Sprintf("keys: {shared: {algorithm: HS256, key: %q}}\n", key))
	reaches(t, opa, "gate/n", nil, 1.0)
	build(2, key)
	reaches(t, opa, "gate/n", nil, 2.0)
	for _, wrong := range []string{"", "another secret, which only one of them has"} {
		tag := r.one().ETag
		build(3, wrong)
		eventually(t, "it is served", func() bool { return r.one().ETag != tag })
		tag = r.one().ETag
		asked := strings.Count(r.access.String(), tag[1:len(tag)-1])
		eventually(t, "OPA has asked for it", func() bool { return strings.Count(r.access.String(), tag[1:len(tag)-1]) > asked })
		reaches(t, opa, "gate/n", nil, 2.0)
	}
	build(4, key)
	reaches(t, opa, "gate/n", nil, 4.0)
	if strings.Contains(r.access.String(), `"kind":"delta"`) {
		t.Error("a delta was sent, and nobody can verify one")
	}
}

// TestStockOPAVerifiesWhatIsBuilt has the server sign what it builds of a directory.
func TestStockOPAVerifiesWhatIsBuilt(t *testing.T) {
	const secret = "a secret that the two share, of some length"
	key, err := NewSigningKey(HS256, []byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	key.ID, key.Scope = "shared", "fleet"
	dir := policyDir(t)
	r := serve(t, ServerOptions{Bundles: gateOf(dir), Build: BuildOptions{Signing: key}})
	opa := stockopa.Start(t, configFor(r.url, waits30, "signing: {keyid: shared, scope: fleet}")+
		fmt.Sprintf("keys: {shared: {algorithm: HS256, key: %q}}\n", secret))
	for n := range 3 {
		write(t, dir, "gate/limits/data.json", limits(n))
		reaches(t, opa, "gate/limits/n", nil, float64(n))
	}
	if strings.Contains(r.access.String(), `"kind":"delta"`) {
		t.Error("a delta was sent, and nobody can verify one")
	}
}

// TestStockOPAWithTLSAndToken has an OPA come in through both doors.
func TestStockOPAWithTLSAndToken(t *testing.T) {
	const token = "a-token-of-some-length"
	dir := t.TempDir()
	certificate, authority := selfSigned(t)
	write(t, dir, "ca.pem", string(authority))
	write(t, dir, "token", token+"\n")
	var log, access syncBuffer
	s, err := NewServer(t.Context(), &ServerOptions{
		Bundles: gateOf(builtFile(t, 2)), Tokens: []string{token},
		Certificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate, nil },
		Log:         slog.New(slog.NewJSONHandler(&log, nil)), Access: slog.New(slog.NewJSONHandler(&access, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	ctx := t.Context() // ends before what is cleaned up
	go func() { served <- s.Serve(ctx, listener) }()
	t.Cleanup(func() {
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	opa := stockopa.Start(t, fmt.Sprintf(`
services:
  gate:
    url: https://%s
    tls: {ca_cert: %s}
    credentials: {bearer: {token_path: %s}}
bundles:
  gate:
    service: gate
    polling: {long_polling_timeout_seconds: 30}
`, listener.Addr(), filepath.Join(dir, "ca.pem"), filepath.Join(dir, "token")))
	reaches(t, opa, "gate/allow", nil, true)
	eventually(t, "OPA waits for something new", func() bool { return len(s.slots) == 1 })
	if text := log.String() + access.String(); strings.Contains(text, token) {
		t.Errorf("the token is in the log: %s", text)
	}
}

// selfSigned makes a certificate for 127.0.0.1, and PEM to trust it by.
func selfSigned(t *testing.T) (*tls.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, about, about, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// TestStockOPAReportsStatus has an OPA tell what it has by its status service, as
// a fleet would: the revision is that of the server.
func TestStockOPAReportsStatus(t *testing.T) {
	r := serve(t, ServerOptions{Bundles: gateOf(policyDir(t))})
	revisions := make(chan string, 100)
	status := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		var said struct {
			Bundles map[string]struct {
				Revision string `json:"active_revision"`
			} `json:"bundles"`
		}
		if err := json.NewDecoder(q.Body).Decode(&said); err != nil {
			t.Error(err)
		}
		select {
		case revisions <- said.Bundles["gate"].Revision:
		default:
		}
	}))
	t.Cleanup(status.Close)
	config := strings.Replace(configFor(r.url, waits30, ""), "bundles:", "  - {name: status, url: "+status.URL+"}\nbundles:", 1)
	stockopa.Start(t, strings.Replace(config, "{console: true}", "{service: status}", 1))
	limit := time.After(time.Minute)
	for {
		select {
		case got := <-revisions:
			if got == "" { // not yet
				continue
			}
			if want := r.one().Revision; got != want {
				t.Errorf("OPA has the revision %q, want %q", got, want)
			}
			return
		case <-limit:
			t.Fatal("OPA has reported nothing")
		}
	}
}
