package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

func TestDecodeMessage(t *testing.T) {
	for text, good := range map[string]bool{
		`{"jsonrpc":"2.0","id":1,"method":"m","params":{"n":1e400}}`:      true,
		`{"jsonrpc":"2.0","method":"m"}`:                                  true,
		`{"jsonrpc":"2.0","id":"x","result":null}`:                        true,
		`{"jsonrpc":"2.0","id":"x","error":{"code":1,"message":"m"}}`:     true,
		`{"jsonrpc":"2.0","id":9007199254740991,"method":"m","more":[1]}`: true,
		`{"jsonrpc":"2.0","id":9007199254740992,"method":"m"}`:            false,
		`{"jsonrpc":"2.0","id":1.0,"method":"m"}`:                         false,
		`{"jsonrpc":"2.0","id":true,"method":"m"}`:                        false,
		`{"jsonrpc":"2.0","id":null,"method":"m"}`:                        false,
		`{"jsonrpc":"2.0","id":1,"method":"m","method":"n"}`:              false,
		`{"jsonrpc":"2.0","id":1,"method":7}`:                             false,
		`{"jsonrpc":"2.0","id":1,"method":"m\ud800"}`:                     false,
		`{"jsonrpc":"2.0","id":1,"method":"m","result":1}`:                false,
		`{"jsonrpc":"2.0","id":1}`:                                        false,
		`{"jsonrpc":"2.0","id":1,"result":1,"error":{"code":1}}`:          false,
		`{"jsonrpc":"2.0","id":null,"result":1}`:                          false,
		`{"jsonrpc":"2.0","id":1,"error":7}`:                              false,
		`{"id":1,"method":"m"}`:                                           false,
		`{"jsonrpc":"2.0","method":"m"} {}`:                               false,
		`{"jsonrpc":"2.0","method":"m"`:                                   false,
		`[]`:                                                              false,
		`7`:                                                               false,
		``:                                                                false,
	} {
		_, err := decodeMessage([]byte(text))
		if good != (err == nil) {
			t.Errorf("%s: %v", text, err)
		}
		if err != nil && !errors.Is(err, errNotMessage) {
			t.Errorf("%s: the error %v is of another kind", text, err)
		}
	}
}

// What is read as a message is written as the same one: the parts keep their
// bytes but for blanks.
func FuzzMessage(f *testing.F) {
	for _, text := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"n":9007199254740993}}}`,
		`{"jsonrpc":"2.0","id":"a","result":{"x": 1.0}}`, `{"jsonrpc":"2.0","id":"a","error":{"code":-1,"message":"m","data":[ ]}}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		first, err := decodeMessage(text)
		if err != nil {
			return
		}
		written, err := encodeMessage(first)
		if err != nil {
			t.Fatalf("%s was read and cannot be written: %v", text, err)
		}
		if bytes.ContainsAny(written, "\r\n") {
			t.Fatalf("two lines: %s", written)
		}
		second, err := decodeMessage(written)
		if err != nil {
			t.Fatalf("%s became %s: %v", text, written, err)
		}
		var x, y bytes.Buffer
		a, b := part(first), part(second)
		if len(a) > 0 && (json.Compact(&x, a) != nil || json.Compact(&y, b) != nil) {
			t.Fatalf("%s: a part is no JSON", text)
		}
		if x.String() != y.String() {
			t.Fatalf("%s became %s", a, b)
		}
	})
}

func part(m jsonrpc.Message) json.RawMessage {
	switch m := m.(type) {
	case *jsonrpc.Request:
		return m.Params
	case *jsonrpc.Response:
		return m.Result
	}
	panic("neither")
}
