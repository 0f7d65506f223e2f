package analysis

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/opa-gate/opa-gate/wire"
)

// What every presentation of a difference says alike. The texts in here may
// come from policies and documents: whoever writes them makes them harmless for
// where they go.

// A changeGroup is the changes of one direction.
type changeGroup struct {
	Direction Direction
	Title     string // "more permissive"
	one, many string // "it permits more", "permit more"
	Inputs    int
	Changes   []*Change
}

// groups returns the three directions, those without a change too. A change of
// no known direction is shown with the ones that need most care.
func (d *Difference) groups() []changeGroup {
	groups := []changeGroup{
		{Direction: Widening, Title: "more permissive", one: "permits more", many: "permit more"},
		{Direction: Narrowing, Title: "more strict", one: "permits less", many: "permit less"},
		{Direction: Rewording, Title: "reworded", one: "is reworded", many: "are reworded"},
	}
	for i := range d.Changes {
		c := &d.Changes[i]
		at := max(0, slices.IndexFunc(groups, func(g changeGroup) bool { return g.Direction == c.Direction }))
		groups[at].Changes = append(groups[at].Changes, c)
		groups[at].Inputs += c.Inputs
	}
	return groups
}

// headline says in one sentence how much is answered differently.
func (d *Difference) headline() string {
	if len(d.Changes) == 0 {
		return fmt.Sprintf("The two policies answer every one of %s and %s alike%s.",
			number(d.Calls, "call", "calls"), number(d.Skills, "skill", "skills"), d.partly())
	}
	calls, skills := 0, 0
	for i := range d.Changes {
		if d.Changes[i].Kind == "skill" {
			skills++
		} else {
			calls++
		}
	}
	var kinds, parts []string
	if calls > 0 {
		kinds = append(kinds, number(calls, "class", "classes")+" of calls")
	}
	if skills > 0 {
		kinds = append(kinds, number(skills, "class", "classes")+" of skills")
	}
	verb := "are"
	if len(d.Changes) == 1 {
		verb = "is"
	}
	for _, g := range d.groups() {
		n, inputs := len(g.Changes), number(g.Inputs, "input", "inputs")
		switch {
		case n == 0:
		case len(d.Changes) == 1:
			parts = append(parts, fmt.Sprintf("it %s (%s)", g.one, inputs))
		case n == len(d.Changes):
			parts = append(parts, fmt.Sprintf("all of them %s (%s)", g.many, inputs))
		case n == 1:
			parts = append(parts, fmt.Sprintf("1 %s (%s)", g.one, inputs))
		default:
			parts = append(parts, fmt.Sprintf("%s %s (%s)", thousands(n), g.many, inputs))
		}
	}
	return fmt.Sprintf("%s %s answered differently: %s%s.", strings.Join(kinds, " and "), verb, strings.Join(parts, ", "), d.partly())
}

// partly says at once that there is more than was compared.
func (d *Difference) partly() string {
	if d.Complete() {
		return ""
	}
	return " among those compared, which are not all (see below)"
}

// reservation says what the headline does not cover.
func (d *Difference) reservation() string {
	if len(d.Incomplete) == 0 {
		return ""
	}
	return "Where a policy does more with a text than to compare it as a whole, this covers the texts that the policies mention and one that they do not."
}

// subject says which calls or skills a change is about.
func (c *Change) subject() string {
	phrases := c.phrases()
	switch {
	case c.Kind == "skill" && len(phrases) == 0:
		return "every skill"
	case c.Kind == "skill":
		return "skills: " + strings.Join(phrases, ", ")
	case len(phrases) == 0:
		return "every call"
	}
	return strings.Join(phrases, ", ")
}

// turn says what becomes of the outcome.
func (c *Change) turn() string {
	switch {
	case c.From != c.To:
		return c.From + " → " + c.To
	case c.Direction == Rewording:
		return c.From + " in other words"
	}
	return c.From + " with other terms" // such as what it escalates for, or which tier a skill gets
}

// summary is a change on one line.
func (c *Change) summary() string {
	return c.subject() + ": " + c.turn() + ", " + number(c.Inputs, "input", "inputs")
}

// A contrast is a member of the two answers to the example that is not the
// same in both, on one line, as plain words where these tell the two apart.
// Nothing in it acts on a terminal.
type contrast struct{ Member, Before, After string }

