package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/opa-gate/opa-gate/analysis"
	"github.com/opa-gate/opa-gate/evaluator"
)

func newPolicyDiff() *cobra.Command {
	format := choice{value: "text", names: []string{"text", "json", "markdown", "html"}}
	failOn := choice{names: []string{string(analysis.Widening), string(analysis.Narrowing), string(analysis.Rewording)}, many: true}
	strict := false
	cmd := &cobra.Command{
		Use:   "diff OLD NEW",
		Short: "Tell exactly which calls and skills two policies answer differently",
		Long: `Diff compares what two policies answer to every kind of call and to skills, with
every text that either of them compares with and one that neither knows. It
prints the classes of inputs whose answer changed, in as few rows as it finds,
each with an example: what permits more first, then what permits less, then what
is only said in another way.

OLD and NEW are each a directory, a bundle file, REVISION:DIRECTORY for a directory
as Git has it in a revision, or the word builtin for the built-in policies. Of a
revision the files are taken byte for byte, whatever .gitattributes says, and a
link to a file is followed within the repository; one that leads out of it, and a
submodule, are refused.

With --fail-on widening the exit code is 1 if anything is permitted that was not:
a gate for pull requests. The formats are text, json, markdown for a comment on a
pull request, and html for one page that needs nothing else.

Where a policy does more with a text than to compare it, the comparison does not
cover every text, and says so; with --strict that is a failure.

Exit codes: 0 done, 1 there is what --fail-on names, or --strict and not every text
is covered, 2 wrong usage or policies that cannot be loaded.`,
		Example: `  opa-gate policy diff builtin my-policies
  opa-gate policy diff main:policies policies --fail-on widening
  opa-gate policy diff old.tar.gz new.tar.gz --format html > diff.html`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("expected OLD and NEW, got %s", counted(len(args), "argument", "arguments"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := interruptible(cmd, everyKind, func(ctx context.Context) (*analysis.Difference, error) {
				return diff(ctx, cmd.ErrOrStderr(), args[0], args[1])
			})
			if err != nil {
				return err
			}
			if err := writeDifference(cmd.OutOrStdout(), d, format.value); err != nil {
				return err
			}
			failing := strings.Split(failOn.value, ",")
			if strict && !d.Complete() || slices.ContainsFunc(d.Changes, func(c analysis.Change) bool { return slices.Contains(failing, string(c.Direction)) }) {
				return exit(exitCheck)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "exit with 1 too if the comparison does not cover every text")
	format.add(cmd, "format", "how the difference is written")
	failOn.add(cmd, "fail-on", "exit with 1 if there is such a change: more is permitted, less, or only words differ")
	return cmd
}

func writeDifference(w io.Writer, d *analysis.Difference, format string) error {
	switch format {
	case "json":
		return d.WriteJSON(w)
	case "markdown":
		return d.WriteMarkdown(w)
	case "html":
		return d.WriteHTML(w)
	default:
		return d.WriteText(w, wantsColour(w))
	}
}

func diff(ctx context.Context, stderr io.Writer, old, new string) (*analysis.Difference, error) {
	var policies [2]*evaluator.Evaluator
	for i, name := range []string{old, new} {
		var err error
		if policies[i], err = openNamed(ctx, name); err != nil {
			return nil, err
		}
	}
	defer hurry()()
	p := newProgress(stderr)
	d, err := analysis.Diff(ctx, policies[0], policies[1], &analysis.DiffOptions{Old: old, New: new, Progress: p.show})
	p.end()
	if err == nil {
		d.Relocate(placeIn(old), placeIn(new))
	}
	return d, err
}

// placeIn gives a file of policies its place, as their name does.
func placeIn(name string) func(file string) string {
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return func(file string) string { return inDirectory(name, file) }
	}
	return func(file string) string { return name + "/" + file }
}

// builtin is the name of the built-in policies.
const builtin = "builtin"

// openNamed loads policies as diff names them.
func openNamed(ctx context.Context, name string) (*evaluator.Evaluator, error) {
	if name == "" {
		return nil, errors.New("expected a directory, a bundle, REVISION:DIRECTORY or builtin, got an empty name")
	}
	_, err := os.Stat(name)
	revision, dir, isRevision := strings.Cut(name, ":")
	switch {
	case err == nil:
		return openPolicies(ctx, name, "")
	case name == builtin:
		return openPolicies(ctx, "", "")
	case !isRevision:
		return nil, fmt.Errorf("%w; expected a directory, a bundle, REVISION:DIRECTORY or builtin", err)
	}
	tree, err := revisionFS(ctx, revision, dir, maxRevision)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	e, err := evaluator.New(ctx, &evaluator.Options{FS: tree})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return e, nil
}
