package steering

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/opa-gate/opa-gate/capability"
)

// How long a text must be, in characters, that a prompt is not said to have by
// chance.
const (
	MinText   = 4
	MinAim    = 6
	minNumber = 3
)

// MaxTyped bounds what is kept of a session's prompts, in bytes. The oldest goes
// first; what is gone was not typed.
const MaxTyped = 256 << 10

// maxTried bounds in how many places of a prompt one text is looked at.
const maxTried = 1000

// Typed is what a person has typed in a session. Its zero value is nothing. It is
// not safe for use by several goroutines while Add is called.
type Typed struct {
	prompts []string
	size    int
}

// Add adds a prompt, as the person typed it. One that is longer than [MaxTyped]
// counts as not typed.
func (t *Typed) Add(prompt string) {
	if prompt == "" || len(prompt) > MaxTyped || !utf8.ValidString(prompt) {
		return
	}
	t.prompts = append(t.prompts, prompt)
	for t.size += len(prompt); t.size > MaxTyped; t.prompts = t.prompts[1:] {
		t.size -= len(t.prompts[0])
	}
}

// Text reports whether the person typed text, as a whole; see the package comment.
func (t *Typed) Text(text string) bool {
	return utf8.RuneCountInString(text) >= MinText && t.has(text)
}

// Address reports whether the person typed text, as a whole, and it looks like an
// address.
func (t *Typed) Address(text string) bool {
	return utf8.RuneCountInString(text) >= MinAim && !isTime(text) && looksLikeAddress(text) && t.has(text)
}

func (t *Typed) has(text string) bool {
	if t == nil || !visible(text) {
		return false
	}
	for _, prompt := range t.prompts {
		at, tried := 0, 0
		for ; tried < maxTried; tried++ {
			i := strings.Index(prompt[at:], text)
			if i < 0 {
				break
			}
			at += i
			if begins(prompt[:at]) && ends(prompt[at+len(text):]) {
				return true
			}
			_, width := utf8.DecodeRuneInString(prompt[at:])
			at += width
		}
	}
	return false
}

// What may stand between a text and the blank around it.
const (
	opening = "\"'`“‘«([{<"
	closing = "\"'`”’»)]}>,;.!?:"

	maxMarks = 4
)

// begins reports whether a text can begin after before.
func begins(before string) bool {
	for range maxMarks {
		r, width := utf8.DecodeLastRuneInString(before)
		if width == 0 || !strings.ContainsRune(opening, r) {
			break
		}
		before = before[:len(before)-width]
	}
	r, width := utf8.DecodeLastRuneInString(before)
	return width == 0 || unicode.IsSpace(r)
}

// ends reports whether a text can end before after.
func ends(after string) bool {
	for range maxMarks {
		r, width := utf8.DecodeRuneInString(after)
		if width == 0 || !strings.ContainsRune(closing, r) {
			break
		}
		after = after[width:]
	}
	r, width := utf8.DecodeRuneInString(after)
	return width == 0 || unicode.IsSpace(r)
}

// visible reports whether a reader sees all of a text: it is more than blanks, and
// has no control or format character but line breaks and tabs.
func visible(text string) bool {
	seen := false
	for _, r := range text {
		switch {
		case r == utf8.RuneError, unicode.In(r, unicode.Cf, unicode.Co, unicode.Cs),
			unicode.IsControl(r) && r != '\n' && r != '\t' && r != '\r':
			return false
		case !unicode.IsSpace(r):
			seen = true
		}
	}
	return seen
}

// number reports whether the person typed a number of that value.
func (t *Typed) number(text string) bool {
	want, ok := decimal(text)
	if !ok || t == nil {
		return false
	}
	for _, prompt := range t.prompts {
		for word := range strings.FieldsSeq(prompt) {
			word = strings.TrimLeft(word, opening)
			word = strings.TrimRight(word, closing)
			if r, width := utf8.DecodeRuneInString(word); unicode.Is(unicode.Sc, r) {
				word = word[width:]
			}
			if got, ok := decimal(word); ok && len(word) >= minNumber && got == want {
				return true
			}
		}
	}
	return false
}

// decimal returns a number in the one way to write it: without an exponent, and
// without zeros that add nothing.
func decimal(text string) (string, bool) {
	const longest = 40
	whole, fraction, _ := strings.Cut(strings.TrimPrefix(text, "-"), ".")
	if len(text) > longest || whole == "" || strings.Trim(whole, "0123456789") != "" || strings.Trim(fraction, "0123456789") != "" ||
		strings.HasSuffix(text, ".") {
		return "", false
	}
	whole, fraction = strings.TrimLeft(whole, "0"), strings.TrimRight(fraction, "0")
	sign := ""
	if strings.HasPrefix(text, "-") && whole+fraction != "" {
		sign = "-"
	}
	return sign + whole + "." + fraction, true
}

// aim reports whether the person typed a value of an aim.
func (t *Typed) aim(l leaf) bool {
	switch l.kind {
	case jsontext.KindString:
		return t.Address(l.text)
	case jsontext.KindNumber:
		return t.number(l.text)
	default:
		return false
	}
}

// payload tells of one value who wrote it.
func (t *Typed) payload(l leaf) capability.Payload {
	switch l.kind {
	case jsontext.KindTrue, jsontext.KindFalse:
		return capability.InertPayload
	case jsontext.KindNumber:
		switch {
		case t.number(l.text):
			return capability.TypedPayload
		case t.address(l.text):
			return capability.UntypedPayload
		}
		return capability.PlainPayload
	}
	switch {
	case l.name && isIdentifier(l.text):
		return capability.PlainPayload // the word of a schema
	case t.Text(l.text):
		return capability.TypedPayload
	case !l.name && isTime(l.text):
		return capability.InertPayload
	case t.address(l.text):
		return capability.UntypedPayload
	}
	return capability.PlainPayload
}

func isIdentifier(text string) bool {
	const longest = 64
	return len(text) <= longest && strings.IndexFunc(text, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && r != '_'
	}) < 0
}

// layouts of dates and times. None has fractions of a second, which can carry
// anything.
var layouts = []string{
	time.DateOnly, "15:04", time.TimeOnly, "2006-01-02 15:04", time.DateTime,
	"2006-01-02T15:04", "2006-01-02T15:04:05", time.RFC3339, "2006-01-02T15:04Z07:00",
}

func isTime(text string) bool {
	if len(text) > len(time.RFC3339) || strings.ContainsAny(text, ".,") {
		return false
	}
	for _, layout := range layouts {
		if _, err := time.Parse(layout, text); err == nil {
			return true
		}
	}
	return false
}
