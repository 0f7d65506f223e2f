package wire

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/opa-gate/opa-gate/capability"
)

// A callReader reads a call document in one pass, straight into a Call. It is
// there for speed alone and knows only the ordinary: whatever it does not
// expect makes it give up, and the document then takes the road of every other
// one, which also words the errors. So it may give up too often, but it must
// never accept what the schema or the strict reader refuses, nor read
// something else than they do.
type callReader struct {
	data   []byte
	at     int // the offset of the next byte
	gaveUp bool
}

// readCall returns the call of an ordinary document, or nil: the document is
// not ordinary, which says nothing about whether it is valid.
func readCall(data []byte) *capability.Call {
	if len(data) > MaxBytes {
		return nil
	}
	r := callReader{data: data}
	c := &capability.Call{Grant: capability.DefaultGrant(), LeftOut: capability.OriginMember | capability.GrantMember}
	r.document(c)
	if r.blanks(); r.gaveUp || r.at < len(data) {
		return nil
	}
	return c
}

func (r *callReader) document(c *capability.Call) {
	const tool, grant, taint, policy = 1, 2, 4, 8
	var seen members
	for name := r.open(); name != nil; name = r.next() {
		switch string(name) {
		case "tool":
			r.once(&seen, tool)
			r.tool(c)
		case "grant":
			r.once(&seen, grant)
			if !r.null() {
				r.grant(c)
			}
		case "taint":
			r.once(&seen, taint)
			var ok bool
			c.Taint, ok = capability.ParseTaint(string(r.name()))
			r.expect(ok)
		case "policy":
			r.once(&seen, policy)
			if !r.null() {
				r.policy(&c.Policy)
			}
		default:
			r.expect(false)
		}
	}
	r.expect(seen.has(tool | taint))
}

func (r *callReader) tool(c *capability.Call) {
	const name, origin, readOnly, destructive, openWorld = 1, 2, 4, 8, 16
	var seen members
	for member := r.open(); member != nil; member = r.next() {
		switch string(member) {
		case "name":
			r.once(&seen, name)
			c.Tool = r.text()
		case "origin":
			r.once(&seen, origin)
			if !r.null() {
				var ok bool
				c.Profile.Origin, ok = capability.ParseOrigin(string(r.name()))
				r.expect(ok)
				c.LeftOut &^= capability.OriginMember
			}
		case "read_only":
			r.once(&seen, readOnly)
			c.Profile.ReadOnly = r.hint()
		case "destructive":
			r.once(&seen, destructive)
			c.Profile.Destructive = r.hint()
		case "open_world":
			r.once(&seen, openWorld)
			c.Profile.OpenWorld = r.hint()
		default:
			r.expect(false)
		}
	}
	r.expect(c.Tool != "")
}

// grantable is what a grant's list can name: capability.Parse without its
// slice of names.
var grantable = grantableNames()

func grantableNames() (defs []capability.Definition) {
	for _, d := range capability.Taxonomy() {
		if d.Grantable {
			defs = append(defs, d)
		}
	}
	return defs
}

func (r *callReader) grant(c *capability.Call) {
	g := &c.Grant
	const base = 1
	var seen members
	for name := r.open(); name != nil; name = r.next() {
		r.expect(string(name) == "base")
		r.once(&seen, base)
		if r.null() {
			continue
		}
		g.Base = 0
		c.LeftOut &^= capability.GrantMember
		r.expect(r.skip('['))
		if r.skip(']') {
			continue
		}
		for more := true; more; more = r.skip(',') {
			r.grantName(g)
		}
		r.expect(r.skip(']'))
	}
}

func (r *callReader) grantName(g *capability.Grant) {
	quoted, plain := r.quoted()
	if plain {
		for i := range grantable {
			if string(quoted[1:len(quoted)-1]) == grantable[i].Name {
				g.Base |= capability.Set(grantable[i].Capability)
				return
			}
		}
	}
	// A name in escapes may be any name.
	set, unknown := capability.Parse([]string{r.unquote(quoted, plain)})
	g.Base |= set
	g.Unknown = append(g.Unknown, unknown...)
}

func (r *callReader) policy(p *capability.CallPolicy) {
	const veto, requiresHuman, sandboxEscalation, transform = 1, 2, 4, 8
	var seen members
	for name := r.open(); name != nil; name = r.next() {
		switch string(name) {
		case "veto":
			r.once(&seen, veto)
			if !r.null() {
				p.Vetoed, p.Veto = true, r.text()
			}
		case "requires_human":
			r.once(&seen, requiresHuman)
			p.RequiresHuman = r.hint() == capability.Yes
		case "sandbox_escalation":
			r.once(&seen, sandboxEscalation)
			p.SandboxEscalation = r.hint() == capability.Yes
		case "transform":
			r.once(&seen, transform)
			if !r.null() {
				r.transform(&p.Transform)
			}
		default:
			r.expect(false)
		}
	}
}

func (r *callReader) transform(t *capability.Transform) {
	const kind, arguments, note = 1, 2, 4
	var seen, given members // given: not as null
	for name := r.open(); name != nil; name = r.next() {
		switch string(name) {
		case "kind":
			r.once(&seen, kind)
			var ok bool
			t.Kind, ok = capability.ParseTransformKind(string(r.name()))
			r.expect(ok)
		case "arguments":
			r.once(&seen, arguments)
			if !r.null() {
				given |= arguments
				t.Arguments = r.arguments()
			}
		case "note":
			r.once(&seen, note)
			if !r.null() {
				given |= note
				t.Note = r.text()
			}
		default:
			r.expect(false)
		}
	}
	// Each kind has its own member and none of another's.
	own := members(0)
	switch t.Kind {
	case capability.Rewrite:
		own = arguments
	case capability.InjectContext:
		own = note
	}
	r.expect(seen.has(kind) && given == own)
}

