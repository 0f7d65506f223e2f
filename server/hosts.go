package server

import (
	"net"
	"net/http"
	"slices"
	"strings"
)

// called refuses requests to a loopback address whose host is another name: a page
// in a browser on this machine can have its own name point here, and then ask
// as if it came from the same place.
func (g *gate) called(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		addr, ok := req.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
		if ok && addr.IP.IsLoopback() && !g.isCalled(req.Host) {
			refuse(w, http.StatusMisdirectedRequest, problem{Message: "expected the host localhost or an IP address, got another name; --allowed-host allows one"})
			return
		}
		next.ServeHTTP(w, req)
	})
}

func (g *gate) isCalled(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	return name == "" || name == "localhost" || strings.HasSuffix(name, ".localhost") ||
		net.ParseIP(strings.Trim(name, "[]")) != nil ||
		slices.ContainsFunc(g.hosts, func(allowed string) bool { return strings.EqualFold(allowed, name) })
}
