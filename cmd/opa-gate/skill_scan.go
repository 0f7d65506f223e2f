package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/opa-gate/opa-gate/provenance"
)

// whatAScanIs is what help says of reports.
const whatAScanIs = `A report says that a skill was scanned if each of its runs says that it was
successful, and if it is about the version of the skill that is in the folder: it
lists every file with its SHA-256 (artifacts), or --digest says so. One that is
about another version is stale, and says nothing.

A finding counts unless it is in another file under --base. One without a place, or
in a place that does not exist here, counts. Its severity is GitHub's
security-severity where there is one, or else the most that its level stands for:
error critical, warning medium, note low; one without a severity always counts.
Findings that somebody else than the skill suppresses (external) do not count; those
that a comment in the skill suppresses do.`

func newSkillScanReport() *cobra.Command {
	least := choice{value: provenance.Low.String(), names: provenance.Severities()}
	format := newFormat()
	var (
		base, digest string
		exitCode     bool
	)
	cmd := &cobra.Command{
		Use:   "scan-report REPORT FOLDER...",
		Short: "Count what a scanner's report says of skills",
		Long: `Scan-report reads the report of a scanner, in SARIF 2.1.0, and counts its findings
for the skill in each FOLDER.

` + whatAScanIs + `

A report that is broken is an error, and never one without findings.`,
		Example: `  opa-gate skill scan-report all.sarif skills/pdf skills/docx --base skills
  opa-gate skill scan-report pdf.sarif skills/pdf --digest sha256:0b5a… --min-severity medium
  opa-gate skill scan-report pdf.sarif skills/pdf --exit-code --format json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return fmt.Errorf("skill scan-report needs a report and the folder of a skill, as in: %s pdf.sarif skills/pdf", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			scope := provenance.Scope{Base: base}
			scope.Min, _ = provenance.ParseSeverity(least.value)
			switch {
			case cmd.Flags().Changed("base") && base == "":
				return errors.New("--base: expected a folder, got an empty name")
			case cmd.Flags().Changed("digest") && len(args) > 2:
				return errors.New("--digest is that of one skill; give one FOLDER with it")
			case cmd.Flags().Changed("digest"):
				d, err := provenance.ParseDigest(digest)
				if err != nil {
					return fmt.Errorf("--digest: %w", err)
				}
				scope.Digest = &d
			}
			return scanReport(cmd, args[0], args[1:], scope, format.value == "json", exitCode)
		},
	}
	cmd.Flags().StringVar(&base, "base", "", "what relative paths in the report start from, a `FOLDER` (default: the skill's)")
	cmd.Flags().StringVar(&digest, "digest", "", "the `DIGEST` that the skill had when it was scanned; skill digest prints it")
	least.add(cmd, "min-severity", "the least severe finding that counts")
	format.add(cmd, "format", "how what was counted is written")
	cmd.Flags().BoolVar(&exitCode, "exit-code", false, "exit with 1 unless every skill was scanned and has no findings that count")
	return cmd
}

// scanReport tells what a report says of the skills in folders.
func scanReport(cmd *cobra.Command, file string, folders []string, scope provenance.Scope, asJSON, exitCode bool) error {
	r, err := provenance.OpenReport(file)
	if err != nil {
		return err
	}
	p := newPrinter(cmd.OutOrStdout())
	code := exitDone
	for _, folder := range folders {
		if err := notOfTheSkill(folder, file); err != nil {
			return err
		}
		tree, err := provenance.ReadTree(folder)
		if err != nil {
			return err
		}
		scope.Folder = folder
		scan, err := r.Scan(tree, scope)
		if err != nil {
			return err
		}
		scan.Report = file
		clean := scan.State == provenance.Current && scan.Findings == 0
		if exitCode && !clean {
			code = exitCheck
		}
		if asJSON {
			err := writeLine(p, struct {
				Folder  string            `json:"folder"`
				Digest  provenance.Digest `json:"digest"`
				Scanned bool              `json:"scanned"`
				*provenance.Scan
			}{folder, tree.Digest, scan.State == provenance.Current, scan})
			if err != nil {
				return err
			}
			continue
		}
		label, c := "scanned", green
		if !clean {
			c = red
		}
		if scan.State != provenance.Current {
			label = "not scanned"
		}
		p.head(c, label, folder, "")
		p.detail("report", scan.State.String()+": "+scan.Reason)
		p.detail("tools", strings.Join(scan.Tools, ", "))
		p.detail("findings", counts(scan))
	}
	if err := p.Flush(); err != nil {
		return err
	}
	return exit(code)
}

// counts tells what a scan counted and what it did not.
func counts(s *provenance.Scan) string {
	var parts []string
	for _, c := range []struct {
		n     uint64
		about string
	}{
		{s.Unplaced, "in no known place"},
		{s.SelfExcused, "excused by the skill itself"},
	} {
		if c.n > 0 {
			parts = append(parts, strconv.FormatUint(c.n, 10)+" "+c.about)
		}
	}
	text := strconv.FormatUint(s.Findings, 10)
	if len(parts) > 0 {
		text += " (" + strings.Join(parts, ", ") + ")"
	}
	for _, c := range []struct {
		n     uint64
		about string
	}{
		{s.Below, "less severe"},
		{s.Suppressed, "suppressed"},
		{s.Outdated, "of another version"},
	} {
		if c.n > 0 {
			text += "; not counted: " + strconv.FormatUint(c.n, 10) + " " + c.about
		}
	}
	return text
}
