package evaluator

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/util"
)

// A DataError is what is wrong with the text of a data file, and where.
type DataError struct {
	File         string
	Line, Column int // counted from 1
	Problem      string
}

// Error implements error.
func (e *DataError) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Problem)
}

// ReadData reads the text of a data file, which is JSON or YAML by its name. The error
// is a *[DataError].
func ReadData(file string, text []byte) (any, error) {
	var v any
	if !strings.HasSuffix(file, ".json") {
		if err := util.Unmarshal(text, &v); err != nil {
			return nil, yamlError(file, err)
		}
		return v, nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, jsonError(file, text, d.InputOffset(), err)
	}
	if rest := bytes.TrimLeft(text[d.InputOffset():], " \t\r\n"); len(rest) > 0 {
		return nil, dataErrorAt(file, text, len(text)-len(rest), "it is not JSON: there is something behind the value")
	}
	return v, nil
}

func jsonError(file string, text []byte, offset int64, err error) error {
	var syntax *json.SyntaxError
	switch {
	case len(bytes.TrimSpace(text)) == 0:
		return dataErrorAt(file, text, 0, "it is not JSON: the file is empty")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return dataErrorAt(file, text, len(text), "it is not JSON: it ends before the value does")
	case errors.As(err, &syntax):
		return dataErrorAt(file, text, int(syntax.Offset)-1, "it is not JSON: "+syntax.Error())
	}
	return dataErrorAt(file, text, int(offset), "it is not JSON: "+err.Error())
}

func dataErrorAt(file string, text []byte, offset int, problem string) error {
	before := text[:max(min(offset, len(text)), 0)]
	return &DataError{file, bytes.Count(before, []byte("\n")) + 1, len(before) - bytes.LastIndexByte(before, '\n'), problem}
}

// yamlLine is where a reader of YAML says that it stopped.
var yamlLine = regexp.MustCompile(`^(?:error converting YAML to JSON: )?yaml: (?:line (\d+): )?`)

func yamlError(file string, err error) error {
	e := &DataError{file, 1, 1, strings.Join(strings.Fields(err.Error()), " ")}
	if found := yamlLine.FindStringSubmatch(e.Problem); found != nil {
		e.Problem = e.Problem[len(found[0]):]
		if line, err := strconv.Atoi(found[1]); err == nil {
			e.Line = max(line, 1)
		}
	}
	e.Problem = "it is not YAML: " + e.Problem
	return e
}

// A PathConflict is data at the path of a rule, or below it: OPA refuses it, since one
// would hide the other.
type PathConflict struct {
	Path string        // with slashes
	Rule *ast.Location // nil if it is not known
}

// PathConflicts finds them in data beside compiled policies.
func PathConflicts(c *ast.Compiler, data map[string]any) []PathConflict {
	var list []PathConflict
	for _, e := range ast.CheckPathConflicts(c, func(path []string) (bool, error) { return hasData(data, path), nil }) {
		_, path, _ := strings.Cut(e.Message, "data path ")
		path, _, _ = strings.Cut(path, " ")
		list = append(list, PathConflict{path, e.Location})
	}
	return list
}

// hasData tells whether there is something at a path: an object without members is
// nothing, as OPA has it.
func hasData(data map[string]any, path []string) bool {
	var v any = data
	for _, name := range path {
		object, ok := v.(map[string]any)
		if !ok {
			return false
		}
		if v, ok = object[name]; !ok {
			return false
		}
	}
	object, isObject := v.(map[string]any)
	return !isObject || len(object) > 0
}

// conflictFree refuses data that hide a rule: the error is that of the first.
func (s *source) conflictFree(c *ast.Compiler) error {
	conflicts := PathConflicts(c, s.data)
	if len(conflicts) == 0 {
		return nil
	}
	conflict := conflicts[0]
	text := fmt.Sprintf("there is data at %s, which is the path of a rule", conflict.Path)
	if conflict.Rule != nil {
		text += fmt.Sprintf(" (%s:%d)", conflict.Rule.File, conflict.Rule.Row)
	}
	for _, f := range s.dataFiles {
		if hasData(f.data, strings.Split(conflict.Path, "/")) {
			return fmt.Errorf("%s: %s", f.name, text)
		}
	}
	return errors.New(text)
}

// A dataFile is what one file adds to the data.
type dataFile struct {
	name string
	data map[string]any
}
