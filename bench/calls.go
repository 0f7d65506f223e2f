package main

import (
	"encoding/json"
	"fmt"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/wire"
)

// A document is one call document in the two forms that the rows start from.
type document struct {
	name string
	text []byte           // as it is on the wire
	call *capability.Call // as package wire reads it
}

func newDocument(name string, text []byte) (*document, error) {
	call, err := wire.ParseCall(text)
	if err != nil {
		return nil, fmt.Errorf("document %s: %w", name, err)
	}
	return &document{name, text, call}, nil
}

// measured are the calls whose cost is told: the answer without a text, and
// one with a sentence that has to be put together.
var measured = []struct{ name, text string }{
	{"allow", `{"tool": {"name": "read_file", "origin": "local-sandbox", "read_only": true}, "taint": "clean"}`},
	{"escalate", `{"tool": {"name": "web_fetch", "origin": "fetcher", "destructive": false}, "taint": "tainted"}`},
}

func measuredDocuments() ([]*document, error) {
	var docs []*document
	for _, m := range measured {
		doc, err := newDocument(m.name, []byte(m.text))
		if err != nil {
			return nil, err
		}
		docs = append(docs, doc)
	}
	return docs, nil
}

const (
	// domainSize is the number of cells of the decision's finite domain: every
	// value of every member that a rule can turn on, one text for each text.
	domainSize = 9 * 8 * 32 * 2 * 2 * 2 * 2 * 3

	// spreadStep has no factor in common with any coordinate's size, so that a
	// walk with it meets every value of every coordinate, in every company.
	spreadStep = 29
)

// cell returns document i of the domain; its coordinates are the digits of i.
func cell(i int) (*document, error) {
	name := fmt.Sprintf("cell %d", i)
	digit := func(n int) int {
		d := i % n
		i /= n
		return d
	}
	bit := func() bool { return digit(2) == 1 }
	policy := map[string]any{}
	switch digit(3) {
	case 1:
		policy["transform"] = map[string]any{"kind": "rewrite", "arguments": map[string]any{"amount": 12}}
	case 2:
		policy["transform"] = map[string]any{"kind": "inject_context", "note": "mind the gap"}
	}
	policy["sandbox_escalation"] = bit()
	policy["requires_human"] = bit()
	if bit() {
		policy["veto"] = "not on a Friday"
	}
	taint := capability.Clean
	if bit() {
		taint = capability.Tainted
	}
	base := capability.Set(digit(32)).CoverageNames()
	tool := map[string]any{"name": "post_message", "read_only": bit(), "destructive": bit(), "open_world": bit()}
	tool["origin"] = capability.Origins()[digit(9)].String()
	text, err := json.Marshal(map[string]any{
		"tool": tool, "grant": map[string]any{"base": base}, "taint": taint.String(), "policy": policy})
	if err != nil {
		return nil, err
	}
	return newDocument(name, text)
}
