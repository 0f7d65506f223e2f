package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/opa-gate/opa-gate/analysis"
	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/wire"
)

func newPolicyVerify() *cobra.Command {
	format := newFormat()
	against := choice{names: []string{engineNative}}
	var (
		system string
		strict bool
	)
	cmd := &cobra.Command{
		Use:   "verify [DIR|BUNDLE]",
		Short: "Hold the answers of the policies to all kinds of call against invariants",
		Long: `Verify goes through every kind of call, and every skill as far as its members are
finite, with every text that the policies compare with and one that they do not
know. It holds each answer of the policies against the invariants: there is one
answer, a veto comes first, what is missing is never allowed, outside content
never adds anything, and so on. Rules that the policies have as
gate.invariants.breach are held against every answer too; their input is the
document, as call or as skill, and the answer, as decision.

For an invariant that does not hold it prints the smallest document that shows
it, with the rules that gave the answer, and a test to add.

With --against native every answer must be that of the native reference.

Where the policies use a text in a way that no table can follow, the expression is
named: there the verdict covers the texts that the policies mention and some made
from them, not every text. Arguments are among these: calls are tried whose arguments
have what the rules look for. With --strict such a verdict is a failure. Skills are looked at under one name, and with counts on
either side of where trust turns. Without a directory or bundle it verifies the
built-in policies.

Exit codes: 0 every invariant holds, 1 one does not, or --strict and not every text
is covered, 2 wrong usage or policies that cannot be loaded.`,
		Example: `  opa-gate policy verify
  opa-gate policy verify my-policies
  opa-gate policy verify --against native --format json my-policies`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) > 1:
				return fmt.Errorf("policy verify takes one directory or bundle, got %d", len(args))
			case len(args) == 1 && args[0] == "":
				return errors.New("expected a directory or a bundle, got an empty name")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			name := strings.Join(args, "") // there is one, or none
			v, err := interruptible(cmd, everyKind, func(ctx context.Context) (*analysis.Verification, error) {
				return verify(ctx, cmd.ErrOrStderr(), name, against.value == engineNative, system)
			})
			if err != nil {
				return err
			}
			if err := writeVerification(cmd.OutOrStdout(), v, format.value == "json"); err != nil {
				return err
			}
			if !v.OK() || strict && !v.Complete() {
				return exit(exitCheck)
			}
			return nil
		},
	}
	against.add(cmd, "against", "hold every answer against that of the native reference, too")
	cmd.Flags().BoolVar(&strict, "strict", false, "exit with 1 too if the verdict does not cover every text")
	cmd.Flags().StringVar(&system, "system", "", "the `NAME` of the system in sentences for a person")
	format.add(cmd, "format", "how the verdict is written")
	return cmd
}

// openPolicies loads a directory, a bundle, or with "" the built-in policies.
func openPolicies(ctx context.Context, name, system string) (*evaluator.Evaluator, error) {
	opts := &evaluator.Options{Dir: name, System: system}
	if name != "" {
		info, err := os.Stat(name)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			opts.Dir, opts.Bundle = "", name
		}
	}
	e, err := evaluator.New(ctx, opts)
	if err != nil && name != "" {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return e, err
}

func verify(ctx context.Context, stderr io.Writer, name string, native bool, system string) (*analysis.Verification, error) {
	e, err := openPolicies(ctx, name, system)
	if err != nil {
		return nil, err
	}
	defer hurry()()
	p := newProgress(stderr)
	v, err := analysis.Verify(ctx, e, &analysis.VerifyOptions{Native: native, System: system, Progress: p.show})
	p.end()
	if err != nil {
		return nil, err
	}
	if info, statErr := os.Stat(name); statErr == nil && info.IsDir() {
		v.Relocate(func(file string) string { return inDirectory(name, file) })
	}
	return v, nil
}

func writeVerification(w io.Writer, v *analysis.Verification, asJSON bool) error {
	out := bufio.NewWriterSize(w, bufferSize)
	if asJSON {
		text, err := encode(struct {
			OK       bool `json:"ok"`
			Complete bool `json:"complete"`
			*analysis.Verification
		}{v.OK(), v.Complete(), v})
		if err != nil {
			return err
		}
		_, _ = out.Write(text)
		return out.Flush()
	}
	printVerification(&printer{Writer: out, colour: wantsColour(w)}, v)
	return out.Flush()
}

func printVerification(p *printer, v *analysis.Verification) {
	broken := 0
	for i := range v.Invariants {
		if v.Invariants[i].Breach != nil {
			broken++
		}
	}
	scope, c := fmt.Sprintf("%s calls and %s skills", grouped(v.Calls), grouped(v.Skills)), green
	if !v.Complete() {
		scope, c = "the "+scope+" looked at, which are not all: see below", yellow
	}
	if broken == 0 {
		p.paint(c, fmt.Sprintf("All %d invariants hold for %s.", len(v.Invariants), scope), 0)
	} else {
		p.paint(red, doNotHold(broken, len(v.Invariants))+" for "+scope+".", 0)
	}
	_ = p.WriteByte('\n')
	for i := range v.Invariants {
		if in := &v.Invariants[i]; in.Breach == nil {
			p.paint(green, "holds", 8)
			_, _ = p.WriteString(wire.Printable(in.Title) + "\n")
		}
	}
	for i := range v.Invariants {
		if in := &v.Invariants[i]; in.Breach != nil {
			_ = p.WriteByte('\n')
			printBreach(p, in)
		}
	}
	if len(v.Incomplete) > 0 {
		p.title("the verdict does not cover every text, because of")
		for i := range v.Incomplete {
			_, _ = p.WriteString(wire.Printable(blocker(&v.Incomplete[i])) + "\n")
		}
	}
}

func doNotHold(broken, all int) string {
	verb := "do"
	if broken == 1 {
		verb = "does"
	}
	return fmt.Sprintf("%d of %d invariants %s not hold", broken, all, verb)
}

func printBreach(p *printer, in *analysis.Invariant) {
	b := in.Breach
	p.paint(red, "broken", 8)
	_, _ = p.WriteString(wire.Printable(in.Title) + "\n")
	p.detail("problem", fmt.Sprintf("%s (%s)", b.Problem, manyOf(b.Inputs, "input")))
	p.detail("document", string(b.Document))
	p.detail("answer", string(b.Answer))
	if b.Against != nil {
		p.detail("against", string(b.Against))
		p.detail("answer", string(b.AgainstAnswer))
	}
	for _, place := range b.Rules {
		p.detail("rule", fmt.Sprintf("%s:%d: %s", place.File, place.Line, place.Rule))
	}
	_, _ = p.WriteString("    a test that shows it:\n")
	for line := range strings.SplitSeq(strings.TrimRight(b.Test, "\n"), "\n") {
		_, _ = p.WriteString("        " + wire.Printable(strings.ReplaceAll(line, "\t", "    ")) + "\n")
	}
}
