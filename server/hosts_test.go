package server

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestHosts(t *testing.T) {
	g := &gate{hosts: []string{"gate.internal"}}
	s := httptest.NewServer(g.called(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })))
	defer s.Close()
	for host, want := range map[string]int{
		"localhost":              http.StatusNoContent,
		"LOCALHOST:8181":         http.StatusNoContent,
		"localhost.":             http.StatusNoContent,
		"gate.localhost:8181":    http.StatusNoContent,
		"127.0.0.1:8181":         http.StatusNoContent,
		"[::1]:8181":             http.StatusNoContent,
		"Gate.Internal:443":      http.StatusNoContent,
		"evil.example":           http.StatusMisdirectedRequest,
		"evil.example:8181":      http.StatusMisdirectedRequest,
		"localhost.evil.example": http.StatusMisdirectedRequest,
		"127.0.0.1.evil.example": http.StatusMisdirectedRequest,
		"other.gate.internal":    http.StatusMisdirectedRequest,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("host %q: got %d, want %d", host, resp.StatusCode, want)
		}
	}
}
