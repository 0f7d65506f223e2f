package evaluator

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/fstest"
)

// What is wrong with a file is told in words, at one place.
func TestWhatIsWrongWithAFile(t *testing.T) {
	rule := "package gate.call\n\ndecision := " + okDecision + "\n"
	for name, tt := range map[string]struct{ file, text, want string }{
		"an empty module":        {"a.rego", "", "a.rego:1:1: the file has no rules: it is empty, or has comments alone"},
		"a comment alone":        {"a.rego", "# nothing\n", "a.rego:1:1: the file has no rules"},
		"an empty data file":     {"a/data.json", " \n", "a/data.json:1:1: it is not JSON: the file is empty"},
		"JSON that ends":         {"a/data.json", "{\"a\":\n  [1, 2", "a/data.json:2:8: it is not JSON: it ends before the value does"},
		"JSON with a comma":      {"a/data.json", "{\n  \"a\": 1,\n}", "a/data.json:3:1: it is not JSON: invalid character '}'"},
		"YAML in a JSON file":    {"a/data.json", "a: 1\n", "a/data.json:1:1: it is not JSON: invalid character 'a'"},
		"two values":             {"a/data.json", "{}\n {}", "a/data.json:2:2: it is not JSON: there is something behind the value"},
		"YAML":                   {"a/data.yaml", "a: 1\nb: [\n", "a/data.yaml:2:1: it is not YAML: did not find"},
		"data in a rule's place": {"gate/call/decision/data.json", "{\"outcome\": \"allow\"}", "gate/call/decision/data.json: there is data at gate/call/decision, which is the path of a rule (call.rego:3)"},
		"data above that":        {"gate/data.json", "{\"call\": {\"decision\": 1}}", "gate/data.json: there is data at gate/call/decision"},
		"data below that":        {"gate/call/decision/reason/data.json", "{\"x\": 1}", "gate/call/decision/reason/data.json: there is data at gate/call/decision"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(context.Background(), &Options{FS: fstest.MapFS{
				"call.rego": {Data: []byte(rule)}, "skill.rego": {Data: []byte(okSkill)}, tt.file: {Data: []byte(tt.text)}}})
			if !errors.Is(err, ErrPolicy) || !strings.Contains(err.Error(), ": "+tt.want) {
				t.Fatalf("error %v, want %q", err, tt.want)
			}
			if n := strings.Count(err.Error(), tt.file); n != 1 {
				t.Errorf("the file is named %d times: %v", n, err)
			}
		})
	}
}

// Data beside rules, and objects without anything in them, hide nothing.
func TestDataThatHidesNothing(t *testing.T) {
	for file, text := range map[string]string{
		"gate/call/data.json":          `{"blocked": ["x"]}`,
		"gate/call/decision/data.json": `{}`,
		"gate/call/decided/data.json":  `{"x": 1}`,
		"a/data.yaml":                  "a: 1\n",
		"b/data.json":                  " {\"n\": 12345678901234567890}\n",
	} {
		if _, err := New(context.Background(), &Options{FS: fstest.MapFS{"call.rego": {Data: []byte("package gate.call\n\ndecision := " + okDecision)},
			"skill.rego": {Data: []byte(okSkill)}, file: {Data: []byte(text)}}}); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// What is no bundle is told from one that is broken.
func TestWhatIsNoBundle(t *testing.T) {
	for text, want := range map[string]string{
		"":                             "the file is empty, expected a bundle",
		"package gate.call":            "this is no bundle, which is an archive",
		"{\"a\": 1}":                   "this is no bundle",
		"\x1f\x8b":                     "the archive ends too early",
		"\x1f\x8b\x08\x00\x00\x00\x00": "the archive ends too early",
	} {
		if _, err := loadBundle([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
}
