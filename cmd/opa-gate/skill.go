package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/skill"
	"github.com/opa-gate/opa-gate/wire"
)

func newSkill() *cobra.Command {
	engines := newEngineFlags()
	format := newFormat()
	var (
		ledgers  ledgerFlags
		exitCode bool
	)
	cmd := &cobra.Command{
		Use:   "skill [FILE|-]",
		Short: "Decide whether skills are deployed, and how far they may go",
		Long: `Skill reads skill documents and tells for each whether it is deployed and at
which tier. The input takes the same forms as that of decide.

A document says what is known of a skill, and is believed. The commands below
find that out from the skill's folder itself: check goes through a whole folder of
skills.

With a ledger (--ledger, or OPA_GATE_LEDGER), what people decided is looked up
there, and only about skills that the gate denies. A document that brings an
approval of its own is refused then: who may ask is not who decides. Without a
ledger the approval in the document is believed.`,
		Example: `  echo '{"skill": "pdf-tools", "requested": "sandbox_edit", "provenance": {"signed": true, "scanned": true}}' | opa-gate skill
  opa-gate skill --format json --engine both skills.ndjson
  opa-gate skill --exit-code skill.json
  opa-gate skill check skills --manifest skills.yaml --keyring keys`,
		Args: skillInput,
		RunE: func(cmd *cobra.Command, args []string) error {
			engine, err := engines.open(cmd.Context(), engines.engine.value)
			if err != nil {
				return err
			}
			asked, closing, err := ledgers.openSkills(cmd.Context())
			if err != nil {
				return err
			}
			err = answerInput(cmd, args, format.value, exitCode, skillWork(cmd.Context(), engine, asked))
			return errors.Join(err, closing())
		},
	}
	engines.add(cmd, "who decides: the policies (auto is opa here: skills are never compiled), "+
		"the native reference, or both, which must agree")
	format.add(cmd, "format", "how answers are written")
	cmd.Flags().BoolVar(&exitCode, "exit-code", false, "exit with 1 unless every skill is deployed")
	ledgers.addName(cmd.Flags(), "none")
	cmd.AddCommand(newSkillCheck(), newSkillSign(), newSkillVerify(), newSkillScanReport(), newSkillDigest(), newSkillKeygen())
	return cmd
}

// skillInput accepts no more than one file, and tells a misspelt command from it.
func skillInput(cmd *cobra.Command, args []string) error {
	if err := oneInput(cmd, args); err != nil || len(args) == 0 {
		return err
	}
	if _, err := os.Stat(args[0]); !errors.Is(err, fs.ErrNotExist) {
		return nil // whatever it is, it is read
	}
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	if nearest := wire.Nearest(args[0], names); nearest != "" {
		return fmt.Errorf("there is no file %q; did you mean the command %q?", args[0], cmd.CommandPath()+" "+nearest)
	}
	return nil
}

func skillWork(ctx context.Context, engine evaluator.Engine, ledger skill.Ledger) work[*skill.Request, skill.Answer] {
	parse := wire.ParseSkill
	if ledger != nil {
		parse = wire.ParseUndecidedSkill
	}
	return work[*skill.Request, skill.Answer]{
		parse:  parse,
		decide: func(r *skill.Request) (skill.Answer, error) { return evaluator.DecideSkill(ctx, engine, ledger, r) },
		show:   showAnswer,
		passes: func(a skill.Answer) bool { return a.Enforcement.Deploy },
	}
}

func showAnswer(p *printer, r *skill.Request, a skill.Answer) {
	e := a.Enforcement
	label, c := "refused", red
	switch {
	case e.Deploy && (e.Overridden || a.Outcome == skill.Downgrade):
		label, c = "deployed", yellow
	case e.Deploy:
		label, c = "deployed", green
	case e.Pending != nil:
		label, c = "pending", yellow
	}
	p.head(c, label, r.Skill, e.Reason)
	tiers := "requested " + r.Requested.String()
	if e.Deploy {
		tiers += ", deployed at " + e.EffectiveTier.String()
	}
	p.detail("tier", tiers)
	p.detail("trust", a.Trust.String())
	if a.Reason != "" && a.Reason != e.Reason {
		p.detail("gate", a.Outcome.String()+": "+a.Reason)
	}
	if e.Pending != nil {
		p.detail("waits for", e.Pending.Fingerprint)
	}
}
