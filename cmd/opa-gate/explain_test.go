package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opa-gate/opa-gate/evaluator"
)

const cells = 427_680

func TestHeadline(t *testing.T) {
	for want, r := range map[string]evaluator.Report{
		"All 427,680 kinds of call are answered from a table.": {Cells: cells, Compiled: cells},
		"All 427,680 kinds of call are answered from a table, 3,456 (0.8 %) from a table for each tool.": {
			Cells: cells, Compiled: cells - 3456, PerTool: 3456},
		"All 427,680 kinds of call are answered from a table, 427,680 from a table for each tool.": {
			Cells: cells, PerTool: cells},
		"All 427,680 kinds of call are answered from a table; in 106,920 (25.0 %) a rule names tools, each of which has a table of its own.": {
			Cells: cells, Compiled: cells, Excepted: 106920},
		"3,456 of 427,680 kinds of call (0.8 %) are decided by OPA each time.": {
			Cells: cells, Compiled: cells - 3456, Interpreted: 3456},
		"1 of 427,680 kinds of call (less than 0.1 %) are decided by OPA each time, 427,679 (more than 99.9 %) are answered from a table for each tool.": {
			Cells: cells, Interpreted: 1, PerTool: cells - 1},
		"All 427,680 kinds of call are decided by OPA each time.": {Cells: cells, Interpreted: cells},
	} {
		if got := headline(&r); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
}

// edited is a report on policies somebody has edited.
func edited() *evaluator.Report {
	return &evaluator.Report{
		Cells: cells, Compiled: cells - 4608, PerTool: 3456, Interpreted: 1152,
		Rules: []evaluator.Rule{
			{Name: "data.gate.call.decision", File: "gate/call/call.rego", Line: 7, Status: evaluator.RuleCompiled},
			{Name: "data.gate.call.late", File: "gate/call/call.rego", Line: 112, Status: evaluator.RuleInterpreted},
			{Name: "data.gate.pay.asks", File: "gate/pay/pay.rego", Line: 3, Status: evaluator.RulePerTool},
			{Name: "data.gate.skill.decision", File: "gate/skill/skill.rego", Line: 9, Status: evaluator.RuleUnused},
		},
		Blockers: []evaluator.Blocker{
			{File: "gate/pay/pay.rego", Line: 3, Column: 9, Expression: `startswith(input.tool.name, "pay_")`,
				Why: "computes with a text", PerTool: true, Cells: 3456},
			{File: "gate/call/call.rego", Line: 113, Column: 2, Expression: "time.now_ns() > 0\x1b",
				Why: "can give another result each time", Cells: 1151},
			{Why: "the plan has no answer", Cells: 1},
		},
	}
}

const editedText = `1,152 of 427,680 kinds of call (0.3 %) are decided by OPA each time, 3,456 (0.8 %) are answered from a table for each tool.

interpreted (decided by OPA each time) because of:
my/gate/call/call.rego:113:2: time.now_ns() > 0\x1b can give another result each time (1,151 kinds of call)
the plan has no answer (1 kind of call)

per-tool (from a table for each tool) because of:
my/gate/pay/pay.rego:3:9: startswith(input.tool.name, "pay_") computes with a text (3,456 kinds of call)

rules of my/gate/call/call.rego:
  112  data.gate.call.late  interpreted

rules of my/gate/pay/pay.rego:
    3  data.gate.pay.asks   per-tool

4 rules: 1 interpreted, 1 per-tool, 1 compiled, 1 unused; --all lists them all
`

const editedRules = `
rules of gate/call/call.rego:
    7  data.gate.call.decision   compiled
  112  data.gate.call.late       interpreted

rules of gate/pay/pay.rego:
    3  data.gate.pay.asks        per-tool

rules of gate/skill/skill.rego:
    9  data.gate.skill.decision  unused

4 rules: 1 interpreted, 1 per-tool, 1 compiled, 1 unused
`

const offText = `All 427,680 kinds of call are decided by OPA each time.
note: nothing can be compiled: the plan is too large

2 rules: 2 interpreted; --all lists them all
`

func TestReportText(t *testing.T) {
	text := func(r *evaluator.Report, all bool) string {
		var b bytes.Buffer
		if err := writeReport(&b, r, false, all); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	r := edited()
	locate(r, "my")
	if got := text(r, false); got != editedText {
		t.Errorf("got\n%s\nwant\n%s", got, editedText)
	}
	if got := text(edited(), true); !strings.HasSuffix(got, editedRules) {
		t.Errorf("with --all: got\n%s\nwant at its end\n%s", got, editedRules)
	}
	off := &evaluator.Report{Cells: cells, Interpreted: cells, Off: "the plan is too large", Rules: []evaluator.Rule{
		{Name: "data.gate.call.decision", File: "a.rego", Line: 1, Status: evaluator.RuleInterpreted},
		{Name: "data.gate.skill.decision", File: "b.rego", Line: 1, Status: evaluator.RuleInterpreted},
	}}
	if got := text(off, false); got != offText {
		t.Errorf("nothing compiled: got\n%s\nwant\n%s", got, offText)
	}
}

// The report's own names, every list a list, and files that can be opened.
func TestReportJSON(t *testing.T) {
	var b bytes.Buffer
	if err := writeReport(&b, &evaluator.Report{Cells: 1, Compiled: 1}, true, false); err != nil {
		t.Fatal(err)
	}
	const want = `{"cells":1,"compiled":1,"per_tool":0,"interpreted":0,"excepted":0,"named_to_opa":0,"rules":[],"blockers":[]}` + "\n"
	if b.String() != want {
		t.Errorf("got %s, want %s", &b, want)
	}
	r := edited()
	locate(r, "")
	if got := r.Blockers[0].File; got != "gate/pay/pay.rego" {
		t.Errorf("a file of the built-in policies is called %q", got)
	}
	locate(r, ".")
	if got := r.Rules[0].File; got != "gate/call/call.rego" {
		t.Errorf("a file below the working directory is called %q", got)
	}
	locate(r, "../p/")
	if got := r.Blockers[1].File; got != "../p/gate/call/call.rego" {
		t.Errorf("a file of ../p is called %q", got)
	}
	if got := r.Blockers[2].File; got != "" {
		t.Errorf("what stands nowhere is said to stand in %q", got)
	}
}

func TestProgress(t *testing.T) {
	var b strings.Builder
	clock := time.Unix(0, 0)
	p := newProgress(&b)
	p.now = func() time.Time { return clock }
	p.begin()
	for second := range 25 {
		clock = time.Unix(int64(second), 0)
		p.show(second*4, 100)
	}
	p.end()
	const lines = "opa-gate: surveyed 40 % of the kinds of call\nopa-gate: surveyed 80 % of the kinds of call\n"
	if b.String() != lines {
		t.Errorf("got %q, want %q", b.String(), lines)
	}
	b.Reset()
	p = newProgress(io.Discard)
	p.w, p.bar = &b, true
	p.begin()
	p.show(1, 1000)
	p.show(500, 1000)
	p.show(501, 1000)
	p.end()
	const bar = "\rsurveying [..............................]   0 %\rsurveying [###############...............]  50 %\r\x1b[K"
	if b.String() != bar {
		t.Errorf("got %q, want %q", b.String(), bar)
	}
}

func TestExplainInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr bytes.Buffer
	root := newRoot()
	root.SetArgs([]string{"policy", "explain", "--engine"})
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	var code exitError
	if err := root.ExecuteContext(ctx); !errors.As(err, &code) || code != exitInterrupted {
		t.Errorf("got %v, want exit code %d", err, exitInterrupted)
	}
	if stdout.Len() > 0 || stderr.String() != "opa-gate: interrupted before every kind of call was looked at\n" {
		t.Errorf("stdout %q, stderr %q", &stdout, &stderr)
	}
}

// What was rewritten before the interruption is told.
func TestCheckInterrupted(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "call.rego")
	if err := os.WriteFile(file, []byte("package gate.call\n\ndecision   :=   {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr bytes.Buffer
	root := newRoot()
	root.SetArgs([]string{"policy", "check", "--fix", dir})
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	var code exitError
	if err := root.ExecuteContext(ctx); !errors.As(err, &code) || code != exitInterrupted {
		t.Errorf("got %v, want exit code %d", err, exitInterrupted)
	}
	if want := "opa-gate: interrupted before everything was looked at\n" + file + ": formatted\n"; stdout.Len() > 0 || stderr.String() != want {
		t.Errorf("stdout %q, stderr %q, want %q", &stdout, &stderr, want)
	}
}

// What is written for people is coloured on a terminal.
func TestReportColour(t *testing.T) {
	var b bytes.Buffer
	out := bufio.NewWriter(&b)
	printReport(&printer{Writer: out, colour: true}, edited(), true)
	if err := out.Flush(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []colour{green, yellow, faint} {
		if !strings.Contains(b.String(), "\x1b["+string(c)+"m") {
			t.Errorf("nothing is written in colour %s", c)
		}
	}
	if err := writeReport(failing{io.ErrShortWrite}, edited(), false, false); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("a failed write came to %v", err)
	}
}
