package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	opabundle "github.com/open-policy-agent/opa/v1/bundle"
	"github.com/open-policy-agent/opa/v1/config"
	"github.com/open-policy-agent/opa/v1/download"
	"github.com/open-policy-agent/opa/v1/hooks"
	"github.com/open-policy-agent/opa/v1/logging"
	"github.com/open-policy-agent/opa/v1/metrics"
	"github.com/open-policy-agent/opa/v1/plugins"
	bundleplugin "github.com/open-policy-agent/opa/v1/plugins/bundle"
	"github.com/open-policy-agent/opa/v1/runtime"
	opaserver "github.com/open-policy-agent/opa/v1/server"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/opa-gate/opa-gate/approvals"
	"github.com/opa-gate/opa-gate/ledger"
)

// Options say how a [Server] runs. OPA's configuration file says the rest.
type Options struct {
	Addrs           []string // to listen on, as host:port or unix://PATH; at least one
	DiagnosticAddrs []string // for health and metrics alone

	ConfigFile  string   // OPA's configuration file, if there is one
	ConfigSet   []string // key=value, over what the file says
	ConfigFiles []string // key=FILE, the same with the value in a file

	// Local makes a bundle (see package bundle) whose policies decide if the
	// configuration names no bundles; otherwise it is not called. LocalName is
	// what answers call it.
	Local     func(ctx context.Context) ([]byte, error)
	LocalName string

	System string // what sentences for a person call this system; "" leaves it to the policies
	// Hosts are names that clients may call a server by which listens on this machine
	// alone, beside localhost. A web page of another name could reach it by a
	// browser here (DNS rebinding).
	Hosts []string

	MaxStaleness time.Duration // how long policies decide that OPA could not refresh; 0 is for ever

	CertFile, KeyFile, CAFile string // of TLS; the last one is for the certificates of clients
	Authentication            string // "off" (also ""), "token" or "tls", as in OPA
	Authorization             string // "off" (also "") or "basic", as in OPA

	LogLevel, LogFormat string        // as in OPA; "" is info and json
	Grace               time.Duration // for requests in flight when the server stops; at least a second

	Logger logging.Logger // in place of one on standard error

	// Ledger settles calls that need a person (POST /v1/gate/admit), and is asked
	// about skills that are denied; nil: there is none. Approvals are for the people
	// who decide; nil: they decide elsewhere.
	Ledger    *ledger.Ledger
	Approvals *approvals.Handler
}

// A Server is one OPA with the gate's APIs.
type Server struct {
	runtime *runtime.Runtime
	gate    *gate
	local   string
	addrs   []string           // to listen on
	people  *approvals.Handler // nil if they decide elsewhere
	failed  error              // of listening
}

// ErrConfig is matched by the errors of options and of OPA's configuration that
// cannot be followed.
var ErrConfig = errors.New("the configuration cannot be followed")

// New sets a server up. It listens to nothing yet. Its errors are those of
// Options.Local, or match ErrConfig, or ErrRefused for local policies that do
// not decide.
func New(ctx context.Context, opts *Options) (*Server, error) {
	g := &gate{first: make(chan struct{}), system: opts.System, hosts: opts.Hosts, maxStaleness: opts.MaxStaleness, now: time.Now, started: time.Now(),
		local: true, refreshes: map[string]report{}}
	quiet := func(string, ...any) {}
	g.log, g.complain = quiet, quiet
	params, err := runtimeParams(opts, g)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	rt, err := runtime.NewRuntime(ctx, params)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	s := &Server{runtime: rt, gate: g, addrs: opts.Addrs, people: opts.Approvals}
	m := rt.Manager
	g.log = func(format string, args ...any) { m.Logger().Info(format, args...) }
	g.complain = func(format string, args ...any) { m.Logger().Error(format, args...) }
	if g.counts, err = newCounts(g, m.PrometheusRegister()); err != nil {
		return nil, err
	}
	if w := m.GetConfig().Warnings; len(w) > 0 {
		// A misspelt member would leave out what it was to say: a signature to demand, or
		// the bundles.
		return nil, fmt.Errorf("%w: %s", ErrConfig, strings.Join(w, "; "))
	}
	s.routes(opts.Ledger)
	if c := m.GetConfig(); c.Bundles == nil && c.Bundle == nil && c.Discovery == nil {
		if opts.Local == nil {
			return nil, fmt.Errorf("%w: it names no bundles, and there are no local policies", ErrConfig)
		}
		text, err := opts.Local(ctx)
		if err != nil {
			return nil, err
		}
		s.local = opts.LocalName
		return s, activateLocal(ctx, rt.Store, opts.LocalName, text)
	}
	s.followBundles()
	return s, nil
}

