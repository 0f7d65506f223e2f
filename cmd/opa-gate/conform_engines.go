package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/opa-gate/opa-gate/conformance"
	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/wire"
)

// The engines that only conform has.
const (
	engineWasm = "wasm"
	engineURL  = "url=" // and an address
)

// tokenVariable is the environment variable with the bearer token for servers.
const tokenVariable = "OPA_GATE_URL_TOKEN"

// autoRounds is how often a case is put to the engine that compiles policies as
// they are used. Its very first call leaves no trace, the first of a kind fills
// a table, and only what comes behind them is answered from it.
const autoRounds = 3

// An engineList is the value of a flag that lists engines, servers among them.
type engineList struct{ value string }

var engineWords = []string{engineAuto, engineOPA, engineNative, engineBoth, engineWasm}

// String implements pflag.Value.
func (l *engineList) String() string { return l.value }

// Type implements pflag.Value: what help shows.
func (l *engineList) Type() string { return strings.Join(engineWords, "|") + "|" + engineURL + "URL" }

// Set implements pflag.Value. An address is looked at when it is used: it may
// contain a password, which no message repeats.
func (l *engineList) Set(value string) error {
	for name := range strings.SplitSeq(value, ",") {
		switch {
		case slices.Contains(engineWords, name), strings.HasPrefix(name, engineURL):
		case strings.Contains(name, "://"):
			return fmt.Errorf("a server is written %sURL", engineURL)
		default:
			message := fmt.Sprintf("expected %s, got %q", alternatives(append(slices.Clone(engineWords), engineURL+"URL")), name)
			if nearest := wire.Nearest(name, engineWords); nearest != "" {
				message += fmt.Sprintf("; did you mean %q?", nearest)
			}
			return errors.New(message)
		}
	}
	l.value = value
	return nil
}

// names returns the listed engines, each once.
func (l *engineList) names() []string {
	var names []string
	for name := range strings.SplitSeq(l.value, ",") {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// conformEngines is the flags that say which engines are asked, and how.
type conformEngines struct {
	list      engineList
	policies  string
	tokenFile string
	caFile    string
	timeout   time.Duration
}

func (f *conformEngines) add(cmd *cobra.Command) {
	cmd.Flags().Var(&f.list, "engine", "whose answers are checked: the policies', compiled as they are used or always by OPA, "+
		"the native reference's, those of opa and native both, which must agree, those of the policies' wasm build, "+
		"or a server's; or a list, one after the other")
	words := append(slices.Clone(engineWords), engineURL)
	_ = cmd.RegisterFlagCompletionFunc("engine", cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	addPolicies(cmd, &f.policies)
	cmd.Flags().StringVar(&f.tokenFile, "url-token-file", "", "send servers the bearer token in `FILE`")
	cmd.Flags().StringVar(&f.caFile, "url-ca-file", "", "trust the certificates in `FILE`, in PEM form, in place of the system's")
	cmd.Flags().DurationVar(&f.timeout, "url-timeout", defaultURLTimeout, "how long a server may take for one answer")
}

// open makes the engines.
func (f *conformEngines) open(cmd *cobra.Command) ([]conformance.Engine, error) {
	names := f.list.names()
	given := cmd.Flags().Changed
	if given("policies") && f.policies == "" {
		return nil, errNoDirectory
	}
	if given("policies") && !slices.ContainsFunc(names, func(name string) bool {
		return name != engineNative && !strings.HasPrefix(name, engineURL)
	}) {
		return nil, errors.New("--policies has no effect on the engines native and url; leave it out, or take --engine auto, opa, both or wasm")
	}
	for _, flag := range []string{"url-token-file", "url-ca-file", "url-timeout"} {
		if given(flag) && !slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, engineURL) }) {
			return nil, fmt.Errorf("--%s has no effect without a server; leave it out, or take --engine %sURL", flag, engineURL)
		}
	}
	server, err := f.serverOptions(given)
	if err != nil {
		return nil, err
	}
	var engines []conformance.Engine
	for _, name := range names {
		engine, err := f.openOne(cmd, name, server)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(engines, func(e conformance.Engine) bool { return e.Name == engine.Name }) {
			return nil, fmt.Errorf("--engine: %s is listed twice", engine.Name)
		}
		engines = append(engines, engine)
	}
	return engines, nil
}

func (f *conformEngines) openOne(cmd *cobra.Command, name string, server *conformance.ServerOptions) (conformance.Engine, error) {
	var none conformance.Engine
	if address, ok := strings.CutPrefix(name, engineURL); ok {
		s, err := conformance.NewServer(address, server)
		if err != nil {
			return none, fmt.Errorf("--engine %sURL: %w", engineURL, err)
		}
		return s.Engine(), nil
	}
	native := evaluator.Native{}
	if name == engineNative {
		return conformance.Of(native, name, 1), nil
	}
	given := cmd.Flags().Changed("policies")
	e, err := loadPolicies(cmd.Context(), f.policies, given, "")
	if err != nil {
		return none, err
	}
	switch name {
	case engineOPA:
		return conformance.Of(e.Interpreter(), name, 1), nil
	case engineBoth: // the rules as they are written are what must agree
		return conformance.Of(evaluator.Both(native, e.Interpreter()), name, 1), nil
	case engineWasm:
		w, err := conformance.NewWasm(cmd.Context(), &evaluator.Options{Dir: f.policies})
		if err != nil {
			return none, err
		}
		return w.Engine(), nil
	default:
		return conformance.Of(e, name, autoRounds), nil
	}
}

// maxSecretFile bounds a file with a token: what is longer is another file.
const maxSecretFile = 64 << 10

func (f *conformEngines) serverOptions(given func(flag string) bool) (*conformance.ServerOptions, error) {
	o := &conformance.ServerOptions{Timeout: f.timeout, Token: os.Getenv(tokenVariable)}
	if f.timeout <= 0 {
		return nil, fmt.Errorf("--url-timeout: expected more than nothing, got %v", f.timeout)
	}
	if given("url-token-file") {
		text, err := os.ReadFile(f.tokenFile)
		if err != nil {
			return nil, fmt.Errorf("--url-token-file: %w", err)
		}
		o.Token = strings.TrimSpace(string(text))
		switch {
		case o.Token == "":
			return nil, fmt.Errorf("--url-token-file: %s is empty, expected a token", f.tokenFile)
		case len(text) > maxSecretFile:
			return nil, fmt.Errorf("--url-token-file: %s has %d bytes, which no token has", f.tokenFile, len(text))
		}
	}
	if given("url-ca-file") {
		text, err := os.ReadFile(f.caFile)
		if err != nil {
			return nil, fmt.Errorf("--url-ca-file: %w", err)
		}
		if o.CA = text; len(text) == 0 {
			return nil, fmt.Errorf("--url-ca-file: %s is empty, expected certificates in PEM form", f.caFile)
		}
	}
	return o, nil
}
