package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// errNotMessage is wrapped by every error of decodeMessage.
var errNotMessage = errors.New("not a JSON-RPC 2.0 message")

// maxID is the largest whole number that every JSON parser reads as it stands.
const maxID = 1<<53 - 1

// decodeMessage reads one message. It differs from the SDK's reader in what it
// refuses: a member that stands twice, and an id that would not come back as it
// was sent. Parameters and results are kept byte for byte, and are not looked
// into.
func decodeMessage(line []byte) (jsonrpc.Message, error) {
	members, err := readObject(line, lenient...)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotMessage, err)
	}
	var version, method string
	var hasMethod, hasResult bool
	var id jsonrpc.ID
	var params, result json.RawMessage
	var failure *jsonrpc.Error
	seen := make(map[string]bool, len(members))
	for _, m := range members {
		if seen[m.name] {
			return nil, fmt.Errorf("%w: the member %q stands twice", errNotMessage, m.name)
		}
		seen[m.name] = true
		switch m.name {
		case "jsonrpc":
			err = json.Unmarshal(m.value, &version)
		case "id":
			id, err = parseID(m.value)
		case "method":
			hasMethod = true
			err = unmarshalString(m.value, &method)
		case "params":
			params = json.RawMessage(m.value)
		case "result":
			hasResult, result = true, json.RawMessage(m.value)
		case "error":
			err = json.Unmarshal(m.value, &failure)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", errNotMessage, m.name, err)
		}
	}
	switch {
	case version != "2.0":
		return nil, fmt.Errorf("%w: jsonrpc is %q, expected \"2.0\"", errNotMessage, version)
	case hasMethod && (hasResult || failure != nil):
		return nil, fmt.Errorf("%w: it is a request and an answer", errNotMessage)
	case hasMethod && seen["id"] && !id.IsValid():
		return nil, fmt.Errorf("%w: the id of a request is null", errNotMessage)
	case hasMethod:
		return &jsonrpc.Request{ID: id, Method: method, Params: params}, nil
	case !id.IsValid():
		return nil, fmt.Errorf("%w: it has neither a method nor an id", errNotMessage)
	case hasResult == (failure != nil):
		return nil, fmt.Errorf("%w: an answer has a result or an error", errNotMessage)
	}
	answer := &jsonrpc.Response{ID: id, Result: result}
	if failure != nil {
		answer.Error = failure
	}
	return answer, nil
}

// encodeMessage writes a message on one line. Parameters, results and the data of
// errors keep their bytes, except that line breaks between their tokens go.
func encodeMessage(message jsonrpc.Message) ([]byte, error) {
	parts := make([]member, 1, 4)
	parts[0] = member{"jsonrpc", jsontext.Value(`"2.0"`)}
	switch m := message.(type) {
	case *jsonrpc.Request:
		if m.IsCall() {
			parts = append(parts, member{"id", idText(m.ID)})
		}
		parts = append(parts, member{"method", quote(m.Method)})
		if len(m.Params) > 0 {
			parts = append(parts, member{"params", jsontext.Value(m.Params)})
		}
	case *jsonrpc.Response:
		parts = append(parts, member{"id", idText(m.ID)})
		switch {
		case m.Error != nil:
			parts = append(parts, member{"error", errorText(m.Error)})
		case len(m.Result) > 0:
			parts = append(parts, member{"result", jsontext.Value(m.Result)})
		default:
			return nil, errors.New("an answer without a result or an error")
		}
	}
	text := writeObject(parts)
	if !bytes.ContainsAny(text, "\r\n") { // they are never within a text
		return text, nil
	}
	var buf bytes.Buffer
	if err := json.Compact(&buf, text); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

func errorText(err error) jsontext.Value {
	failure, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok {
		failure = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: err.Error()}
	}
	parts := []member{
		{"code", strconv.AppendInt(nil, failure.Code, 10)},
		{"message", quote(failure.Message)},
	}
	if len(failure.Data) > 0 {
		parts = append(parts, member{"data", jsontext.Value(failure.Data)})
	}
	return jsontext.Value(writeObject(parts))
}

// idText writes an id; that of no request is null.
func idText(id jsonrpc.ID) jsontext.Value {
	switch v := id.Raw().(type) {
	case int64:
		return strconv.AppendInt(nil, v, 10)
	case string:
		return quote(v)
	}
	return jsontext.Value("null")
}

// parseID reads the id of a request: a text, or a whole number that is exact in
// every parser.
func parseID(value jsontext.Value) (jsonrpc.ID, error) {
	switch value.Kind() {
	case 'n':
		return jsonrpc.ID{}, nil
	case '"':
		var text string
		if err := unmarshalString(value, &text); err != nil {
			return jsonrpc.ID{}, err
		}
		return jsonrpc.MakeID(text)
	case '0':
		n, err := strconv.ParseInt(string(value), 10, 64)
		if err != nil || n > maxID || n < -maxID {
			return jsonrpc.ID{}, fmt.Errorf("%s is no whole number below 2^53", value)
		}
		return jsonrpc.MakeID(float64(n))
	}
	return jsonrpc.ID{}, errors.New("expected a text or a whole number")
}

