// Command opa-gate decides tool calls and skills of AI agents, and tells what
// the tools of an MCP server would be allowed to do.
//
// Run opa-gate help for the commands. It exits with 0 when the work was done,
// with 1 when a check failed, with 2 when the usage or the input is wrong, and
// with 130 when it was interrupted.
package main

import (
	"os"
	"time"

	"github.com/spf13/cobra"
)

func main() {
	time.AfterFunc(time.Second, hurry())
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "opa-gate",
		Short: "Decide tool calls of AI agents: allow, modify, add a note, ask a person, or deny",
		Long: `opa-gate gives one answer for every tool call of an AI agent: allow it, modify
it, add a note for the model, escalate it to a person, or deny it.

Exit codes: 0 done, 1 a check failed, 2 wrong usage or input, 130 interrupted.`,
		Example: `  opa-gate classify --origin registered-connector tools.json
  echo '{"tool": {"name": "web_fetch", "origin": "fetcher"}, "taint": "tainted"}' | opa-gate decide
  opa-gate conform --engine native,opa`,
		Args:          knownCommand,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(flagError)
	root.SetHelpCommand(newHelp())
	root.AddCommand(newDecide(), newAdmit(), newApprovals(), newClassify(), newSkill(), newConform(), newPolicy(), newServe(), newBundle(), newReplay(), newHook(), newSession(), newMCP(), newVersion())
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" { // by itself it would show its help for a shell that it does not know
			c.Args = knownCommand
			c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
			c.Example = "  opa-gate completion bash > /etc/bash_completion.d/opa-gate"
		}
	}
	return root
}
