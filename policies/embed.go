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

// FS returns the policies: folders gate and schemas.
func FS() fs.FS { return tree }

// Schema returns the text of one schema, "call.json" or "skill.json".
func Schema(name string) ([]byte, error) { return tree.ReadFile("schemas/" + name) }
