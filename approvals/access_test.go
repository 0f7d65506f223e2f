package approvals

import (
	"fmt"
	"mime"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestStrangersWait(t *testing.T) {
	s := strangers{seen: map[string]*failures{}}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i, want := range []time.Duration{0, 0, 0, 100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond,
		800 * time.Millisecond, 1600 * time.Millisecond, 3200 * time.Millisecond, 5 * time.Second, 5 * time.Second} {
		if delay, ok := s.enter("a", now); !ok || delay != want {
			t.Errorf("failure %d: %v, %v; want %v", i+1, delay, ok, want)
		}
		s.leave("a")
	}
	for range 200 { // no shift goes round
		if delay, _ := s.enter("a", now); delay != lastDelay {
			t.Fatal(delay)
		}
		s.leave("a")
	}
	if delay, ok := s.enter("b", now); !ok || delay != 0 {
		t.Errorf("another address: %v, %v", delay, ok)
	}
	if delay, ok := s.enter("a", now.Add(forgetAfter+time.Second)); !ok || delay != 0 {
		t.Errorf("long after: %v, %v", delay, ok)
	}
	for range maxHeld - 1 {
		if _, ok := s.enter("a", now); !ok {
			t.Fatal("not held")
		}
	}
	if _, ok := s.enter("a", now); ok {
		t.Error("more are held than may be")
	}
	for i := range 2 * maxAddresses { // many addresses are no way to fill the memory, nor to be forgotten
		address := fmt.Sprint(i)
		if _, ok := s.enter(address, now.Add(time.Minute)); !ok {
			t.Fatal(address)
		}
		s.leave(address)
	}
	if len(s.seen) > maxAddresses {
		t.Errorf("%d addresses", len(s.seen))
	}
	if s.seen["a"] == nil {
		t.Error("an address is forgotten while it is held")
	}
}

// Wrong tokens slow their own address down, and not the person at it who has a
// right one.
func TestStrangersLockNobodyOut(t *testing.T) {
	d := newDesk(t, "memory:")
	d.strangers.seen["127.0.0.1"] = &failures{count: 1000, last: time.Now()}
	for range maxHeld {
		d.strangers.seen["127.0.0.1"].held++
	}
	if status, h, _ := d.ask("GET", api, NewToken(), ""); status != http.StatusTooManyRequests || h.Get("Retry-After") == "" {
		t.Errorf("a wrong token: status %d", status)
	}
	if status, _, body := d.ask("GET", api, d.viewer, ""); status != http.StatusOK {
		t.Errorf("a right token: status %d: %s", status, body)
	}
	d.strangers.seen["127.0.0.1"] = &failures{count: freeFailures, last: time.Now()}
	began := time.Now()
	if status, h, _ := d.ask("GET", api, NewToken(), ""); status != http.StatusUnauthorized || h.Get("WWW-Authenticate") == "" || time.Since(began) < firstDelay {
		t.Errorf("status %d after %v", status, time.Since(began))
	}
}

func TestAddresses(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.1:80": "192.0.2.1", "[::ffff:192.0.2.1]:80": "192.0.2.1", "[::1]:5": "::/64", "@": "@",
		"[2001:db8:1:2:3:4:5:6]:80": "2001:db8:1:2::/64", "[fe80::1%eth0]:80": "fe80::/64",
	} {
		if got := addressOf(&http.Request{RemoteAddr: remote}); got != want {
			t.Errorf("%s: %s, want %s", remote, got, want)
		}
	}
}

// The page loads its own files alone, and nothing that it loads is missing.
func TestPage(t *testing.T) {
	d := newDesk(t, "memory:")
	get := func(path string) (*http.Response, string) {
		rec := httptest.NewRecorder()
		d.ServeHTTP(rec, httptest.NewRequest("GET", path, nil))
		return rec.Result(), rec.Body.String()
	}
	resp, text := get("/approvals")
	if resp.StatusCode != 200 || resp.Header.Get("Content-Security-Policy") != pagePolicy {
		t.Errorf("status %d, %v", resp.StatusCode, resp.Header)
	}
	for _, d := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "img-src 'self'", "base-uri 'none'",
		"form-action 'none'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"} {
		if !strings.Contains(pagePolicy, d) {
			t.Errorf("the policy lacks %s", d)
		}
	}
	found := regexp.MustCompile(`(?:src|href)="([^"#]+)"`).FindAllStringSubmatch(text, -1)
	if len(found) != 3 {
		t.Errorf("the page refers to %v", found)
	}
	seen := map[string]bool{}
	for _, f := range found {
		seen[path.Base(f[1])] = true
	}
	for _, r := range d.Routes() {
		file, ok := strings.CutPrefix(r.Pattern, "GET /approvals/")
		if !ok {
			continue
		}
		resp, text := get("/approvals/" + file)
		kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
		if resp.StatusCode != 200 || err != nil || kind == "" || resp.Header.Get("X-Content-Type-Options") != "nosniff" ||
			resp.Header.Get("Referrer-Policy") != "no-referrer" || resp.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: status %d, %v", file, resp.StatusCode, resp.Header)
		}
		for _, m := range regexp.MustCompile(`from '\./([a-z]+\.js)'`).FindAllStringSubmatch(text, -1) {
			seen[m[1]] = true
		}
		if strings.HasSuffix(file, ".js") && regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|https?://`).MatchString(text) {
			t.Errorf("%s makes markup of texts, or asks elsewhere", file)
		}
	}
	for file := range seen {
		if resp, _ := get("/approvals/" + file); resp.StatusCode != 200 {
			t.Errorf("%s: status %d", file, resp.StatusCode)
		}
	}
	if resp, _ := get("/approvals/page.go"); resp.StatusCode != 404 {
		t.Errorf("a file that is none of the page's: status %d", resp.StatusCode)
	}
}
