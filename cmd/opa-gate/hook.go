package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/opa-gate/opa-gate/agent"
	"github.com/opa-gate/opa-gate/agent/hook"
	"github.com/opa-gate/opa-gate/agent/hook/line"
	"github.com/opa-gate/opa-gate/ledger"
)

// A hookFlags is what decides how hooks are answered.
type hookFlags struct {
	policies, system, catalogue, log string
	ledger                           ledgerFlags
	agent, mode                      choice
	autoAllow                        bool
	wait, deadline, idle             time.Duration
	given                            func(flag string) bool
}

const (
	modeEnforce = "enforce"
	modeShadow  = "shadow"
)

func newHookFlags() *hookFlags {
	return &hookFlags{
		agent: choice{value: string(hook.Claude), names: []string{string(hook.Claude), string(hook.Codex)}},
		mode:  choice{value: modeEnforce, names: []string{modeEnforce, modeShadow}},
	}
}

func (f *hookFlags) add(cmd *cobra.Command) {
	f.given = cmd.Flags().Changed
	addPolicies(cmd, &f.policies)
	cmd.Flags().StringVar(&f.system, "system", "", "the `NAME` of the system in sentences for a person")
	addCatalogue(cmd, &f.catalogue)
	f.ledger.addTo(cmd.Flags())
	f.agent.add(cmd, "agent", "whose hook it is")
	f.mode.add(cmd, "mode", "enforce decides; shadow decides and logs, and never interferes")
	cmd.Flags().BoolVar(&f.autoAllow, "auto-allow", false, "answer allow, which skips the agent's own permission prompt, where the policy allows")
	cmd.Flags().DurationVar(&f.wait, "wait", 0, "wait so long for somebody to approve an escalation in the ledger before the agent asks")
	cmd.Flags().DurationVar(&f.deadline, "deadline", line.DefaultDeadline, "refuse the call if nothing was decided within this time, besides --wait; less than the agent's own limit")
	cmd.Flags().DurationVar(&f.idle, "idle", 15*time.Minute, "how long the resident gate that opa-gate-hook starts stays when nobody asks")
	cmd.Flags().StringVar(&f.log, "log", "", "append a line of JSON for each decision to `FILE`, without arguments")
	_ = cmd.MarkFlagFilename("log")
}

func addCatalogue(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "catalogue", "", "what the agent's tools are, in `FILE` (TOML, YAML or JSON), over the catalogue that ships")
	_ = cmd.MarkFlagFilename("catalogue", "toml", "yaml", "yml", "json")
}

func newHook() *cobra.Command {
	f := newHookFlags()
	cmd := &cobra.Command{
		Use:   "hook",
		Short: "Answer the hooks of a coding agent; install them",
		Long: `Hook reads one event of a coding agent from standard input and writes the answer.
It knows PreToolUse, PostToolUse, PostToolUseFailure, UserPromptSubmit and
SessionStart, in the form of Claude Code and of Codex.

Before a call it decides: deny and ask are the agent's own, changed arguments and
notes are passed on. A call that the policy allows gets no answer, so that the
agent's own permissions go on counting; with --auto-allow it is allowed. A call
that needs a person waits in the ledger, and the agent asks as well where its
mode has somebody to ask.

From the moment at which a call may bring outside content in, the conversation is
tainted; opa-gate session tells by which. A conversation that the gate did not see
begin is tainted too.

Whatever goes wrong refuses the call: exit code 2, and one line that tells what
to do. Agents let a call run if a hook exits with another code, so the command in
their settings ends with || exit 2; opa-gate hook install writes it so.`,
		Example: `  opa-gate hook install
  echo '{"hook_event_name": "PreToolUse", "session_id": "s1", "cwd": "/work", "tool_name": "WebFetch",
    "tool_use_id": "t1", "tool_input": {"url": "https://example.org"}}' | opa-gate hook
  opa-gate hook --policies /etc/opa-gate/policies --catalogue /etc/opa-gate/agent.toml --wait 2m`,
		Args: knownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.answer(cmd) },
	}
	f.add(cmd)
	cmd.AddCommand(newHookInstall(), newHookUninstall(), newHookStatus(), newHookServe())
	return cmd
}

// answer is opa-gate hook.
func (f *hookFlags) answer(cmd *cobra.Command) error {
	replied := make(chan hook.Reply, 1)
	ctx, cancel := context.WithTimeout(cmd.Context(), f.limit()-max(f.deadline, time.Second)/10) // the gate's own words come first
	defer cancel()
	go func() { replied <- f.reply(ctx, cmd.InOrStdin()) }()
	var r hook.Reply
	select {
	case r = <-replied:
	case <-time.After(f.limit()):
		r = hook.Block(fmt.Sprintf("nothing was decided within %v; make the call again, or give --deadline more time", f.limit()))
	}
	if r.Exit == hook.ExitDone && !line.Heard(cmd.OutOrStdout()) {
		r = hook.Block("standard output leads nowhere, so that no answer would be read; start the hook with one")
	}
	written := make(chan error, 1)
	code := line.InTime(func() int {
		_, _ = io.WriteString(cmd.ErrOrStderr(), r.Stderr)
		if f.mode.value == modeShadow && r.Exit != hook.ExitDone {
			r = hook.Reply{Stdout: []byte("{}\n")}
		}
		_, err := cmd.OutOrStdout().Write(r.Stdout)
		written <- err
		return r.Exit
	})
	select {
	case err := <-written:
		if err != nil {
			return fmt.Errorf("the answer cannot be written: %w", err)
		}
	default: // nobody reads it
		if f.mode.value == modeShadow {
			code = hook.ExitDone
		}
	}
	return exit(code)
}