// argumentsDepth counts the objects around a rewrite's arguments.
const argumentsDepth = 3

// arguments reads an object and returns a copy of its text. What JSON is and
// that no member stands there twice is for jsontext to say; what it has no
// bound for, nesting and numbers, is looked at here. On a text that is not JSON
// the look may be wrong, and does not count.
func (r *callReader) arguments() json.RawMessage {
	r.blanks()
	start, depth := r.at, 0
	r.expect(r.peek() == '{')
	for more := true; more && !r.gaveUp; {
		b := r.peek()
		switch {
		case b == '"':
			r.quoted()
			continue
		case b == '-' || '0' <= b && b <= '9':
			r.number()
			continue
		}
		r.at++
		switch b {
		case '{', '[':
			depth++
			r.expect(argumentsDepth+depth <= MaxDepth)
		case '}', ']':
			depth--
			more = depth > 0
		case 0: // the end
			r.expect(false)
		}
	}
	if r.gaveUp {
		return nil
	}
	text := r.data[start:r.at]
	r.expect(jsontext.Value(text).IsValid())
	return bytes.Clone(text)
}

// number passes over a number, and gives up on one whose bounds cannot be told
// from its lengths: no four digits are an exponent beyond maxExponent.
func (r *callReader) number() {
	start, exponent, digits := r.at, false, 0
	for ; ; r.at++ {
		switch b := r.peek(); {
		case '0' <= b && b <= '9':
			if exponent {
				digits++
			}
		case b == 'e' || b == 'E':
			exponent = true
		case b != '.' && b != '-' && b != '+':
			r.expect(r.at-start <= maxNumberLength && digits <= 4)
			return
		}
	}
}

// members is the members of an object that have been met, a bit each.
type members uint8

func (m members) has(all members) bool { return m&all == all }

// once notes a member and gives up if it was met before.
func (r *callReader) once(seen *members, member members) {
	r.expect(*seen&member == 0)
	*seen |= member
}

// open begins an object and returns the name of its first member, or nil if it
// has none or the reader gave up.
func (r *callReader) open() []byte {
	r.expect(r.skip('{'))
	if r.skip('}') {
		return nil
	}
	return r.member()
}

// next returns the name of the object's next member, or nil at its end or if
// the reader gave up.
func (r *callReader) next() []byte {
	if r.skip(',') {
		return r.member()
	}
	r.expect(r.skip('}'))
	return nil
}

func (r *callReader) member() []byte {
	name := r.name()
	r.expect(r.skip(':'))
	if r.gaveUp {
		return nil
	}
	return name
}

// name reads a string that is one of a few names, as it is written: in escapes
// it will be none of them. It is not nil unless the reader gave up.
func (r *callReader) name() []byte {
	quoted, _ := r.quoted()
	if r.gaveUp {
		return nil
	}
	return quoted[1 : len(quoted)-1]
}

// text reads any string.
func (r *callReader) text() string { return r.unquote(r.quoted()) }

func (r *callReader) unquote(quoted []byte, plain bool) string {
	switch {
	case r.gaveUp:
		return ""
	case plain:
		return string(quoted[1 : len(quoted)-1])
	}
	var buf [256]byte // for most texts, so that they are allocated once
	text, err := jsontext.AppendUnquote(buf[:0], quoted)
	r.expect(err == nil) // not UTF-8 is an error, too
	return string(text)
}

// quoted reads a string with its quotation marks; plain tells that what is
// between them is the text itself. The text of one that is not plain has not
// been looked at.
func (r *callReader) quoted() (text []byte, plain bool) {
	r.blanks()
	start := r.at
	r.expect(r.skip('"'))
	plain = true
	for i := r.at; i < len(r.data); i++ {
		switch b := r.data[i]; {
		case b == '"':
			r.at = i + 1
			return r.data[start:r.at], plain
		case b == '\\':
			plain = false
			i++
		case b < ' ' || b >= utf8.RuneSelf:
			plain = false
		}
	}
	r.expect(false)
	return nil, false
}

// hint reads true, false or null.
func (r *callReader) hint() capability.Hint {
	switch {
	case r.literal("true"):
		return capability.Yes
	case r.literal("false"):
		return capability.No
	}
	r.expect(r.null())
	return capability.Unset
}

func (r *callReader) null() bool { return r.literal("null") }

// literal passes over word if it stands there. What follows it is for the
// caller to expect.
func (r *callReader) literal(word string) bool {
	r.blanks()
	if rest := r.data[r.at:]; len(rest) < len(word) || string(rest[:len(word)]) != word {
		return false
	}
	r.at += len(word)
	return true
}

// skip passes over b if it stands there, behind blanks.
func (r *callReader) skip(b byte) bool {
	r.blanks()
	if r.peek() != b {
		return false
	}
	r.at++
	return true
}

// peek returns the next byte, or 0 at the end, where no JSON has one.
func (r *callReader) peek() byte {
	if r.at < len(r.data) {
		return r.data[r.at]
	}
	return 0
}

func (r *callReader) blanks() {
	for r.at < len(r.data) {
		switch r.data[r.at] {
		case ' ', '\t', '\r', '\n':
			r.at++
		default:
			return
		}
	}
}

// expect gives up unless ok. A reader that gave up is at the end of its data,
// so no loop goes on.
func (r *callReader) expect(ok bool) {
	if !ok {
		r.gaveUp = true
		r.at = len(r.data)
	}
}
