package analysis

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/format"

	"github.com/opa-gate/opa-gate/evaluator"
)

// A checkFile is one file of a directory of policies.
type checkFile struct {
	name   string // within the directory, with slashes
	text   []byte
	module *ast.Module // nil if it is data, or not Rego
	err    error       // why it is no module

	data map[string]any // of a data file, from the root
}

func (f *checkFile) rego() bool { return strings.HasSuffix(f.name, ".rego") }

func isTestFile(name string) bool { return strings.HasSuffix(name, "_test.rego") }

// maxCheckedFile bounds each file, as the evaluator does.
const maxCheckedFile = 64 << 20

// readCheckFiles reads what the evaluator reads of dir, and the tests.
func readCheckFiles(dir string) ([]*checkFile, error) {
	if err := checkDirectory(dir); err != nil {
		return nil, err
	}
	var files []*checkFile
	rego := 0
	root := os.DirFS(dir)
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		base := path.Base(name)
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			if name != "." && strings.HasPrefix(base, ".") {
				return fs.SkipDir
			}
			return nil
		case !strings.HasSuffix(base, ".rego") && base != "data.json" && base != "data.yaml":
			return nil
		}
		info, err := fs.Stat(root, name)
		switch {
		case err != nil:
			return err
		case !info.Mode().IsRegular():
			return fmt.Errorf("%s is not a regular file", filepath.Join(dir, name))
		case info.Size() > maxCheckedFile:
			return fmt.Errorf("%s has %d bytes, more than %d", filepath.Join(dir, name), info.Size(), maxCheckedFile)
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		f := &checkFile{name: name, text: text}
		if f.rego() {
			f.parse()
			if !isTestFile(name) {
				rego++
			}
		}
		files = append(files, f)
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case rego == 0:
		return nil, fmt.Errorf("%s: there is no .rego file (tests do not count)", dir)
	}
	return files, nil
}

func (f *checkFile) parse() {
	f.module, f.err = ast.ParseModuleWithOpts(f.name, string(f.text), ast.ParserOptions{ProcessAnnotation: true})
}

// start is where a finding about a whole file is.
func (f *checkFile) start() *ast.Location { return &ast.Location{File: f.name, Row: 1, Col: 1} }

// modules returns the files that are Rego, tests too, by name.
func (c *checker) modules() map[string]*ast.Module {
	modules := map[string]*ast.Module{}
	for _, f := range c.files {
		if f.module != nil {
			modules[f.name] = f.module
		}
	}
	return modules
}

// checkFormat finds the files that are not formatted, or rewrites them.
func (c *checker) checkFormat(fix bool) (fixed []string, err error) {
	for _, f := range c.files {
		if f.module == nil {
			continue
		}
		want, err := format.SourceWithOpts(f.name, f.text, format.Opts{RegoVersion: ast.RegoV1})
		switch {
		case err != nil:
			c.add(f.start(), SeverityError, CodeUnformatted, "it cannot be formatted: %v", err)
		case bytes.Equal(want, f.text):
		case fix:
			if err := replaceFile(filepath.Join(c.dir, filepath.FromSlash(f.name)), want); err != nil {
				return fixed, err
			}
			fixed = append(fixed, f.name)
			f.text = want
			f.parse() // places have moved
		case bytes.Contains(f.text, []byte("\r\n")):
			c.add(f.start(), SeverityError, CodeUnformatted, "its line ends are CRLF, which a fix mends: a formatted file has LF alone")
		case bytes.HasPrefix(f.text, []byte("\ufeff")):
			c.add(f.start(), SeverityError, CodeUnformatted, "it begins with a byte order mark, which a fix removes")
		default:
			line := firstDifference(f.text, want)
			c.add(&ast.Location{File: f.name, Row: line, Col: 1}, SeverityError, CodeUnformatted,
				"it is not formatted from this line on, which a fix mends")
		}
	}
	return fixed, nil
}

