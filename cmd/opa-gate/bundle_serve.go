package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/opa-gate/opa-gate/bundle"
	"github.com/opa-gate/opa-gate/server"
	"github.com/opa-gate/opa-gate/wire"
)

// onlyBundle is what a bundle is called that has no name of its own.
const onlyBundle = "gate"

// A bundleServer is what the flags of bundle serve say.
type bundleServer struct {
	opts          bundle.ServerOptions
	addr          string
	certFile, key string
	token         secretFlags
	plain         bool
	form, target  choice
	signing       signingFlags
	verification  secretFlags
}

func newBundleServe() *cobra.Command {
	s := &bundleServer{
		form:   newFormat(),
		target: choice{value: "rego", names: []string{"rego", "wasm", "plan"}},
	}
	cmd := &cobra.Command{
		Use:   "serve DIR|FILE | NAME=DIR|FILE...",
		Short: "Serve bundles to OPAs, and what is new as soon as it is saved and good",
		Long: `Serve has OPAs get policies as bundles. A DIR of policies is built each time that
something in it is saved; a FILE is a bundle that was built, and signed or not, by
somebody else, and is served as it is. One alone is the bundle gate, at
/bundles/gate; otherwise each has a NAME, and is at /bundles/NAME. A path with a =
in it is written ./PATH.

Policies that do not compile, or do not pass their own tests (in files
…_test.rego), are refused: what was served before stays, the log says what is
wrong with file and line, and so do /health and /metrics. The same goes for a FILE
that no OPA could use.

An OPA that polls long (polling: {long_polling_timeout_seconds: 30}) is held until
there is something new, and has it in less than a second. If only data have
changed it gets the difference, unless the bundle is signed. Others are told by
ETag that nothing is new.

  GET /bundles/NAME  a bundle
  GET /health        200 if there is a good bundle of every name, 503 if not; the
                     revision of each, since when, and what is wrong with the files
  GET /metrics       for Prometheus

It listens on this machine alone unless --addr says otherwise. Another address
needs TLS and a token, or --allow-plain. A file of tokens has one on each line, so
that a new one can be known before the old one is not. Clients send one of them as
Authorization: Bearer. Without it, /health says only whether the server is ready.

What is served, and the configuration for an OPA, goes to standard output, and the
log, with a line for each request, to standard error. It ends with Ctrl-C or
SIGTERM: requests that are held are answered at once.

Exit codes: 0 ended by a signal, 2 wrong usage, or an address that is taken.
Policies that cannot be used when it starts are waited for.`,
		Example: `  opa-gate bundle serve my-policies
  opa-gate bundle serve my-policies --signing-key private.pem --token-env TOKEN
  opa-gate bundle serve gate=my-policies grants=grants.tar.gz --log-format json
  opa-gate bundle serve my-policies --addr 0.0.0.0:8443 --token tokens \
      --tls-cert-file tls.crt --tls-private-key-file tls.key`,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			context.AfterFunc(ctx, stop) // a second signal ends it in any case
			var err error
			if s.opts.Bundles, err = bundleSources(args); err != nil {
				return err
			}
			return s.serve(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringVarP(&s.addr, "addr", "a", "127.0.0.1:8182", "listen on this `ADDRESS`, as host:port")
	f.StringVar(&s.certFile, "tls-cert-file", "", "the certificate `FILE` of TLS; it is read again when it changes")
	f.StringVar(&s.key, "tls-private-key-file", "", "the `FILE` with its private key")
	s.token.add(cmd, "token", "tokens", "let in who has one of the tokens, each on a line,")
	f.BoolVar(&s.plain, "allow-plain", false, "listen on other addresses than this machine's without TLS or a token")
	f.DurationVar(&s.opts.MaxWait, "max-wait", 0, "the longest `TIME` that a request is held (default 1m)")
	f.IntVar(&s.opts.MaxHeld, "max-held", 0, "how many requests are held at a time (default 10000)")
	f.DurationVar(&s.opts.Rescan, "rescan", 0, "how often files are looked at where no change is reported (default 10s)")
	f.IntVarP(&s.opts.Build.Optimize, "optimize", "O", 0, "how far OPA works things out beforehand: `LEVEL` 0, 1 or 2")
	f.BoolVar(&s.opts.SkipTests, "skip-tests", false, "serve policies that do not pass their own tests")
	s.signing.add(cmd)
	s.verification.add(cmd, "verification-key", "a public key",
		"refuse a bundle file that is not signed with the public key, in PEM, or the secret of HS256,")
	s.target.add(cmd, "target", "what policies are compiled to")
	s.form.add(cmd, "log-format", "how the log is written")
	return cmd
}

// bundleSources reads NAME=PATH, or one PATH.
func bundleSources(args []string) ([]bundle.Source, error) {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	if len(args) == 0 {
		return nil, errors.New("bundle serve needs a directory of policies or a bundle file")
	}
	var sources []bundle.Source
	for _, arg := range args {
		name, path, named := strings.Cut(arg, "=")
		switch {
		case named && strings.Trim(name, letters) == "":
		case len(args) == 1:
			name, path = onlyBundle, arg
		default:
			return nil, fmt.Errorf("several bundles need names: expected NAME=%s", arg)
		}
		if path == "" {
			return nil, fmt.Errorf("%q: expected a directory or a bundle file behind the name", arg)
		}
		sources = append(sources, bundle.Source{Name: name, Path: path})
	}
	return sources, nil
}

// readTokens reads the tokens that are on the lines of a file or a variable.
func (s *bundleServer) readTokens() ([]string, error) {
	if !s.token.given("token") && !s.token.given("token-env") {
		return nil, nil
	}
	text, err := s.token.read()
	if err != nil {
		return nil, err
	}
	var tokens []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" {
			tokens = append(tokens, line)
		}
	}
	if len(tokens) == 0 {
		return nil, errors.New("--token: expected a token on each line, got blank lines alone")
	}
	return tokens, nil
}

