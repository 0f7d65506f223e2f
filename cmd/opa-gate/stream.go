package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/opa-gate/opa-gate/wire"
)

const (
	bufferSize = 64 << 10
	blanks     = " \t\r\n"
)

var (
	errEmpty    = errors.New("the input is empty, expected at least one JSON document")
	errTooLarge = errors.New("longer than one document may be")
)

// lenient leaves to package wire what only concerns a single document, so that
// a document which names a member twice does not end the stream.
var lenient = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

// A document is one document of an input.
type document struct {
	data  []byte      // its text, valid until the next one is read
	line  int         // the input's line on which it begins, counted from 1
	index int         // its place in the array that the input is, or -1
	err   *wire.Error // why there is no text; the line is the input's
}

// A reader takes an input apart into documents, in constant memory: one array,
// one document a line, or documents that span lines. See begin for how it
// tells which.
type reader struct {
	in     *bufio.Reader
	limit  int  // bytes of one document; wire.MaxBytes but in tests
	lines  int  // line breaks consumed
	number int  // of the line that readLine read last, counted from 1
	whole  bool // an array is a document, not a list of them
	mode   func() (document, error)
	long   []byte // holds a line that is longer than the buffer of in
}

// newReader reads documents from in. With whole, an array at the beginning is
// a document itself.
func newReader(in io.Reader, whole bool) *reader {
	return &reader{in: bufio.NewReaderSize(in, bufferSize), limit: wire.MaxBytes, whole: whole}
}

// next returns the next document. A document that cannot be read is one with
// err set, and reading goes on behind it. The error is io.EOF at the end,
// errEmpty if there is no document at all, and otherwise the input's own.
func (r *reader) next() (document, error) {
	if r.mode == nil {
		return r.begin()
	}
	return r.mode()
}

// begin finds out what the input is from its first line that is not blank:
//   - it starts with a bracket: an array of documents;
//   - it is one JSON value: one document a line;
//   - it is not, but the next line is an object of its own: one document a
//     line, of which the first is broken;
//   - anything else: documents that span lines.
func (r *reader) begin() (document, error) {
	if mark, _ := r.in.Peek(3); string(mark) == "\ufeff" {
		_, _ = r.in.Discard(3)
	}
	first, err := r.skipBlanks()
	switch {
	case errors.Is(err, io.EOF):
		return document{}, errEmpty
	case err != nil:
		return document{}, err
	case first == '[' && !r.whole:
		r.mode = newArray(r).next
		return r.mode()
	}
	start := r.lines
	line, tooLong, err := r.readLine()
	if err != nil {
		return document{}, err
	}
	if tooLong {
		r.mode = r.nextLine
		return document{line: r.number, index: -1, err: overlong(r.number)}, nil
	}
	values, clean := countValues(line)
	if clean && values == 1 {
		r.mode = r.nextLine
		return document{data: bytes.Trim(line, blanks), line: r.number, index: -1}, nil
	}
	held := bytes.Clone(line)
	perLine := false
	if !clean && !r.whole {
		if held, perLine, err = r.lookAhead(held); err != nil {
			return document{}, err
		}
	}
	r.in = bufio.NewReaderSize(io.MultiReader(bytes.NewReader(held), r.in), bufferSize)
	r.lines = start
	if r.mode = newSpan(r).next; perLine {
		r.mode = r.nextLine
	}
	return r.mode()
}

// lookAhead appends to held the lines up to the next one that is not blank,
// and tells whether that is an object of its own.
func (r *reader) lookAhead(held []byte) ([]byte, bool, error) {
	for len(held) <= r.limit {
		line, tooLong, err := r.readLine()
		switch {
		case errors.Is(err, io.EOF):
			return held, false, nil
		case err != nil:
			return nil, false, err
		case tooLong: // what was cut must stay unreadable
			return append(held, "\x00\n"...), false, nil
		}
		held = append(held, line...)
		if len(bytes.Trim(line, blanks)) > 0 {
			return held, isObject(line), nil
		}
	}
	return held, false, nil
}

func (r *reader) skipBlanks() (byte, error) {
	for {
		b, err := r.in.ReadByte()
		if err != nil {
			return 0, err
		}
		if strings.IndexByte(blanks, b) < 0 {
			return b, r.in.UnreadByte()
		}
		if b == '\n' {
			r.lines++
		}
	}
}

// nextLine is the mode in which each line is a document.
func (r *reader) nextLine() (document, error) {
	for {
		line, tooLong, err := r.readLine()
		if err != nil {
			return document{}, err
		}
		if tooLong {
			return document{line: r.number, index: -1, err: overlong(r.number)}, nil
		}
		if line = bytes.Trim(line, blanks); len(line) > 0 {
			return document{data: line, line: r.number, index: -1}, nil
		}
	}
}

// readLine returns the next line with its line break, valid until the next
// read. A line that is longer than a document may be is read to its end and
// not kept.
func (r *reader) readLine() (line []byte, tooLong bool, err error) {
	r.long, r.number = r.long[:0], r.lines+1
	for {
		part, err := r.in.ReadSlice('\n')
		if err == nil {
			r.lines++
		}
		switch {
		case err == nil && len(r.long) == 0 && !tooLong:
			return part, false, nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull) && !errors.Is(err, io.EOF):
			return nil, false, err
		}
		if !tooLong {
			r.long = append(r.long, part...)
		}
		if len(r.long) > r.limit+bufferSize {
			tooLong, r.long = true, r.long[:0]
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(r.long) == 0 && !tooLong:
			return nil, false, io.EOF
		default:
			return r.long, tooLong, nil
		}
	}
}

// countValues counts the JSON values on a line; clean tells that there is
// nothing else on it.
func countValues(line []byte) (values int, clean bool) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(line), lenient...)
	for {
		if err := dec.SkipValue(); err != nil {
			return values, errors.Is(err, io.EOF) && values > 0
		}
		values++
	}
}

func isObject(line []byte) bool {
	text := bytes.Trim(line, blanks)
	return len(text) > 0 && text[0] == '{' && jsontext.Value(text).IsValid(lenient...)
}

func overlong(line int) *wire.Error {
	return &wire.Error{Kind: wire.TooLarge, Line: line,
		Expected: fmt.Sprintf("at most %d bytes", wire.MaxBytes), Got: "more"}
}

// syntaxError turns an error of the JSON reader into the one that is reported.
func syntaxError(err error, line int) *wire.Error {
	e := &wire.Error{Kind: wire.Syntax, Line: line, Expected: "valid JSON", Got: err.Error()}
	var syntactic *jsontext.SyntacticError
	if errors.As(err, &syntactic) {
		e.Pointer = string(syntactic.JSONPointer)
		e.Got = syntactic.Err.Error()
		if errors.Is(err, jsontext.ErrDuplicateName) {
			e.Expected, e.Got = "each member once", "the same name again"
		}
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		e.Expected, e.Got = "the rest of the JSON value", "the end of the input"
	}
	return e
}

func breaks(text []byte) int { return bytes.Count(text, []byte{'\n'}) }
