package approvals

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// guard lets a request through to next if its token has the role.
func (h *Handler) guard(role Role, next func(w http.ResponseWriter, req *http.Request, who Holder)) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		secure(w.Header())
		if err := h.origins.Check(req); err != nil {
			refuse(w, http.StatusForbidden, "the request comes from another site: only this server's own page and programs may ask")
			return
		}
		who, ok, err := h.tokens.Holder(bearer(req))
		switch {
		case err != nil:
			h.log("approvals: %v", err)
			refuse(w, http.StatusServiceUnavailable, "the server cannot read its tokens; its log says why")
		case !ok:
			h.stranger(w, req)
		case who.Role < role:
			refuse(w, http.StatusForbidden, "the token of "+who.Name+" has the role "+who.Role.String()+"; this needs "+role.String())
		default:
			next(w, req, who)
		}
	}
}

// bearer is the token of a request; "" if there is none.
func bearer(req *http.Request) string {
	values := req.Header.Values("Authorization")
	if len(values) != 1 {
		return ""
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// stranger answers a request whose token nobody has. It is let wait, the longer
// the more of them came from its address. A token that somebody has never waits:
// agents and people of one machine share an address.
func (h *Handler) stranger(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("WWW-Authenticate", `Bearer realm="approvals"`)
	delay, ok := h.strangers.enter(addressOf(req), time.Now())
	if !ok {
		w.Header().Set("Retry-After", "10")
		refuse(w, http.StatusTooManyRequests, "too many requests with wrong tokens from this address")
		return
	}
	defer h.strangers.leave(addressOf(req))
	pause(req.Context(), delay)
	refuse(w, http.StatusUnauthorized, "expected the header Authorization: Bearer with a token that this server knows")
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// Bounds of requests with wrong tokens.
const (
	freeFailures = 3                      // that are answered at once
	firstDelay   = 100 * time.Millisecond // doubled with each further one
	lastDelay    = 5 * time.Second        //
	forgetAfter  = 5 * time.Minute        //
	maxHeld      = 4                      // of one address, that wait at the same time
	maxAddresses = 4096                   // that are remembered
)

// strangers remember from where wrong tokens came.
type strangers struct {
	mu   sync.Mutex
	seen map[string]*failures
}

type failures struct {
	count, held int
	last        time.Time
}

// enter counts a failure. It tells how long the request is to wait, and whether
// it may at all; if so, leave follows.
func (s *strangers) enter(address string, now time.Time) (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.seen[address]
	if f == nil {
		if len(s.seen) >= maxAddresses && !s.forget(now) {
			return 0, false
		}
		f = &failures{}
		s.seen[address] = f
	}
	if f.held == 0 && now.Sub(f.last) > forgetAfter {
		f.count = 0
	}
	f.last = now
	if f.held >= maxHeld {
		return 0, false
	}
	f.held++
	f.count++
	delay := lastDelay
	if n := f.count - freeFailures; n <= 0 {
		delay = 0
	} else if n < 10 {
		delay = min(lastDelay, firstDelay<<(n-1))
	}
	return delay, true
}

func (s *strangers) leave(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.seen[address]; f != nil {
		f.held--
	}
}

// forget makes room: of one whose time is over, or of any that is not held. It
// tells whether there is room.
func (s *strangers) forget(now time.Time) bool {
	victim, looked := "", 0
	for address, f := range s.seen { // in no order, so that nobody can choose whom
		if f.held > 0 {
			continue
		}
		victim = address
		if looked++; looked == 8 || now.Sub(f.last) > forgetAfter {
			break
		}
	}
	delete(s.seen, victim)
	return len(s.seen) < maxAddresses
}

// addressOf is what counts as one address: of IPv6, a network that one machine
// usually has to itself.
func addressOf(req *http.Request) string {
	host, _, err := net.SplitHostPort(req.RemoteAddr)
	if err != nil {
		return req.RemoteAddr // of a socket
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if ip = ip.Unmap(); ip.Is6() {
		if network, err := ip.WithZone("").Prefix(64); err == nil {
			return network.String()
		}
	}
	return ip.String()
}

// secure sets the headers of every answer.
func secure(h http.Header) {
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
}
