package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Errors of this package, to be told apart with errors.Is.
var (
	// ErrSettings: the file is not settings that a hook can be put into.
	ErrSettings = errors.New("the settings cannot be edited")
	// ErrChanged: somebody else has written the file meanwhile.
	ErrChanged = errors.New("the settings have changed meanwhile")
)

// A Hook is what stands in the settings for each event.
type Hook struct {
	Command   string
	Timeout   int  // seconds after which the agent gives up
	OnFailure bool // say that a hook that fails blocks, for agents that know this
}

// An Insertion is text that was put into a file.
type Insertion struct {
	Offset int    `json:"offset"` // in the text as it is afterwards, of all insertions
	Text   string `json:"text"`
}

// SwitchedOff returns the members of settings of Claude Code that have no hook run, or
// none but those of an administrator, where they are set.
func SwitchedOff(text []byte) []string {
	if isBlank(text) {
		return nil
	}
	root, err := parse(text)
	if err != nil {
		return nil // which Read and Find tell of
	}
	var out []string
	for _, name := range []string{"disableAllHooks", "allowManagedHooksOnly"} {
		if n := root.member(name); n != nil && string(n.raw) != "false" && string(n.raw) != "null" {
			out = append(out, name)
		}
	}
	return out
}

// Install returns the settings with the hook in them for each of the events, and
// what was put in. Text that is empty is a file that is not there yet. Hooks of this
// program that stand there already have to be taken out first.
func Install(text []byte, events []string, h Hook) ([]byte, []Insertion, error) {
	if isBlank(text) {
		made := "{\n" + indent(member("hooks", object(events, h, "  ")), "  ") + "\n}\n"
		return append(slices.Clone(text), made...), []Insertion{{len(text), made}}, nil
	}
	root, err := parse(text)
	if err != nil {
		return nil, nil, err
	}
	style := styleOf(text)
	var puts []Insertion // offsets in the old text
	switch hooks := root.member("hooks"); {
	case hooks == nil:
		puts = append(puts, root.put(style, 0, []string{member("hooks", object(events, h, style.unit))}))
	case hooks.kind != '{':
		return nil, nil, fmt.Errorf("%w: hooks is not an object", ErrSettings)
	default:
		var missing []string
		for _, e := range events {
			list := hooks.member(e)
			switch {
			case list == nil:
				missing = append(missing, member(e, array(h, style.unit)))
			case list.kind != '[':
				return nil, nil, fmt.Errorf("%w: hooks.%s is not a list", ErrSettings, e)
			default:
				puts = append(puts, list.put(style, 2, []string{element(h, style.unit)}))
			}
		}
		if len(missing) > 0 {
			puts = append(puts, hooks.put(style, 1, missing))
		}
	}
	slices.SortStableFunc(puts, func(a, b Insertion) int { return a.Offset - b.Offset })
	return apply(text, puts)
}

// apply puts the insertions, whose offsets are those of the old text, in.
func apply(text []byte, puts []Insertion) ([]byte, []Insertion, error) {
	var out []byte
	from := 0
	for i := range puts {
		out = append(out, text[from:puts[i].Offset]...)
		from = puts[i].Offset
		puts[i].Offset = len(out)
		out = append(out, puts[i].Text...)
	}
	out = append(out, text[from:]...)
	if _, err := parse(out); err != nil { // never write what an agent could not read
		return nil, nil, err
	}
	return out, puts, nil
}

// Undo takes insertions out of a text that has them, wherever they stand now. Ok
// is false if one of them is not there as it was, or more than once.
func Undo(text []byte, put []Insertion) (out []byte, ok bool) {
	out = slices.Clone(text)
	for _, p := range slices.Backward(put) { // the offsets of those before stay right
		at := p.Offset
		if at < 0 || at > len(out) || !bytes.HasPrefix(out[at:], []byte(p.Text)) {
			if p.Text == "" || bytes.Count(out, []byte(p.Text)) != 1 {
				return nil, false
			}
			at = bytes.Index(out, []byte(p.Text))
		}
		out = slices.Delete(out, at, at+len(p.Text))
	}
	if !isBlank(out) {
		if _, err := parse(out); err != nil {
			return nil, false
		}
		if found, err := Find(out); err != nil || len(found) > 0 {
			return nil, false
		}
	}
	return out, true
}

// Remove returns the settings without the hooks of this program, by what they look
// like: groups, lists and the member hooks go if nothing else is in them.
func Remove(text []byte) ([]byte, error) {
	for {
		root, err := parse(text)
		if err != nil {
			return nil, err
		}
		from, to, ok := root.ours()
		if !ok {
			return text, nil
		}
		text = slices.Delete(slices.Clone(text), from, to)
	}
}

// ours finds the next thing to take out.
func (n *node) ours() (from, to int, ok bool) {
	all := n.entries()
	if len(all) == 0 {
		return 0, 0, false
	}
	e, hooks := all[0], n.member("hooks")
	parent, at := e.list, e.at
	for _, up := range []struct {
		n *node
		i int
	}{{hooks.members[e.event].value, e.group}, {hooks, e.event}, {n, n.index("hooks")}} {
		if len(parent.members) > 1 {
			break
		}
		parent, at = up.n, up.i
	}
	from, to = parent.span(at)
	return from, to, true
}

// A node is a value of the settings with where it stands.
type node struct {
	kind       jsontext.Kind
	raw        []byte
	start, end int
	members    []child // of an object or a list
}

type child struct {
	name  string // of an object's member
	start int    // of the name, or of the value
	value *node
}

