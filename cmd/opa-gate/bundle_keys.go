package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/opa-gate/opa-gate/bundle"
)

// maxSecret bounds a file with a key or a password.
const maxSecret = 1 << 20

// A secretFlags is a pair of flags for something that nobody else may see: it is
// in a file or in an environment variable, and never on the command line, where
// other users see it.
type secretFlags struct {
	what, flag string // what it is, and the flag's name
	file, env  string
	given      func(flag string) bool
	ownersOnly bool // a file that others may read is refused
}

// add makes them flags of cmd.
func (s *secretFlags) add(cmd *cobra.Command, flag, what, about string) {
	s.flag, s.what, s.given = flag, what, cmd.Flags().Changed
	cmd.Flags().StringVar(&s.file, flag, "", about+" in this `FILE`")
	cmd.Flags().StringVar(&s.env, flag+"-env", "", "the same, in the environment variable `NAME`")
	_ = cmd.MarkFlagFilename(flag)
}

func (s *secretFlags) isGiven() bool { return s.given(s.flag) || s.given(s.flag+"-env") }

// read reads it. An error has no value of a flag in it: somebody may have given
// the secret itself there.
func (s *secretFlags) read() ([]byte, error) {
	switch byFile, byEnv := s.given(s.flag), s.given(s.flag+"-env"); {
	case byFile && byEnv:
		return nil, fmt.Errorf("give one of --%s and --%s-env", s.flag, s.flag)
	case byEnv:
		text, there := os.LookupEnv(s.env)
		if !there || text == "" {
			return nil, fmt.Errorf("--%s-env: there is nothing in an environment variable of that name; expected the name of one that has %s", s.flag, s.what)
		}
		return []byte(text), nil
	}
	f, err := os.Open(s.file)
	if err != nil {
		return nil, s.unreadable(err)
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err != nil {
		return nil, s.unreadable(err)
	} else if mode := info.Mode().Perm(); s.ownersOnly && mode&0o077 != 0 && runtime.GOOS != "windows" {
		return nil, fmt.Errorf("--%s: the file with %s is open to others (mode %#o); expected one that only its owner may use: chmod 600 it", s.flag, s.what, mode)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	if err != nil {
		return nil, s.unreadable(err)
	}
	if len(text) > maxSecret {
		return nil, fmt.Errorf("--%s: the file is too large for %s", s.flag, s.what)
	}
	return text, nil
}

func (s *secretFlags) unreadable(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) { // without its path
		err = at.Err
	}
	return fmt.Errorf("--%s: the file with %s cannot be read: %w", s.flag, s.what, err)
}

// A keyFlags is the flags that say by what key a bundle is signed or verified.
type keyFlags struct {
	key       secretFlags
	algorithm choice
	id, scope string
}

func (k *keyFlags) add(cmd *cobra.Command, flag, what, about, id, scope string) {
	k.key.add(cmd, flag, what, about)
	k.algorithm.value = string(bundle.RS256)
	for _, a := range bundle.Algorithms() {
		k.algorithm.names = append(k.algorithm.names, string(a))
	}
	k.algorithm.add(cmd, "algorithm", "the algorithm of the signature")
	cmd.Flags().StringVar(&k.id, "key-id", "", id)
	cmd.Flags().StringVar(&k.scope, "scope", "", scope)
}

// check refuses flags that have no effect without a key.
func (k *keyFlags) check() error {
	if k.key.isGiven() {
		return nil
	}
	for _, flag := range []string{"algorithm", "key-id", "scope"} {
		if k.key.given(flag) {
			return fmt.Errorf("--%s has no effect without --%s or --%s-env", flag, k.key.flag, k.key.flag)
		}
	}
	return nil
}

// A signingFlags is the flags for signing.
type signingFlags struct{ keyFlags }

func (s *signingFlags) add(cmd *cobra.Command) {
	s.keyFlags.add(cmd, "signing-key", "a private key", "sign with the private key, in PEM, or the secret of HS256",
		"what OPAs call the `KEY` (default "+bundle.DefaultKeyID+")", "the `SCOPE` that verifiers have to demand")
}

// read returns the key, or nil if none is given.
func (s *signingFlags) read() (*bundle.SigningKey, error) {
	if err := s.check(); err != nil || !s.key.isGiven() {
		return nil, err
	}
	text, err := s.key.read()
	if err != nil {
		return nil, err
	}
	key, err := bundle.NewSigningKey(bundle.Algorithm(s.algorithm.value), text)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", s.key.flag, err)
	}
	key.ID, key.Scope = s.id, s.scope
	return key, nil
}