// readKeys reads what directories are signed with, and files have to be.
func (s *bundleServer) readKeys() (err error) {
	if s.signing.key.isGiven() && !slices.ContainsFunc(s.opts.Bundles, func(b bundle.Source) bool {
		info, err := os.Stat(b.Path)
		return err != nil || info.IsDir()
	}) {
		return errors.New("--signing-key has no effect on files, which are served as they are: sign them with bundle sign, or serve the directory")
	}
	if !s.verification.isGiven() {
		s.opts.Build.Signing, err = s.signing.read()
		return err
	}
	text, err := s.verification.read()
	if err != nil {
		return err
	}
	key, err := bundle.NewVerificationKey(bundle.Algorithm(s.signing.algorithm.value), text)
	if err != nil {
		return fmt.Errorf("--verification-key: %w", err)
	}
	key.ID, key.Scope = s.signing.id, s.signing.scope
	s.opts.Verification = key
	if s.signing.key.isGiven() {
		s.opts.Build.Signing, err = s.signing.read()
	}
	return err
}

// check refuses to listen where others can reach without knowing them.
func (s *bundleServer) check(addr string) error {
	if s.plain || server.Loopback(addr) {
		return nil
	}
	var missing []string
	if s.certFile == "" {
		missing = append(missing, "TLS (--tls-cert-file, --tls-private-key-file)")
	}
	if len(s.opts.Tokens) == 0 {
		missing = append(missing, "a token (--token, --token-env)")
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("--addr %s can be reached from other machines, which needs %s; --allow-plain does without",
		addr, strings.Join(missing, " and "))
}

func (s *bundleServer) serve(ctx context.Context, stdout, stderr io.Writer) error {
	if (s.certFile == "") != (s.key == "") {
		return errors.New("--tls-cert-file and --tls-private-key-file go together")
	}
	if _, _, err := net.SplitHostPort(s.addr); err != nil {
		return fmt.Errorf("--addr: expected host:port, got %q", s.addr)
	}
	var err error
	if s.opts.Tokens, err = s.readTokens(); err != nil {
		return err
	}
	if err := s.check(s.addr); err != nil {
		return err
	}
	if s.opts.Build.Target, err = bundle.ParseTarget(s.target.value); err != nil {
		return err
	}
	if err := s.readKeys(); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(stderr, nil))
	if s.form.value == "json" {
		log = slog.New(slog.NewJSONHandler(stderr, nil))
	}
	s.opts.Log, s.opts.Access = log, log
	if s.certFile != "" {
		if s.opts.Certificate, err = bundle.CertificateFiles(s.certFile, s.key, log); err != nil {
			return err
		}
	}
	served, err := bundle.NewServer(ctx, &s.opts)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", s.addr)
	if err != nil {
		return fmt.Errorf("--addr: %w", err)
	}
	if err := s.check(listener.Addr().String()); err != nil { // localhost can be anything
		_ = listener.Close()
		return err
	}
	if err := s.announce(stdout, listener.Addr(), served.Health()); err != nil {
		_ = listener.Close()
		return err
	}
	return served.Serve(ctx, listener)
}

