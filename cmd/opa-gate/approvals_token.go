package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/opa-gate/opa-gate/approvals"
)

func newApprovalsToken() *cobra.Command {
	role := choice{value: approvals.Viewer.String(), names: approvals.Roles()}
	format := newFormat()
	var file string
	cmd := &cobra.Command{
		Use:   "token NAME",
		Short: "Make a token for a person who looks or decides over HTTP",
		Long: `Token makes a token for NAME, adds its hash to a file that serve --approval-tokens
reads, and prints the token: this once, for nobody can tell it from the hash. The
file is made with mode 0600 if there is none, and has one token on each line; to
take one back, delete its line. A server that runs notices both within a second.

A viewer sees what waits and what was decided. An approver decides, too, and the
ledger names them token:NAME. NAME may have several tokens, so that a new one can
be known before the old one is not.`,
		Example: `  opa-gate approvals token anna --role approver --file tokens
  opa-gate serve --ledger ledger.db --approval-tokens tokens`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("approvals token needs the name of one person, got %d", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if file == "" {
				return errors.New("approvals token needs the file to add it to: --file FILE")
			}
			holder := approvals.Holder{Name: args[0]}
			holder.Role, _ = approvals.ParseRole(role.value)
			token, err := approvals.AddToken(file, holder)
			if err != nil {
				return err
			}
			text := []byte(token)
			if format.value == "json" {
				if text, err = json.Marshal(map[string]string{"name": holder.Name, "role": holder.Role.String(), "token": token}); err != nil {
					return err
				}
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), string(text))
			return err
		},
	}
	role.add(cmd, "role", "what the token is good for")
	format.add(cmd, "format", "how the token is written")
	cmd.Flags().StringVarP(&file, "file", "f", "", "the `FILE` of tokens")
	return cmd
}