// A verificationFlags is the flags for verifying.
type verificationFlags struct {
	keyFlags
	signatureOnly bool
}

func (v *verificationFlags) add(cmd *cobra.Command) {
	v.keyFlags.add(cmd, "verification-key", "a public key", "verify with the public key, in PEM, or the secret of HS256",
		"demand a signature that names this `KEY`; without it, any name will do", "demand a signature for this `SCOPE`; without it, one for none")
	cmd.Flags().BoolVar(&v.signatureOnly, "signature-only", false, "do not look at whether the bundle can be used")
}

// read returns the key, or nil if none is given.
func (v *verificationFlags) read() (*bundle.VerificationKey, error) {
	if err := v.check(); err != nil || !v.key.isGiven() {
		return nil, err
	}
	text, err := v.key.read()
	if err != nil {
		return nil, err
	}
	key, err := bundle.NewVerificationKey(bundle.Algorithm(v.algorithm.value), text)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", v.key.flag, err)
	}
	key.ID, key.Scope = v.id, v.scope
	return key, nil
}

// A verdict is what verifying a bundle has come to.
type verdict struct {
	OK       bool             `json:"ok"`
	Bundle   string           `json:"bundle"`
	Error    string           `json:"error,omitempty"`
	Verified *bundle.Verified `json:"verified"` // null: the signature is not good
	Loads    *bool            `json:"loads"`    // null: it was not looked at
}

// verdict verifies a bundle. An error is about the key or the text, and not what
// the bundle was found to be.
func (v *verificationFlags) verdict(ctx context.Context, name string, text []byte, key *bundle.VerificationKey) (*verdict, error) {
	d := &verdict{Bundle: name}
	verified, err := bundle.Verify(text, key)
	switch {
	case errors.Is(err, bundle.ErrNotVerified):
		d.Error = err.Error()
		return d, nil
	case err != nil:
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	d.Verified, d.OK = verified, true
	if v.signatureOnly {
		return d, nil
	}
	if err = bundle.Loads(ctx, text); ctx.Err() != nil {
		return nil, ctx.Err()
	}
	d.OK = err == nil
	d.Loads = &d.OK
	if err != nil {
		d.Error = "its signature is good, but it cannot be used: " + err.Error()
	}
	return d, nil
}

// report words a verdict.
func (d *verdict) report() *report {
	r := &report{label: "verified", colour: green, name: d.Bundle, json: d}
	if !d.OK {
		r.label, r.colour, r.reason = "refused", red, d.Error
	}
	if v := d.Verified; v != nil {
		r.lines = append(r.lines, [2]string{"algorithm", string(v.Algorithm)}, [2]string{"key id", v.KeyID}, [2]string{"scope", orNone(v.Scope)},
			[2]string{"revision", orNone(v.Revision)}, [2]string{"roots", listed(v.Roots)},
			[2]string{"files", fmt.Sprintf("%s: %s", grouped(len(v.Files)), listed(v.Files))}, [2]string{"digest", v.Digest})
		switch {
		case d.Loads == nil:
			r.lines = append(r.lines, [2]string{"loads", "not looked at"})
		case *d.Loads:
			r.lines = append(r.lines, [2]string{"loads", "yes"})
		default:
			r.lines = append(r.lines, [2]string{"loads", "no"})
		}
	}
	return r
}
