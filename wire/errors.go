package wire

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/agnivade/levenshtein"
)

// An ErrorKind says what is wrong with a document.
type ErrorKind uint8

// The kinds of error.
const (
	Syntax   ErrorKind = iota + 1 // it is not JSON, or not one unambiguous JSON value
	Invalid                       // it is JSON and breaks the schema
	TooLarge                      // it exceeds one of the bounds
)

// Errors that an [Error] matches with errors.Is, by its kind.
var (
	ErrSyntax   = errors.New("the document is not valid JSON")
	ErrSchema   = errors.New("the document breaks its schema")
	ErrTooLarge = errors.New("the document exceeds a bound")
)

// An Error says where a document is wrong and what would have been right.
type Error struct {
	Kind     ErrorKind
	Line     int    // counted from 1 within the text that was given
	Pointer  string // JSON pointer (RFC 6901) to the value; "" is the document
	Expected string // what would have been right
	Got      string // what stands there; "" if nothing does
	Nearest  string // the right name that a wrong one resembles; "" if there is none
}

// Message says what is wrong, without where.
func (e *Error) Message() string {
	var b strings.Builder
	b.WriteString("expected " + e.Expected)
	if e.Got != "" {
		b.WriteString(", got " + e.Got)
	}
	if e.Nearest != "" {
		b.WriteString("; did you mean " + strconv.Quote(e.Nearest) + "?")
	}
	return b.String()
}

// Error implements error: the line, the pointer and the message.
func (e *Error) Error() string {
	at := "line " + strconv.Itoa(e.Line) + ": "
	if e.Pointer != "" {
		at += e.Pointer + ": "
	}
	return at + e.Message()
}

// Is reports whether target is the sentinel of e's kind.
func (e *Error) Is(target error) bool {
	switch e.Kind {
	case Syntax:
		return target == ErrSyntax
	case Invalid:
		return target == ErrSchema
	case TooLarge:
		return target == ErrTooLarge
	}
	return false
}

// Nearest returns the candidate that name most resembles, or "" if it
// resembles none: one or two characters may differ, in a long name a third.
func Nearest(name string, candidates []string) string {
	length := utf8.RuneCountInString(name)
	if length > 100 {
		return ""
	}
	allowed := max(2, length/3)
	if length < 4 {
		allowed = 1
	}
	best, bestDistance := "", allowed+1
	for _, c := range candidates {
		d := levenshtein.ComputeDistance(strings.ToLower(name), strings.ToLower(c))
		if d == 2 && length == 4 && !sameLetters(name, c) { // half of a short word is another word
			continue
		}
		if d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// sameLetters tells whether one word is the other with its letters in another order.
func sameLetters(a, b string) bool {
	sorted := func(s string) string {
		letters := []rune(strings.ToLower(s))
		slices.Sort(letters)
		return string(letters)
	}
	return sorted(a) == sorted(b)
}

const excerptLength = 40

// excerpt returns the beginning of raw text for a message, quoted so that a
// hostile text cannot act on a terminal.
func excerpt(raw []byte) string {
	text := string(raw)
	if len(text) > excerptLength {
		cut := excerptLength
		for cut > 0 && !utf8.RuneStart(text[cut]) {
			cut--
		}
		return strconv.QuoteToGraphic(text[:cut]) + "…"
	}
	return strconv.QuoteToGraphic(text)
}

// Printable returns text with every character that could act on a terminal, or
// that reorders or hides what stands beside it, written as an escape. Line
// breaks and tabs count among them, and so do characters that show as nothing and
// marks that pile up on one letter or have none to stand on.
func Printable(text string) string {
	if plain(text) {
		return text
	}
	var b strings.Builder
	marks := maxMarks // on the last letter; at the beginning there is none
	for _, r := range text {
		switch {
		case unicode.In(r, unicode.Mn, unicode.Me):
			marks++
		case r == ' ' || hostile(r):
			marks = maxMarks
		default:
			marks = 0
		}
		if hostile(r) || r == utf8.RuneError || marks > maxMarks {
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// maxMarks is how many marks one letter has, in scripts that people write.
const maxMarks = 4

// plain tells whether text is of printable ASCII alone.
func plain(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}

func hostile(r rune) bool {
	return !unicode.IsPrint(r) || // controls, bidirectional marks, zero-width and unassigned characters
		unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) || // letters and marks that show as nothing
		r == '\u2800' || r == '\U0001d159' // a pattern and a note without a dot
}
