package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/wire"
)

// A tool is what a server's list says of one tool, as far as the gate cares.
type tool struct {
	name                             string
	readOnly, destructive, openWorld capability.Hint
}

// readTools reads a server's list of tools: one or several pages, each of them
// the result of a tools/list request, the JSON-RPC response that carries it, or
// the bare array. More tells that the last page announces another one, so that
// the list is a part only.
func readTools(in io.Reader, name string) (tools []tool, more bool, err error) {
	r := newReader(in, true)
	for {
		d, err := r.next()
		switch {
		case errors.Is(err, io.EOF):
			return tools, more, nil
		case err != nil:
			return nil, false, fmt.Errorf("%s: %w", name, err)
		}
		broken := d.err
		if broken == nil {
			p := page{data: d.data, line: d.line}
			if broken = p.read(); broken == nil {
				tools, more = append(tools, p.tools...), p.more
				continue
			}
		}
		return nil, false, errors.New(place(name, broken.Line, broken.Pointer) + broken.Message())
	}
}

// A page is one page of a list.
type page struct {
	data  []byte
	line  int // of the input, on which data begins
	tools []tool
	more  bool
}

// members is an object. Its member names are compared as they are, which
// encoding/json does for maps only.
type members map[string]json.RawMessage

func (p *page) read() *wire.Error {
	dec := jsontext.NewDecoder(bytes.NewReader(p.data))
	if err := dec.SkipValue(); err != nil {
		line := p.line
		var syntactic *jsontext.SyntacticError
		if errors.As(err, &syntactic) {
			line += breaks(p.data[:min(int(syntactic.ByteOffset), len(p.data))])
		}
		return syntaxError(err, line)
	}
	if rest := bytes.Trim(p.data[dec.InputOffset():], blanks); len(rest) > 0 {
		e := p.wrong("", "the end of the line behind the list", nil)
		e.Kind, e.Got = wire.Syntax, "more"
		return e
	}
	if jsontext.Value(p.data).Kind() == jsontext.KindBeginArray {
		return p.list("", p.data)
	}
	doc, e := p.object("", p.data)
	if e != nil {
		return e
	}
	_, isResponse := doc["jsonrpc"]
	if given(doc["error"]) {
		return p.refused(doc["error"])
	}
	pointer := ""
	if given(doc["result"]) || isResponse {
		pointer = "/result"
		if doc, e = p.object(pointer, doc["result"]); e != nil {
			return e
		}
	}
	if !given(doc["tools"]) {
		return p.wrong(pointer, `an object with a member "tools"`, nil)
	}
	if given(doc["nextCursor"]) {
		cursor, e := p.text(pointer+"/nextCursor", doc["nextCursor"])
		if e != nil {
			return e
		}
		p.more = cursor != ""
	}
	return p.list(pointer+"/tools", doc["tools"])
}

// refused words the error that a server answered with.
func (p *page) refused(raw json.RawMessage) *wire.Error {
	e := p.wrong("/error", "a list of tools", nil)
	e.Got = "a server's error"
	doc, broken := p.object("/error", raw)
	if broken != nil {
		return e
	}
	if code := doc["code"]; given(code) {
		e.Got += " " + string(code)
	}
	if message, broken := p.text("", doc["message"]); broken == nil {
		e.Got += ": " + message
	}
	return e
}

func (p *page) list(pointer string, raw json.RawMessage) *wire.Error {
	var items []json.RawMessage
	if json.Unmarshal(raw, &items) != nil {
		return p.wrong(pointer, "an array of tools", raw)
	}
	for i, item := range items {
		at := pointer + "/" + strconv.Itoa(i)
		doc, e := p.object(at, item)
		if e != nil {
			return e
		}
		var t tool
		if t.name, e = p.text(at+"/name", doc["name"]); e != nil {
			return e
		}
		if t.name == "" {
			return p.wrong(at+"/name", "a name that is not empty", doc["name"])
		}
		if given(doc["annotations"]) {
			at += "/annotations"
			hints, e := p.object(at, doc["annotations"])
			if e != nil {
				return e
			}
			for _, h := range []struct {
				name string
				hint *capability.Hint
			}{{"readOnlyHint", &t.readOnly}, {"destructiveHint", &t.destructive}, {"openWorldHint", &t.openWorld}} {
				if *h.hint, e = p.hint(at+"/"+h.name, hints[h.name]); e != nil {
					return e
				}
			}
		}
		p.tools = append(p.tools, t)
	}
	return nil
}

func (p *page) object(pointer string, raw json.RawMessage) (members, *wire.Error) {
	var m members
	if json.Unmarshal(raw, &m) != nil || m == nil {
		return nil, p.wrong(pointer, "an object", raw)
	}
	return m, nil
}

func (p *page) text(pointer string, raw json.RawMessage) (string, *wire.Error) {
	var s *string
	if json.Unmarshal(raw, &s) != nil || s == nil {
		return "", p.wrong(pointer, "a string", raw)
	}
	return *s, nil
}

func (p *page) hint(pointer string, raw json.RawMessage) (capability.Hint, *wire.Error) {
	if !given(raw) {
		return capability.Unset, nil
	}
	var b bool
	if json.Unmarshal(raw, &b) != nil {
		return capability.Unset, p.wrong(pointer, "true or false", raw)
	}
	return capability.HintOf(b), nil
}

// given tells whether a member is there; null means that it is left out.
func given(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// wrong is the error of a value that is not what was expected.
func (p *page) wrong(pointer, expected string, raw json.RawMessage) *wire.Error {
	e := &wire.Error{Kind: wire.Invalid, Line: p.line + p.breaksBefore(pointer), Pointer: pointer, Expected: expected}
	switch kind := jsontext.Value(raw).Kind(); {
	case kind == jsontext.KindBeginObject:
		e.Got = "an object"
	case kind == jsontext.KindBeginArray:
		e.Got = "an array"
	case len(raw) > 40:
		e.Got = "a long text"
	case len(raw) > 0:
		e.Got = string(raw)
	}
	return e
}

// breaksBefore counts the line breaks before the value at pointer, or, if
// there is none, before the one that should hold it.
func (p *page) breaksBefore(pointer string) int {
	if pointer == "" {
		return 0
	}
	dec := jsontext.NewDecoder(bytes.NewReader(p.data))
	parent := jsontext.Pointer(pointer).Parent()
	var above int64
	for {
		_, err := dec.ReadToken()
		at := dec.StackPointer()
		switch {
		case err != nil:
			return breaks(p.data[:above])
		case string(at) == pointer:
			return breaks(p.data[:dec.InputOffset()])
		case at == parent && above == 0:
			above = dec.InputOffset()
		}
	}
}