// limit is how long an answer may take, also one that says what is wrong with the
// flags.
func (f *hookFlags) limit() time.Duration { return max(f.deadline, time.Second) + max(f.wait, 0) }

func (f *hookFlags) reply(ctx context.Context, in io.Reader) (r hook.Reply) {
	defer func() {
		if p := recover(); p != nil {
			r = hook.Block(fmt.Sprintf("the gate failed: %v; report this, and make the call again", p))
		}
	}()
	input, err := io.ReadAll(io.LimitReader(in, line.MaxInput))
	if err != nil {
		return hook.Block("the agent's event cannot be read: " + err.Error())
	}
	opened, err := f.open(ctx)
	if err != nil {
		return hook.Refuse(err)
	}
	r = opened.Handler.Handle(ctx, input, os.Getenv("CLAUDE_PROJECT_DIR"))
	if err := opened.Close(); err != nil { // what it was to keep may not be kept
		return hook.Refuse(err)
	}
	return r
}

// open makes the handler that the flags describe.
func (f *hookFlags) open(ctx context.Context) (*hook.Opened, error) {
	if f.deadline < time.Second || f.wait < 0 {
		return nil, errors.New("--deadline: expected at least 1s, and --wait: no less than 0")
	}
	g, l, err := f.gate(ctx)
	if err != nil {
		return nil, err
	}
	h := &hook.Handler{
		Gate: g, Dialect: hook.Dialect(f.agent.value), AutoAllow: f.autoAllow, Shadow: f.mode.value == modeShadow, Wait: f.wait,
	}
	closers := []io.Closer{l}
	if f.log != "" {
		log, err := os.OpenFile(f.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("--log: %w", err), l.Close())
		}
		h.Log = log
		closers = append(closers, log)
	}
	return &hook.Opened{Handler: h, Close: func() error {
		var err error
		for _, c := range closers {
			err = errors.Join(err, c.Close())
		}
		return err
	}}, nil
}

// gate makes the gate that the flags describe, and the ledger that it keeps
// things in.
func (f *hookFlags) gate(ctx context.Context) (*agent.Gate, *ledger.Ledger, error) {
	catalogue, err := agent.LoadCatalogue(f.catalogue)
	if err != nil {
		return nil, nil, err
	}
	e, err := loadPolicies(ctx, f.policies, f.given("policies"), f.system)
	if err != nil {
		return nil, nil, err
	}
	revision, err := e.Digest()
	if err != nil {
		return nil, nil, err
	}
	l, err := f.ledger.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	kept := agent.OnLedger(l)
	g := &agent.Gate{Engine: e, Tainter: e, Steers: e.Steers(), Catalogue: catalogue, Sessions: &agent.Sessions{Log: kept}, Revision: revision}
	if f.mode.value != modeShadow { // which asks nobody anything
		g.Approvals = kept
	}
	return g, l, nil
}

// watched is what the gate is made from.
func (f *hookFlags) watched() []hook.Watched {
	var out []hook.Watched
	for _, path := range []string{f.policies, f.catalogue} {
		if path != "" {
			out = append(out, hook.Watched{Path: path})
		}
	}
	file, keys := f.ledger.files()
	for _, path := range []string{file, f.log} {
		if path != "" {
			out = append(out, hook.Watched{Path: path, Same: true})
		}
	}
	for _, path := range keys { // whom nobody trusts any longer must not count
		out = append(out, hook.Watched{Path: path, Optional: true})
	}
	return out
}

func newHookServe() *cobra.Command {
	f := newHookFlags()
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Answer hooks of one command line from one process; opa-gate-hook starts it",
		Long: `Serve is the resident gate that opa-gate-hook asks, and that it starts with its
own flags. It listens on a Unix socket in a folder of the user's alone, talks to
nobody else, notices when policies, catalogue or ledger change, and ends when
nobody has asked for a while (--idle). Paths have to be absolute.`,
		Example: "  opa-gate hook serve --idle 1h",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			program, err := os.Executable()
			if err == nil {
				program, err = filepath.EvalSymlinks(program)
			}
			if err != nil {
				return err
			}
			l, err := line.Listen(program, os.Args[3:])
			if errors.Is(err, line.ErrRuns) {
				return nil
			}
			if err != nil {
				return err
			}
			s := &hook.Server{Open: f.open, Files: f.watched(), Deadline: f.limit(), Idle: f.idle}
			return s.Serve(cmd.Context(), l)
		},
	}
	f.add(cmd)
	return cmd
}