func runtimeParams(opts *Options, g *gate) (runtime.Params, error) {
	p := runtime.NewParams()
	if len(opts.Addrs) == 0 {
		return p, errors.New("expected an address to listen on")
	}
	p.Addrs, p.DiagnosticAddrs, p.AddrSetByUser = &opts.Addrs, &opts.DiagnosticAddrs, true
	p.ConfigFile, p.ConfigOverrides, p.ConfigOverrideFiles = opts.ConfigFile, opts.ConfigSet, opts.ConfigFiles
	p.Logging = runtime.LoggingConfig{Level: orElse(opts.LogLevel, "info"), Format: orElse(opts.LogFormat, "json")}
	p.Logger = opts.Logger
	p.GracefulShutdownPeriod = max(1, int(opts.Grace/time.Second))
	p.Hooks = hooks.New(configHook{})
	p.StoreBuilder = func(context.Context, logging.Logger, prometheus.Registerer, []byte, string) (storage.Store, error) {
		return guard(inmem.NewWithOpts(inmem.OptRoundTripOnWrite(false)), g), nil
	}
	switch opts.Authentication {
	case "", "off":
	case "token":
		p.Authentication = opaserver.AuthenticationToken
	case "tls":
		p.Authentication = opaserver.AuthenticationTLS
	default:
		return p, fmt.Errorf("expected authentication off, token or tls, got %q", opts.Authentication)
	}
	switch opts.Authorization {
	case "", "off":
	case "basic":
		p.Authorization = opaserver.AuthorizationBasic
	default:
		return p, fmt.Errorf("expected authorization off or basic, got %q", opts.Authorization)
	}
	if p.Authentication == opaserver.AuthenticationToken && p.Authorization == opaserver.AuthorizationOff {
		return p, errors.New("authentication by token looks at no token by itself: authorization basic does, by data.system.authz")
	}
	return p, tlsParams(&p, opts)
}

func tlsParams(p *runtime.Params, opts *Options) error {
	if (opts.CertFile == "") != (opts.KeyFile == "") {
		return errors.New("a certificate and its key go together: one of them is missing")
	}
	if opts.CertFile != "" {
		cert, err := tls.LoadX509KeyPair(opts.CertFile, opts.KeyFile)
		if err != nil {
			return fmt.Errorf("the certificate: %w", err)
		}
		p.Certificate, p.CertificateFile, p.CertificateKeyFile = &cert, opts.CertFile, opts.KeyFile
	}
	if opts.CAFile != "" {
		pool, err := readPool(opts.CAFile)
		if err != nil {
			return err
		}
		p.CertPool, p.CertPoolFile = pool, opts.CAFile
	}
	if p.Authentication == opaserver.AuthenticationTLS && (p.Certificate == nil || p.CertPool == nil) {
		return errors.New("authentication by TLS needs a certificate, its key, and the certificates of those who sign for clients")
	}
	return nil
}

// configHook refuses what the gate cannot guard.
type configHook struct{}

func (configHook) OnConfig(_ context.Context, c *config.Config) (*config.Config, error) {
	if c.Storage != nil && len(c.Storage.Disk) > 0 {
		return nil, errors.New("storage.disk: the gate keeps its store in memory; leave it out, and let bundles persist")
	}
	return c, nil
}

