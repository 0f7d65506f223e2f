package main

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/opa-gate/opa-gate/wire"
)

// An array is the mode in which the input is one array of documents. Its Read
// gives the JSON decoder at most one line at a time, which keeps lines
// countable, and at most one document's worth of bytes.
type array struct {
	r        *reader
	dec      *jsontext.Decoder
	index    int
	left     int   // bytes that the current element may still take
	given    int64 // bytes handed out
	ended    bool  // the last byte handed out was a line break
	failed   error // the input's own error
	tooLarge bool
	done     bool
}

func newArray(r *reader) *array {
	a := &array{r: r, index: -1}
	a.dec = jsontext.NewDecoder(a, lenient...)
	return a
}

// Read implements io.Reader.
func (a *array) Read(p []byte) (int, error) {
	if a.left <= 0 {
		a.tooLarge = true
		return 0, errTooLarge
	}
	if _, err := a.r.in.Peek(1); err != nil {
		if !errors.Is(err, io.EOF) {
			a.failed = err
		}
		return 0, err
	}
	chunk, _ := a.r.in.Peek(min(len(p), a.r.in.Buffered()))
	a.ended = false
	if i := bytes.IndexByte(chunk, '\n'); i >= 0 {
		chunk = chunk[:i+1]
		a.ended = true
		a.r.lines++
	}
	n := copy(p, chunk)
	a.left -= n
	a.given += int64(n)
	_, err := a.r.in.Discard(n)
	return n, err
}

func (a *array) next() (document, error) {
	if a.done {
		return document{}, io.EOF
	}
	a.left = a.r.limit + bufferSize
	if a.index < 0 {
		if _, err := a.dec.ReadToken(); err != nil {
			return a.stop(err)
		}
		a.index = 0
	}
	if a.dec.PeekKind() == jsontext.KindEndArray {
		if _, err := a.dec.ReadToken(); err != nil {
			return a.stop(err)
		}
		return a.end()
	}
	line := 1 + a.r.lines - breaks(bytes.TrimLeft(a.dec.UnreadBuffer(), blanks+","))
	value, err := a.dec.ReadValue()
	if err != nil {
		return a.stop(err)
	}
	a.index++
	return document{data: value, line: line, index: a.index - 1}, nil
}

// restUnread ends the message about an array that cannot be read on.
const restUnread = " (the rest of the array was not read)"

// end looks behind the array: whatever stands there belongs to no document
// that could be answered.
func (a *array) end() (document, error) {
	a.done = true
	_, err := a.dec.ReadToken()
	if errors.Is(err, io.EOF) {
		return document{}, io.EOF
	}
	if a.failed != nil {
		return document{}, a.failed
	}
	e := &wire.Error{Kind: wire.Syntax, Line: a.line(err), Expected: "the end of the input behind the array", Got: "more"}
	return document{line: e.Line, index: -1, err: e}, nil
}

// stop reports why the array cannot be read on. Nothing tells where the next
// element would begin.
func (a *array) stop(err error) (document, error) {
	a.done = true
	if a.failed != nil {
		return document{}, a.failed
	}
	d := document{line: a.line(err), index: a.index}
	if a.tooLarge {
		d.err = overlong(d.line)
		d.err.Got += restUnread
		return d, nil
	}
	d.err = syntaxError(err, d.line)
	d.err.Got += restUnread
	// The decoder's pointer begins with the element's index, or is empty if
	// the error is between two elements.
	_, inside, _ := strings.Cut(strings.TrimPrefix(d.err.Pointer, "/"), "/")
	if d.err.Pointer = ""; inside != "" {
		d.err.Pointer = "/" + inside
	}
	return d, nil
}

// line returns the line of an error of the decoder. As it gets one line at a
// time, it never sees an error on an earlier one.
func (a *array) line(err error) int {
	var syntactic *jsontext.SyntacticError
	if a.ended && errors.As(err, &syntactic) && syntactic.ByteOffset < a.given {
		return a.r.lines
	}
	return 1 + a.r.lines
}

