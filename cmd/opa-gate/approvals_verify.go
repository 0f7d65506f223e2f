package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/ledger"
	"github.com/opa-gate/opa-gate/wire"
)

func newApprovalsVerify(ledgers *ledgerFlags) *cobra.Command {
	engines := newEngineFlags()
	format := newFormat()
	var document string
	cmd := &cobra.Command{
		Use:   "verify [TOKEN|FILE|-]",
		Short: "Verify a signed approval",
		Long: `Verify tells whether an approval is signed by a key that is trusted and has not
expired, and what it says. With --admission it also tells whether the approval
covers the call in that document, as the policies decide it now. The exit code is
1 if it does not.

The ledger is not asked: whether the approval was used is for show to tell.`,
		Example: `  opa-gate approvals show wcle --format json | jq -r .decision.token | opa-gate approvals verify -
  opa-gate approvals verify token.txt --trust approvers.pem --admission call.json`,
		Args: oneInput,
		RunE: func(cmd *cobra.Command, args []string) error {
			token, err := readToken(cmd, args)
			if err != nil {
				return err
			}
			ledgers.noNewKey = true
			keys, err := ledgers.keys()
			if err != nil {
				return err
			}
			approval, err := keys.Read(token)
			if err == nil {
				now := time.Now()
				if document != "" {
					call, missing, failed := admissionOf(cmd.Context(), &engines, document)
					if failed != nil {
						return failed
					}
					err = approval.Covers(call, missing, now)
				} else if !now.Before(approval.Expires) {
					err = fmt.Errorf("%w at %s", ledger.ErrExpired, approval.Expires.Format(time.RFC3339))
				}
			}
			return writeVerified(cmd, approval, err, format.value == "json")
		},
	}
	cmd.Flags().StringVar(&document, "admission", "", "a `FILE` with the admission document of the call that it must cover")
	_ = cmd.MarkFlagFilename("admission", "json")
	engines.add(cmd, "who decides the call; as in decide")
	format.add(cmd, "format", "how the answer is written")
	return cmd
}

// maxTokenFile bounds a file with an approval, in bytes.
const maxTokenFile = 2 << 20

// readToken reads an approval that stands on the command line, or in a file.
func readToken(cmd *cobra.Command, args []string) (string, error) {
	if len(args) == 1 && args[0] != "-" {
		switch _, err := os.Stat(args[0]); {
		case err == nil: // whatever it is called
		case looksLikeToken(args[0]):
			return args[0], nil
		case errors.Is(err, fs.ErrNotExist):
			return "", fmt.Errorf("expected a signed approval or a file with one, got %.100q: there is no such file", args[0])
		}
	}
	in, name, err := open(cmd, args)
	if err != nil {
		return "", err
	}
	defer func() { _ = in.Close() }() // nothing was written to it
	text, err := io.ReadAll(io.LimitReader(in, maxTokenFile+1))
	if err != nil {
		return "", err
	}
	if len(text) > maxTokenFile {
		return "", fmt.Errorf("%s: expected a signed approval, of at most %d bytes", name, maxTokenFile)
	}
	return strings.TrimSpace(string(text)), nil
}

// looksLikeToken tells a signed approval, also one that was cut or broken, from the
// name of a file: it has three parts, or begins as a JSON object does in base64.
func looksLikeToken(arg string) bool {
	return !strings.ContainsAny(arg, `/\`) && (strings.Count(arg, ".") == 2 || strings.HasPrefix(arg, "eyJ"))
}

// admissionOf reads the call of an admission document, and what it lacks now.
func admissionOf(ctx context.Context, engines *engineFlags, file string) (*ledger.Call, capability.Set, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, 0, err
	}
	if info.Size() > wire.MaxBytes {
		return nil, 0, fmt.Errorf("%s: expected at most %d bytes, got %d", file, wire.MaxBytes, info.Size())
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, 0, err
	}
	q, err := wire.ParseAdmission(text)
	if err != nil {
		var e *wire.Error
		if errors.As(err, &e) {
			err = errors.New(place(file, e.Line, e.Pointer) + e.Message())
		}
		return nil, 0, err
	}
	engine, revision, err := engines.openRevised(ctx, engines.engine.value)
	if err != nil {
		return nil, 0, err
	}
	outcome, err := engine.Decide(ctx, q.Call)
	if err != nil {
		return nil, 0, err
	}
	if outcome.Kind != capability.Escalate {
		return nil, 0, fmt.Errorf("%s: the call needs no approval: its outcome is %s", file, outcome.Kind)
	}
	call, err := callOf(q, revision)
	return &call, outcome.Missing, err
}

func writeVerified(cmd *cobra.Command, a *ledger.Approval, problem error, json bool) error {
	out := cmd.OutOrStdout()
	p := &printer{Writer: bufio.NewWriter(out), colour: wantsColour(out)}
	if json {
		said := ""
		if problem != nil {
			said = problem.Error()
		}
		if err := writeLine(p, struct {
			Valid    bool             `json:"valid"`
			Problem  string           `json:"problem,omitempty"`
			Approval *ledger.Approval `json:"approval"`
		}{problem == nil, said, a}); err != nil {
			return err
		}
	} else {
		showVerified(p, a, problem, time.Now())
	}
	if err := p.Flush(); err != nil {
		return err
	}
	if problem != nil {
		return exit(exitCheck)
	}
	return nil
}

func showVerified(p *printer, a *ledger.Approval, problem error, now time.Time) {
	switch {
	case problem != nil:
		p.head(red, "refused", problem.Error(), "")
	default:
		p.head(green, "valid", a.Tool, "")
	}
	if a == nil {
		return
	}
	if problem != nil {
		p.detail("tool", a.Tool)
	}
	scope := "one call, exactly the one that was asked about"
	if a.Scope == ledger.ForSession {
		scope = "every call of the tool in the session"
	}
	p.detail("covers", scope)
	p.detail("up to", a.Coverage.String())
	if a.Session != "" {
		p.detail("session", a.Session)
	}
	p.detail("policies", a.Revision)
	p.detail("by", a.Reviewer+", "+stamp(now, a.At))
	p.detail("expires", stamp(now, a.Expires))
	p.detail("id", a.ID)
}
