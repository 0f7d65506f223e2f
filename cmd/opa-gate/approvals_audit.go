package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/opa-gate/opa-gate/ledger"
)

func newAudit(ledgers *ledgerFlags) *cobra.Command {
	format := newFormat()
	var heads []string
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Prove that nothing in the ledger was changed or removed",
		Long: `Audit goes through the whole ledger, and names the first entry that is not what
was recorded (exit code 1). It also verifies the signature of each approval.

The chain of hashes alone cannot tell that its end was cut off, or that all of it
was made anew. Keep the head that audit prints somewhere else, and give it with
--head the next time: it must still be in the chain.`,
		Example: `  opa-gate approvals audit
  opa-gate approvals audit --head 1204:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var seen []ledger.Mark
			for _, text := range heads {
				m, err := ledger.ParseMark(text)
				if err != nil {
					return fmt.Errorf("--head: %w", err)
				}
				seen = append(seen, m)
			}
			return readLedger(cmd, ledgers, func(ctx context.Context, l *ledger.Ledger) error {
				end, _, err := l.Head(ctx)
				if err != nil {
					return err
				}
				bar := newProgressOf(cmd.ErrOrStderr(), "reading", "read %d %% of the ledger")
				a, err := l.Audit(ctx, seen, func(read int64) { bar.show(int(min(read, end)), int(max(end, 1))) })
				bar.end()
				if err != nil {
					return err
				}
				return writeAudit(cmd, a, format.value == "json")
			})
		},
	}
	cmd.Flags().StringArrayVar(&heads, "head", nil, "a head `SEQ:HASH` that an earlier audit printed; may be given several times")
	format.add(cmd, "format", "how the answer is written")
	return cmd
}

func writeAudit(cmd *cobra.Command, a *ledger.Audit, json bool) error {
	out := cmd.OutOrStdout()
	p := &printer{Writer: bufio.NewWriter(out), colour: wantsColour(out)}
	if json {
		list := func(faults []ledger.Fault) []ledger.Fault { return append([]ledger.Fault{}, faults...) }
		if err := writeLine(p, struct {
			Sound      bool           `json:"sound"`
			Entries    int64          `json:"entries"`
			Head       string         `json:"head"`
			Broken     *ledger.Fault  `json:"broken"`
			Forged     []ledger.Fault `json:"forged"`
			Unverified []ledger.Fault `json:"unverified"`
		}{a.Sound(), a.Entries, a.Head.String(), a.Broken, list(a.Forged), list(a.Unverified)}); err != nil {
			return err
		}
	} else {
		showAudit(p, a)
	}
	if err := p.Flush(); err != nil {
		return err
	}
	if !a.Sound() {
		return exit(exitCheck)
	}
	return nil
}

func showAudit(p *printer, a *ledger.Audit) {
	entries := counted(int(a.Entries), "entry", "entries")
	if a.Sound() {
		p.head(green, "sound", entries, "")
	} else {
		p.head(red, "broken", entries+" read", "")
	}
	if a.Broken != nil {
		p.detail(fmt.Sprintf("entry %d", a.Broken.Seq), a.Broken.Problem)
	}
	for _, f := range a.Forged {
		p.detail(fmt.Sprintf("entry %d", f.Seq), f.Problem)
	}
	for _, f := range a.Unverified {
		p.detail("unverified", fmt.Sprintf("entry %d: %s; --trust FILE adds a key", f.Seq, f.Problem))
	}
	if a.Broken == nil {
		p.detail("head", a.Head.String())
	}
}

func newExport(ledgers *ledgerFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export [FILE]",
		Short: "Write the whole ledger as lines of JSON",
		Long: `Export writes every entry, oldest first, one a line, to a new file or to its
output. Import reads them back.`,
		Example: `  opa-gate approvals export ledger.jsonl`,
		Args:    oneOutput,
		RunE: func(cmd *cobra.Command, args []string) error {
			return readLedger(cmd, ledgers, func(ctx context.Context, l *ledger.Ledger) error {
				to := cmd.OutOrStdout()
				name := "stdout"
				if len(args) == 1 && args[0] != "-" {
					name = args[0]
					f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) // there may be secrets in arguments
					if err != nil {
						return err
					}
					n, err := l.Export(ctx, f)
					if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
						return fmt.Errorf("%s is not whole: %w", name, err)
					}
					return exported(cmd.ErrOrStderr(), n, name)
				}
				n, err := l.Export(ctx, to)
				if err != nil {
					return err
				}
				return exported(cmd.ErrOrStderr(), n, name)
			})
		},
	}
	return cmd
}

func oneOutput(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return fmt.Errorf("%s writes one file, got %d", cmd.CommandPath(), len(args))
	}
	return nil
}

func exported(stderr io.Writer, n int64, name string) error {
	complain(stderr, fmt.Sprintf("%s written to %s", counted(int(n), "entry", "entries"), name))
	return nil
}

func newImport(ledgers *ledgerFlags) *cobra.Command {
	format := newFormat()
	cmd := &cobra.Command{
		Use:   "import FILE|-",
		Short: "Read what another ledger wrote",
		Long: `Import reads lines of JSON: entries, as export writes them, which must continue
this ledger's chain or be in it; or records of decisions about skills. A line that
is torn or foreign is named, the rest goes on, and the exit code is 1.

Records about skills stay as they are, and are marked with who imported them.`,
		Example: `  opa-gate approvals import --ledger new.db ledger.jsonl`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("%s needs one file, or - for stdin; got %d", cmd.CommandPath(), len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			importer := localUser()
			in, name, err := open(cmd, args)
			if err != nil {
				return err
			}
			defer func() { _ = in.Close() }() // nothing was written to it
			return withLedger(cmd, ledgers, func(ctx context.Context, l *ledger.Ledger) error {
				done, err := l.Import(ctx, importer, in)
				if done == nil {
					return err
				}
				if writing := writeImport(cmd, name, done, format.value == "json"); err == nil {
					err = writing
				}
				if err == nil && done.Failed > 0 {
					err = exit(exitCheck)
				}
				return err
			})
		},
	}
	format.add(cmd, "format", "how the answer is written")
	return cmd
}

func writeImport(cmd *cobra.Command, name string, done *ledger.Import, json bool) error {
	out := cmd.OutOrStdout()
	p := &printer{Writer: bufio.NewWriter(out), colour: wantsColour(out)}
	if json {
		if err := writeLine(p, struct {
			Added   int64            `json:"added"`
			Present int64            `json:"present"`
			Failed  int64            `json:"failed"`
			Refused []ledger.Refusal `json:"refused"`
		}{done.Added, done.Present, done.Failed, append([]ledger.Refusal{}, done.Refused...)}); err != nil {
			return err
		}
		return p.Flush()
	}
	for _, r := range done.Refused {
		complain(cmd.ErrOrStderr(), place(name, r.Line, "")+r.Problem)
	}
	if rest := done.Failed - int64(len(done.Refused)); rest > 0 {
		complain(cmd.ErrOrStderr(), fmt.Sprintf("%s: and %d more lines", name, rest))
	}
	_, _ = fmt.Fprintf(p, "%d added, %d there before, %d refused\n", done.Added, done.Present, done.Failed)
	return p.Flush()
}
