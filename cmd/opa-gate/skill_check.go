package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/provenance"
	"github.com/opa-gate/opa-gate/skill"
)

func newSkillCheck() *cobra.Command {
	engines := newEngineFlags()
	format := newFormat()
	var (
		manifest, keyring string
		ledgers           ledgerFlags
		exitCode          bool
	)
	cmd := &cobra.Command{
		Use:   "check FOLDER",
		Short: "Tell what each skill in a folder may be deployed at, and why",
		Long: `Check goes through a folder of skills, finds out what is true of each, and decides
what it may be deployed at. Who signed it is found out with the keyring, what is
wrong with it from reports of scanners, and how it has done so far is in the
manifest. What a skill says about itself has no effect.

The manifest is YAML. Files in it are named from its own folder:

  min_severity: medium          # the least severe finding that counts; default low
  reports:                      # about all skills; paths in them start from FOLDER
    - file: reports/all.sarif
  skills:
    pdf:                        # its folder in FOLDER
      name: pdf-tools           # default: the folder's name
      requested: sandbox_edit
      success_count: 12
      fail_count: 1
      reports:                  # about this skill; paths in them start from its folder
        - file: reports/pdf.sarif
          digest: sha256:…      # the version that was scanned, if the report lists no hashes

A skill is scanned if one of its reports counts; vulnerabilities are the findings
of all. ` + whatAScanIs + `

` + whatAKeyringIs + `

A folder that the manifest does not name and one that it names in vain are told.

Exit codes: 0 done, 1 with --exit-code unless every skill is deployed, 2 wrong
usage, or something could not be used or decided: the others are told all the
same.`,
		Example: `  opa-gate skill check skills --manifest skills.yaml --keyring keys
  opa-gate skill check skills --manifest skills.yaml --exit-code --format json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return fmt.Errorf("skill check needs one folder of skills, as in: %s skills --manifest skills.yaml", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if manifest == "" {
				return errors.New("skill check needs what you know of the skills: --manifest")
			}
			c := checker{folder: args[0], json: format.value == "json"}
			var err error
			if c.manifest, err = provenance.ReadManifest(manifest); err != nil {
				return fmt.Errorf("--manifest: %w", err)
			}
			operators := map[string]string{"manifest": manifest}
			if cmd.Flags().Changed("keyring") {
				if c.ring, err = readKeyring(keyring); err != nil {
					return err
				}
				operators["keyring"] = keyring
			}
			if err := notOfTheSkills(c.folder, operators); err != nil {
				return err
			}
			if c.engine, err = engines.open(cmd.Context(), engines.engine.value); err != nil {
				return err
			}
			var closing func() error
			if c.ledger, closing, err = ledgers.openSkills(cmd.Context()); err != nil {
				return err
			}
			code, err := c.run(cmd)
			if err := errors.Join(err, closing()); err != nil {
				return err
			}
			if !exitCode && code == exitCheck {
				code = exitDone
			}
			return exit(code)
		},
	}
	cmd.Flags().StringVar(&manifest, "manifest", "", "what you know of the skills, a `FILE`")
	_ = cmd.MarkFlagFilename("manifest", "yaml", "yml")
	addKeyring(cmd, &keyring)
	ledgers.addName(cmd.Flags(), "none")
	engines.add(cmd, "who decides, as for skill")
	format.add(cmd, "format", "how answers are written")
	cmd.Flags().BoolVar(&exitCode, "exit-code", false, "exit with 1 unless every skill is deployed")
	return cmd
}

// notOfTheSkills refuses files of the operator, by their flags, that are in one
// of the folders of skills.
func notOfTheSkills(skills string, operators map[string]string) error {
	if info, err := os.Stat(skills); err != nil {
		return err
	} else if !info.IsDir() {
		return fmt.Errorf("%s is a file, expected a folder of skills", skills)
	}
	for _, flag := range slices.Sorted(maps.Keys(operators)) {
		inside, err := provenance.Inside(skills, operators[flag])
		if err == nil && inside {
			err = fmt.Errorf("%s: %w", operators[flag], provenance.ErrSelfServing)
		}
		if err != nil {
			return fmt.Errorf("--%s: %w", flag, err)
		}
	}
	return nil
}

// A checker goes through a folder of skills.
type checker struct {
	folder   string
	manifest *provenance.Manifest
	ring     *provenance.Keyring // nil: no key is known
	engine   evaluator.Engine
	ledger   skill.Ledger // nil: no decisions are known
	json     bool
}

// A checked is what check tells of one folder.
type checked struct {
	Status     string             `json:"status"`
	Folder     string             `json:"folder"`
	Skill      string             `json:"skill,omitempty"`
	Requested  skill.Tier         `json:"requested"`
	Digest     *provenance.Digest `json:"digest"`
	Provenance *provenanceJSON    `json:"provenance"`
	Evidence   *evidence          `json:"evidence"`
	Answer     *skill.Answer      `json:"answer"` // as skill answers
	Reason     string             `json:"reason,omitempty"`
}

// provenanceJSON is a provenance as it stands in a skill document.
type provenanceJSON struct {
	Signed          bool   `json:"signed"`
	SignerTrusted   bool   `json:"signer_trusted"`
	Scanned         bool   `json:"scanned"`
	Vulnerabilities uint64 `json:"vulnerabilities"`
	SuccessCount    uint64 `json:"success_count"`
	FailCount       uint64 `json:"fail_count"`
	Source          string `json:"source"`
}

// evidence is how a provenance was come by. The counts are the manifest's.
type evidence struct {
	Signature signatureReport    `json:"signature"`
	Scans     []*provenance.Scan `json:"scans"`
}

// The statuses of folders.
const (
	statusDeployed = "deployed"
	statusPending  = "pending"
	statusRefused  = "refused"
	statusMissing  = "missing"
	statusUnnamed  = "unnamed"
	statusError    = "error"
)

// run tells of every folder, and returns what --exit-code makes of it.
func (c *checker) run(cmd *cobra.Command) (code int, err error) {
	unnamed, err := c.manifest.Unnamed(c.folder)
	if err != nil {
		return exitInput, err
	}
	out := bufio.NewWriter(cmd.OutOrStdout())
	p := &printer{Writer: out, colour: wantsColour(cmd.OutOrStdout())}
	for _, folder := range slices.Sorted(maps.Keys(c.manifest.Skills)) {
		one := c.check(cmd.Context(), folder)
		switch one.Status {
		case statusDeployed:
		case statusError:
			code = exitInput
		default:
			code = max(code, exitCheck)
		}
		if err := c.tell(p, one); err != nil {
			return exitInput, err
		}
		if one.Status == statusError {
			if err := out.Flush(); err != nil { // people see both streams: keep their order
				return exitInput, err
			}
			complain(cmd.ErrOrStderr(), folder+": "+one.Reason)
		}
	}
	for _, folder := range unnamed {
		code = max(code, exitCheck)
		one := checked{Status: statusUnnamed, Folder: folder, Reason: "The manifest does not name it, so it is not deployed."}
		if err := c.tell(p, one); err != nil {
			return exitInput, err
		}
	}
	return code, out.Flush()
}

// check finds out about one skill and decides it. Whatever goes wrong is told in
// place of an answer.
func (c *checker) check(ctx context.Context, folder string) checked {
	entry := c.manifest.Skills[folder]
	one := checked{Status: statusError, Folder: folder, Skill: entry.Name, Requested: entry.Requested}
	facts, err := c.manifest.Examine(c.folder, folder, c.ring)
	if errors.Is(err, provenance.ErrMissing) {
		one.Status, one.Reason = statusMissing, "The manifest names it, and there is no such folder."
		return one
	}
	if err != nil {
		one.Reason = err.Error()
		return one
	}
	p := facts.Provenance
	one.Digest = &facts.Digest
	one.Provenance = &provenanceJSON{p.Signed, p.SignerTrusted, p.Scanned, p.Vulnerabilities, p.SuccessCount, p.FailCount, p.Source.String()}
	one.Evidence = &evidence{Signature: signatureOf(facts.Key, facts.Unsigned), Scans: append([]*provenance.Scan{}, facts.Scans...)}
	request := &skill.Request{Skill: entry.Name, Requested: entry.Requested, Provenance: p}
	if err := request.Validate(); err != nil {
		one.Reason = err.Error()
		return one
	}
	answer, err := evaluator.DecideSkill(ctx, c.engine, c.ledger, request)
	if err != nil {
		one.Reason = err.Error()
		return one
	}
	one.Answer = &answer
	switch e := answer.Enforcement; {
	case e.Deploy:
		one.Status = statusDeployed
	case e.Pending != nil:
		one.Status = statusPending
	default:
		one.Status = statusRefused
	}
	return one
}

// tell writes one folder's line, or its paragraph for a person.
func (c *checker) tell(p *printer, one checked) error {
	if c.json {
		text, err := encode(one)
		if err != nil {
			return err
		}
		_, err = p.Write(text)
		return err
	}
	if one.Answer == nil {
		p.head(red, one.Status, one.Folder, one.Reason)
		return nil
	}
	showAnswer(p, &skill.Request{Skill: one.Skill, Requested: one.Requested}, *one.Answer)
	p.detail("folder", one.Folder+" ("+one.Digest.String()+")")
	if s := one.Evidence.Signature; s.Signed {
		p.detail("signed", fmt.Sprintf("yes, with the key %s; trusted %s, source %s", s.Key, yesNo(s.Trusted), s.Source))
	} else {
		p.detail("signed", "no: "+s.Reason)
	}
	p.detail("scanned", yesNo(one.Provenance.Scanned)+", vulnerabilities "+strconv.FormatUint(one.Provenance.Vulnerabilities, 10))
	for _, s := range one.Evidence.Scans {
		p.detail("report", fmt.Sprintf("%s (%s): %s: %s; findings %s", s.Report, strings.Join(s.Tools, ", "), s.State, s.Reason, counts(s)))
	}
	p.detail("record", fmt.Sprintf("success_count %d, fail_count %d in the manifest", one.Provenance.SuccessCount, one.Provenance.FailCount))
	return nil
}