// announce says what is served, where and in which revision, and how an OPA is
// told of it.
func (s *bundleServer) announce(w io.Writer, addr net.Addr, h bundle.Health) error {
	url := "http://"
	if s.certFile != "" {
		url = "https://"
	}
	url += reachable(addr)
	var text strings.Builder
	for i, b := range h.Bundles {
		_, _ = fmt.Fprintf(&text, "serving %s as %s/bundles/%s", wire.Printable(s.opts.Bundles[i].Path), url, b.Name)
		if b.Ready {
			_, _ = fmt.Fprintf(&text, ", revision %s\n", wire.Printable(b.Revision))
		} else {
			text.WriteString(", as soon as it is good: see the log\n")
		}
	}
	text.WriteString("\nthe configuration for an OPA:\n\nservices:\n  opa-gate:\n    url: " + url + "\n")
	switch {
	case len(s.opts.Tokens) == 0:
	case s.token.given("token-env"):
		text.WriteString("    credentials: {bearer: {token: \"${" + s.token.env + "}\"}}\n")
	case len(s.opts.Tokens) > 1: // a client has one of them, in a file of its own
		text.WriteString("    credentials: {bearer: {token_path: FILE}} # with one of the tokens in it\n")
	default:
		file, err := filepath.Abs(s.token.file)
		if err != nil {
			file = s.token.file
		}
		text.WriteString("    credentials: {bearer: {token_path: " + quoteYAML(file) + "}}\n")
	}
	if s.certFile != "" {
		text.WriteString("    # tls: {ca_cert: FILE} if the machine does not know who signed the certificate\n")
	}
	signing := ""
	if s.opts.Build.Signing != nil || s.opts.Verification != nil {
		id := s.signing.id
		if id == "" {
			id = bundle.DefaultKeyID
		}
		signing = "    signing: {keyid: " + quoteYAML(id)
		if s.signing.scope != "" {
			signing += ", scope: " + quoteYAML(s.signing.scope)
		}
		signing += "}\n"
		key := "PUBLIC_KEY # its text, in PEM"
		if s.signing.algorithm.value == string(bundle.HS256) {
			key = "SECRET # the one that it is signed with"
		}
		text.WriteString("keys:\n  " + quoteYAML(id) + ":\n    algorithm: " + s.signing.algorithm.value + "\n    key: " + key + "\n")
	}
	text.WriteString("bundles:\n")
	for _, b := range h.Bundles {
		text.WriteString("  " + quoteYAML(b.Name) + ":\n    service: opa-gate\n    polling: {long_polling_timeout_seconds: 30}\n" + signing)
	}
	_, err := io.WriteString(w, text.String()+"\n")
	return err
}

// reachable is the address as others reach it.
func reachable(addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() {
		return addr.String()
	}
	host, err := os.Hostname()
	if err != nil {
		return addr.String()
	}
	return net.JoinHostPort(host, fmt.Sprint(tcp.Port))
}

// quoteYAML writes a text such that YAML reads it as that text: as it is, if it
// consists of what has no meaning there, and otherwise as a JSON string.
func quoteYAML(text string) string {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	if text != "" && strings.Trim(text, letters+"0123456789/._-") == "" && strings.ContainsAny(text[:1], letters+"/") &&
		!strings.Contains(" true false null yes no on off y n ", " "+strings.ToLower(text)+" ") {
		return text
	}
	quoted, err := encode(text)
	if err != nil { // there is no such text
		return text
	}
	return strings.TrimSpace(string(quoted))
}
