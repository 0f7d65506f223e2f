package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/opa-gate/opa-gate/agent/hook"
	"github.com/opa-gate/opa-gate/agent/hook/line"
	"github.com/opa-gate/opa-gate/agent/hook/settings"
	"github.com/opa-gate/opa-gate/ledger"
	"github.com/opa-gate/opa-gate/wire"
)

// A settingsFlags says which settings file is meant.
type settingsFlags struct {
	file    string
	project bool
	yes     bool
}

func (f *settingsFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.file, "settings", "", "the settings in `FILE` (default the user's: ~/.claude/settings.json, or ~/.codex/hooks.json for Codex)")
	cmd.Flags().BoolVar(&f.project, "project", false, "the settings of the project in the working directory: .claude/settings.json or .codex/hooks.json")
	_ = cmd.MarkFlagFilename("settings", "json")
	cmd.MarkFlagsMutuallyExclusive("settings", "project")
}

func (f *settingsFlags) addYes(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&f.yes, "yes", "y", false, "write without asking")
}

// path is the settings file of an agent.
func (f *settingsFlags) path(agent string) (string, error) {
	if f.file != "" {
		return filepath.Abs(f.file)
	}
	folder, name, variable := ".claude", "settings.json", "CLAUDE_CONFIG_DIR"
	if agent == string(hook.Codex) {
		folder, name, variable = ".codex", "hooks.json", "CODEX_HOME"
	}
	if f.project {
		return filepath.Abs(filepath.Join(folder, name))
	}
	if dir := os.Getenv(variable); filepath.IsAbs(dir) {
		return filepath.Join(dir, name), nil
	}
	home, err := os.UserHomeDir()
	if err == nil && !filepath.IsAbs(home) {
		err = fmt.Errorf("the home directory: expected an absolute path, got %q", home)
	}
	return filepath.Join(home, folder, name), err
}

// recordFile is where it is kept what an installation did to a file.
func recordFile(path string) (string, error) {
	state, err := ledger.DefaultPath()
	return settings.RecordFile(filepath.Dir(state), path), err
}

func newHookInstall() *cobra.Command {
	f := newHookFlags()
	var where settingsFlags
	var onFailure bool
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Put the hook into an agent's settings",
		Long: `Install puts the hook into the settings of an agent, with the flags that it was
given, for every event and every tool. It shows the change and asks; the rest of
the file stays as it is, byte for byte, and uninstall undoes it.

The command in the settings ends with || exit 2, because agents let a call run if
a hook fails in any other way. Claude Code from 2.1.295 on can be told as well,
with --on-failure-block. If opa-gate-hook stands beside opa-gate, that is
installed: it answers in a few milliseconds.

With --mode shadow the command ends with || true: nothing is ever in the way. The
exit code is 1 if settings of Claude Code keep it from running any hook.`,
		Example: `  opa-gate hook install
  opa-gate hook install --project --catalogue ./agent.toml --mode shadow
  opa-gate hook install --agent codex --yes`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opened, err := f.open(cmd.Context()) // what does not work is not installed
			if err != nil {
				return err
			}
			if err := opened.Close(); err != nil {
				return err
			}
			path, err := where.path(f.agent.value)
			if err != nil {
				return err
			}
			command, err := f.commandLine(cmd)
			if err != nil {
				return err
			}
			h := settings.Hook{Command: command, OnFailure: onFailure && f.mode.value == modeEnforce,
				Timeout: int((f.limit() + 10*time.Second + time.Second - 1) / time.Second)}
			if err := install(cmd, path, hook.Events(hook.Dialect(f.agent.value)), h, where.yes); err != nil || f.agent.value != string(hook.Claude) {
				return err
			}
			off := switchedOff(path)
			for _, problem := range off {
				_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "opa-gate: %s\n", wire.Printable(problem))
			}
			if len(off) > 0 {
				return exit(exitCheck)
			}
			return nil
		},
	}
	f.add(cmd)
	where.add(cmd)
	where.addYes(cmd)
	cmd.Flags().BoolVar(&onFailure, "on-failure-block", false, "also say onFailure: block, which Claude Code knows from 2.1.295 on")
	return cmd
}

// installOnly are flags of install that are not the hook's.
var installOnly = map[string]bool{"settings": true, "project": true, "yes": true, "on-failure-block": true}

// commandLine is what stands in the settings: the program and the flags that
// were given, with absolute paths.
func (f *hookFlags) commandLine(cmd *cobra.Command) (string, error) {
	for _, path := range []*string{&f.policies, &f.catalogue, &f.log, &f.ledger.keyFile} {
		if *path != "" {
			abs, err := filepath.Abs(*path)
			if err != nil {
				return "", err
			}
			*path = abs
		}
	}
	for i, path := range f.ledger.trust {
		abs, err := filepath.Abs(path)
		if err != nil {
			return "", err
		}
		f.ledger.trust[i] = abs
	}
	if name, isFile := strings.CutPrefix(f.ledger.name, "sqlite:"); name != "" && (isFile || !strings.Contains(name, ":")) {
		abs, err := filepath.Abs(name)
		if err != nil {
			return "", err
		}
		f.ledger.name = abs
	}
	var words []string
	light, err := line.Beside("opa-gate-hook")
	if err != nil {
		return "", err
	}
	if info, err := os.Stat(light); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
		words = append(words, settings.Quote(light))
	} else {
		program, err := line.Beside("opa-gate")
		if err != nil {
			return "", err
		}
		words = append(words, settings.Quote(program), "hook")
	}
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		if installOnly[flag.Name] {
			return
		}
		values := []string{flag.Value.String()}
		if several, ok := flag.Value.(pflag.SliceValue); ok {
			values = several.GetSlice()
		}
		for _, value := range values {
			words = append(words, settings.Quote("--"+flag.Name+"="+value))
		}
	})
	ending := "|| exit 2"
	if f.mode.value == modeShadow {
		ending = "|| true"
	}
	return strings.Join(append(words, ending), " "), nil
}

