// Package plain says in a reader's words what decoders say in the words of Go.
package plain

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

var (
	wrongKind = regexp.MustCompile("(?s)^(line \\d+): cannot unmarshal !!(\\w+)(?: `(.*)`)? into (\\S+)$")
	unknown   = regexp.MustCompile(`(?s)^(line \d+): field (.*) not found in type \S+$`)
)

// got are the kinds of values in YAML.
var got = map[string]string{"map": "a mapping", "seq": "a list", "str": "the text", "int": "the number", "float": "the number",
	"bool": "the value", "timestamp": "the time"}

// YAML is the error of decoding YAML, without the names of Go types and of the
// package that decodes. Err stays what it is if it names neither.
func YAML(err error) error {
	var e *yaml.TypeError
	if !errors.As(err, &e) {
		if text, ok := strings.CutPrefix(fmt.Sprint(err), "yaml: "); ok { // of what is no YAML
			return errors.New(text)
		}
		return err
	}
	said := make([]string, len(e.Errors))
	for i, text := range e.Errors {
		said[i] = text
		if m := unknown.FindStringSubmatch(text); m != nil {
			said[i] = m[1] + ": there is no member " + m[2]
		} else if m := wrongKind.FindStringSubmatch(text); m != nil {
			said[i] = m[1] + ": expected " + wanted(m[4])
			if kind := got[m[2]]; kind != "" {
				said[i] += ", got " + strings.TrimSpace(kind+" "+m[3])
			}
		}
	}
	return errors.New(strings.Join(said, "; "))
}

// wanted says what a Go type is written as.
func wanted(goType string) string {
	switch goType = strings.TrimLeft(goType, "*"); {
	case strings.HasPrefix(goType, "[]"):
		return "a list"
	case goType == "string":
		return "a text"
	case goType == "bool":
		return "true or false"
	case strings.HasPrefix(goType, "int"), strings.HasPrefix(goType, "uint"):
		return "a whole number"
	case strings.HasPrefix(goType, "map["), strings.Contains(goType, "."):
		return "a mapping"
	}
	return "another kind of value"
}
