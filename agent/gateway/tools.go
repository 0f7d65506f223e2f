package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/opa-gate/opa-gate/agent"
	"github.com/opa-gate/opa-gate/capability"
)

// The bounds of what is kept in mind of one server's tools: how many, and the bytes
// of a name. Policies take no longer names.
const (
	maxTools    = 10_000
	maxToolName = agent.MaxTool - len("mcp__"+"__") - maxServerName
)

// A book is what is believed of one server's tools in one session. A tool that
// is declared anew can only tighten (specification, section 2); that it went
// missing for a while makes no difference.
type book struct {
	profile func(tool string, declared capability.Profile) capability.Profile
	shown   func(tool string) bool

	reading chan struct{} // full while the gateway itself reads the list

	mu    sync.Mutex
	known map[string]capability.Profile
	fresh bool // nothing was said to have changed since the list was read
}

// believed returns what is believed of a tool, and whether it is known and shown.
func (b *book) believed(tool string) (capability.Profile, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, ok := b.known[tool]
	return p, ok && b.shown(tool)
}

// lock waits until nobody reads the list, as long as ctx lasts.
func (b *book) lock(ctx context.Context) (unlock func(), err error) {
	select {
	case b.reading <- struct{}{}:
		return func() { <-b.reading }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (b *book) stale() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fresh = false
}

// beginReading marks the list as read, before it is: a change from now on counts.
// It reports whether there is anything to read.
func (b *book) beginReading() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.fresh
	b.fresh = true
	return !was
}

// A declaration is one tool as its server describes it.
type declaration struct {
	name string
	text json.RawMessage // as it stands
}

// declare takes one element of a tools/list result into account. It returns
// an error for one that cannot be shown: two parsers could read it differently,
// or the server lists more than anybody needs.
func (b *book) declare(text json.RawMessage) (declaration, error) {
	members, err := readObject(text)
	if err != nil {
		return declaration{}, fmt.Errorf("a tool: %w", err)
	}
	d := declaration{text: text}
	if err := unmarshalString(lookup(members, "name"), &d.name); err != nil || d.name == "" {
		return declaration{}, fmt.Errorf("a tool has no name")
	}
	if len(d.name) > maxToolName {
		return declaration{}, fmt.Errorf("a tool has a name of more than %d bytes", maxToolName)
	}
	profile := b.profile(d.name, readAnnotations(lookup(members, "annotations")))
	b.mu.Lock()
	defer b.mu.Unlock()
	old, known := b.known[d.name]
	switch {
	case known:
		profile = old.Redeclare(profile)
	case len(b.known) >= maxTools:
		return declaration{}, fmt.Errorf("the server lists more than %d tools", maxTools)
	}
	if b.known == nil {
		b.known = make(map[string]capability.Profile)
	}
	b.known[d.name] = profile
	return d, nil
}

// readAnnotations reads the hints of a tool. One that is neither true nor false
// counts as the one that asks for more.
func readAnnotations(text []byte) capability.Profile {
	if len(text) == 0 {
		return capability.Profile{}
	}
	worst := capability.Profile{ReadOnly: capability.No, Destructive: capability.Yes, OpenWorld: capability.Yes}
	members, err := readObject(text)
	if err != nil {
		if string(text) == "null" {
			return capability.Profile{}
		}
		return worst
	}
	hint := func(name string, bad capability.Hint) capability.Hint {
		switch v := lookup(members, name); v.Kind() {
		case 't':
			return capability.Yes
		case 'f':
			return capability.No
		case 'n', 0:
			return capability.Unset
		default:
			return bad
		}
	}
	return capability.Profile{
		ReadOnly:    hint("readOnlyHint", worst.ReadOnly),
		Destructive: hint("destructiveHint", worst.Destructive),
		OpenWorld:   hint("openWorldHint", worst.OpenWorld),
	}
}
