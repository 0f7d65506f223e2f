package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/opa-gate/opa-gate/ledger"
	"github.com/opa-gate/opa-gate/wire"
)

// allStates is the name of no state in particular.
const allStates = "all"

func newApprovalsList(ledgers *ledgerFlags) *cobra.Command {
	format := newFormat()
	state := choice{value: ledger.Waiting.String(), names: append(ledger.States(), allStates)}
	var (
		f     ledger.Filter
		limit int
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List what waits for a person, or what became of it",
		Long: `List shows escalations, the newest first. With --search it goes through all of
them, which takes a while in a large ledger, and shows those with the text in
their id, tool, arguments, reason or session, the reviewer or the comment.`,
		Example: `  opa-gate approvals list
  opa-gate approvals list --state rejected --limit 10
  opa-gate approvals list --state all --search example.org --format json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 {
				return fmt.Errorf("--limit: expected 1 or more, got %d", limit)
			}
			if state.value != allStates {
				_ = f.State.UnmarshalText([]byte(state.value)) // choice accepts no other
			}
			return readLedger(cmd, ledgers, func(ctx context.Context, l *ledger.Ledger) error {
				return listEscalations(ctx, cmd, l, f, limit, format.value == "json", nothing(state.value, f.Text != "" || f.Session != ""))
			})
		},
	}
	state.add(cmd, "state", "which escalations")
	cmd.Flags().StringVar(&f.Session, "session", "", "those of one `SESSION`")
	cmd.Flags().StringVar(&f.Text, "search", "", "those with a `TEXT` in them")
	cmd.Flags().IntVar(&limit, "limit", 50, "at most `N`")
	format.add(cmd, "format", "how they are written; json is one object a line")
	return cmd
}

func listEscalations(ctx context.Context, cmd *cobra.Command, l *ledger.Ledger, f ledger.Filter, limit int, json bool, none string) error {
	p := newPrinter(cmd.OutOrStdout())
	shown := 0
	for {
		f.Limit = min(limit-shown, ledger.MaxPage)
		page, err := l.Escalations(ctx, f)
		if err != nil {
			_ = p.Flush()
			return err
		}
		for _, e := range page.Pending {
			switch {
			case json:
				err = writeLine(p, e)
			default:
				if shown == 0 {
					listLine(p, faint, "STATE", "ID", "FILED", "TOOL", "MISSING")
				}
				listRow(p, e)
			}
			if err != nil {
				return err
			}
			shown++
		}
		if err := p.Flush(); err != nil {
			return err
		}
		if f.Before = page.Next; page.Next == 0 || shown >= limit {
			break
		}
	}
	switch {
	case json:
	case shown == 0:
		_, _ = fmt.Fprintln(p, none)
	case f.Before != 0:
		_, _ = fmt.Fprintf(p, "There may be more: --limit %d\n", 2*limit)
	}
	return p.Flush()
}

// listLine writes one line of the list.
func listLine(p *printer, c colour, state, id, filed, tool, missing string) {
	p.paint(c, state, 11)
	_, _ = p.WriteString(column(id, 18) + column(filed, 16) + column(tool, 26) + missing + "\n")
}

func column(text string, width int) string {
	text = wire.Printable(text)
	if n := utf8.RuneCountInString(text); n < width {
		return text + strings.Repeat(" ", width-n)
	}
	return string([]rune(text)[:width-3]) + "…  "
}

func listRow(p *printer, e *ledger.Pending) {
	missing := strings.Join(e.Missing, ", ")
	if missing == "" {
		missing = "nothing; a person has to confirm it"
	}
	listLine(p, stateColour(e.State), e.State.String(), e.ID, inWords(time.Now(), e.Filed), e.Tool, missing)
}

func stateColour(s ledger.State) colour {
	switch s {
	case ledger.Waiting:
		return yellow
	case ledger.Approved, ledger.Used:
		return green
	case ledger.Rejected:
		return red
	}
	return faint
}

func newApprovalsWatch(ledgers *ledgerFlags) *cobra.Command {
	format := newFormat()
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Show what waits, and then what happens, as it happens",
		Long: `Watch shows what waits for a person, and from then on whatever is filed, decided,
used or withdrawn, until Ctrl-C ends it (exit code 130). A database that goes away is asked again.
As JSON each line is
{"seq", "event", "at", "escalation"}, where event is filed, decided, used or
withdrawn.`,
		Example: `  opa-gate approvals watch
  opa-gate approvals watch --format json | jq 'select(.event == "filed") | .escalation.tool'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return readLedger(cmd, ledgers, func(ctx context.Context, l *ledger.Ledger) error {
				p := newPrinter(cmd.OutOrStdout())
				return watchEscalations(ctx, p, cmd.ErrOrStderr(), l, format.value == "json")
			})
		},
	}
	format.add(cmd, "format", "how they are written; json is one object a line")
	return cmd
}

// watchEvery is how often the ledger is asked for news.
const watchEvery = 250 * time.Millisecond

// watchEscalations goes on when the ledger goes away, and says so to stderr.
func watchEscalations(ctx context.Context, p *printer, stderr io.Writer, l *ledger.Ledger, json bool) error {
	seq, _, err := l.Head(ctx)
	if err != nil {
		return err
	}
	waiting, _, err := l.Waiting(ctx, ledger.MaxPage)
	if err != nil {
		return err
	}
	show := func(c ledger.Change) error {
		if json {
			return writeLine(p, c)
		}
		changed(p, c)
		return nil
	}
	known := map[string]bool{}               // and may be among the first news, too
	for i := len(waiting) - 1; i >= 0; i-- { // the oldest first, as what follows
		known[waiting[i].ID] = true
		if err := show(ledger.Change{Event: "filed", At: waiting[i].Filed, Pending: waiting[i]}); err != nil {
			return err
		}
	}
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	away := false
	for {
		if err := p.Flush(); err != nil {
			return err
		}
		changes, next, err := l.Changes(ctx, seq)
		switch gone := errors.Is(err, ledger.ErrUnavailable) && ctx.Err() == nil; {
		case err != nil && !gone:
			return err
		case gone && !away:
			_, _ = fmt.Fprintf(stderr, "opa-gate: %s; it is asked again until it answers\n", wire.Printable(err.Error()))
		case away && !gone:
			_, _ = io.WriteString(stderr, "opa-gate: the ledger answers again; nothing was left out\n")
		}
		away = err != nil
		for _, c := range changes {
			if c.Event == "filed" && known[c.Pending.ID] {
				continue
			}
			if err := show(c); err != nil {
				return err
			}
		}
		more := next != seq && !away // there may be
		if seq = next; more {
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// changed writes one line about a change.
func changed(p *printer, c ledger.Change) {
	e := c.Pending
	label, colour, more := c.Event, faint, ""
	switch c.Event {
	case "filed":
		label, colour, more = "waits", yellow, e.Reason
	case "decided":
		if d := e.Decision; d != nil {
			label, colour, more = "rejected", red, "by "+d.Reviewer
			if d.Approved {
				label, colour = "approved", green
			}
			if d.Comment != "" {
				more += ": " + d.Comment
			}
		}
	case "used":
		more = fmt.Sprintf("%s passed", counted(e.Uses, "call", "calls"))
	}
	p.paint(faint, c.At.Local().Format("15:04:05"), 10)
	p.paint(colour, label, 11)
	_, _ = p.WriteString(e.ID + "  " + wire.Printable(e.Tool))
	if more != "" {
		_, _ = p.WriteString("  " + wire.Printable(more))
	}
	_, _ = p.WriteString("\n")
}