// routes adds the gate's APIs to OPA's.
func (s *Server) routes(l *ledger.Ledger) {
	m := s.runtime.Manager
	e := &events{manager: m}
	m.ExtraRoute("POST /v1/gate/call", "v1/gate/call", s.gate.handler(callRoute, e))
	skills := skillRoute
	if l != nil {
		s.gate.ledger = l
		skills = s.gate.skillWith(l)
		s.withLedger(l, e)
	}
	m.ExtraRoute("POST /v1/gate/skill", "v1/gate/skill", s.gate.handler(skills, e))
	if s.people != nil {
		for _, r := range s.people.Routes() {
			m.ExtraRoute(r.Pattern, r.Name, r.Serve)
		}
	}
	m.ExtraRoute("GET /v1/gate/health", "v1/gate/health", s.gate.health)
	m.ExtraMiddleware(s.gate.closed, s.gate.called)
}

// activateLocal puts the policies of a bundle in force, as OPA does with one
// that it fetched.
func activateLocal(ctx context.Context, store storage.Store, name string, text []byte) error {
	b, err := opabundle.NewReader(bytes.NewReader(text)).WithBundleName(name).WithSkipBundleVerification(true).Read()
	if err != nil {
		return fmt.Errorf("%w: the local policies: %w", ErrConfig, err)
	}
	params := storage.WriteParams
	params.Context = storage.NewContext()
	return storage.Txn(ctx, store, params, func(txn storage.Transaction) error {
		compiler := ast.NewCompiler().WithPathConflictsCheck(storage.NonEmpty(ctx, store, txn))
		if err := opabundle.Activate(&opabundle.ActivateOpts{Ctx: ctx, Store: store, Txn: txn, TxnCtx: params.Context,
			Compiler: compiler, Bundles: map[string]*opabundle.Bundle{name: &b}, Metrics: metrics.New()}); err != nil {
			return err
		}
		plugins.SetCompilerOnContext(params.Context, compiler)
		return nil
	})
}

// followBundles keeps the gate told how the fetching of bundles goes. With
// discovery, OPA learns later which ones there are.
func (s *Server) followBundles() {
	m := s.runtime.Manager
	s.gate.expect(nil, nil, nil)
	var mu sync.Mutex // what was told last must be what holds
	attach := func() {
		mu.Lock()
		defer mu.Unlock()
		p := bundleplugin.Lookup(m)
		if p == nil {
			return
		}
		names, patience := []string{}, map[string]time.Duration{}
		for name, source := range p.Config().Bundles {
			names = append(names, name)
			patience[name] = patienceWith(&source.Config)
		}
		s.gate.expect(names, s.persisted(names), patience)
		p.Register(s, func(status bundleplugin.Status) {
			problem := problemOfBundle(&status)
			s.gate.refreshed(status.Name, status.ActiveRevision, problem, status.LastRequest)
			if problem == "" {
				now := time.Now()
				_ = os.Chtimes(s.persistedFile(status.Name), now, now) // there is none unless the bundle persists
			}
		})
	}
	attach()
	m.RegisterPluginStatusListener("opa-gate", func(map[string]*plugins.Status) {
		go attach() // the plugin may be holding what attach waits for
	})
}

// patienceWith is how long OPA may be silent about a bundle while all is well; 0 is
// for ever. OPA bounds how long it waits for an answer to begin, and not for the
// rest of it.
func patienceWith(c *download.Config) time.Duration {
	if c.Trigger != nil && *c.Trigger != plugins.TriggerPeriodic {
		return 0
	}
	patience := 3 * time.Minute // a minute, and OPA's usual delay
	if d := c.Polling.MaxDelaySeconds; d != nil {
		patience = time.Minute + time.Duration(*d)*time.Second
	}
	if d := c.Polling.LongPollingTimeoutSeconds; d != nil {
		patience += time.Duration(*d) * time.Second
	}
	return patience
}

