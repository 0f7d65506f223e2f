package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/opa-gate/opa-gate/analysis"
	"github.com/opa-gate/opa-gate/evaluator"
)

func newPolicyDiff() *cobra.Command {
	format := choice{value: "text", names: []string{"text", "json", "markdown", "html"}}
	failOn := choice{names: []string{string(analysis.Widening), string(analysis.Narrowing), string(analysis.Rewording)}, many: true}
	cmd := &cobra.Command{
		Use:   "diff OLD NEW",
		Short: "Tell exactly which calls and skills two policies answer otherwise",
		Long: `Diff compares what two policies answer to every kind of call and to skills, with
every text that either of them compares with and one that neither knows. It
prints the classes of inputs whose answer changed, in as few rows as it finds,
each with an example: what permits more first, then what permits less, then what
is only said in another way.

OLD and NEW are each a directory, a bundle file, REVISION:DIRECTORY for a directory
as Git has it in a revision, or the word builtin for the built-in policies.

With --fail-on widening the exit code is 1 if anything is permitted that was not:
a gate for pull requests. The formats are text, json, markdown for a comment on a
pull request, and html for one page that needs nothing else.

Exit codes: 0 done, 1 there is what --fail-on names, 2 wrong usage or policies
that cannot be loaded.`,
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
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
			defer stop()
			d, err := diff(ctx, cmd.ErrOrStderr(), args[0], args[1])
			if ctx.Err() != nil {
				complain(cmd.ErrOrStderr(), "interrupted before every kind of call was looked at")
				return exit(exitInterrupted)
			}
			if err != nil {
				return err
			}
			if err := writeDifference(cmd.OutOrStdout(), d, format.value); err != nil {
				return err
			}
			failing := strings.Split(failOn.value, ",")
			if slices.ContainsFunc(d.Changes, func(c analysis.Change) bool { return slices.Contains(failing, string(c.Direction)) }) {
				return exit(exitCheck)
			}
			return nil
		},
	}
	format.add(cmd, "format", "how the difference is written")
	failOn.add(cmd, "fail-on", "exit with 1 if there is a change that permits more (widening), less, or says the same otherwise")
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
	return d, err
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
	temporary, err := os.MkdirTemp("", "opa-gate-diff-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(temporary) }()
	if err := checkOut(ctx, revision, dir, temporary); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	e, err := evaluator.New(ctx, &evaluator.Options{Dir: temporary})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, errors.New(strings.ReplaceAll(err.Error(), temporary+": ", "")))
	}
	return e, nil
}

// checkOut writes a directory of the repository that the program runs in, as it
// is in a revision, into another.
func checkOut(ctx context.Context, revision, dir, into string) error {
	if revision == "" || strings.HasPrefix(revision, "-") {
		return fmt.Errorf("expected a revision of Git before the colon, got %q", revision)
	}
	// Within the repository archive would leave out what is not below the current
	// directory, so it runs at the top.
	top, err := runGit(ctx, "", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	prefix, err := runGit(ctx, "", "rev-parse", "--show-prefix")
	if err != nil {
		return err
	}
	tree := path.Join(line(prefix), filepath.ToSlash(dir))
	switch {
	case tree == ".." || strings.HasPrefix(tree, "../"):
		return fmt.Errorf("the directory %q lies outside of the repository", dir)
	case tree == ".":
		tree = ""
	}
	archive, err := runGit(ctx, line(top), "archive", "--format=tar", revision+":"+tree)
	if err != nil {
		return err
	}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		if !filepath.IsLocal(header.Name) {
			return fmt.Errorf("git: the file %q lies outside of the directory", header.Name)
		}
		file := filepath.Join(into, header.Name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return err
		}
		text, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return err
		}
	}
}

// line is what git prints on one.
func line(text []byte) string { return strings.TrimRight(string(text), "\r\n") }

// runGit returns what git prints, run in a directory, or "" for the current one.
func runGit(ctx context.Context, dir string, args ...string) ([]byte, error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir, cmd.Stderr = dir, &stderr
	out, err := cmd.Output()
	if err != nil {
		if text := strings.TrimSpace(stderr.String()); text != "" {
			return nil, errors.New("git: " + text)
		}
		return nil, fmt.Errorf("git: %w", err)
	}
	return out, nil
}
