package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opa-gate/opa-gate/ledger"
	"github.com/opa-gate/opa-gate/skill"
)

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
