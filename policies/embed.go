// Package policies embeds the gate's Rego: the rules, their tests, the facts
// and settings they read, and the draft-07 schemas of the documents they take.
//
// The same tree is an OPA bundle directory that stands alone: a stock OPA that
// loads it answers gate/call/decision and gate/skill/decision.
package policies

import (
	"embed"
	"io/fs"
)

//go:embed gate schemas
var tree embed.FS

//go:embed gate/call gate/escalation gate/facts gate/grant gate/profile gate/settings gate/taint
//go:embed gate/wire/call.rego gate/wire/members.rego
var calls embed.FS

// FS returns the policies: folders gate and schemas.
func FS() fs.FS { return tree }

// Calls returns the part of the policies that decides calls. It stands alone.
func Calls() fs.FS { return calls }

// Schema returns the text of one schema: "call.json", "skill.json", "result.json",
// "steering.json", or "invariant.json", which is a call or a skill beside the
// answer to it.
func Schema(name string) ([]byte, error) { return tree.ReadFile("schemas/" + name) }
