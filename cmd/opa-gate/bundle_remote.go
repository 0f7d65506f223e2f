package main

import (
	"bytes"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/opa-gate/opa-gate/bundle"
)

// A remoteFlags is the flags that say how a registry is spoken to.
type remoteFlags struct {
	plain    choice
	username string
	password secretFlags
	timeout  time.Duration
}

func (r *remoteFlags) add(cmd *cobra.Command) {
	r.plain = choice{value: "no", names: []string{"no", "loopback", "any"}}
	r.plain.add(cmd, "plain-http", "speak to the registry without TLS: only if it is on this machine, or to any")
	cmd.Flags().Lookup("plain-http").NoOptDefVal = "loopback"
	cmd.Flags().StringVar(&r.username, "username", "", "the `NAME` of a user of the registry; without it the password is a token")
	r.password.add(cmd, "password", "a password", "the registry's password or token")
	cmd.Flags().DurationVar(&r.timeout, "timeout", bundle.DefaultTimeout, "give up after this `TIME`")
}

func (r *remoteFlags) read() (*bundle.RemoteOptions, error) {
	opts := &bundle.RemoteOptions{Timeout: r.timeout, PlainHTTP: map[string]bundle.PlainHTTP{
		"no": bundle.NoPlainHTTP, "loopback": bundle.PlainHTTPLoopback, "any": bundle.PlainHTTPAny}[r.plain.value]}
	switch {
	case r.timeout <= 0:
		return nil, errors.New("--timeout: expected a time above 0, such as 30s")
	case !r.password.isGiven() && r.username != "":
		return nil, errors.New("--username has no effect without --password or --password-env")
	case !r.password.isGiven():
		return opts, nil
	}
	text, err := r.password.read()
	if err != nil {
		return nil, err
	}
	if text = bytes.TrimRight(text, "\r\n"); len(text) == 0 {
		return nil, errors.New("--password: there is nothing in it")
	}
	opts.Credential = bundle.NewCredential(r.username, string(text))
	return opts, nil
}

// remoteHelp is what help says of registries.
const remoteHelp = `Without --password the credentials are those that docker login has left behind, if
there are any. TLS is a must, but for a registry on this machine with
--plain-http. A registry elsewhere without TLS takes --plain-http=any, and
whoever is on the way reads the password and changes the bundle.`
