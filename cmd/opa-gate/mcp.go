package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/opa-gate/opa-gate/agent/gateway"
	"github.com/opa-gate/opa-gate/capability"
)

// An mcpFlags is what decides how a gateway serves.
type mcpFlags struct {
	hookFlags            // policies, system, catalogue and ledger of it
	config, name, origin string
	owned                []string
	listen, cert, key    string
	tokenFile, session   string
	logLevel             choice
	wait, timeout        time.Duration
	origins              []string
}

func newMCP() *cobra.Command {
	f := &mcpFlags{hookFlags: *newHookFlags(), logLevel: choice{value: "warn", names: []string{"debug", "info", "warn", "error"}}}
	cmd := &cobra.Command{
		Use:   "mcp (-- COMMAND [ARG...] | --config FILE)",
		Short: "Stand in front of MCP servers and decide every tool call",
		Long: `Mcp is an MCP server that has others behind it: one that COMMAND starts, or those of
a configuration FILE. A client starts it in the place of the server, and talks to it
on its standard input and output, or over HTTP with --listen.

Each tools/call is decided. Tools that you do not own, or that the deployment cannot
run, are not shown. Where a person has to be asked, the client asks if it can
(elicitation); otherwise the call is answered with where it waits, or, with --wait,
waits itself. Results that can carry outside content taint the conversation before
the client sees them. Everything else passes as it is.

A server gets PATH, HOME and the like of the environment, and what the file names for
it. The origin of its tools is yours to state, in the catalogue, in the file or by
--origin; without one every call needs everything that can be granted, and taints.

The conversation ends with the client, and a gateway that is started again begins a
new one, which nothing taints. A client that goes on with a conversation names it:
--session ID, the same each time.

FILE is TOML, YAML or JSON by its name, with the servers as MCP clients have them:

  {"mcpServers": {
    "files": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "."],
              "origin": "local-sandbox", "owned": ["read_text_file", "list_directory"]},
    "tracker": {"url": "https://tracker.example/mcp", "origin": "registered-connector",
                "headers": {"Authorization": "Bearer ${TRACKER_TOKEN}"}}}}

beside them catalogue, deployment, needs, timeout, wait, in_flight and max_message.
A tool that two servers have is shown as SERVER__TOOL.`,
		Example: `  opa-gate mcp --origin local-sandbox -- npx -y @modelcontextprotocol/server-filesystem .
  opa-gate mcp --config servers.json
  opa-gate mcp --config servers.yaml --listen localhost:8183`,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	f.given = cmd.Flags().Changed
	fs := cmd.Flags()
	fs.StringVar(&f.config, "config", "", "the servers, in `FILE` (TOML, YAML or JSON)")
	_ = cmd.MarkFlagFilename("config", "toml", "yaml", "yml", "json")
	fs.StringVar(&f.name, "name", "server", "the `NAME` of COMMAND's server; policies see its tools as mcp__NAME__TOOL")
	for _, o := range capability.Origins() {
		f.origins = append(f.origins, o.String())
	}
	fs.StringVar(&f.origin, "origin", capability.Unknown.String(), "where the tools of COMMAND's server come from: "+alternatives(f.origins))
	_ = cmd.RegisterFlagCompletionFunc("origin", cobra.FixedCompletions(f.origins, cobra.ShellCompDirectiveNoFileComp))
	fs.StringSliceVar(&f.owned, "owned", nil, "show only these `TOOLS` of COMMAND's server (default all)")
	fs.StringVar(&f.session, "session", "", "the `ID` of the conversation, for one that goes on where an earlier gateway or a hook left it (default a new one)")
	fs.DurationVar(&f.wait, "wait", 0, "how long a call waits for a person where the client cannot ask")
	fs.DurationVar(&f.timeout, "timeout", gateway.DefaultTimeout, "how long a server may take to answer")
	fs.StringVar(&f.listen, "listen", "", "serve streamable HTTP at this `ADDRESS`, as host:port, path "+gateway.Endpoint)
	fs.StringVar(&f.tokenFile, "token-file", "", "the `FILE` with the token that HTTP clients carry as a bearer")
	fs.StringVar(&f.cert, "tls-cert-file", "", "the certificate `FILE` of TLS")
	fs.StringVar(&f.key, "tls-private-key-file", "", "the `FILE` with its private key")
	f.logLevel.add(cmd, "log-level", "what is logged, on standard error")
	addPolicies(cmd, &f.policies)
	fs.StringVar(&f.system, "system", "", "the `NAME` of the system in sentences for a person")
	addCatalogue(cmd, &f.catalogue)
	f.ledger.addTo(cmd.Flags())
	return cmd
}

func (f *mcpFlags) run(cmd *cobra.Command, args []string) error {
	config, err := f.servers(cmd, args)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if f.catalogue == "" {
		f.catalogue = config.Catalogue
	}
	gate, kept, err := f.gate(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = kept.Close() }() // each record was durable when it was made
	policy := gateway.NewPolicy(*gate, config, kept, func(id string) string { return "opa-gate approvals show " + id })
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.logLevel.value)); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level}))
	g, err := gateway.New(*config, policy, &gateway.Options{Log: log, ServerLog: cmd.ErrOrStderr()})
	if err != nil {
		return err
	}
	if f.listen != "" {
		return f.serveHTTP(ctx, cmd.ErrOrStderr(), g)
	}
	session := f.session
	if session == "" {
		session = gateway.NewSessionID()
	}
	err = g.ServeStdio(ctx, session, localUser(), cmd.InOrStdin(), cmd.OutOrStdout())
	if errors.Is(err, context.Canceled) {
		return exit(exitInterrupted)
	}
	return err
}