func problemOfBundle(status *bundleplugin.Status) string {
	if status.Code == "" && len(status.Errors) == 0 {
		return ""
	}
	texts := []string{status.Message}
	for _, err := range status.Errors {
		if !slices.Contains(texts, err.Error()) {
			texts = append(texts, err.Error())
		}
	}
	return strings.Trim(strings.Join(texts, "; "), "; ")
}

// persisted returns when bundles on disk were last known to be in force: the
// time of their files, which is kept up to date.
func (s *Server) persisted(names []string) map[string]time.Time {
	times := map[string]time.Time{}
	for _, name := range names {
		if info, err := os.Stat(s.persistedFile(name)); err == nil && !info.ModTime().After(time.Now()) { // a time to come says nothing
			times[name] = info.ModTime()
		}
	}
	return times
}

// persistedFile is where OPA keeps a bundle that persists.
func (s *Server) persistedFile(name string) string {
	dir := ".opa"
	if d := s.runtime.Manager.GetConfig().PersistenceDirectory; d != nil {
		dir = *d
	}
	return filepath.Join(dir, "bundles", name, "bundle.tar.gz")
}

func readPool(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s: expected certificates as PEM, found none", file)
	}
	return pool, nil
}

// Serve answers requests until ctx ends or the process is told to stop by SIGINT
// or SIGTERM; then what is in flight is finished. It calls started, if that is
// not nil, once it listens. The error is that of listening.
func (s *Server) Serve(ctx context.Context, started func()) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var waiting sync.WaitGroup
	defer waiting.Wait()
	if s.people != nil {
		waiting.Go(func() { untilStopped(ctx, s.people.Close) })
	}
	waiting.Go(func() {
		defer stop()
		if err := s.runtime.Serve(ctx); err != nil {
			s.failed = err
		}
	})
	for s.Addrs() == nil {
		select {
		case <-ctx.Done():
			waiting.Wait()
			return s.failed
		case <-time.After(5 * time.Millisecond): // OPA tells nobody
		}
	}
	if started != nil {
		started()
	}
	waiting.Wait()
	return s.failed
}

// Active is closed once there are policies in force for the first time.
func (s *Server) Active() <-chan struct{} { return s.gate.first }

// Local tells whether local policies decide, because the configuration names no
// bundles.
func (s *Server) Local() bool { return s.local != "" }

// Status tells in one line what is in force and from where, or what is waited
// for.
func (s *Server) Status() string {
	g := s.gate
	p := g.active.Load()
	if s.local != "" && p != nil {
		return fmt.Sprintf("the %s policies decide, revision %s", s.local, p.bundles[s.local].Revision)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	names := slices.Sorted(maps.Keys(g.refreshes))
	switch {
	case p != nil:
		return "bundles decide: " + p.revision + "; OPA keeps them current"
	case len(names) == 0:
		return "nothing is decided yet: OPA waits for its discovery bundle"
	default:
		return "nothing is decided yet: OPA waits for " + strings.Join(names, ", ")
	}
}

// Addrs are the addresses that are listened on, with the ports that were free.
// There are none before Serve listens on all of them.
func (s *Server) Addrs() []string {
	if s.runtime.ServerStatus() != runtime.ServerInitialized {
		return nil
	}
	addrs := s.runtime.Addrs() // OPA does not tell of sockets, which it opens first
	for _, addr := range s.addrs {
		if strings.HasPrefix(addr, "unix://") {
			addrs = append(addrs, addr)
		}
	}
	if len(addrs) < len(s.addrs) {
		return nil
	}
	return addrs
}

// Loopback tells whether an address is for this machine alone.
func Loopback(addr string) bool {
	if strings.HasPrefix(addr, "unix://") {
		return true
	}
	if _, rest, ok := strings.Cut(addr, "://"); ok {
		addr = rest
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func orElse(text, other string) string {
	if text == "" {
		return other
	}
	return text
}
