package bundle

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// A Source is a bundle to be served.
type Source struct {
	Name string // it is served at /bundles/NAME
	Path string // a directory of policies, or a bundle file
}

// ServerOptions say what a Server serves, and to whom. Every zero value but that
// of Bundles means what is said to be usual.
type ServerOptions struct {
	Bundles []Source // at least one

	// Build says how directories are built; its Dir and FS are not looked at.
	Build     BuildOptions
	SkipTests bool // serve policies that do not pass their own tests
	// Verification, if set, is what bundle files must be signed with to be served.
	Verification *VerificationKey

	// Tokens: with one of them a client is let in. Without any, everybody is.
	Tokens []string
	// Certificate, if set, has Serve speak TLS.
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)

	MaxWait  time.Duration // the longest that a request is held; usually a minute
	MaxHeld  int           // how many requests are held at a time; usually 10,000
	MaxSize  int64         // bytes of a bundle, and of what it is built of; usually MaxPacked
	Rescan   time.Duration // how often files are looked at without being told to; usually 10 s
	Editions int           // how many former ones deltas are made from; usually 16, none if negative
	Grace    time.Duration // how long answers may take when the server ends; usually 10 s

	Log    *slog.Logger // what happens to bundles; nil is nowhere
	Access *slog.Logger // a line a request; nil is nowhere
}

// A Server serves bundles to OPAs. It follows the files that they are made of:
// what is new and good is served at once, to clients that wait for it too, and
// what is not is refused, and what was served before stays.
type Server struct {
	opts    ServerOptions
	tokens  [][sha256.Size]byte
	shelves []*shelf
	metrics *serverMetrics
	log     *slog.Logger
	access  *slog.Logger
	slots   chan struct{} // one for each request that is held
	given   *givenDeltas

	end     sync.Once
	closing chan struct{} // closed when held requests are to be answered
}

// minToken is how short a token may be.
const minToken = 16

// NewServer builds what is to be served. Policies that cannot be used are no
// error: they are waited for. A path that does not exist is one.
func NewServer(ctx context.Context, opts *ServerOptions) (*Server, error) {
	if opts == nil || len(opts.Bundles) == 0 {
		return nil, fmt.Errorf("%w: there is no bundle to serve", ErrOptions)
	}
	s := &Server{opts: *opts, log: opts.Log, access: opts.Access, closing: make(chan struct{}), given: newGivenDeltas()}
	usual(&s.opts.MaxWait, time.Minute)
	usual(&s.opts.MaxHeld, 10_000)
	usual(&s.opts.MaxSize, MaxPacked)
	usual(&s.opts.Rescan, 10*time.Second)
	usual(&s.opts.Grace, 10*time.Second)
	if s.opts.Editions == 0 {
		s.opts.Editions = 16
	}
	usual(&s.log, discard)
	usual(&s.access, discard)
	if s.opts.MaxWait < time.Second {
		return nil, fmt.Errorf("%w: requests are held for %v at most, expected a second or more: "+
			"a client that is not held asks again at once", ErrOptions, s.opts.MaxWait)
	}
	if n := opts.Build.Optimize; n < 0 || n > maxOptimize { // which no edit would mend
		return nil, fmt.Errorf("%w: there is no optimization %d, expected 0 to %d", ErrOptions, n, maxOptimize)
	}
	if s.opts.MaxHeld < 0 || s.opts.MaxSize < 0 || s.opts.Rescan < 0 || s.opts.Grace < 0 {
		return nil, fmt.Errorf("%w: a bound is negative", ErrOptions)
	}
	s.slots = make(chan struct{}, s.opts.MaxHeld)
	for _, token := range opts.Tokens {
		if len(token) < minToken {
			return nil, fmt.Errorf("%w: a token has %d characters, expected %d or more", ErrOptions, len(token), minToken)
		}
		s.tokens = append(s.tokens, sha256.Sum256([]byte(token)))
	}
	paths := map[string]string{}
	var names []string
	for _, src := range opts.Bundles {
		if err := checkSource(src); err != nil {
			return nil, err
		}
		if other, there := paths[src.Name]; there {
			return nil, fmt.Errorf("%w: %s and %s cannot both be the bundle %s", ErrOptions, other, src.Path, src.Name)
		}
		paths[src.Name] = src.Path
		names = append(names, src.Name)
		s.shelves = append(s.shelves, newShelf(src.Name, src.Path, max(0, s.opts.Editions)))
	}
	s.metrics = newServerMetrics(names)
	for _, b := range s.shelves {
		s.refresh(ctx, b)
	}
	return s, ctx.Err()
}

// usual sets what was left out.
func usual[T comparable](value *T, otherwise T) {
	var none T
	if *value == none {
		*value = otherwise
	}
}

// Run follows the files of all bundles until ctx ends. [Server.Serve] does so by
// itself; it is for programs that use [Server.Handler].
func (s *Server) Run(ctx context.Context) {
	var watches sync.WaitGroup
	for _, b := range s.shelves {
		watches.Go(func() { s.keep(ctx, b) })
	}
	watches.Wait()
}

const (
	headerTime = 5 * time.Second
	idleTime   = 2 * time.Minute
	headerSize = 16 << 10
)

// Serve serves on a listener, which it closes, until ctx ends. Requests that are
// held are then answered at once, and others have the time to end that the
// options give them. The error is why it could not go on, nil if ctx ended.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: headerTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    headerSize,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
		// Neither ReadTimeout nor WriteTimeout: they would end requests that are held.
		// The handler sets deadlines of its own.
	}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var watches sync.WaitGroup
	watches.Go(func() { s.Run(watching) })
	failed := make(chan error, 1)
	go func() {
		if s.opts.Certificate == nil {
			failed <- server.Serve(listener)
			return
		}
		server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.opts.Certificate}
		failed <- server.ServeTLS(listener, "", "")
	}()
	var err error
	select {
	case err = <-failed:
		s.Close()
	case <-ctx.Done():
		s.Close()
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opts.Grace)
		defer cancel()
		if err := server.Shutdown(limit); err != nil {
			s.log.Warn("some requests were cut off", "after", s.opts.Grace.String())
			_ = server.Close()
		}
		err = <-failed
	}
	stop()
	watches.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Close has all requests that are held answered at once, and no more held. It
// does not wait for that.
func (s *Server) Close() {
	s.end.Do(func() { close(s.closing) })
}

// ending reports whether Close was called.
func (s *Server) ending() bool {
	select {
	case <-s.closing:
		return true
	default:
		return false
	}
}
