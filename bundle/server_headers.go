package bundle

import (
	"strconv"
	"strings"
	"time"
)

// maxTags is how many entity tags of one request are looked at.
const maxTags = 64

// A condition is what If-None-Match says: which states a client has.
type condition struct {
	any  bool     // it has some state, and any will do
	tags []string // with their quotes, without W/; what the client has now comes first
}

// parseIfNoneMatch reads the lines of If-None-Match by RFC 9110, section 13.1.2. It
// stops at what is no entity tag: what stands behind it cannot be told apart.
func parseIfNoneMatch(lines []string) condition {
	var c condition
	for _, line := range lines {
		rest := strings.Trim(line, " \t")
		if rest == "*" {
			return condition{any: true}
		}
		for len(c.tags) < maxTags {
			rest = strings.TrimLeft(rest, " \t,")
			tag, behind, ok := cutTag(rest)
			if !ok {
				break
			}
			c.tags = append(c.tags, tag)
			rest = strings.TrimLeft(behind, " \t")
			if rest != "" && rest[0] != ',' {
				break
			}
		}
	}
	return c
}

// cutTag cuts an entity tag off the front of text. Of a weak one it gives the
// opaque part: If-None-Match compares weakly.
func cutTag(text string) (tag, behind string, ok bool) {
	text = strings.TrimPrefix(text, "W/")
	if text == "" || text[0] != '"' {
		return "", "", false
	}
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return text[:i+1], text[i+1:], true
		case c < 0x21, c == 0x7f:
			return "", "", false
		}
	}
	return "", "", false
}

// met reports whether the client has the state of that tag.
func (c condition) met(tag string) bool {
	if c.any {
		return true
	}
	for _, t := range c.tags {
		if t == tag {
			return true
		}
	}
	return false
}

// base is the tag of the state that a client would apply a delta to. OPA lists
// it first, and behind it what it had before.
func (c condition) base() string {
	if len(c.tags) == 0 {
		return ""
	}
	return c.tags[0]
}

// A preference is what Prefer says: how a client wants its answer.
type preference struct {
	delta bool
	wait  time.Duration // how long it waits for something new; 0 is not at all
}

// parsePrefer reads the lines of Prefer. OPA writes modes=snapshot,delta;wait=N,
// in which by RFC 7240 the comma would begin another preference; both ways of
// writing are understood. What is said twice counts as it was said first.
func parsePrefer(lines []string) preference {
	var p preference
	var modes, waits bool
	for _, line := range lines {
		within := false // behind modes=, where a name alone is one more mode
		for _, part := range strings.FieldsFunc(line, func(r rune) bool { return r == ';' || r == ',' }) {
			name, value, given := strings.Cut(strings.Trim(part, " \t"), "=")
			name = strings.ToLower(strings.Trim(name, " \t\""))
			value = strings.Trim(value, " \t\"")
			switch {
			case !given:
				if within && name == "delta" {
					p.delta = true
				}
			case name == "modes":
				within = !modes
				modes = true
				if within && strings.EqualFold(value, "delta") {
					p.delta = true
				}
			case name == "wait":
				within = false
				if !waits {
					p.wait, waits = seconds(value), true
				}
			default:
				within = false
			}
		}
	}
	return p
}

// maxSeconds is more than anybody is held.
const maxSeconds = 24 * 60 * 60

// seconds reads a number of seconds: 0 if it is none, a day if it is more.
func seconds(text string) time.Duration {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil || n > maxSeconds {
		n = maxSeconds
	}
	return time.Duration(n) * time.Second
}
