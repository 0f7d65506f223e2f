// Package optional holds policies that are in force only where somebody lays them
// beside the others: trees of Rego as package policies has them, by name.
//
// There is one: steering, a finer rule on taint, for each call.
package optional

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

//go:embed steering
var trees embed.FS

// Steering is the name of the finer rule on taint: package gate.steering.
const Steering = "steering"

// ErrUnknown is matched by the error about a name that no optional policy has.
var ErrUnknown = errors.New("there is no such optional policy")

// Names returns the names of the optional policies.
func Names() []string { return []string{Steering} }

// FS returns the optional policy of that name, a tree to lay beside the others.
// The error matches [ErrUnknown].
func FS(name string) (fs.FS, error) {
	for _, n := range Names() {
		if n == name {
			return fs.Sub(trees, name)
		}
	}
	return nil, fmt.Errorf("%w: %q, expected %s", ErrUnknown, name, strings.Join(Names(), " or "))
}
