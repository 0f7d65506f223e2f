package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/opa-gate/opa-gate/bundle"
	"github.com/opa-gate/opa-gate/server"
)

func newServe() *cobra.Command {
	opts := &server.Options{}
	authentication := choice{value: "off", names: []string{"off", "token", "tls"}}
	authorization := choice{value: "off", names: []string{"off", "basic"}}
	level := choice{value: "info", names: []string{"debug", "info", "error"}}
	form := choice{value: "json", names: []string{"text", "json", "json-pretty"}}
	people := &peopleFlags{}
	var policyDir string
	var plain bool
	var grace int
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Decide calls and skills over HTTP, as an OPA with the gate's APIs",
		Long: `Serve runs OPA's own server with the gate in it. OPA's configuration file works as
it is: services, bundles with verification and persistence, discovery, decision
logs, status, TLS, authentication and authorization. Without one, the built-in
policies decide.

Beside OPA's own APIs there are

  POST /v1/gate/call     decide a call document, or an array of them
  POST /v1/gate/skill    the same for skill documents
  GET  /v1/gate/health   200 as long as policies decide, 503 if none do; what is
                         active, since when, and what went wrong

Requests to admit and decisions have the Content-Type application/json, and ids in
paths are whole. Answers are those of decide and skill. The header ` + server.RevisionHeader + ` names the
bundles that they were decided by. A document that cannot be decided has an error
in place of an answer; a request that nothing decides is refused with 503.

A bundle that does not compile, that lacks an entrypoint or answers in another
shape is refused, and the policies before it go on deciding. Decision logs do not
get the arguments of calls, unless a policy of yours defines data.system.log.mask.

With a ledger (--ledger, or $` + ledgerVariable + `) calls that need a person wait in it, and people
decide them, on the page at /approvals or over HTTP:

  POST /v1/gate/admit                       settle a call, as admit does
  GET  /v1/gate/approvals                   what waits: state, session, q, before, limit
  GET  /v1/gate/approvals/ID                one of them
  POST /v1/gate/approvals/ID/decision       {"decision": "approve" or "reject",
                                            "scope": "once" or "session", "comment": "…"}
  POST /v1/gate/approvals/ID/withdraw       take it, or an approval, back
  GET  /v1/gate/approvals/events            what changes, as server-sent events
  GET  /v1/gate/approvals/audit             whether the ledger is whole

Who asks for approvals sends a token, as Authorization: Bearer. --approval-tokens
names the file that approvals token writes. Without one, a token for this run is
made and printed with the page's address. Skills that are denied are looked up in
the ledger, and a document that brings an approval of its own is refused.

It listens on this machine alone unless --addr says otherwise. Another address
needs TLS and authentication, or --allow-plain; and --approval-tokens, if there is
a ledger.`,
		Example: `  opa-gate serve
  opa-gate serve --policies ./policies --addr localhost:9000
  opa-gate serve --config-file opa.yaml --max-staleness 10m
  opa-gate serve --ledger ledger.db --approval-tokens tokens
  opa-gate serve --addr 0.0.0.0:8443 --tls-cert-file tls.crt --tls-private-key-file tls.key \
      --authentication token --authorization basic --config-file opa.yaml`,
		Args: noArgument,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts.Authentication, opts.Authorization = authentication.value, authorization.value
			opts.LogLevel, opts.LogFormat = level.value, form.value
			if grace < 1 {
				return fmt.Errorf("--shutdown-grace-period: expected at least 1 second, got %d", grace)
			}
			opts.Grace = time.Duration(grace) * time.Second
			if opts.MaxStaleness < 0 {
				return fmt.Errorf("--max-staleness: expected a time, or 0 for ever, got %v", opts.MaxStaleness)
			}
			if err := checkAddresses(opts, plain); err != nil {
				return err
			}
			if err := people.check(opts, cmd.Flags().Changed, plain); err != nil {
				return err
			}
			local := cmd.Flags().Changed("policies")
			if local && policyDir == "" {
				return errNoDirectory
			}
			return serve(cmd.Context(), cmd.ErrOrStderr(), opts, people, policyDir, local)
		},
	}
	f := cmd.Flags()
	f.StringSliceVarP(&opts.Addrs, "addr", "a", []string{"localhost:8181"}, "listen on this `ADDRESS`, as host:port or unix://PATH; may be repeated")
	f.StringSliceVar(&opts.DiagnosticAddrs, "diagnostic-addr", nil, "answer /health and /metrics on this `ADDRESS` too, and nothing else")
	f.StringVarP(&opts.ConfigFile, "config-file", "c", "", "OPA's configuration `FILE`")
	f.StringArrayVar(&opts.ConfigSet, "set", nil, "override the configuration, as `KEY=VALUE`; may be repeated")
	f.StringArrayVar(&opts.ConfigFiles, "set-file", nil, "the same with the value in a file, as `KEY=FILE`")
	f.StringSliceVar(&opts.Hosts, "allowed-host", nil, "a `NAME` that clients may call a server on this machine by, beside localhost; for a proxy that passes its own on")
	f.DurationVar(&opts.MaxStaleness, "max-staleness", 0, "refuse everything when policies could not be refreshed for this `TIME`, as 90s or 10m; 0 is never")
	f.StringVar(&opts.CertFile, "tls-cert-file", "", "the certificate `FILE` of TLS")
	f.StringVar(&opts.KeyFile, "tls-private-key-file", "", "the `FILE` with its private key")
	f.StringVar(&opts.CAFile, "tls-ca-cert-file", "", "the `FILE` of certificates that clients' ones are signed by")
	authentication.add(cmd, "authentication", "how clients say who they are, as in OPA")
	authorization.add(cmd, "authorization", "whether data.system.authz.allow decides who may ask, as in OPA")
	level.add(cmd, "log-level", "what is logged; info has a line for each request, debug all of it, arguments too")
	form.add(cmd, "log-format", "how it is logged")
	f.IntVar(&grace, "shutdown-grace-period", 10, "`SECONDS` that requests in flight have when the server stops")
	f.BoolVar(&plain, "allow-plain", false, "listen on other addresses than this machine's without TLS or authentication")
	addPolicies(cmd, &policyDir)
	people.ledgers.add(cmd)
	f.StringVar(&people.tokens, "approval-tokens", "", "the `FILE` of the tokens of those who look and decide; see approvals token")
	f.StringVar(&opts.System, "system", "", "the `NAME` of the system in sentences for a person")
	return cmd
}

