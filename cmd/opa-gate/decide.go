package main

import (
	"bufio"
	"context"
	"encoding/json"
	"strings"

	"github.com/spf13/cobra"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/wire"
)

func newDecide() *cobra.Command {
	engines := newEngineFlags()
	format := newFormat()
	var exitCode bool
	cmd := &cobra.Command{
		Use:   "decide [FILE|-]",
		Short: "Decide tool calls",
		Long: `Decide reads tool calls and answers each of them, in their order and as they
come. The input is one document, an array of them, one a line, or several after
one another; it may be as long as it likes.

A document that cannot be decided gets an error in place of an answer, and the
rest goes on. The exit code is 2 then.

The policies decide, and are compiled into tables as they are used: OPA decides
the first call of a kind, and a table the ones that differ from it in their
texts alone. The answers are those of --engine opa, which asks OPA every time.`,
		Example: `  echo '{"tool": {"name": "web_fetch", "origin": "fetcher"}, "taint": "tainted"}' | opa-gate decide
  opa-gate decide --format json calls.ndjson
  opa-gate decide --engine both --exit-code calls.json
  opa-gate decide --policies ./policies --system "the Acme assistant" call.json`,
		Args: oneInput,
		RunE: func(cmd *cobra.Command, args []string) error {
			engine, err := engines.open(cmd.Context(), engines.engine.value)
			if err != nil {
				return err
			}
			return answerInput(cmd, args, format.value, exitCode, callWork(cmd.Context(), engine))
		},
	}
	engines.add(cmd, "who decides: the policies, compiled as they are used or always by OPA, "+
		"the native reference, or opa and native both, which must agree")
	engines.addSystem(cmd)
	format.add(cmd, "format", "how answers are written")
	cmd.Flags().BoolVar(&exitCode, "exit-code", false, "exit with 1 unless there are answers and every one is allow")
	return cmd
}

func callWork(ctx context.Context, engine evaluator.Engine) work[*capability.Call, capability.Outcome] {
	return work[*capability.Call, capability.Outcome]{
		parse:  wire.ParseCall,
		decide: func(c *capability.Call) (capability.Outcome, error) { return engine.Decide(ctx, c) },
		show:   showOutcome,
		passes: func(o capability.Outcome) bool { return o.Kind == capability.Allow },
	}
}

func showOutcome(p *printer, c *capability.Call, o capability.Outcome) {
	reason := o.Reason
	if reason == "" && o.Kind == capability.Escalate {
		reason = "A person has to confirm this call."
	}
	p.head(kindColour(o.Kind), o.Kind.String(), c.Tool, reason)
	if !o.Missing.Empty() {
		p.detail("missing", strings.Join(o.Missing.DisplayNames(), ", "))
	}
	switch o.Kind {
	case capability.Modify:
		p.detail("arguments", compact(o.Arguments))
	case capability.Inject:
		p.detail("note", o.Note)
	}
	for _, warning := range o.Warnings {
		p.detail("warning", warning)
	}
}

func kindColour(k capability.Kind) colour {
	switch k {
	case capability.Allow:
		return green
	case capability.Modify, capability.Inject:
		return cyan
	case capability.Escalate:
		return yellow
	default:
		return red
	}
}

// answerInput answers the input that args name on the command's output.
func answerInput[Q any, A json.Marshaler](cmd *cobra.Command, args []string, format string, exitCode bool, w work[Q, A]) error {
	in, name, err := open(cmd, args)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // nothing was written to it
	out := cmd.OutOrStdout()
	code, err := answer(&task{
		name: name, in: in, out: bufio.NewWriterSize(out, bufferSize), stderr: cmd.ErrOrStderr(),
		json: format == "json", colour: wantsColour(out), exitCode: exitCode,
	}, w)
	if err != nil {
		return err
	}
	return exit(code)
}
