package bundle

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// serverMetrics are what /metrics shows.
type serverMetrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec // by bundle and code
	bytes    *prometheus.CounterVec // by bundle and kind
	held     prometheus.Gauge
	rebuilds *prometheus.CounterVec // by bundle and result
	info     *prometheus.GaugeVec   // by bundle, revision and etag
	size     *prometheus.GaugeVec
	since    *prometheus.GaugeVec
}

func newServerMetrics(names []string) *serverMetrics {
	const space = "opa_gate_bundle"
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: space, Name: name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: space, Name: name, Help: help}, labels)
	}
	m := &serverMetrics{
		registry: prometheus.NewRegistry(),
		requests: counter("requests_total", "Requests that were answered, by bundle (none: anything else) and status code.", "bundle", "code"),
		bytes:    counter("sent_bytes_total", "Bytes of bundles that were sent, by kind: snapshot or delta.", "bundle", "kind"),
		held: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: space, Name: "held_polls",
			Help: "Requests that wait for something new."}),
		rebuilds: counter("rebuilds_total", "Changed files that were served (ok) or refused (failed).", "bundle", "result"),
		info:     gauge("info", "1 for the revision that is served.", "bundle", "revision", "etag"),
		size:     gauge("size_bytes", "Bytes of the bundle that is served.", "bundle"),
		since:    gauge("since_timestamp_seconds", "When what is served was built.", "bundle"),
	}
	m.registry.MustRegister(m.requests, m.bytes, m.held, m.rebuilds, m.info, m.size, m.since,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, name := range names { // a rate needs a zero to begin with
		m.rebuilds.WithLabelValues(name, "ok")
		m.rebuilds.WithLabelValues(name, "failed")
	}
	return m
}

// serves notes that one edition is served in place of another.
func (m *serverMetrics) serves(name string, before, now *edition) {
	if before != nil {
		m.info.DeleteLabelValues(name, before.revision, before.etag)
	}
	m.info.WithLabelValues(name, now.revision, now.etag).Set(1)
	m.size.WithLabelValues(name).Set(float64(len(now.body)))
	m.since.WithLabelValues(name).Set(float64(now.since.UnixMilli()) / 1000)
}

func (m *serverMetrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{DisableCompression: true})
}

// Health is what /health says of a server.
type Health struct {
	Ready   bool           `json:"ready"` // there is a good bundle of every name
	Bundles []BundleHealth `json:"bundles,omitempty"`
}

// BundleHealth is what /health says of one bundle.
type BundleHealth struct {
	Name     string     `json:"name"`
	Ready    bool       `json:"ready"` // something good is served
	Revision string     `json:"revision,omitempty"`
	ETag     string     `json:"etag,omitempty"`
	Bytes    int        `json:"bytes,omitempty"`
	Since    *time.Time `json:"since,omitempty"` // when that was built
	// Why what the files hold now is not served, and since when. "" if it is.
	Error   string     `json:"error,omitempty"`
	ErrorAt *time.Time `json:"error_at,omitempty"`
}

// Health tells whether the server is ready, and how each bundle is.
func (s *Server) Health() Health {
	h := Health{Ready: !s.ending()}
	for _, b := range s.shelves {
		e, f := b.status()
		one := BundleHealth{Name: b.name, Ready: e != nil}
		if e != nil {
			one.Revision, one.ETag, one.Bytes, one.Since = e.revision, e.etag, len(e.body), &e.since
		}
		if f != nil {
			one.Error, one.ErrorAt = oneLine(f.text), &f.at
		}
		h.Ready = h.Ready && one.Ready
		h.Bundles = append(h.Bundles, one)
	}
	return h
}

// health answers /health. Who has no token is told whether the server is ready,
// and nothing else.
func (s *Server) health(w http.ResponseWriter, r *http.Request) {
	h := s.Health()
	if !s.allowed(r) {
		h.Bundles = nil
	}
	code := http.StatusOK
	if !h.Ready {
		code = http.StatusServiceUnavailable
	}
	text, err := json.Marshal(h)
	if err != nil {
		refuseRequest(w, http.StatusInternalServerError, "the state of the server cannot be written")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(text, '\n'))
}