// A span is the mode in which documents span lines and follow one another. Its
// Read gives the JSON decoder one line at a time, so that on an error the line
// at which it could resume is still at hand.
type span struct {
	r         *reader
	dec       *jsontext.Decoder
	line      []byte // the current line
	rest      []byte // what of it the decoder has not had
	number    int    // of the current line
	closed    bool   // the line before it is a brace that closes a document
	lineStart int64  // where it begins, counted in bytes since the decoder was reset
	given     int64  // bytes handed out since then
	fed       int    // line breaks of the input before the decoder's position
	left      int    // bytes that the current document may still take
	between   bool   // no byte of the next document has been handed out
	failed    error
	tooLarge  bool
	lost      bool // a document was broken: find where the next begins
	began     int  // the line on which the broken one began
	boundary  bool // the current line's first character is what broke it
}

func newSpan(r *reader) *span {
	s := &span{r: r, fed: r.lines}
	s.dec = jsontext.NewDecoder(s, lenient...)
	return s
}

// Read implements io.Reader.
func (s *span) Read(p []byte) (int, error) {
	for len(s.rest) == 0 {
		if err := s.advance(); err != nil {
			if !errors.Is(err, io.EOF) && !s.tooLarge {
				s.failed = err
			}
			return 0, err
		}
		s.lineStart = s.given
		if s.between && len(bytes.Trim(s.line, blanks)) == 0 {
			s.rest = nil
			s.fed += breaks(s.line)
		}
	}
	if s.left <= 0 {
		s.tooLarge = true
		return 0, errTooLarge
	}
	n := copy(p, s.rest)
	s.between = false
	s.fed += breaks(s.rest[:n])
	s.rest = s.rest[n:]
	s.left -= n
	s.given += int64(n)
	return n, nil
}

// advance makes the next line the current one.
func (s *span) advance() error {
	s.closed = string(bytes.TrimRight(s.line, blanks)) == "}"
	line, tooLong, err := s.r.readLine()
	if err != nil {
		s.line, s.rest = nil, nil
		return err
	}
	s.line, s.rest, s.number = line, line, s.r.number
	if tooLong {
		s.line, s.rest, s.tooLarge = nil, nil, true
		return errTooLarge
	}
	return nil
}

func (s *span) next() (document, error) {
	if s.lost {
		if err := s.resume(); err != nil {
			return document{}, err
		}
	}
	s.left = s.r.limit + bufferSize
	s.tooLarge = false
	s.between = len(bytes.Trim(s.dec.UnreadBuffer(), blanks)) == 0
	s.dec.PeekKind()
	start := 1 + s.fed - breaks(bytes.TrimLeft(s.dec.UnreadBuffer(), blanks))
	value, err := s.dec.ReadValue()
	switch {
	case err == nil:
		return document{data: value, line: start, index: -1}, nil
	case s.failed != nil:
		return document{}, s.failed
	case errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return document{}, io.EOF
	}
	s.lost, s.began, s.boundary = true, start, false
	d := document{line: start, index: -1}
	if s.tooLarge {
		d.err = overlong(start)
		return d, nil
	}
	line := max(s.number, 1)
	var syntactic *jsontext.SyntacticError
	if errors.As(err, &syntactic) {
		s.boundary = syntactic.ByteOffset == s.lineStart
	}
	d.err = syntaxError(err, line)
	return d, nil
}

// resume looks for the line at which reading goes on behind a broken document.
// It must not take a part of that document for a whole one, so the line has to
// begin, at its first character, with a brace that cannot stand inside.
func (s *span) resume() error {
	for {
		if s.number > s.began && len(s.line) > 0 && s.line[0] == '{' &&
			(s.boundary || s.closed || isObject(s.line)) {
			s.lost = false
			s.rest, s.fed = s.line, s.number-1
			s.given, s.lineStart = 0, 0
			s.dec.Reset(s, lenient...)
			return nil
		}
		s.boundary = false
		if err := s.advance(); err != nil && !s.tooLarge {
			return err
		}
		s.tooLarge = false
	}
}

// place is where a document stands, for a line on stderr.
func place(name string, line int, pointer string) string {
	at := name + ":" + strconv.Itoa(line) + ": "
	if pointer != "" {
		at += pointer + ": "
	}
	return at
}
