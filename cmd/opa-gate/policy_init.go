package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/opa-gate/opa-gate/analysis"
	"github.com/opa-gate/opa-gate/optional"
	"github.com/opa-gate/opa-gate/wire"
)

func newPolicyInit() *cobra.Command {
	with := choice{names: optional.Names(), many: true}
	cmd := &cobra.Command{
		Use:   "init DIR",
		Short: "Write a working copy of the built-in policies to edit",
		Long: `Init writes a working copy of the built-in policies to DIR: the rules and their
tests, the schemas of the documents, a file of invariants to add to, settings for
editors, and a README that says what each file is.

With --with steering it lays a finer rule on taint beside them: a call of a tainted
session is decided as in a clean one if the person typed where it goes and what it
says, or if it changes what is the person's own and can be undone. What each of its
relaxations gives up stands in gate/steering/steering.rego; data.json beside it lists
those that are in force.

DIR is made if it does not exist. If it holds anything, nothing is written.`,
		Example: `  opa-gate policy init my-policies
  opa-gate policy init --with steering my-policies`,
		Args: oneDirectory,
		RunE: func(cmd *cobra.Command, args []string) error {
			var names []string
			if with.value != "" {
				names = slices.Compact(slices.Sorted(strings.SplitSeq(with.value, ",")))
			}
			files, err := analysis.Init(args[0], names...)
			if err != nil {
				return fmt.Errorf("policy init: %w", err)
			}
			p := newPrinter(cmd.OutOrStdout())
			dir := wire.Printable(args[0])
			beside := ""
			if len(names) > 0 {
				beside = " and " + strings.Join(names, ", ")
			}
			_, _ = fmt.Fprintf(p, "%s holds the built-in policies%s, %s; its README.md says what each is.\n", dir, beside, counted(len(files), "file", "files"))
			p.title("next")
			ask := "opa-gate decide --policies " + quoted(args[0]) + " call.json"
			for _, step := range []struct{ command, does string }{
				{"check", "find what is wrong with them"},
				{"test", "run their tests, and see what no test reaches"},
				{"verify", "hold every decision against the invariants"},
				{"diff builtin", "see which calls they answer differently"},
				{"watch", "all of that each time a file is saved"},
			} {
				next(p, "opa-gate policy "+step.command+" "+quoted(args[0]), len(ask), step.does)
			}
			next(p, ask, len(ask), "decide a call with them")
			return p.Flush()
		},
	}
	with.add(cmd, "with", "the optional policies to lay beside them")
	return cmd
}

// next writes a command to run, and what for.
func next(p *printer, command string, width int, does string) {
	pad(p, "  "+command, 2+width+2)
	p.paint(faint, "# "+does, 0)
	_ = p.WriteByte('\n')
}

// quoted writes a name such that a shell takes it for one word.
func quoted(name string) string {
	if name != "" && strings.IndexFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-/+,:@%", r))
	}) < 0 {
		return name
	}
	return "'" + strings.ReplaceAll(wire.Printable(name), "'", `'\''`) + "'"
}

// oneDirectory accepts the name of one directory.
func oneDirectory(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return fmt.Errorf("%s needs a directory, as in: %s DIR", strings.TrimPrefix(cmd.CommandPath(), "opa-gate "), cmd.CommandPath())
	case len(args) > 1:
		return fmt.Errorf("%s takes one directory, got %d", strings.TrimPrefix(cmd.CommandPath(), "opa-gate "), len(args))
	case args[0] == "":
		return errors.New("expected a directory, got an empty name")
	}
	return nil
}