// firstDifference returns the first line, counted from 1, that differs.
func firstDifference(a, b []byte) int {
	line := 1
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			break
		}
		if a[i] == '\n' {
			line++
		}
	}
	return line
}

// replaceFile puts text in the place of a file, whole or not at all.
func replaceFile(name string, text []byte) (err error) {
	name, err = filepath.EvalSymlinks(name) // the file is rewritten, not the link to it
	if err != nil {
		return err
	}
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(name), ".fix-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(tmp.Name())
		}
	}()
	_, err = tmp.Write(text)
	err = errors.Join(err, tmp.Chmod(info.Mode().Perm()), tmp.Close())
	if err != nil {
		return err
	}
	return os.Rename(tmp.Name(), name)
}

// checkSyntax reports the files that are not Rego.
func (c *checker) checkSyntax() {
	for _, f := range c.files {
		var list ast.Errors
		var one *ast.Error
		switch {
		case f.err == nil:
		case errors.As(f.err, &one):
			c.add(f.start(), SeverityError, CodeSyntax, "%s", evaluator.Describe(one))
		case errors.As(f.err, &list):
			for i, e := range list {
				if i+1 < len(list) && e.Location == list[i+1].Location && strings.HasPrefix(list[i+1].Message, e.Message) {
					continue // the next one says it and more
				}
				at := e.Location
				if at == nil {
					at = f.start()
				}
				c.add(at, SeverityError, CodeSyntax, "%s", evaluator.Describe(e))
			}
		default:
			c.add(f.start(), SeverityError, CodeSyntax, "%v", f.err)
		}
	}
}

// checkData reads the data files into c.data, beside the program's own facts.
func (c *checker) checkData() {
	c.data = map[string]any{}
	for _, f := range c.files {
		if f.rego() {
			continue
		}
		v, err := evaluator.ReadData(f.name, f.text)
		if err != nil {
			at, problem := f.start(), err.Error()
			if e := (*evaluator.DataError)(nil); errors.As(err, &e) {
				at.Row, at.Col, problem = e.Line, e.Column, e.Problem
			}
			c.add(at, SeverityError, CodeData, "it cannot be read: %s", problem)
			continue
		}
		if folder := path.Dir(f.name); folder != "." {
			tokens := strings.Split(folder, "/")
			for i := len(tokens) - 1; i >= 0; i-- {
				v = map[string]any{tokens[i]: v}
			}
		}
		object, ok := v.(map[string]any)
		if !ok {
			c.add(f.start(), SeverityError, CodeData, "the data at the root must be an object")
			continue
		}
		f.data = object
		if at := mergeData(c.data, object, ""); at != "" {
			c.add(f.start(), SeverityError, CodeData, "data at %s is also set in another file", at)
		}
	}
	mergeData(c.data, map[string]any{"gate": map[string]any{
		"facts":    evaluator.Facts(),
		"settings": map[string]any{"system": ""}, // --system gives it
	}}, "")
}

// checkPathConflicts finds data that hide a rule.
func (c *checker) checkPathConflicts(compiler *ast.Compiler) {
	for _, f := range c.files {
		for _, conflict := range evaluator.PathConflicts(compiler, f.data) {
			where := ""
			if conflict.Rule != nil {
				where = fmt.Sprintf(" (%s:%d)", conflict.Rule.File, conflict.Rule.Row)
			}
			c.add(f.start(), SeverityError, CodeData, "there is data at %s, which is the path of a rule%s: OPA refuses the two together", conflict.Path, where)
		}
	}
}

// mergeData adds from to into, and returns where both have a value, if they do.
func mergeData(into, from map[string]any, at string) string {
	clash := ""
	for key, value := range from {
		old, there := into[key]
		oldObject, a := old.(map[string]any)
		newObject, b := value.(map[string]any)
		switch {
		case !there:
			into[key] = value
		case a && b:
			if where := mergeData(oldObject, newObject, at+"/"+key); where != "" {
				clash = where
			}
		default:
			clash = at + "/" + key
		}
	}
	return clash
}
