package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/wire"
)

// A work is how one kind of document is answered.
type work[Q any, A json.Marshaler] struct {
	parse  func([]byte) (Q, error)
	decide func(Q) (A, error)
	show   func(*printer, Q, A) // writes the answer for a person
	passes func(A) bool         // what --exit-code asks for
	failed func(A) error        // what went wrong although there is an answer; may be nil
}

// A task is one input and where its answers go.
type task struct {
	name     string // what messages call the input
	in       io.Reader
	out      *bufio.Writer
	stderr   io.Writer
	json     bool
	colour   bool
	exitCode bool
}

// flushing writes out the answers before it waits for more input, so that a
// program at the other end of a pipe gets its answer before it asks again.
type flushing struct {
	io.Reader
	out *bufio.Writer
}

// Read implements io.Reader.
func (f flushing) Read(p []byte) (int, error) {
	if f.out.Buffered() > 0 {
		if err := f.out.Flush(); err != nil {
			return 0, err
		}
	}
	return f.Reader.Read(p)
}

// answer answers every document of the task's input, in order. It returns
// the exit code, or the error that ended the work.
func answer[Q any, A json.Marshaler](s *task, w work[Q, A]) (code int, err error) {
	r := newReader(flushing{s.in, s.out}, false)
	p := &printer{Writer: s.out, colour: s.colour}
	answers := 0
	for {
		d, err := r.next()
		if errors.Is(err, io.EOF) {
			if s.exitCode && answers == 0 { // no answer at all must not look like a pass
				code = max(code, exitCheck)
			}
			return code, s.out.Flush()
		}
		if err != nil {
			if flushErr := s.out.Flush(); flushErr != nil {
				return exitInput, flushErr
			}
			return exitInput, fmt.Errorf("%s: %w", s.name, err)
		}
		c, err := answerOne(s, p, w, d)
		if err != nil {
			return exitInput, err
		}
		code = max(code, c)
		answers++
	}
}

// answerOne answers one document. The error is that of writing.
func answerOne[Q any, A json.Marshaler](s *task, p *printer, w work[Q, A], d document) (code int, err error) {
	if d.err != nil {
		return exitInput, s.reject(d, d.err.Line, d.err.Pointer, d.err.Message())
	}
	q, err := w.parse(d.data)
	if err != nil {
		return s.unread(d, err)
	}
	a, err := w.decide(q)
	if err != nil {
		return s.undecided(d, err)
	}
	text, err := appendJSON(s.out.AvailableBuffer(), a)
	if err != nil {
		return exitInput, s.reject(d, d.line, "", err.Error())
	}
	if s.exitCode && !w.passes(a) {
		code = exitCheck
	}
	if w.failed != nil {
		if err := w.failed(a); err != nil {
			code = exitInput
			defer s.mention(d, err)
		}
	}
	if !s.json {
		w.show(p, q, a)
		return code, nil // a failed write stays with the writer until it is flushed
	}
	_, err = s.out.Write(append(text, '\n'))
	return code, err
}

// unread rejects a document that could not be parsed.
func (s *task) unread(d document, err error) (code int, failed error) {
	var e *wire.Error
	if errors.As(err, &e) {
		return exitInput, s.reject(d, d.line+e.Line-1, e.Pointer, e.Message())
	}
	return exitInput, s.reject(d, d.line, "", err.Error())
}

// undecided rejects a document that an engine gave no answer for.
func (s *task) undecided(d document, err error) (code int, failed error) {
	var difference *evaluator.DifferenceError
	if errors.As(err, &difference) {
		complain(s.stderr, place(s.name, d.line, "")+"native: "+difference.Reference)
		complain(s.stderr, place(s.name, d.line, "")+"opa:    "+difference.Other)
		return exitCheck, s.reject(d, d.line, "", "the engines disagree, so there is no answer")
	}
	return exitInput, s.reject(d, d.line, "", err.Error())
}

// appendJSON appends an answer's text to dst, in place if the answer can.
func appendJSON(dst []byte, a json.Marshaler) ([]byte, error) {
	if a, ok := a.(interface {
		AppendJSON([]byte) ([]byte, error)
	}); ok {
		return a.AppendJSON(dst)
	}
	text, err := a.MarshalJSON()
	return append(dst, text...), err
}

// problem is what stands in place of an answer.
type problem struct {
	Line    int    `json:"line"`
	Pointer string `json:"pointer"`
	Message string `json:"message"`
	Index   *int   `json:"index,omitempty"` // the element, if the input is an array
}

// reject says, in place of an answer, why there is none.
func (s *task) reject(d document, line int, pointer, message string) error {
	if s.json {
		p := problem{Line: line, Pointer: pointer, Message: message}
		if d.index >= 0 {
			p.Index = &d.index
		}
		text, err := encode(map[string]problem{"error": p})
		if err != nil {
			return err
		}
		if _, err := s.out.Write(text); err != nil {
			return err
		}
	} else if err := s.out.Flush(); err != nil { // people see both streams: keep their order
		return err
	}
	if d.index >= 0 {
		message = fmt.Sprintf("element %d: %s", d.index, message)
	}
	complain(s.stderr, place(s.name, line, pointer)+message)
	return nil
}

// mention says what went wrong with a document that has its answer.
func (s *task) mention(d document, err error) {
	message := err.Error()
	if d.index >= 0 {
		message = fmt.Sprintf("element %d: %s", d.index, message)
	}
	_ = s.out.Flush() // people see both streams; a failure stays with the writer
	complain(s.stderr, place(s.name, d.line, "")+message)
}

// encode writes v as one line of JSON, with nothing escaped for HTML.
func encode(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}