func install(cmd *cobra.Command, path string, events []string, h settings.Hook, yes bool) error {
	file, err := settings.Read(path)
	if err != nil {
		return err
	}
	record, err := recordFile(file.Path)
	if err != nil {
		return err
	}
	before, err := file.Without(settings.LoadRecord(record, file.Path))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	after, put, err := settings.Install(before, events, h)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if string(after) == string(file.Text) {
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s has this hook already.\n", wire.Printable(path))
		return err
	}
	if err := agree(cmd, path, file.Text, after, yes); err != nil {
		return err
	}
	made := &settings.Record{Path: file.Path, There: before != nil && file.There, Put: put}
	if err := file.Write(after, func() error { return made.Save(record) }); err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "Installed in %s. Sessions that run already may need a restart.\n", wire.Printable(path))
	return err
}

func newHookUninstall() *cobra.Command {
	agent := choice{value: string(hook.Claude), names: []string{string(hook.Claude), string(hook.Codex)}}
	var where settingsFlags
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Take the hook out of an agent's settings",
		Long: `Uninstall takes the hook out again. If nobody has written to what install put in,
the file is what it was before, byte for byte, or gone if there was none.`,
		Example: "  opa-gate hook uninstall --project",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, err := where.path(agent.value)
			if err != nil {
				return err
			}
			file, err := settings.Read(path)
			if err != nil {
				return err
			}
			found, err := findHooks(file)
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			if len(found) == 0 {
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s has no hook of opa-gate.\n", wire.Printable(path))
				return err
			}
			record, err := recordFile(file.Path)
			if err != nil {
				return err
			}
			before, err := file.Without(settings.LoadRecord(record, file.Path))
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			if err := agree(cmd, path, file.Text, before, where.yes); err != nil {
				return err
			}
			if err := file.Write(before, nil); err != nil {
				return err
			}
			if err := os.Remove(record); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "Taken out of %s.\n", wire.Printable(path))
			return err
		},
	}
	agent.add(cmd, "agent", "whose settings they are")
	where.add(cmd)
	where.addYes(cmd)
	return cmd
}

func findHooks(f *settings.File) ([]settings.Found, error) {
	if !f.There || strings.TrimSpace(string(f.Text)) == "" {
		return nil, nil
	}
	return settings.Find(f.Text)
}

// agree shows a change and asks whether to make it.
func agree(cmd *cobra.Command, path string, before, after []byte, yes bool) error {
	out := cmd.OutOrStdout()
	if _, err := fmt.Fprintf(out, "%s:\n%s", wire.Printable(path), changes(string(before), string(after))); err != nil {
		return err
	}
	if yes {
		return nil
	}
	if !asks(cmd) {
		return errors.New("nothing was written: there is no terminal to ask at; add --yes to write this")
	}
	if _, err := io.WriteString(out, "Write this? [y/N] "); err != nil {
		return err
	}
	switch yes, err := agreed(cmd.Context(), cmd); {
	case err != nil:
		return err
	case !yes:
		return errors.New("nothing was written")
	}
	return nil
}

// changes lists the lines that go and come, with their numbers.
func changes(before, after string) string {
	a, b := strings.Split(before, "\n"), strings.Split(after, "\n")
	// The longest common subsequence, of what is between the common ends.
	from := 0
	for from < len(a) && from < len(b) && a[from] == b[from] {
		from++
	}
	endA, endB := len(a), len(b)
	for endA > from && endB > from && a[endA-1] == b[endB-1] {
		endA, endB = endA-1, endB-1
	}
	x, y := a[from:endA], b[from:endB]
	common := make([][]int, len(x)+1)
	for i := range common {
		common[i] = make([]int, len(y)+1)
	}
	const cells = 1 << 24 // beyond that all of it goes and comes
	if len(x)*len(y) <= cells {
		for i := len(x) - 1; i >= 0; i-- {
			for j := len(y) - 1; j >= 0; j-- {
				if x[i] == y[j] {
					common[i][j] = common[i+1][j+1] + 1
				} else {
					common[i][j] = max(common[i+1][j], common[i][j+1])
				}
			}
		}
	}
	var out strings.Builder
	show := func(sign string, n int, text string) {
		_, _ = fmt.Fprintf(&out, "%s %4d  %s\n", sign, n, wire.Printable(text))
	}
	for i, j := 0, 0; i < len(x) || j < len(y); {
		switch {
		case i < len(x) && j < len(y) && x[i] == y[j] && common[i][j] > 0:
			i, j = i+1, j+1
		case i < len(x) && (j == len(y) || common[i+1][j] >= common[i][j+1]):
			show("-", from+i+1, x[i])
			i++
		default:
			show("+", from+j+1, y[j])
			j++
		}
	}
	return out.String()
}
