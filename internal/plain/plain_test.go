package plain

import (
	standard "encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"go.yaml.in/yaml/v3"
)

type one struct {
	Name  string          `yaml:"name"`
	Count int             `yaml:"count"`
	On    *bool           `yaml:"on"`
	List  []one           `yaml:"list"`
	Named map[string]*one `yaml:"named"`
}

func TestYAML(t *testing.T) {
	for text, want := range map[string]string{
		"- a":                   "line 1: expected a mapping, got a list",
		"x":                     "line 1: expected a mapping, got the text x",
		"other: 1":              "line 1: there is no member other",
		"name: [a]":             "line 1: expected a text, got a list",
		"count: many":           "line 1: expected a whole number, got the text many",
		"on: very":              "line 1: expected true or false, got the text very",
		"list: {a: 1}":          "line 1: expected a list, got a mapping",
		"named: [1]":            "line 1: expected a mapping, got a list",
		"named:\n  a: 3":        "line 2: expected a mapping, got the number 3",
		"named: {a: {list: x}}": "line 1: expected a list, got the text x",
		"other: 1\ncount: x":    "line 1: there is no member other; line 2: expected a whole number, got the text x",
		"a: [b":                 "line 1: did not find expected ',' or ']'",
		"name: a\nname: b":      `line 2: mapping key "name" already defined at line 1`,
	} {
		dec := yaml.NewDecoder(strings.NewReader(text))
		dec.KnownFields(true)
		var v one
		if err := YAML(dec.Decode(&v)); err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
	if err := YAML(io.EOF); !errors.Is(err, io.EOF) {
		t.Errorf("another error became %v", err)
	}
	if err := YAML(nil); err != nil {
		t.Errorf("no error became %v", err)
	}
}

func TestJSON(t *testing.T) {
	type inner struct {
		On *bool `json:"on"`
	}
	type outer struct {
		Name  string           `json:"name"`
		Count int              `json:"count"`
		List  []inner          `json:"list"`
		Named map[string]inner `json:"named"`
	}
	for text, want := range map[string]string{
		`[]`:                       "expected an object, got an array",
		`{"name":2.1}`:             "/name: expected a string, got a number",
		`{"count":true}`:           "/count: expected a number, got true or false",
		`{"count":1e99}`:           "/count: expected a whole number of 64 bits, got 1e99",
		`{"count":1.5}`:            "/count: expected a whole number of 64 bits, got 1.5",
		`{"list":{}}`:              "/list: expected an array, got an object",
		`{"named":3}`:              "/named: expected an object, got a number",
		`{"list":[{"on":"yes"}]}`:  "/list/0/on: expected true or false, got a string",
		`{"nam":"a"}`:              "/nam: there is no such member",
		`{"named":{"a":{"of":1}}}`: "/named/a/of: there is no such member",
	} {
		var v outer
		if err := JSON(json.Unmarshal([]byte(text), &v, json.RejectUnknownMembers(true))); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
	for _, text := range []string{`{`, `{"name":"a","name":"b"}`} {
		var v outer
		if err := json.Unmarshal([]byte(text), &v); err == nil || !errors.Is(JSON(err), err) {
			t.Errorf("%s: %v became %v", text, err, JSON(err))
		}
	}
	if err := JSON(nil); err != nil {
		t.Errorf("no error became %v", err)
	}
}

// A mark is a string in JSON, whatever it is in Go.
type mark [2]byte

func (m *mark) UnmarshalText(text []byte) error { copy(m[:], text); return nil }

func TestStandardJSON(t *testing.T) {
	type inner struct {
		Mark *mark `json:"mark"`
	}
	type outer struct {
		Name  string    `json:"name"`
		Mask  uint16    `json:"mask"`
		On    *bool     `json:"on"`
		At    time.Time `json:"at"`
		List  []string  `json:"list"`
		Inner inner     `json:"inner"`
	}
	for text, want := range map[string]string{
		`[]`:                       "expected an object, got an array",
		`3`:                        "expected an object, got a number",
		`{"name":{}}`:              "/name: expected a string, got an object",
		`{"name":2.1}`:             "/name: expected a string, got a number",
		`{"on":"yes"}`:             "/on: expected true or false, got a string",
		`{"mask":true}`:            "/mask: expected a number, got true or false",
		`{"mask":70000}`:           "/mask: expected a whole number of 16 bits, got 70000",
		`{"mask":1.5}`:             "/mask: expected a whole number of 16 bits, got 1.5",
		`{"list":"a"}`:             "/list: expected an array, got a string",
		`{"inner":{"mark":[1,2]}}`: "/inner/mark: expected a string, got an array",
		`{"at":"yesterday"}`:       `expected a time such as 2026-01-31T12:30:00Z, got "yesterday"`,
		`{"nam":"a"}`:              `there is no member "nam"`,
	} {
		dec := standard.NewDecoder(strings.NewReader(text))
		dec.DisallowUnknownFields()
		var v outer
		if err := JSON(dec.Decode(&v)); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
	var v outer
	if err := standard.Unmarshal([]byte(`{"at":3}`), &v); err == nil || JSON(err) != err {
		t.Errorf("%v became %v", err, JSON(err))
	}
}