// checkAddresses refuses to listen where others can reach without knowing them.
func checkAddresses(opts *server.Options, plain bool) error {
	if plain {
		return nil
	}
	for _, addr := range opts.Addrs {
		if server.Loopback(addr) {
			continue
		}
		var missing []string
		if opts.CertFile == "" || strings.HasPrefix(strings.ToLower(addr), "http://") { // OPA speaks what the address says
			missing = append(missing, "TLS (--tls-cert-file, --tls-private-key-file)")
		}
		if opts.Authentication == "off" {
			missing = append(missing, "authentication (--authentication token or tls)")
		}
		if len(missing) > 0 {
			return fmt.Errorf("--addr %s can be reached from other machines, which needs %s; --allow-plain does without",
				addr, strings.Join(missing, " and "))
		}
	}
	return nil
}

func serve(ctx context.Context, stderr io.Writer, opts *server.Options, people *peopleFlags, dir string, local bool) error {
	settled := thrift()
	opts.LocalName = "built-in"
	if local {
		opts.LocalName = "local"
	}
	opts.Local = func(ctx context.Context) ([]byte, error) {
		built, err := bundle.Build(ctx, &bundle.BuildOptions{Dir: dir})
		if err != nil {
			return nil, err
		}
		return built.Bytes, nil
	}
	closeAll, err := people.open(ctx, opts, func(format string, args ...any) { complain(stderr, fmt.Sprintf(format, args...)) })
	if err != nil {
		return err
	}
	defer closeAll()
	s, err := server.New(ctx, opts)
	if err != nil {
		return err
	}
	if local && !s.Local() {
		return errors.New("--policies and the bundles of the configuration exclude each other: leave one of them out")
	}
	return s.Serve(ctx, func() {
		time.AfterFunc(time.Second, settled)
		people.tell(stderr, opts, s.Addrs())
		tell := func() {
			_, _ = fmt.Fprintf(stderr, "opa-gate: listening on %s; %s\n", strings.Join(s.Addrs(), ", "), s.Status())
		}
		select {
		case <-s.Active():
			tell()
		default: // nothing decides yet: whoever waits for that is told again
			tell()
			go func() {
				<-s.Active()
				tell()
			}()
		}
	})
}

// thrift keeps the heap small until end is called. What is compiled and read at
// the start would leave it in pieces for as long as the server runs, half of them
// empty. Whoever has set GOGC keeps it.
func thrift() (end func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	debug.SetGCPercent(10)
	return func() { debug.SetGCPercent(100) }
}

func noArgument(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no argument, got %q; see --help for its flags", cmd.Name(), args[0])
	}
	return nil
}
