package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/opa-gate/opa-gate/wire"
)

// The exit codes. The higher one wins where a command has several answers.
const (
	exitDone  = 0
	exitCheck = 1 // a check failed
	exitInput = 2 // the usage or the input is wrong

	exitInterrupted = 130 // somebody pressed Ctrl-C; it is what shells make of that
)

// An exitError ends the program with a code. Everything was already said.
type exitError int

// Error implements error.
func (e exitError) Error() string { return "exit code " + strconv.Itoa(int(e)) }

// exit is the error for a code: none for exitDone.
func exit(code int) error {
	if code == exitDone {
		return nil
	}
	return exitError(code)
}

// run is the whole program but for the process around it.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	helped := keepHelpError(root)
	err := root.ExecuteContext(context.Background())
	if err == nil {
		err = *helped
	}
	var code exitError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &code):
		return int(code)
	case errors.Is(err, syscall.EPIPE): // whoever read the answers has seen enough
		return exitInput
	}
	complain(stderr, err.Error())
	return exitInput
}

// keepHelpError has root's help tell whether it could be written: cobra does not.
func keepHelpError(root *cobra.Command) *error {
	var failed error
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		out := cmd.OutOrStdout()
		var text bytes.Buffer
		cmd.SetOut(&text)
		help(cmd, args)
		cmd.SetOut(out)
		_, failed = out.Write(text.Bytes())
	})
	return &failed
}

// maxComplaint is the longest message for a person, in characters.
const maxComplaint = 2000

// complain writes one line for a person. Line breaks within it, say of a
// compiler, become semicolons; whatever else could act on a terminal is escaped.
func complain(stderr io.Writer, message string) {
	lines := strings.FieldsFunc(message, func(r rune) bool { return r == '\n' || r == '\r' })
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	text := strings.Join(lines, "; ")
	if r := []rune(text); len(r) > maxComplaint {
		text = string(r[:maxComplaint]) + "…"
	}
	_, _ = fmt.Fprintln(stderr, "opa-gate: "+wire.Printable(text))
}

// knownCommand refuses what stands where a command is expected.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return fmt.Errorf("%s has no command %q%s", cmd.CommandPath(), args[0], meant(args[0], names))
}

// meant is the end of a message about a wrong name.
func meant(name string, candidates []string) string {
	if nearest := wire.Nearest(name, candidates); nearest != "" {
		return fmt.Sprintf("; did you mean %q?", nearest)
	}
	return ", expected " + alternatives(candidates)
}

func alternatives(words []string) string {
	if n := len(words); n > 1 {
		return strings.Join(words[:n-1], ", ") + " or " + words[n-1]
	}
	return strings.Join(words, "")
}

func flagError(cmd *cobra.Command, err error) error {
	var (
		unknown *pflag.NotExistError
		missing *pflag.ValueRequiredError
		invalid *pflag.InvalidValueError
	)
	switch {
	case errors.As(err, &unknown):
		if cmd.HasSubCommands() { // the flag of a misspelt command is not what is wrong
			if err := knownCommand(cmd, cmd.Flags().Args()); err != nil {
				return err
			}
		}
		if short := unknown.GetSpecifiedShortnames(); short != "" {
			return fmt.Errorf("there is no flag -%s; %q lists the flags", unknown.GetSpecifiedName(), cmd.CommandPath()+" --help")
		}
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
		return fmt.Errorf("there is no flag --%s%s", unknown.GetSpecifiedName(), meant("--"+unknown.GetSpecifiedName(), names))
	case errors.As(err, &missing):
		return fmt.Errorf("the flag --%s needs a value", missing.GetFlag().Name)
	case errors.As(err, &invalid):
		return fmt.Errorf("--%s: %w", invalid.GetFlag().Name, invalid.Unwrap())
	}
	return err
}

// A choice is the value of a flag that takes one of a few names, or, if many,
// a list of them.
type choice struct {
	value string
	names []string
	many  bool
}

// String implements pflag.Value.
func (c *choice) String() string { return c.value }

// Type implements pflag.Value: what help shows.
func (c *choice) Type() string { return strings.Join(c.names, "|") }

// Set implements pflag.Value.
func (c *choice) Set(value string) error {
	given := []string{value}
	if c.many {
		given = strings.Split(value, ",")
	}
	for _, name := range given {
		if !slices.Contains(c.names, name) {
			message := fmt.Sprintf("expected %s, got %q", alternatives(c.names), name)
			if nearest := wire.Nearest(name, c.names); nearest != "" {
				message += fmt.Sprintf("; did you mean %q?", nearest)
			}
			return errors.New(message)
		}
	}
	c.value = value
	return nil
}

// add makes c a flag of cmd, and lets shells complete its names.
func (c *choice) add(cmd *cobra.Command, flag, usage string) {
	cmd.Flags().Var(c, flag, usage)
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(c.names, cobra.ShellCompDirectiveNoFileComp))
}

func newFormat() choice { return choice{value: "text", names: []string{"text", "json"}} }

// oneInput accepts no more than one file.
func oneInput(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return fmt.Errorf("%s reads one input, got %d; join files with cat and read -", cmd.Name(), len(args))
	}
	return nil
}

// open opens the input that args name, and says how messages call it.
func open(cmd *cobra.Command, args []string) (in io.ReadCloser, name string, err error) {
	if len(args) == 0 || args[0] == "-" {
		return io.NopCloser(cmd.InOrStdin()), "stdin", nil
	}
	f, err := os.Open(args[0])
	if err != nil {
		return nil, "", err
	}
	if info, err := f.Stat(); err == nil && info.IsDir() {
		_ = f.Close()
		return nil, "", fmt.Errorf("%s is a directory, expected a file", args[0])
	}
	return f, args[0], nil
}

// newHelp is cobra's help command, except that a topic which does not exist is
// an error.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "Explain a command",
		Example: "  opa-gate help decide",
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			found, rest, err := root.Find(args)
			if err != nil {
				return err
			}
			if len(rest) > 0 {
				if found.HasSubCommands() {
					return knownCommand(found, rest)
				}
				return fmt.Errorf("%s has no part %q to explain", found.CommandPath(), rest[0])
			}
			found.InitDefaultHelpFlag()
			return found.Help()
		},
	}
}
