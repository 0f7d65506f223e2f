package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/ledger"
	"github.com/opa-gate/opa-gate/skill"
)

// A counting ledger counts how often it is asked, and may fail.
type countingLedger struct {
	*skill.MemoryLedger
	asked int
	err   error
}

func (l *countingLedger) Last(ctx context.Context, fingerprint string) (skill.Record, bool, error) {
	l.asked++
	if l.err != nil {
		return skill.Record{}, false, l.err
	}
	return l.MemoryLedger.Last(ctx, fingerprint)
}

func recorded(t *testing.T, name string, tier skill.Tier, verdicts ...skill.Verdict) *countingLedger {
	t.Helper()
	l := &countingLedger{MemoryLedger: skill.NewMemoryLedger(nil)}
	for _, v := range verdicts {
		r := skill.Ruling{Fingerprint: skill.Fingerprint(name, tier), RequiredTier: tier, Decision: v}
		if _, err := l.Record(t.Context(), "ann", r); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func TestDecideSkillAsksTheLedgerAboutADenyAlone(t *testing.T) {
	policies, err := evaluator.New(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	engines := map[string]evaluator.Engine{"native": evaluator.Native{}, "opa": policies, "both": evaluator.Both(evaluator.Native{}, policies.Interpreter())}
	untrusted := skill.Request{Skill: "a:b", Requested: skill.FullAccess}
	trusted := skill.Request{Skill: "a:b", Requested: skill.FullAccess, Provenance: skill.Provenance{Scanned: true}}
	tests := []struct {
		name     string
		request  skill.Request
		verdicts []skill.Verdict
		asked    int
		want     skill.Enforcement // but for its texts
	}{
		{"never seen", untrusted, nil, 1, skill.Enforcement{Pending: &skill.Pending{}}},
		{"approved", untrusted, []skill.Verdict{skill.Rejected, skill.Approved}, 1, skill.Enforcement{Deploy: true, EffectiveTier: skill.FullAccess, Overridden: true}},
		{"rejected", untrusted, []skill.Verdict{skill.Approved, skill.Rejected}, 1, skill.Enforcement{Blocked: true}},
		{"downgraded, and rejected", trusted, []skill.Verdict{skill.Rejected}, 0, skill.Enforcement{Deploy: true, EffectiveTier: skill.ReadOnly}},
	}
	for name, engine := range engines {
		for _, tt := range tests {
			l := recorded(t, "a:b", skill.FullAccess, tt.verdicts...)
			a, err := decideSkill(t.Context(), engine, l, &tt.request)
			if err != nil {
				t.Fatal(err)
			}
			got := a.Enforcement
			if got.Deploy != tt.want.Deploy || got.EffectiveTier != tt.want.EffectiveTier || got.Overridden != tt.want.Overridden ||
				got.Blocked != tt.want.Blocked || (got.Pending == nil) != (tt.want.Pending == nil) || l.asked != tt.asked {
				t.Errorf("%s, %s: got %+v after asking %d times", name, tt.name, got, l.asked)
			}
		}
		// An approval in the document is none of a person that the ledger knows.
		claims := untrusted
		claims.Approval = skill.Approved
		if a, err := decideSkill(t.Context(), engine, recorded(t, "a:b", skill.FullAccess), &claims); err != nil || a.Enforcement.Deploy {
			t.Errorf("%s: an approval that nobody gave: %+v, %v", name, a, err)
		}
		if a, err := decideSkill(t.Context(), engine, nil, &claims); err != nil || !a.Enforcement.Overridden {
			t.Errorf("%s: without a ledger the document is believed: %+v, %v", name, a, err)
		}
		broken := errors.New("disk on fire")
		l := recorded(t, "a:b", skill.FullAccess, skill.Approved)
		l.err = broken
		if a, err := decideSkill(t.Context(), engine, l, &untrusted); !errors.Is(err, broken) || a.Enforcement.Deploy || a.Outcome != 0 {
			t.Errorf("%s: a broken ledger: %+v, %v", name, a, err)
		}
	}
}

func TestSkillCheckLooksIntoTheLedger(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"skills/pdf/SKILL.md": "x", "skills.yaml": "skills: {pdf: {name: 'a:b', requested: sandbox_edit}}\n"} {
		name = filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	check := func(args ...string) (code int, status, complaint string) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		code = run(append([]string{"skill", "check", filepath.Join(dir, "skills"), "--manifest", filepath.Join(dir, "skills.yaml"),
			"--engine", "native", "--exit-code", "--format", "json"}, args...), strings.NewReader(""), &stdout, &stderr)
		var one struct {
			Status string `json:"status"`
		}
		if stdout.Len() > 0 {
			if err := json.Unmarshal(stdout.Bytes(), &one); err != nil {
				t.Fatal(err)
			}
		}
		return code, one.Status, stderr.String()
	}
	t.Setenv(ledgerVariable, "")
	if code, status, complaint := check(); code != exitCheck || status != statusPending || complaint != "" {
		t.Errorf("without a ledger: got %d %s %q", code, status, complaint)
	}
	foreign := filepath.Join(dir, "foreign.db")
	if err := os.WriteFile(foreign, []byte("this is no database"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, status, complaint := check("--ledger", foreign); code != exitInput || status != "" || complaint == "" {
		t.Errorf("a ledger that cannot be opened: got %d %s %q", code, status, complaint)
	}
	for i, tt := range []struct {
		name     string
		skill    string
		tier     skill.Tier
		verdicts []skill.Verdict
		code     int
		status   string
	}{
		{"never seen", "a:b", skill.SandboxEdit, nil, exitCheck, statusPending},
		{"another tier", "a:b", skill.ReadOnly, []skill.Verdict{skill.Approved}, exitCheck, statusPending},
		{"the folder's name", "pdf", skill.SandboxEdit, []skill.Verdict{skill.Approved}, exitCheck, statusPending},
		{"approved", "a:b", skill.SandboxEdit, []skill.Verdict{skill.Approved}, exitDone, statusDeployed},
		{"rejected", "a:b", skill.SandboxEdit, []skill.Verdict{skill.Approved, skill.Rejected}, exitCheck, statusRefused},
	} {
		file := filepath.Join(dir, fmt.Sprintf("%d.db", i))
		l, err := ledger.Open(t.Context(), file, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range tt.verdicts {
			if _, err := l.Record(t.Context(), "local:tester", skill.Ruling{Fingerprint: skill.Fingerprint(tt.skill, tt.tier), RequiredTier: tt.tier, Decision: v}); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if code, status, complaint := check("--ledger", file); code != tt.code || status != tt.status || complaint != "" {
			t.Errorf("%s: got %d %s %q", tt.name, code, status, complaint)
		}
	}
}
