package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/opa-gate/opa-gate/ledger"
	"github.com/opa-gate/opa-gate/skill"
)

func newApprovalsSkill(ledgers *ledgerFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "skill",
		Short: "Decide whether skills that the gate denies are deployed",
		Long: `Skill records what people decided about skills. What the gate deploys by itself
needs no decision; one that it denies is deployed at the requested tier if the last
decision about that skill at that tier approves it.`,
		Example: `  opa-gate approvals skill approve --skill pdf-tools --tier sandbox_edit --reason "read every line"
  opa-gate approvals skill list`,
		Args: knownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSkillRuling(ledgers, skill.Approved), newSkillRuling(ledgers, skill.Rejected), newSkillHistory(ledgers), newSkillRulings(ledgers))
	return cmd
}

// A skillName is the flags that name a skill at a tier, instead of a fingerprint.
type skillName struct {
	skill string
	tier  choice
}

func newSkillName() skillName {
	return skillName{tier: choice{names: []string{skill.ReadOnly.String(), skill.SandboxEdit.String(), skill.FullAccess.String()}}}
}

func (s *skillName) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.skill, "skill", "", "the `NAME` of the skill")
	s.tier.add(cmd, "tier", "the tier that it asks for")
}

// fingerprint is the fingerprint that args or the flags name.
func (s *skillName) fingerprint(cmd *cobra.Command, args []string) (string, error) {
	named, tiered := cmd.Flags().Changed("skill"), cmd.Flags().Changed("tier")
	switch {
	case len(args) > 1:
		return "", fmt.Errorf("%s needs one fingerprint, got %d", cmd.CommandPath(), len(args))
	case len(args) == 1 && (named || tiered):
		return "", errors.New("expected either a fingerprint or --skill and --tier, got both")
	case len(args) == 1:
		if _, _, ok := skill.ParseFingerprint(args[0]); !ok {
			return "", fmt.Errorf("expected a fingerprint as opa-gate skill shows it, such as %s, got %q", skill.Fingerprint("NAME", skill.SandboxEdit), args[0])
		}
		return args[0], nil
	case !named || !tiered:
		return "", errors.New("expected a fingerprint, or --skill NAME and --tier TIER")
	case s.skill == "":
		return "", errors.New("--skill: expected the name of a skill, got an empty one")
	}
	tier, _ := skill.ParseTier(s.tier.value) // choice accepts no other
	return skill.Fingerprint(s.skill, tier), nil
}

func newSkillRuling(ledgers *ledgerFlags, verdict skill.Verdict) *cobra.Command {
	use, short, what := "approve", "Have a skill deployed that the gate denies", "is deployed at the tier it asks for"
	if verdict == skill.Rejected {
		use, short, what = "reject", "Have a skill blocked", "is blocked, and nobody is asked about it again"
	}
	name, format := newSkillName(), newFormat()
	var r skill.Ruling
	cmd := &cobra.Command{
		Use:   use + " [FINGERPRINT]",
		Short: short,
		Long: fmt.Sprintf(`Once recorded, a skill that the gate denies %s.
The last decision about a skill at a tier counts; the earlier ones stay in the
ledger.`, what),
		Example: fmt.Sprintf("  opa-gate approvals skill %s --skill pdf-tools --tier sandbox_edit --reason \"read every line\"", use),
		RunE: func(cmd *cobra.Command, args []string) error {
			reviewer := localUser()
			var err error
			if r.Fingerprint, err = name.fingerprint(cmd, args); err != nil {
				return err
			}
			_, r.RequiredTier, _ = skill.ParseFingerprint(r.Fingerprint)
			if r.Decision = verdict; r.Reason == "" {
				return errors.New("--reason: say why, for whoever reads it later")
			}
			return withLedger(cmd, ledgers, func(ctx context.Context, l *ledger.Ledger) error {
				record, err := l.Record(ctx, reviewer, r)
				if err != nil {
					return err
				}
				return writeRecords(cmd, []skill.Record{record}, format.value == "json", "")
			})
		},
	}
	name.add(cmd)
	cmd.Flags().StringVar(&r.Reason, "reason", "", "why; a `TEXT`")
	cmd.Flags().StringVar(&r.Evidence, "evidence", "", "what the decision rests on, such as a report's address; a `TEXT`")
	format.add(cmd, "format", "how the answer is written")
	return cmd
}

func newSkillHistory(ledgers *ledgerFlags) *cobra.Command {
	name, format := newSkillName(), newFormat()
	cmd := &cobra.Command{
		Use:     "history [FINGERPRINT]",
		Short:   "Show every decision about a skill at a tier",
		Long:    "History shows every decision about a skill at a tier, oldest first. The last one counts.",
		Example: "  opa-gate approvals skill history --skill pdf-tools --tier sandbox_edit",
		RunE: func(cmd *cobra.Command, args []string) error {
			fingerprint, err := name.fingerprint(cmd, args)
			if err != nil {
				return err
			}
			return readLedger(cmd, ledgers, func(ctx context.Context, l *ledger.Ledger) error {
				records, err := l.History(ctx, fingerprint)
				if err != nil {
					return err
				}
				return writeRecords(cmd, records, format.value == "json", "Nobody decided about "+fingerprint+".")
			})
		},
	}
	name.add(cmd)
	format.add(cmd, "format", "how they are written; json is one record a line")
	return cmd
}

func newSkillRulings(ledgers *ledgerFlags) *cobra.Command {
	format := newFormat()
	var limit int
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the decisions about skills that count",
		Long:    "List shows the last decision about each skill at each tier, the newest first.",
		Example: "  opa-gate approvals skill list --format json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 {
				return fmt.Errorf("--limit: expected 1 or more, got %d", limit)
			}
			return readLedger(cmd, ledgers, func(ctx context.Context, l *ledger.Ledger) error {
				records, err := lastRulings(ctx, l, limit)
				if err != nil {
					return err
				}
				return writeRecords(cmd, records, format.value == "json", "Nobody decided about a skill yet.")
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 50, "at most `N`")
	format.add(cmd, "format", "how they are written; json is one record a line")
	return cmd
}

func lastRulings(ctx context.Context, l *ledger.Ledger, limit int) ([]skill.Record, error) {
	var last []skill.Record
	seen := map[string]bool{}
	for before := int64(0); ; {
		records, next, err := l.Rulings(ctx, before, 500)
		if err != nil {
			return nil, err
		}
		for _, r := range records {
			if !seen[r.Fingerprint] {
				seen[r.Fingerprint] = true
				if last = append(last, r); len(last) == limit {
					return last, nil
				}
			}
		}
		if before = next; next == 0 {
			return last, nil
		}
	}
}

func writeRecords(cmd *cobra.Command, records []skill.Record, json bool, none string) error {
	out := cmd.OutOrStdout()
	p := &printer{Writer: bufio.NewWriterSize(out, bufferSize), colour: wantsColour(out)}
	now := time.Now()
	for _, r := range records {
		if json {
			if err := writeLine(p, r); err != nil {
				return err
			}
			continue
		}
		c := red
		if r.Decision == skill.Approved {
			c = green
		}
		name, tier, _ := skill.ParseFingerprint(r.Fingerprint)
		p.head(c, r.Decision.String(), name, "at "+tier.String())
		p.detail("by", r.Reviewer+", "+stamp(now, r.DecidedAt))
		p.detail("reason", r.Reason)
		if r.Evidence != "" {
			p.detail("evidence", r.Evidence)
		}
	}
	if len(records) == 0 && !json {
		p.head(faint, "none", none, "")
	}
	return p.Flush()
}
