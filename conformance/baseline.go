package conformance

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/open-policy-agent/opa/v1/util"

	"github.com/opa-gate/opa-gate/wire"
)

//go:embed baseline.schema.json
var baselineSchema []byte

// BaselineSchema returns the draft-07 schema of a baseline. The caller owns the
// slice.
func BaselineSchema() []byte { return slices.Clone(baselineSchema) }

// A Baseline is the gaps that are known of engines. [ParseBaseline] makes one.
type Baseline struct{ gaps []Gap }

// A Gap is a case that an engine is known to answer otherwise than is wanted.
type Gap struct {
	Engine string `json:"engine"` // as reports name it; "url" is every engine whose name begins with "url="
	File   string `json:"file"`   // the case file, or the end of its path
	Case   string `json:"case"`
	Reason string `json:"reason"` // why the engine cannot do better
}

// A BaselineReport is what a run made of a baseline.
type BaselineReport struct {
	Gaps  int     `json:"gaps"`            // entries
	Stale []Stale `json:"stale,omitempty"` // entries that the run disproves
	// Unasked are the entries about engines that were not part of the run, which
	// it could neither confirm nor disprove.
	Unasked []Gap `json:"unasked,omitempty"`
}

// A Stale is an entry of a baseline that is not, or no longer, true.
type Stale struct {
	Gap
	Problem string `json:"problem"`
}

// A BaselineError says where a baseline is not in its format, and what would
// have been right.
type BaselineError struct {
	File    string
	Line    int    // counted from 1; 0 if it is not known
	Pointer string // JSON pointer; "" is the whole file
	Problem string
}

// Error implements error: file, line, pointer and problem.
func (e *BaselineError) Error() string {
	at := e.File
	if e.Line > 0 {
		at = fmt.Sprintf("%s:%d", at, e.Line)
	}
	if e.Pointer != "" {
		at += ": " + e.Pointer
	}
	return at + ": " + e.Problem
}

var baselineFormat = sync.OnceValue(func() *wire.Schema {
	s, err := wire.CompileSchema("baseline.schema.json", baselineSchema)
	if err != nil {
		panic("the embedded schema of baselines: " + err.Error()) // part of the program, and tested
	}
	return s
})

// ParseBaseline reads the text of a baseline: YAML if the name of the file ends
// in .yaml or .yml, JSON otherwise. Its errors are *[BaselineError].
func ParseBaseline(file string, text []byte) (*Baseline, error) {
	fail := func(line int, pointer, format string, args ...any) (*Baseline, error) {
		return nil, &BaselineError{file, line, pointer, fmt.Sprintf(format, args...)}
	}
	isYAML := slices.Contains([]string{".yaml", ".yml"}, strings.ToLower(filepath.Ext(file)))
	if isYAML {
		var v any
		if err := util.Unmarshal(text, &v); err != nil {
			return fail(0, "", "it is not YAML: %v", err)
		}
		var err error
		if text, err = json.Marshal(v); err != nil {
			return fail(0, "", "it is not YAML that JSON could say: %v", err)
		}
	}
	if _, err := baselineFormat().Decode(text); err != nil {
		var e *wire.Error
		if !errors.As(err, &e) {
			return fail(0, "", "%v", err)
		}
		if isYAML { // the line is that of the JSON
			return fail(0, e.Pointer, "%s", e.Message())
		}
		return fail(e.Line, e.Pointer, "%s", e.Message())
	}
	var doc struct{ Gaps []Gap }
	if err := json.Unmarshal(text, &doc); err != nil {
		return fail(0, "", "%v", err)
	}
	seen := map[[3]string]bool{}
	for i, g := range doc.Gaps {
		key := [3]string{g.Engine, g.File, g.Case}
		if seen[key] {
			return fail(0, fmt.Sprintf("/gaps/%d", i), "an earlier entry is about the same engine, file and case; keep one of them")
		}
		seen[key] = true
	}
	return &Baseline{doc.Gaps}, nil
}

// Gaps returns the entries. The caller owns the slice.
func (b *Baseline) Gaps() []Gap { return slices.Clone(b.gaps) }

// about tells whether the entry is about an engine of that name.
func (g *Gap) about(engine string) bool {
	return g.Engine == engine || g.Engine == urlEngine && strings.HasPrefix(engine, urlEngine+"=")
}

// in tells whether the entry is about cases of a file.
func (g *Gap) in(file string) bool {
	file, own := filepath.ToSlash(file), path.Clean(filepath.ToSlash(g.File))
	return file == own || strings.HasSuffix(file, "/"+own)
}

// apply marks the answers that are known gaps, and holds every entry against
// the run.
func (b *Baseline) apply(r *Report) *BaselineReport {
	if b == nil {
		return nil
	}
	out := &BaselineReport{Gaps: len(b.gaps)}
	for _, g := range b.gaps {
		asked := false
		for i := range r.Engines {
			if e := &r.Engines[i]; g.about(e.Engine) {
				asked = true
				if problem := g.apply(e, r.cases); problem != "" {
					out.Stale = append(out.Stale, Stale{g, problem})
				}
			}
		}
		if !asked {
			out.Unasked = append(out.Unasked, g)
		}
	}
	return out
}

// apply holds one entry against one engine, and says what is wrong with it.
func (g *Gap) apply(e *EngineReport, cases []entry) (problem string) {
	matched := 0
	for i := range cases {
		if cases[i].Name != g.Case || !g.in(cases[i].file) {
			continue
		}
		matched++
		switch a := &e.answers[i]; a.status {
		case different:
			a.status, a.why = known, g.Reason
		case same:
			problem = e.Engine + " answers this case as it is wanted; remove the entry"
		case notAsked:
			problem = e.Engine + " is not asked this case; remove the entry"
		}
	}
	switch {
	case matched == 0:
		return "the suite has no such case; correct the file and the case, or remove the entry"
	case matched > 1:
		return fmt.Sprintf("%d case files end so; write more of the path", matched)
	}
	return problem
}
