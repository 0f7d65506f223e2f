package replay

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/opa-gate/opa-gate/internal/plain"
)

// Bounds of a trace. A longer line is skipped and told of; a longer trace is an
// error.
const (
	MaxLine   = 8 << 20 // bytes
	MaxEvents = 1 << 20
	MaxKept   = 64 << 20 // bytes of prompts and arguments
)

// A Trace is what was read of recorded sessions.
type Trace struct {
	Events  []Event
	Lines   int    // that are not blank
	Other   int    // lines of a transcript that tell of no prompt, call or result
	Skipped []Skip // lines that could not be used, in their order
}

// A Skip is a line that was left out, and why.
type Skip struct {
	File   string `json:"file,omitempty"`
	Line   int    `json:"line"`
	Reason string `json:"reason"`
}

// ErrTooLarge is matched by the error about a trace that exceeds a bound.
var ErrTooLarge = errors.New("the trace is too large")

// Read reads a trace. A line that is torn, broken or of another kind is left out
// and told of in Skipped. The error is that of r, or matches [ErrTooLarge].
func Read(r io.Reader) (*Trace, error) {
	t, kept := &Trace{}, 0
	in := bufio.NewReaderSize(r, 64<<10)
	for number := 1; ; number++ {
		line, long, err := readLine(in)
		last := errors.Is(err, io.EOF)
		if err != nil && !last {
			return nil, err
		}
		if text := bytes.TrimSpace(line); len(text) > 0 || long {
			t.Lines++
			events, other, reason := []Event(nil), false, fmt.Sprintf("it is longer than %d bytes", MaxLine)
			if !long {
				events, other, reason = readEvents(text)
			}
			switch {
			case reason != "":
				t.Skipped = append(t.Skipped, Skip{Line: number, Reason: reason})
			case other:
				t.Other++
			}
			for i := range events {
				events[i].Line = number
				kept += len(events[i].Text) + len(events[i].Arguments)
			}
			t.Events = append(t.Events, events...)
			if len(t.Events) > MaxEvents || kept > MaxKept || len(t.Skipped) > MaxEvents {
				return nil, fmt.Errorf("%w: at line %d there are more than %d events, or %d bytes of prompts and arguments", ErrTooLarge, number, MaxEvents, MaxKept)
			}
		}
		if last {
			return t, nil
		}
	}
}

// readLine returns the next line; long tells that it was too long to be kept. The
// error io.EOF comes with what is behind the last line break.
func readLine(in *bufio.Reader) (line []byte, long bool, err error) {
	for {
		part, err := in.ReadSlice('\n')
		if !long {
			line = append(line, part...)
		}
		if len(line) > MaxLine {
			line, long = nil, true
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, long, err
		}
	}
}

// readEvents reads one line. Other tells that it is of a transcript and holds no
// event; reason, why it cannot be used.
func readEvents(line []byte) (events []Event, other bool, reason string) {
	switch err := jsontext.NewDecoder(bytes.NewBuffer(line)).SkipValue(); {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, false, "it is torn: it ends in the middle"
	case err != nil || !jsontext.Value(line).IsValid():
		return nil, false, "it is not JSON, or a member of it stands twice"
	}
	var shape struct {
		Kind jsontext.Value `json:"kind"`
		Type jsontext.Value `json:"type"`
	}
	if jsontext.Value(line).Kind() != jsontext.KindBeginObject || jsonv2.Unmarshal(line, &shape) != nil {
		return nil, false, "it is not an object"
	}
	switch {
	case shape.Kind != nil:
		e, err := readEvent(line)
		if err != nil {
			return nil, false, err.Error()
		}
		return []Event{*e}, false, ""
	case shape.Type != nil:
		events, err := readTranscript(line)
		if err != nil {
			return nil, false, err.Error()
		}
		return events, len(events) == 0, ""
	}
	return nil, false, "it is foreign: it has neither the kind of an event nor the type of a transcript's line"
}

// readEvent reads an event. A member that it does not know is an error: it may be a
// misspelt one.
func readEvent(line []byte) (*Event, error) {
	var doc struct {
		Kind      string         `json:"kind"`
		Session   string         `json:"session"`
		Task      string         `json:"task"`
		ID        string         `json:"id"`
		Tool      string         `json:"tool"`
		Text      string         `json:"text"`
		Arguments jsontext.Value `json:"arguments"`
		Profile   *statement     `json:"profile"`
	}
	if err := jsonv2.Unmarshal(line, &doc, jsonv2.RejectUnknownMembers(true)); err != nil {
		return nil, fmt.Errorf("it is no event: %w", plain.JSON(err))
	}
	e := &Event{Session: doc.Session, Task: doc.Task, ID: doc.ID, Tool: doc.Tool, Text: doc.Text}
	for kind, name := range kindNames {
		if name == doc.Kind && name != "" {
			e.Kind = Kind(kind)
		}
	}
	switch e.Kind {
	case Prompt:
	case Call:
		if doc.Tool == "" {
			return nil, errors.New("it is a call without a tool")
		}
		if doc.Arguments != nil && doc.Arguments.Kind() != jsontext.KindNull {
			e.Arguments = json.RawMessage(bytes.Clone(doc.Arguments))
		}
	case Result:
		if doc.ID == "" {
			return nil, errors.New("it is a result without the id of its call")
		}
	default:
		return nil, fmt.Errorf("there is no kind %q, expected prompt, call or result", doc.Kind)
	}
	if doc.Profile != nil {
		var err error
		if e.Stated, err = doc.Profile.tool(); err != nil {
			return nil, err
		}
	}
	return e, nil
}
