// Command browser writes pages for the browser test to a directory, each with
// its difference as JSON beside it. They are made by hand: nothing here depends
// on how differences are found.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/opa-gate/opa-gate/analysis"
	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/evaluator"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run ./analysis/browser DIR")
		os.Exit(2)
	}
	for name, d := range map[string]*analysis.Difference{
		"equal": equal(), "typical": typical(), "many": many(), "hostile": hostile(),
	} {
		if err := write(filepath.Join(os.Args[1], name), d); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func write(base string, d *analysis.Difference) error {
	for suffix, to := range map[string]func(*os.File) error{
		".html": func(f *os.File) error { return d.WriteHTML(f) },
		".json": func(f *os.File) error { return d.WriteJSON(f) },
	} {
		f, err := os.Create(base + suffix)
		if err != nil {
			return err
		}
		if err := to(f); err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}

const calls, skills = 427_680, 8_640

func equal() *analysis.Difference {
	return &analysis.Difference{Old: "main:policies", New: "policies", Calls: calls, Skills: skills, Matrix: matrix()}
}

func typical() *analysis.Difference {
	d := equal()
	d.Changes = []analysis.Change{
		change(analysis.Widening, "escalate", "allow", 512,
			`{"tool":{"name":"tool","origin":"fetcher","destructive":true},"taint":"tainted"}`,
			`{"outcome":"escalate","reason":"Outside content is in the conversation: check \"tool\" before it could send out or change anything.","missing":["arbitrary-egress","mutate-external"],"missing_mask":24,"granted":["local-read"],"granted_mask":1}`,
			`{"outcome":"allow","reason":"","missing":[],"missing_mask":0,"granted":["local-read","arbitrary-egress","mutate-external"],"granted_mask":25}`,
			"taint", "tainted", "tool.origin", "fetcher", "tool.destructive", "yes"),
		change(analysis.Widening, "deny", "escalate", 96,
			`{"tool":{"name":"pay","origin":"registered-connector"},"taint":"clean","policy":{"veto":""}}`,
			`{"outcome":"deny","reason":""}`, `{"outcome":"escalate","reason":"A person has to confirm this call."}`,
			"tool.name", `"pay"`, "policy.veto", `""`, "tool.origin", "first-party|registered-connector"),
		change(analysis.Narrowing, "allow", "deny", 7_776,
			`{"tool":{"name":"tool","origin":"local-sandbox"},"grant":{"base":["local-read"]},"taint":"clean"}`,
			`{"outcome":"allow","reason":""}`, `{"outcome":"deny","reason":"Nobody writes here."}`,
			"taint", "clean", "tool.origin", "local-sandbox", "tool.read_only", "no|not given", "grant.base", "without mutate-external"),
		change(analysis.Narrowing, "inject_context", "error", 12,
			`{"tool":{"name":"tool"},"taint":"clean","policy":{"transform":{"kind":"inject_context","note":"note"}}}`,
			`{"outcome":"inject_context","reason":"","note":"note"}`, `{"error":"policies/gate/call/call.rego:88: complete rules must not produce multiple outputs"}`,
			"tool.origin", "unknown", "policy.transform.kind", "inject_context"),
		change(analysis.Rewording, "escalate", "escalate", 18_432,
			`{"tool":{"name":"tool","origin":"access-grant"},"taint":"clean"}`,
			`{"outcome":"escalate","reason":"\"tool\" would let someone into this system: confirm exactly who."}`,
			`{"outcome":"escalate","reason":"Confirm whom \"tool\" lets in."}`,
			"tool.origin", "access-grant"),
	}
	skill := change(analysis.Narrowing, "deployed at read_only", "blocked", 240,
		`{"skill":"skill","requested":"full_access","provenance":{"scanned":true}}`,
		`{"trust":"community","ceiling":"read_only","outcome":"downgrade","enforcement":{"deploy":true}}`,
		`{"trust":"untrusted","ceiling":null,"outcome":"deny","enforcement":{"deploy":false}}`,
		"requested", "sandbox_edit|full_access", "provenance.scanned", "yes", "provenance.signed", "no")
	skill.Kind = "skill"
	d.Changes = append(d.Changes[:3:3], append([]analysis.Change{skill}, d.Changes[3:]...)...)
	for i := range d.Matrix {
		s := &d.Matrix[i]
		switch {
		case s.Origin == "fetcher" && s.Taint == "tainted" && len(s.Before) > 0:
			s.Changed, s.After = true, []string{"allow", "escalate"}
		case s.Origin == "local-sandbox" && s.Capability == "local-write" && s.Taint == "clean":
			s.Changed, s.After = true, []string{"deny"}
		case s.Origin == "access-grant":
			s.Changed = true
		case s.Origin == "first-party" && s.Capability == "local-read" && s.Taint == "clean":
			s.Changed, s.After = true, []string{"allow"}
		}
	}
	d.Incomplete = []analysis.Uncovered{{Of: "new", Blocker: evaluator.Blocker{File: "policies/gate/call/call.rego", Line: 130, Column: 20,
		Expression: `startswith(input.tool.name, "pay_")`, Why: "computes with a text", PerTool: true, Cells: 19_620}}}
	return d
}

// many has more rows than anybody reads, with every outcome.
func many() *analysis.Difference {
	d := typical()
	row := d.Changes
	for i := range 400 {
		c := row[i%len(row)]
		c.Inputs = 400 - i
		d.Changes = append(d.Changes, c)
	}
	return d
}

// hostile has texts that would be markup, would reorder what stands beside
// them, or would not fit.
func hostile() *analysis.Difference {
	const script = `<script>document.title = "run"; console.error("run")</script><img src=x onerror="console.error('run')">`
	d := typical()
	for _, text := range []string{script, `"><svg onload=alert(1)>`, "</code></pre><h1>", "| a | b |", "`code`", "a\u202ebidi\u2066", "line\nline\r\n", "\x1b[31mred\x07", strings.Repeat("x", 10_000), strings.Repeat("long words ", 900)} {
		quoted, err := json.Marshal(text)
		if err != nil {
			panic(err)
		}
		c := change(analysis.Widening, "escalate", "allow", 1, `{"tool":{"name":`+string(quoted)+`},"taint":"clean"}`,
			`{"outcome":"escalate","reason":`+string(quoted)+`}`, `{"outcome":"allow","reason":""}`, "tool.name", text, text, text)
		d.Changes = append(d.Changes, c)
		d.Matrix = append(d.Matrix, analysis.Square{Origin: text, Capability: text, Taint: "clean", Before: []string{text}, After: []string{"deny"}, Changed: true})
		d.Incomplete = append(d.Incomplete, analysis.Uncovered{Of: "old", Blocker: evaluator.Blocker{File: text, Expression: text, Why: text}})
		d.Old, d.New = d.Old+text, d.New+text
	}
	return d
}

// change makes a change of calls. Conditions are pairs of a member and its
// values, with bars between them.
func change(direction analysis.Direction, from, to string, inputs int, example, before, after string, conditions ...string) analysis.Change {
	c := analysis.Change{Kind: "call", Direction: direction, From: from, To: to, Inputs: inputs,
		Example: json.RawMessage(example), Before: json.RawMessage(before), After: json.RawMessage(after)}
	for i := 0; i < len(conditions); i += 2 {
		c.Conditions = append(c.Conditions, analysis.Condition{Member: conditions[i], Values: strings.Split(conditions[i+1], "|")})
	}
	return c
}

// matrix is what the specification says, the same before and after.
func matrix() []analysis.Square {
	requires := map[string][]string{
		"local-sandbox": {"local-read", "local-write"}, "fetcher": {"arbitrary-egress", "mutate-external"},
		"first-party": {"fixed-connector-read", "mutate-external"}, "registered-connector": {"fixed-connector-read", "mutate-external"},
		"access-grant": {"grant-access"}, "access-revoke": {"revoke-access"}, "admin-manage": {"manage-admin"}, "admin-grant": {"grant-admin"},
		"unknown": {"local-read", "local-write", "fixed-connector-read", "arbitrary-egress", "mutate-external"},
	}
	var squares []analysis.Square
	for _, origin := range capability.Origins() {
		for _, c := range capability.Taxonomy() {
			for _, taint := range []string{"clean", "tainted"} {
				var outcomes []string
				for _, name := range requires[origin.String()] {
					if name != c.Name {
						continue
					}
					outcomes = []string{"allow"}
					switch tainted := taint == "tainted"; {
					case !c.Grantable, tainted && (origin == capability.Unknown || origin == capability.Fetcher || c.Capability == capability.MutateExternal):
						outcomes = []string{"escalate"}
					case tainted && c.Capability == capability.FixedConnectorRead:
						outcomes = []string{"allow", "escalate"}
					}
				}
				squares = append(squares, analysis.Square{Origin: origin.String(), Capability: c.Name, Taint: taint, Before: outcomes, After: outcomes})
			}
		}
	}
	return squares
}
