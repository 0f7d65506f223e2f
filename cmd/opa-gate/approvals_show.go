package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/ledger"
)

func newApprovalsShow(ledgers *ledgerFlags) *cobra.Command {
	format := newFormat()
	var full bool
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show all about one escalation",
		Long: `Show tells what a call would do, what it lacks, its arguments, and what became of
it. In arguments, characters that act on a terminal, reorder what stands beside
them or show as nothing are written as escapes. Long texts are cut in the middle
unless --full asks for all of them.`,
		Example: "  opa-gate approvals show wcle --full",
		Args:    oneID,
		RunE: func(cmd *cobra.Command, args []string) error {
			return readLedger(cmd, ledgers, func(ctx context.Context, l *ledger.Ledger) error {
				id, err := l.Find(ctx, args[0])
				if err != nil {
					return err
				}
				e, err := l.Pending(ctx, id)
				if err != nil {
					return err
				}
				return writeEscalation(cmd, e, format.value == "json", full)
			})
		},
	}
	cmd.Flags().BoolVar(&full, "full", false, "cut nothing")
	format.add(cmd, "format", "how it is written")
	return cmd
}

// writeEscalation writes all about one escalation.
func writeEscalation(cmd *cobra.Command, e *ledger.Pending, json, full bool) error {
	p := newPrinter(cmd.OutOrStdout())
	if json {
		if err := writeLine(p, e); err != nil {
			return err
		}
	} else {
		showEscalation(p, e, time.Now(), full)
	}
	return p.Flush()
}

// meanings say what each capability lets a call do.
var meanings = map[capability.Capability]string{
	capability.LocalRead:          "read files of the conversation's sandbox",
	capability.LocalWrite:         "change or delete files of the conversation's sandbox",
	capability.FixedConnectorRead: "read from a service that the operator vouched for",
	capability.ArbitraryEgress:    "send data to a place that the model chose",
	capability.MutateExternal:     "change something outside of the sandbox",
	capability.GrantAccess:        "let somebody else into the system",
	capability.RevokeAccess:       "shut somebody out of the system",
	capability.ManageAdmin:        "take an admin role away",
	capability.GrantAdmin:         "give somebody an admin role",
}

func showEscalation(p *printer, e *ledger.Pending, now time.Time, full bool) {
	p.head(stateColour(e.State), e.State.String(), e.Tool, e.Reason)
	p.detail("id", e.ID)
	if e.MissingMask == 0 {
		p.detail("missing", "nothing; the operator wants a person to confirm it")
	}
	for c := range capability.Set(e.MissingMask).All() {
		meaning := meanings[c]
		if !c.Grantable() {
			meaning += " (nobody is granted that; approved one call at a time)"
		}
		p.detail("missing", c.String()+": "+meaning)
	}
	if unknown := capability.Set(e.MissingMask).Minus(capability.All.Union(capability.Markers)); !unknown.Empty() {
		p.detail("missing", fmt.Sprintf("what this program has no name for (mask %d)", unknown.Mask()))
	}
	session := e.Session
	switch {
	case session == "":
		session = "none, so it can be approved for this call alone"
	case e.SessionOK:
		session = fmt.Sprintf("%s (can be approved for the tool in all of it)", session)
	}
	p.detail("session", session)
	p.detail("policies", e.Revision)
	p.detail("filed", stamp(now, e.Filed))
	if e.State == ledger.Waiting || e.State == ledger.Expired {
		label := "expires"
		if e.State == ledger.Expired {
			label = "expired"
		}
		p.detail(label, stamp(now, e.Expires))
	}
	if d := e.Decision; d != nil {
		showVerdict(p, e, d, now)
	}
	cut := p.block("arguments", e.Arguments, full)
	if t := e.Transform; t != nil {
		switch t.Kind {
		case capability.Rewrite.String():
			cut = p.block("runs with", t.Arguments, full) || cut
		case capability.InjectContext.String():
			p.detail("adds", "a note for the model: "+t.Note)
		}
	}
	if cut {
		p.paint(yellow, "Some of it is left out above; --full shows all.", 0)
		_, _ = p.WriteString("\n")
	}
}

func showVerdict(p *printer, e *ledger.Pending, d *ledger.Verdict, now time.Time) {
	how := "rejected"
	if d.Approved {
		how = "approved for this call"
		if d.Scope == ledger.ForSession {
			how = "approved for this tool in this session"
		}
	}
	p.detail("decided", how+" by "+d.Reviewer+", "+stamp(now, d.At))
	if d.Comment != "" {
		p.detail("comment", d.Comment)
	}
	p.detail("counts", "until "+clock(d.Expires)+", "+inWords(now, d.Expires))
	if d.Approved {
		p.detail("passed", counted(e.Uses, "call", "calls"))
	}
}

// block writes a value over several lines, and tells whether some was left out.
func (p *printer) block(label string, value []byte, full bool) bool {
	lines, cut := readable(value, full)
	for i, line := range lines {
		_, _ = p.WriteString("    ")
		if i > 0 {
			label = ""
		}
		p.paint(faint, label, detailWidth)
		_, _ = p.WriteString(line + "\n")
	}
	return cut
}
