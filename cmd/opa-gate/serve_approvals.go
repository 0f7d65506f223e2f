package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"

	"github.com/opa-gate/opa-gate/approvals"
	"github.com/opa-gate/opa-gate/server"
)

// A peopleFlags is what serve is told about the people who decide.
type peopleFlags struct {
	ledgers ledgerFlags
	tokens  string // a file
	made    string // the token of this run, if there is no file
}

// check refuses what cannot be, before anything is opened. Who can reach the
// approvals over a network needs a token that somebody gave them, and TLS on the
// way.
func (f *peopleFlags) check(opts *server.Options, given func(flag string) bool, plain bool) error {
	if !f.ledgers.configured() {
		for _, name := range []string{"key", "trust", "approval-tokens"} {
			if given(name) {
				return fmt.Errorf("--%s is for a ledger: name one with --ledger", name)
			}
		}
		return nil
	}
	if err := f.ledgers.check(); err != nil {
		return err
	}
	if given("approval-tokens") && f.tokens == "" {
		return errors.New("--approval-tokens: expected a file, got an empty name")
	}
	for _, addr := range opts.Addrs {
		if server.Loopback(addr) {
			continue
		}
		var missing []string
		if !plain && (opts.CertFile == "" || strings.HasPrefix(strings.ToLower(addr), "http://")) {
			missing = append(missing, "TLS (--tls-cert-file, --tls-private-key-file)")
		}
		if f.tokens == "" {
			missing = append(missing, "tokens (--approval-tokens)")
		}
		if len(missing) > 0 {
			return fmt.Errorf("approvals on --addr %s can be reached from other machines, which needs %s", addr, strings.Join(missing, " and "))
		}
	}
	return nil
}

// open opens the ledger and the tokens, if there is to be a ledger; its caller
// calls closeAll.
func (f *peopleFlags) open(ctx context.Context, opts *server.Options, log func(format string, args ...any)) (closeAll func(), err error) {
	if !f.ledgers.configured() {
		return func() {}, nil
	}
	var tokens *approvals.Tokens
	if f.tokens != "" {
		if tokens, err = approvals.OpenTokens(f.tokens); err != nil {
			return nil, err
		}
	} else {
		f.made, tokens = approvals.OneToken(approvals.Holder{Name: "local", Role: approvals.Approver})
	}
	l, err := f.ledgers.open(ctx)
	if err != nil {
		return nil, err
	}
	opts.Ledger = l
	opts.Approvals = approvals.New(&approvals.Options{Ledger: l, Tokens: tokens, Log: log})
	return func() {
		opts.Approvals.Close()
		_ = l.Close() // what was recorded is there
	}, nil
}

// tell says where people decide; with a token of this run, how they get in.
func (f *peopleFlags) tell(stderr io.Writer, opts *server.Options, addrs []string) {
	if opts.Approvals == nil {
		return
	}
	for _, addr := range addrs {
		page, ok := pageAddress(addr, opts.CertFile != "")
		if !ok {
			continue
		}
		if f.made != "" {
			page += "#token=" + f.made
		}
		_, _ = fmt.Fprintf(stderr, "opa-gate: approvals at %s\n", page)
		break
	}
	if f.made != "" {
		_, _ = fmt.Fprintln(stderr, "opa-gate: whoever has this token can approve, until the server stops: keep it from agents. "+
			"--approval-tokens has lasting ones.")
	}
}

// pageAddress is the page's address on an address that is listened on.
func pageAddress(addr string, secure bool) (string, bool) {
	if strings.HasPrefix(addr, "unix://") {
		return "", false
	}
	scheme := "http"
	if secure {
		scheme = "https"
	}
	if s, rest, ok := strings.Cut(addr, "://"); ok {
		scheme, addr = s, rest
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", false
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return (&url.URL{Scheme: scheme, Host: net.JoinHostPort(host, port), Path: "/approvals"}).String(), true
}
