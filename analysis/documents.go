package analysis

import (
	"bytes"
	"encoding/json"
)

// encode writes v as JSON on one line, with nothing escaped for HTML. What this
// package encodes always can be.
func encode(v any) json.RawMessage {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err)
	}
	return bytes.TrimRight(buf.Bytes(), "\n")
}

// answerOf returns an answer as a document, or {"error": TEXT}.
func answerOf(a json.Marshaler, err error) json.RawMessage {
	if err == nil {
		var text []byte
		if text, err = a.MarshalJSON(); err == nil {
			return text
		}
	}
	return encode(map[string]string{"error": err.Error()})
}
