package evaluator

import (
	"errors"
	"fmt"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/opa-gate/opa-gate/wire"
)

const (
	maxCompileErrors = 5   // how many of the compiler's errors one message tells
	maxErrorText     = 300 // characters of each
)

// compileError words what OPA's parser or compiler says as one line: file,
// line, column and what is wrong, with the right name where a path into the
// input is misspelt.
func compileError(err error) error {
	var list ast.Errors
	var one *ast.Error
	if errors.As(err, &one) { // OPA has it so for a file without a package
		list = ast.Errors{one}
	} else if !errors.As(err, &list) || len(list) == 0 {
		return err
	}
	var texts []string
	for i, e := range list {
		if i == maxCompileErrors {
			texts = append(texts, fmt.Sprintf("and %d more", len(list)-i))
			break
		}
		texts = append(texts, describeError(e))
	}
	return errors.New(strings.Join(texts, "; "))
}

// Describe words one error of OPA's parser or compiler on one line, without
// its place: what is wrong, and the right name where a path is misspelt.
func Describe(e *ast.Error) string {
	text := strings.Join(strings.Fields(e.Message), " ")
	if text == "empty module" {
		return "the file has no rules: it is empty, or has comments alone, and must begin with a package"
	}
	if r := []rune(text); len(r) > maxErrorText {
		text = string(r[:maxErrorText]) + "…"
	}
	if detail, ok := e.Details.(*ast.UnificationErrDetail); ok {
		return describeMatch(e, detail)
	}
	if detail, ok := e.Details.(*ast.RefErrInvalidDetail); ok && detail.Pos < len(detail.Ref) {
		have, _ := detail.Ref[detail.Pos].Value.(ast.String)
		var names []string
		for _, v := range detail.OneOf {
			if name, ok := v.(ast.String); ok {
				names = append(names, string(name))
			}
		}
		if len(names) > 0 {
			text += ": expected one of " + strings.Join(names, ", ")
		}
		if nearest := wire.Nearest(string(have), names); nearest != "" {
			text += fmt.Sprintf("; did you mean %q?", nearest)
		}
	}
	return text
}

func describeError(e *ast.Error) string {
	text := Describe(e)
	if e.Location == nil {
		return text
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.Location.File, max(e.Location.Row, 1), max(e.Location.Col, 1), text)
}
