package bundle

import (
	"crypto/tls"
	"log/slog"
	"os"
	"sync"
	"time"
)

// CertificateFiles reads a certificate and its private key, both PEM, for
// [ServerOptions]. It reads them again when they were replaced, as those are that
// last for days; if what stands there then cannot be used, that is logged, and
// the last good one stays.
func CertificateFiles(certFile, keyFile string, log *slog.Logger) (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	usual(&log, discard)
	first, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, err
	}
	c := &certificateFiles{cert: certFile, key: keyFile, log: log, good: &first, looked: time.Now()}
	c.times = c.modified()
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.current(time.Now()), nil }, nil
}

// certificateAge is how long files are not looked at again.
const certificateAge = time.Second

type certificateFiles struct {
	cert, key string
	log       *slog.Logger

	mu     sync.Mutex
	good   *tls.Certificate
	times  [2]time.Time
	looked time.Time
}

func (c *certificateFiles) modified() (times [2]time.Time) {
	for i, name := range []string{c.cert, c.key} {
		if info, err := os.Stat(name); err == nil {
			times[i] = info.ModTime()
		}
	}
	return times
}

func (c *certificateFiles) current(now time.Time) *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.looked) < certificateAge {
		return c.good
	}
	c.looked = now
	times := c.modified()
	if times == c.times {
		return c.good
	}
	fresh, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		// One of the two may not be there yet: the times are not noted.
		c.log.Error("the new certificate cannot be used, and the one before is still used", "error", oneLine(err.Error()))
		return c.good
	}
	c.times, c.good = times, &fresh
	c.log.Info("a new certificate is used")
	return c.good
}