// contrasts lists what is not the same in the two answers, the reason first.
// The outcome is left out, the change itself says it, and so are masks whose
// list of names is there.
func (c *Change) contrasts() []contrast {
	before, after := flatten(c.Before), flatten(c.After)
	members := slices.Sorted(maps.Keys(before))
	for member := range after {
		if _, ok := before[member]; !ok {
			members = append(members, member)
		}
	}
	slices.SortFunc(members, func(a, b string) int {
		if (a == "reason") != (b == "reason") {
			if a == "reason" {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	var list []contrast
	for _, member := range members {
		if names, ok := strings.CutSuffix(member, "_mask"); ok && before[names] != after[names] {
			continue
		}
		if member == "outcome" || before[member] == after[member] {
			continue
		}
		a, b := plainly(before[member]), plainly(after[member])
		if a == b {
			a, b = orNone(before[member]), orNone(after[member])
		}
		a, b = excerpts(a, b)
		list = append(list, contrast{wire.Printable(shorten(member)), a, b})
	}
	return list
}

// plainly returns a value without the signs of JSON: a text as it reads, names
// one after the other.
func plainly(value string) string {
	var text string
	var names []string
	switch {
	case value == "":
		return orNone(value)
	case json.Unmarshal([]byte(value), &text) == nil:
		return wire.Printable(orNone(text))
	case json.Unmarshal([]byte(value), &names) == nil:
		return wire.Printable(orNone(strings.Join(names, ", ")))
	}
	return value
}

// flatten returns the members of an object by their path, as JSON on one line.
// What is no object is one member without a name; null is no member.
func flatten(raw json.RawMessage) map[string]string {
	members := map[string]string{}
	var walk func(path string, raw json.RawMessage)
	walk = func(path string, raw json.RawMessage) {
		var object map[string]json.RawMessage
		switch text := bytes.TrimSpace(raw); {
		case len(text) == 0 || string(text) == "null":
			return
		case text[0] != '{' || json.Unmarshal(text, &object) != nil || len(object) == 0 && path != "":
			members[path] = documentLine(text)
			return
		}
		for name, value := range object {
			at := name
			if path != "" {
				at = path + "." + name
			}
			if at == "arguments" { // the caller's own document, not the gate's
				members[at] = documentLine(value)
				continue
			}
			walk(at, value)
		}
	}
	walk("", raw)
	return members
}

// documentLine writes a document on one line that means the same wherever it is
// pasted and does nothing to a terminal or the text around it: characters that
// could are written as JSON's own escapes, not as Go's.
func documentLine(raw json.RawMessage) string {
	var compact bytes.Buffer
	if len(raw) == 0 {
		return ""
	}
	if json.Compact(&compact, raw) != nil {
		return wire.Printable(string(raw)) // no document: nothing that would survive pasting
	}
	var b strings.Builder
	for _, r := range compact.String() { // a byte that is no text is U+FFFD
		switch {
		case unicode.IsPrint(r) && r != utf8.RuneError:
			b.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// excerpts cuts two long texts that begin alike to where they part.
func excerpts(before, after string) (string, string) {
	const (
		most = 400 // characters that are shown
		lead = 40  // of them before the first that is not the same
	)
	a, b := []rune(before), []rune(after)
	if len(a) <= most && len(b) <= most {
		return before, after
	}
	same := 0
	for same < len(a) && same < len(b) && a[same] == b[same] {
		same++
	}
	from := max(0, same-lead)
	cut := func(text []rune) string {
		from := min(from, len(text))
		to := min(from+most, len(text))
		shown := string(text[from:to])
		if from > 0 {
			shown = "…" + shown
		}
		if to < len(text) {
			shown += "…"
		}
		return shown
	}
	return cut(a), cut(b)
}

// shorten keeps a text to what a table and a page have room for.
func shorten(text string) string {
	const most = 440 // what excerpts shows is not cut again
	if r := []rune(text); len(r) > most {
		return string(r[:most]) + "…"
	}
	return text
}

// orNone names what an answer lacks.
func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

// number writes a count with its noun, a comma every three digits.
func number(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return thousands(n) + " " + many
}

func thousands(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