// numericID is the id of a request of this program.
func numericID(n int64) jsonrpc.ID {
	id, err := jsonrpc.MakeID(float64(n))
	if err != nil {
		panic(err) // a float64 is always an id
	}
	return id
}

// unmarshalString reads a JSON string that must be valid UTF-8: a method or an
// id that two parsers read differently is not one.
func unmarshalString(value jsontext.Value, into *string) error {
	if value.Kind() != '"' {
		return errors.New("expected a text")
	}
	text, err := jsontext.AppendUnquote(nil, value)
	if err != nil {
		return err
	}
	*into = string(text)
	return nil
}

// A member is one member of a JSON object, its value as it stands.
type member struct {
	name  string
	value jsontext.Value
}

// readObject reads the members of the JSON object that text is, in order. The
// values share text's memory.
func readObject(text []byte, opts ...jsontext.Options) ([]member, error) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(text), opts...)
	open, err := dec.ReadToken()
	if err != nil {
		return nil, err
	}
	if open.Kind() != '{' {
		return nil, errors.New("expected an object")
	}
	members := make([]member, 0, 4)
	for dec.PeekKind() == '"' {
		name, err := dec.ReadToken()
		if err != nil {
			return nil, err
		}
		m := member{name: name.String()}
		value, err := dec.ReadValue()
		if err != nil {
			return nil, err
		}
		end := dec.InputOffset()
		m.value = jsontext.Value(text[end-int64(len(value)) : end : end])
		members = append(members, m)
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, err
	}
	if rest := bytes.TrimSpace(text[dec.InputOffset():]); len(rest) > 0 {
		return nil, errors.New("something follows the object")
	}
	return members, nil
}

// readArray reads the elements of the JSON array that text is.
func readArray(text []byte, opts ...jsontext.Options) ([]jsontext.Value, error) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(text), opts...)
	open, err := dec.ReadToken()
	if err != nil {
		return nil, err
	}
	if open.Kind() != '[' {
		return nil, errors.New("expected an array")
	}
	var elements []jsontext.Value
	for k := dec.PeekKind(); k != ']' && k != 0; k = dec.PeekKind() {
		value, err := dec.ReadValue()
		if err != nil {
			return nil, err
		}
		end := dec.InputOffset()
		elements = append(elements, jsontext.Value(text[end-int64(len(value)):end:end]))
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, err
	}
	return elements, nil
}

// writeObject writes members as an object.
func writeObject(members []member) json.RawMessage {
	size := 2
	for _, m := range members {
		size += len(m.name) + len(m.value) + 4
	}
	out := append(make([]byte, 0, size), '{')
	for i, m := range members {
		if i > 0 {
			out = append(out, ',')
		}
		out = appendString(out, m.name)
		out = append(append(out, ':'), m.value...)
	}
	return append(out, '}')
}

// writeArray writes elements as an array.
func writeArray(elements []jsontext.Value) jsontext.Value {
	out := []byte{'['}
	for i, e := range elements {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, e...)
	}
	return append(out, ']')
}

// appendString appends text as a JSON string; what is not UTF-8 is replaced.
func appendString(dst []byte, text string) []byte {
	dst, _ = jsontext.AppendQuote(dst, text) // the error only tells of the replacement
	return dst
}

func quote(text string) jsontext.Value { return appendString(nil, text) }

// lookup returns the value of the member with that name, or nil.
func lookup(members []member, name string) jsontext.Value {
	for _, m := range members {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

// readOneWay is an error if two parsers could differ about which member has one
// of the names: it stands twice, or beside one that differs in case alone.
func readOneWay(members []member, names ...string) error {
	for _, name := range names {
		found := false
		for _, m := range members {
			switch {
			case m.name == name && found:
				return fmt.Errorf("the member %q stands twice", name)
			case m.name == name:
				found = true
			case strings.EqualFold(m.name, name):
				return fmt.Errorf("the member %q differs from %q in case alone, which some parsers do not see", m.name, name)
			}
		}
	}
	return nil
}

// with returns members with one of them replaced, or added at the end. The
// members given stay as they are.
func with(members []member, name string, value jsontext.Value) []member {
	out := make([]member, 0, len(members)+1)
	found := false
	for _, m := range members {
		if m.name == name {
			m.value, found = value, true
		}
		out = append(out, m)
	}
	if !found {
		out = append(out, member{name, value})
	}
	return out
}

// without returns members without those of the names.
func without(members []member, names ...string) []member {
	out := make([]member, 0, len(members))
next:
	for _, m := range members {
		for _, name := range names {
			if m.name == name {
				continue next
			}
		}
		out = append(out, m)
	}
	return out
}

// lenient is how documents are read that are handed on as they are.
var lenient = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}