// servers is the configuration that the command line says.
func (f *mcpFlags) servers(cmd *cobra.Command, args []string) (*gateway.Config, error) {
	if dash := cmd.ArgsLenAtDash(); dash > 0 || dash < 0 && len(args) > 0 {
		return nil, fmt.Errorf("mcp: put -- before the command, as in: opa-gate mcp -- %s", strings.Join(args, " "))
	}
	if f.listen == "" && (f.tokenFile != "" || f.cert != "" || f.key != "") {
		return nil, errors.New("--token-file, --tls-cert-file and --tls-private-key-file go with --listen")
	}
	switch {
	case f.given("session") && f.listen != "":
		return nil, errors.New("--session is about one client on standard input; over HTTP each client is a conversation of its own")
	case f.given("session") && f.session == "":
		return nil, errors.New("--session: expected the ID of a conversation, got an empty one")
	}
	if (f.cert == "") != (f.key == "") {
		return nil, errors.New("--tls-cert-file and --tls-private-key-file go together")
	}
	var config *gateway.Config
	switch {
	case f.config == "" && len(args) == 0:
		return nil, errors.New("mcp: expected -- and a command that starts an MCP server, or --config FILE")
	case f.config != "" && len(args) > 0:
		return nil, errors.New("mcp: expected a command or --config, got both")
	case f.config != "":
		for _, flag := range []string{"name", "origin", "owned"} {
			if f.given(flag) {
				return nil, fmt.Errorf("--%s is about a command's server; say it in the file of --config", flag)
			}
		}
		var err error
		if config, err = gateway.LoadConfig(f.config, os.LookupEnv); err != nil {
			return nil, err
		}
	default:
		origin, ok := capability.ParseOrigin(f.origin)
		if !ok {
			return nil, fmt.Errorf("--origin: there is no origin %q%s", f.origin, meant(f.origin, f.origins))
		}
		server := gateway.ServerConfig{Name: f.name, Command: args[0], Args: args[1:], Origin: origin}
		if f.given("owned") {
			server.Owned = append([]string{}, f.owned...)
		}
		config = &gateway.Config{Servers: []gateway.ServerConfig{server}}
	}
	if f.given("wait") {
		config.Wait = f.wait
	}
	if f.given("timeout") {
		config.Timeout = f.timeout
	}
	return config, nil
}

// serveHTTP serves clients over streamable HTTP until ctx ends.
func (f *mcpFlags) serveHTTP(ctx context.Context, stderr io.Writer, g *gateway.Gateway) error {
	o := gateway.HTTPOptions{Reviewer: localUser()}
	if f.tokenFile != "" {
		text, err := os.ReadFile(f.tokenFile)
		if err != nil {
			return fmt.Errorf("--token-file: %w", err)
		}
		const least = 16
		if o.Token = strings.TrimSpace(string(text)); len(o.Token) < least {
			return fmt.Errorf("--token-file: the token in %s has less than %d characters", filepath.Base(f.tokenFile), least)
		}
	}
	local, err := gateway.CheckAddress(f.listen, f.cert != "", o.Token != "")
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	o.Local = local
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	scheme := "http"
	if f.cert != "" {
		scheme = "https"
	}
	_, _ = fmt.Fprintf(stderr, "serving MCP at %s://%s%s\n", scheme, l.Addr(), gateway.Endpoint)
	s := &http.Server{
		Handler: g.Handler(ctx, o), ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	go func() {
		<-ctx.Done()
		_ = s.Close()
	}()
	if f.cert != "" {
		err = s.ServeTLS(l, f.cert, f.key)
	} else {
		err = s.Serve(l)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return exit(exitInterrupted)
	}
	return err
}
