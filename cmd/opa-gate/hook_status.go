package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/opa-gate/opa-gate/agent/hook"
	"github.com/opa-gate/opa-gate/agent/hook/settings"
	"github.com/opa-gate/opa-gate/wire"
)

// A hookStatus is what stands in one settings file.
type hookStatus struct {
	Settings string   `json:"settings"`
	Agent    string   `json:"agent"`
	Command  string   `json:"command,omitempty"` // "" if the hook is not installed
	Events   []string `json:"events"`
	Problems []string `json:"problems"`
}

func newHookStatus() *cobra.Command {
	format := newFormat()
	var where settingsFlags
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Tell where the hook is installed, and whether it works",
		Long: `Status looks at the settings of Claude Code and of Codex, the user's and those of
the project in the working directory, and tries what each hook there needs: its
program, policies, catalogue and ledger. The exit code is 1 if something is wrong
with one, or if none is installed.`,
		Example: "  opa-gate hook status --format json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := where.statuses(cmd.Context())
			if err != nil {
				return err
			}
			return writeStatus(cmd, all, format.value)
		},
	}
	where.add(cmd)
	format.add(cmd, "format", "how it is written")
	return cmd
}

func (f *settingsFlags) statuses(ctx context.Context) ([]hookStatus, error) {
	var out []hookStatus
	seen := map[string]bool{}
	for _, agent := range []string{string(hook.Claude), string(hook.Codex)} {
		for _, project := range []bool{false, true} {
			if f.project && !project {
				continue
			}
			path, err := (&settingsFlags{file: f.file, project: project}).path(agent)
			if err != nil {
				return nil, err
			}
			if seen[path] {
				continue
			}
			seen[path] = true
			out = append(out, statusOf(ctx, path, agent))
		}
	}
	return out, nil
}

func statusOf(ctx context.Context, path, agent string) hookStatus {
	s := hookStatus{Settings: path, Agent: agent, Events: []string{}, Problems: []string{}}
	file, err := settings.Read(path)
	var found []settings.Found
	if err == nil {
		found, err = findHooks(file)
	}
	if err != nil {
		s.Problems = append(s.Problems, err.Error())
		return s
	}
	for _, h := range found {
		if s.Command == "" {
			s.Command = h.Command
		}
		if h.Command != s.Command {
			s.Problems = append(s.Problems, fmt.Sprintf("the hook for %s is another command: %s", h.Event, h.Command))
		}
		if h.Matcher != "" && h.Matcher != "*" {
			s.Problems = append(s.Problems, fmt.Sprintf("the hook for %s is for %q only: other tools are not decided", h.Event, h.Matcher))
		}
		s.Events = append(s.Events, h.Event)
	}
	if s.Command != "" {
		s.try(ctx, found)
	}
	if s.Command != "" && s.Agent == string(hook.Claude) {
		s.Problems = append(s.Problems, switchedOff(path)...)
	}
	return s
}

// managedSettings is where an administrator's settings of Claude Code are.
const managedSettings = "/etc/claude-code/managed-settings.json"

// switchedOff tells what keeps Claude Code from running the hook in a settings file:
// a word in that, or in others that count beside it.
func switchedOff(path string) (problems []string) {
	places := []string{path, filepath.Join(filepath.Dir(path), "settings.local.json"), managedSettings,
		filepath.Join(".claude", "settings.json"), filepath.Join(".claude", "settings.local.json")}
	if user, err := (&settingsFlags{}).path(string(hook.Claude)); err == nil {
		places = append(places, user)
	}
	seen := map[string]bool{}
	for _, place := range places {
		file, err := settings.Read(place)
		if err != nil || seen[file.Path] {
			continue
		}
		seen[file.Path] = true
		for _, name := range settings.SwitchedOff(file.Text) {
			problems = append(problems, fmt.Sprintf("%s has %s: the agent does not run this hook, and no call is decided; take it out there", file.Path, name))
		}
	}
	return problems
}

// agentsLimit is how long agents wait for a hook of which the settings do not say it.
const agentsLimit = time.Minute

// try looks at what the installed command needs.
func (s *hookStatus) try(ctx context.Context, found []settings.Found) {
	wrong := func(format string, values ...any) { s.Problems = append(s.Problems, fmt.Sprintf(format, values...)) }
	program, args, _ := settings.Ours(s.Command)
	for _, name := range []string{program, filepath.Join(filepath.Dir(program), "opa-gate")} {
		if info, err := os.Stat(name); err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
			wrong("%s is not a program; install the hook again", name)
		}
	}
	f := newHookFlags()
	flags := &cobra.Command{}
	f.add(flags)
	if err := flags.ParseFlags(args); err != nil {
		wrong("the command's flags: %v", err)
		return
	}
	s.Agent = f.agent.value
	for _, event := range hook.Events(hook.Dialect(f.agent.value)) {
		if !slices.Contains(s.Events, event) {
			wrong("there is no hook for %s; install it again", event)
		}
	}
	for _, h := range found {
		limit := h.Timeout
		if limit <= 0 {
			limit = agentsLimit.Seconds()
		}
		if f.mode.value == modeEnforce && limit <= f.limit().Seconds() {
			wrong("the agent gives the hook for %s up after %gs, before it refuses by itself after %v, and lets the call run; install it again", h.Event, limit, f.limit())
		}
	}
	if f.mode.value == modeEnforce && !strings.HasSuffix(strings.TrimSpace(s.Command), "|| exit 2") {
		wrong("the command does not end with || exit 2: the agent lets calls run when it fails")
	}
	opened, err := f.open(ctx)
	if err == nil {
		_, err = opened.Handler.Gate.Sessions.State(ctx, "opa-gate hook status") // a look, nothing is kept
		err = errors.Join(err, opened.Close())
	}
	if err != nil {
		wrong("%v", err)
	}
}

func writeStatus(cmd *cobra.Command, all []hookStatus, format string) error {
	code, installed := exitDone, 0
	for _, s := range all {
		if s.Command != "" {
			installed++
		}
		if len(s.Problems) > 0 {
			code = exitCheck
		}
	}
	if installed == 0 {
		code = exitCheck
	}
	if format == "json" {
		text, err := encode(all)
		if err != nil {
			return err
		}
		if _, err := cmd.OutOrStdout().Write(text); err != nil {
			return err
		}
		return exit(code)
	}
	var b strings.Builder
	for _, s := range all {
		state := "not installed"
		if s.Command != "" {
			state = "installed"
		}
		_, _ = fmt.Fprintf(&b, "%-15s%-8s%s\n", state, s.Agent, wire.Printable(s.Settings))
		if s.Command != "" {
			_, _ = fmt.Fprintf(&b, "    command    %s\n", wire.Printable(s.Command))
		}
		for _, p := range s.Problems {
			_, _ = fmt.Fprintf(&b, "    problem    %s\n", wire.Printable(p))
		}
	}
	if _, err := cmd.OutOrStdout().Write([]byte(b.String())); err != nil {
		return err
	}
	return exit(code)
}