// parse reads settings. They must be plain JSON: with comments or members that
// are given twice nobody can tell what the agent makes of them.
func parse(text []byte) (*node, error) {
	d := jsontext.NewDecoder(bytes.NewReader(text))
	n, err := parseNode(d, text, 0)
	if err == nil && n.kind != '{' {
		err = errors.New("it is not an object")
	}
	if err == nil && !isBlank(text[n.end:]) {
		err = errors.New("something stands behind the object")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: this is not plain JSON: %w; expected one object, without comments, commas at an end, or members given twice",
			ErrSettings, at(text, err))
	}
	return n, nil
}

// at says in which line of text a syntax error is.
func at(text []byte, err error) error {
	var syntax *jsontext.SyntacticError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("it ends too early")
	case !errors.As(err, &syntax):
		return err
	}
	line := 1 + bytes.Count(text[:min(int64(len(text)), syntax.ByteOffset)], []byte("\n"))
	if errors.Is(err, jsontext.ErrDuplicateName) {
		return fmt.Errorf("line %d: the member %q is given twice", line, syntax.JSONPointer.LastToken())
	}
	return fmt.Errorf("line %d: %w", line, syntax.Err)
}

const maxDepth = 64

func parseNode(d *jsontext.Decoder, text []byte, depth int) (*node, error) {
	if depth > maxDepth {
		return nil, errors.New("it is nested too deeply")
	}
	kind := d.PeekKind()
	if kind != '{' && kind != '[' {
		raw, err := d.ReadValue()
		if err != nil {
			return nil, err
		}
		end := int(d.InputOffset())
		return &node{kind: kind, raw: text[end-len(raw) : end], start: end - len(raw), end: end}, nil
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	n := &node{kind: kind, start: int(d.InputOffset()) - 1}
	for k := d.PeekKind(); k != '}' && k != ']'; k = d.PeekKind() {
		var c child
		if kind == '{' {
			raw, err := d.ReadValue()
			if err != nil {
				return nil, err
			}
			c.start = int(d.InputOffset()) - len(raw)
			if err := json.Unmarshal(raw, &c.name); err != nil {
				return nil, err
			}
		}
		v, err := parseNode(d, text, depth+1)
		if err != nil {
			return nil, err
		}
		if kind == '[' {
			c.start = v.start
		}
		c.value = v
		n.members = append(n.members, c)
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	n.end = int(d.InputOffset())
	n.raw = text[n.start:n.end]
	return n, nil
}

func (n *node) index(name string) int {
	if n.kind != '{' {
		return -1
	}
	return slices.IndexFunc(n.members, func(c child) bool { return c.name == name })
}

func (n *node) member(name string) *node {
	if i := n.index(name); i >= 0 {
		return n.members[i].value
	}
	return nil
}

// span is what has to go with the member at i: itself, and the comma and blanks
// on one side.
func (n *node) span(i int) (from, to int) {
	switch {
	case len(n.members) == 1: // and all blanks
		return n.start + 1, n.end - 1
	case i > 0:
		return n.members[i-1].value.end, n.members[i].value.end
	default:
		return n.members[0].start, n.members[1].start
	}
}

// put puts members behind the last one. Depth is how deep n stands.
func (n *node) put(s style, depth int, members []string) Insertion {
	pad := s.newline + strings.Repeat(s.unit, depth+1)
	for i := range members {
		members[i] = strings.ReplaceAll(members[i], "\n", pad)
	}
	text := pad + strings.Join(members, ","+pad)
	if len(n.members) > 0 {
		return Insertion{n.members[len(n.members)-1].value.end, "," + text}
	}
	if blank := n.raw[1 : len(n.raw)-1]; !bytes.Contains(blank, []byte("\n")) {
		text += s.newline + strings.Repeat(s.unit, depth)
	}
	return Insertion{n.start + 1, text}
}

// A style is how a file is laid out.
type style struct{ unit, newline string }

func styleOf(text []byte) style {
	s := style{unit: "  ", newline: "\n"}
	if bytes.Contains(text, []byte("\r\n")) {
		s.newline = "\r\n"
	}
	if _, after, ok := bytes.Cut(text, []byte("\n")); ok {
		if blank := after[:len(after)-len(bytes.TrimLeft(after, " \t"))]; len(blank) > 0 && len(blank) <= 8 {
			s.unit = string(blank)
		}
	}
	return s
}

func indent(text, by string) string { return by + strings.ReplaceAll(text, "\n", "\n"+by) }

func member(name, value string) string { return quoted(name) + ": " + value }

func object(events []string, h Hook, unit string) string {
	var lines []string
	for _, e := range events {
		lines = append(lines, indent(member(e, array(h, unit)), unit))
	}
	return "{\n" + strings.Join(lines, ",\n") + "\n}"
}

func array(h Hook, unit string) string { return "[\n" + indent(element(h, unit), unit) + "\n]" }

func element(h Hook, unit string) string {
	entry := []string{`"type": "command"`, `"command": ` + quoted(h.Command), fmt.Sprintf(`"timeout": %d`, h.Timeout)}
	if h.OnFailure {
		entry = append(entry, `"onFailure": "block"`)
	}
	inner := "{\n" + indent(strings.Join(entry, ",\n"), unit) + "\n}"
	list := "[\n" + indent(inner, unit) + "\n]"
	return "{\n" + indent(`"hooks": `+list, unit) + "\n}" // without a matcher it is for every tool
}

func quoted(text string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(text) // a string is always written
	return strings.TrimSpace(b.String())
}

// isBlank reports whether a text is nothing but what JSON takes for blanks: a form
// feed or a no-break space is none.
func isBlank(text []byte) bool { return len(bytes.Trim(text, " \t\r\n")) == 0 }
