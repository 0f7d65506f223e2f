package replay

import (
	"fmt"
	"io"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
)

// MaxTools is the length of a file of tools, in bytes.
const MaxTools = 4 << 20

// ReadTools reads what an operator states of tools: JSON, an object with a member
// tools, in which the tools stand by name. A name that ends in * stands for all that
// begin so; the longest that fits counts.
//
//	{"tools": {"send_email": {"origin": "registered-connector", "destructive": false,
//	  "open_world": false, "effect": "outside", "aims": ["recipients", "cc", "bcc"]}}}
//
// Beside origin and annotations a tool may have taints (its results do, whatever else
// is stated), effect, aims and outside_if (see steering.Tool). The error is that of
// r, or matches [ErrTools].
func ReadTools(r io.Reader) (Lookup, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxTools+1))
	if err != nil {
		return nil, err
	}
	if len(text) > MaxTools {
		return nil, fmt.Errorf("%w: it is longer than %d bytes", ErrTools, MaxTools)
	}
	var doc struct {
		Tools map[string]statement `json:"tools"`
	}
	if err := jsonv2.Unmarshal(text, &doc, jsonv2.RejectUnknownMembers(true)); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTools, err)
	}
	tools := make(map[string]Tool, len(doc.Tools))
	for name, s := range doc.Tools {
		t, err := s.tool()
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrTools, name, err)
		}
		tools[name] = *t
	}
	return func(tool string) Tool {
		if t, ok := tools[tool]; ok && !strings.HasSuffix(tool, "*") {
			return t
		}
		for end := len(tool); end >= 0; end-- {
			if t, ok := tools[tool[:end]+"*"]; ok {
				return t
			}
		}
		return Tool{}
	}, nil
}
