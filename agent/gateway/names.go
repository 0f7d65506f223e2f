package gateway

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
)

// separator stands between a server's name and a tool's where both are shown.
const separator = "__"

// A target is a tool or a prompt of one server.
type target struct {
	up   *upstream
	name string
}

// names says under which names the tools, or the prompts, of several servers are
// shown. A name that one server has is shown as it is; one that several have is
// shown as SERVER__NAME for each of them. Once shown, a name means the same for
// the rest of the session: a server that comes later with a name that is taken
// gets the longer one, and can take no other's.
type names struct {
	mu    sync.Mutex
	shown map[string]target
	under map[target]string
	read  bool
}

// assign gives names to what has none yet. A target whose long name is taken too
// stays without.
func (n *names) assign(found []target, servers []*upstream) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.shown == nil {
		n.shown, n.under = make(map[string]target), make(map[target]string)
	}
	offered := make(map[string]*upstream)
	several := make(map[string]bool)
	for _, t := range found {
		if other, ok := offered[t.name]; ok && other != t.up {
			several[t.name] = true
		}
		offered[t.name] = t.up
	}
	for _, t := range found {
		if _, has := n.under[t]; has {
			continue
		}
		name := t.name
		if _, taken := n.shown[name]; taken || several[name] || looksLong(name, servers) {
			name = t.up.Name + separator + t.name
		}
		if _, taken := n.shown[name]; taken || len(n.shown) >= maxTools {
			continue
		}
		n.shown[name], n.under[t] = t, name
	}
	n.read = true
}

// looksLong reports whether a name begins as the long names of a server do.
func looksLong(name string, servers []*upstream) bool {
	for _, up := range servers {
		if strings.HasPrefix(name, up.Name+separator) {
			return true
		}
	}
	return false
}

func (n *names) nameOf(t target) (string, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	name, ok := n.under[t]
	return name, ok
}

func (n *names) find(name string) (target, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	t, ok := n.shown[name]
	return t, ok
}

// findShown finds what is shown under a name, after reading the lists if it is
// not known.
func (s *session) findShown(ctx context.Context, n *names, method, name string) (target, error) {
	if t, ok := n.find(name); ok {
		return t, nil
	}
	if _, err := s.gather(ctx, method, nil); err != nil {
		return target{}, err
	}
	if t, ok := n.find(name); ok {
		return t, nil
	}
	if n == &s.prompts {
		return target{}, fmt.Errorf("there is no prompt %q", name)
	}
	return target{}, fmt.Errorf("%w: %q", errNoTool, name)
}

// owners says which server has which resource.
type owners struct {
	mu       sync.Mutex
	exact    map[string]*upstream // by URI, or by the template as it stands
	prefixes []ownedPrefix        // what templates begin with
}

type ownedPrefix struct {
	text string
	up   *upstream
}

// maxResources is how many resources of one session are kept in mind.
const maxResources = 100_000

// claim notes that a server lists a resource or a template, and reports whether
// it is the server's: the first that listed it has it for the session.
func (o *owners) claim(up *upstream, uri string, template bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if owner, ok := o.exact[uri]; ok {
		return owner == up
	}
	if len(o.exact) >= maxResources {
		return false
	}
	if o.exact == nil {
		o.exact = make(map[string]*upstream)
	}
	o.exact[uri] = up
	if prefix, _, ok := strings.Cut(uri, "{"); template && ok {
		o.prefixes = append(o.prefixes, ownedPrefix{prefix, up})
	}
	return true
}

// of returns the owner of a URI: the server that listed it, or the one whose
// template begins with most of it.
func (o *owners) of(uri string) (*upstream, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if up, ok := o.exact[uri]; ok {
		return up, true
	}
	var best ownedPrefix
	for _, p := range o.prefixes {
		if p.text != "" && strings.HasPrefix(uri, p.text) && len(p.text) > len(best.text) {
			best = p
		}
	}
	return best.up, best.up != nil
}

var errNoOwner = errors.New("no server has this resource")

// findOwner finds the server of a URI, after reading the lists if it is not known.
func (s *session) findOwner(ctx context.Context, uri string) (*upstream, error) {
	if up, ok := s.resources.of(uri); ok {
		return up, nil
	}
	for _, method := range []string{"resources/list", "resources/templates/list"} {
		if _, err := s.gather(ctx, method, nil); err != nil {
			return nil, err
		}
	}
	if up, ok := s.resources.of(uri); ok {
		return up, nil
	}
	return nil, fmt.Errorf("%w: %q", errNoOwner, uri)
}

// textMember reads one member that is a text.
func textMember(params []byte, name string) ([]member, string, error) {
	members, err := readObject(params)
	if err != nil {
		return nil, "", err
	}
	var text string
	if err := unmarshalString(lookup(members, name), &text); err != nil {
		return nil, "", fmt.Errorf("%s: %w", name, err)
	}
	return members, text, nil
}
