package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/opa-gate/opa-gate/agent"
	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/ledger"
	"github.com/opa-gate/opa-gate/wire"
)

func newSession() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "session",
		Short:   "Look at agents' conversations: what tainted them; clear one",
		Example: "  opa-gate session list --tainted",
		Args:    knownCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSessionList(), newSessionShow(), newSessionClear())
	return cmd
}

// withSessions does work on the sessions of a ledger, which has to be there. None
// of it is signed.
func withSessions(cmd *cobra.Command, f *ledgerFlags, work func(context.Context, *agent.Sessions) error) error {
	return readLedger(cmd, f, func(ctx context.Context, l *ledger.Ledger) error {
		return work(ctx, &agent.Sessions{Log: agent.OnLedger(l)})
	})
}

func newSessionList() *cobra.Command {
	var l ledgerFlags
	format := newFormat()
	var tainted bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List conversations, the last one first",
		Example: "  opa-gate session list --tainted --format json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withSessions(cmd, &l, func(ctx context.Context, s *agent.Sessions) error {
				states, err := s.List(ctx)
				if err != nil {
					return err
				}
				return writeStates(cmd, states, format.value, func(st *agent.State) bool {
					return !tainted || st.Taint != capability.Clean
				}, false)
			})
		},
	}
	l.addTo(cmd.Flags())
	format.add(cmd, "format", "how they are written, with json one a line")
	cmd.Flags().BoolVar(&tainted, "tainted", false, "only those that are tainted")
	return cmd
}

func newSessionShow() *cobra.Command {
	var l ledgerFlags
	format := newFormat()
	cmd := &cobra.Command{
		Use:     "show SESSION",
		Short:   "Tell what tainted a conversation, when, and by which call",
		Example: "  opa-gate session show 5f0c7c1e-0a3b-4c57-9f52-3f1c1d1f6d2a",
		Args:    oneSession,
		RunE: func(cmd *cobra.Command, args []string) error {
			return withSessions(cmd, &l, func(ctx context.Context, s *agent.Sessions) error {
				st, err := s.State(ctx, args[0])
				if err != nil {
					return err
				}
				if st.First.IsZero() {
					return fmt.Errorf("the ledger has no session %q; opa-gate session list has those that it knows", args[0])
				}
				return writeStates(cmd, []agent.State{st}, format.value, func(*agent.State) bool { return true }, true)
			})
		},
	}
	l.addTo(cmd.Flags())
	format.add(cmd, "format", "how it is written")
	return cmd
}

func newSessionClear() *cobra.Command {
	var l ledgerFlags
	var comment string
	var yes bool
	cmd := &cobra.Command{
		Use:   "clear SESSION",
		Short: "Vouch for a conversation: what came into it is no danger",
		Long: `Clear has a conversation count as clean again, until outside content comes in
once more. Do it when you have read what came in. The ledger keeps who did it: the
user who runs this program. It shows what tainted the conversation, and asks.`,
		Example: `  opa-gate session clear 5f0c7c1e-0a3b-4c57-9f52-3f1c1d1f6d2a --comment "our own pages"`,
		Args:    oneSession,
		RunE: func(cmd *cobra.Command, args []string) error {
			by := localUser()
			return withSessions(cmd, &l, func(ctx context.Context, s *agent.Sessions) error {
				st, err := s.State(ctx, args[0])
				if err != nil {
					return err
				}
				out := cmd.OutOrStdout()
				if !st.First.IsZero() && st.Taint != capability.Clean && !yes {
					if _, err := fmt.Fprintln(out, wire.Printable(st.Describe())); err != nil {
						return err
					}
					if !asks(cmd) {
						return errors.New("nothing was cleared: there is no terminal to ask at; add --yes if you have read what came in")
					}
					if _, err := io.WriteString(out, "Have you read it, and is it no danger? [y/N] "); err != nil {
						return err
					}
					switch yes, err := agreed(ctx, cmd); {
					case err != nil:
						return err
					case !yes:
						return errors.New("nothing was cleared")
					}
				}
				if _, err := s.Clear(ctx, args[0], by, comment); err != nil {
					return err
				}
				_, err = fmt.Fprintf(out, "Session %s is clean; the ledger says that %s cleared it.\n", wire.Printable(args[0]), wire.Printable(by))
				return err
			})
		},
	}
	l.addTo(cmd.Flags())
	cmd.Flags().StringVar(&comment, "comment", "", "why, for those who look at it later")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "clear without asking")
	return cmd
}

func oneSession(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%s takes the ID of one session, got %d; opa-gate session list has them", cmd.CommandPath(), len(args))
	}
	return nil
}

func writeStates(cmd *cobra.Command, states []agent.State, format string, wanted func(*agent.State) bool, whole bool) error {
	out := cmd.OutOrStdout()
	p := &printer{Writer: bufio.NewWriter(out), colour: wantsColour(out)}
	for i := range states {
		st := &states[i]
		switch {
		case !wanted(st):
		case format == "json":
			text, err := encode(st)
			if err != nil {
				return err
			}
			_, _ = p.Write(text)
		default:
			colour := green
			if st.Taint != capability.Clean {
				colour = yellow
			}
			p.head(colour, st.Taint.String(), st.ID, "since "+st.First.Local().Format(time.DateTime))
			if whole {
				showState(p, st)
			}
		}
	}
	return p.Flush()
}

func showState(p *printer, st *agent.State) {
	if !st.Begun {
		p.detail("unseen", "the gate did not see it begin")
	}
	for _, src := range st.Sources {
		p.detail("content", src.At.Local().Format(time.DateTime)+"  "+src.String())
	}
	if st.More {
		p.detail("content", "and more")
	}
	for _, c := range st.Cleared {
		text := c.At.Local().Format(time.DateTime) + "  by " + c.By
		if c.Comment != "" {
			text += ": " + c.Comment
		}
		p.detail("cleared", text)
	}
}
