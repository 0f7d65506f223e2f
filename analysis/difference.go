package analysis

import (
	"encoding/json"

	"github.com/opa-gate/opa-gate/evaluator"
)

// A Direction says what a change of an answer means for whoever relies on it.
type Direction string

// The directions. A call that OPA can no longer decide counts as denied: the
// gate refuses it.
const (
	Widening  Direction = "widening"  // the new policies permit more
	Narrowing Direction = "narrowing" // they permit less
	Rewording Direction = "rewording" // they permit the same, and say it in another way
)

// A Difference is what two policies answer differently, over the whole domain of
// calls and of skills (specification, section 5 and 6).
type Difference struct {
	Old string `json:"old"` // what the two are called
	New string `json:"new"`

	Calls     int      `json:"calls"`     // inputs that were compared
	Skills    int      `json:"skills"`    // the same of skills
	Named     int      `json:"named"`     // of calls whose grant has a name that grants nothing: a sample, besides
	Arguments int      `json:"arguments"` // of calls with arguments that rules look for: a sample, besides
	Changes   []Change `json:"changes"`   // widening first, most inputs first
	Matrix    []Square `json:"matrix"`    // calls without a verdict, under the default grant

	// Incomplete lists what keeps the comparison of calls from covering every
	// text: for these it covers the texts that the policies mention.
	Incomplete []Uncovered `json:"incomplete"`
}

// Complete reports whether the comparison covers every text: Incomplete is empty.
func (d *Difference) Complete() bool { return len(d.Incomplete) == 0 }

// An Uncovered is a use of a text, in one of two policies, for which a comparison
// does not cover every text.
type Uncovered struct {
	Of string `json:"of"` // "old" or "new": the policies that it stands in
	evaluator.Blocker
}

// Relocate gives each file that is named its place in the file system: those of
// the old policies by old, those of the new ones by new.
func (d *Difference) Relocate(old, new func(file string) string) {
	for i := range d.Incomplete {
		switch u := &d.Incomplete[i]; {
		case u.File == "":
		case u.Of == "old":
			u.File = old(u.File)
		default:
			u.File = new(u.File)
		}
	}
}

// A Change is a class of inputs whose answer changed in the same way: all
// inputs that have one of the values of each condition. The changes of a
// Difference have no input in common.
type Change struct {
	Kind       string          `json:"kind"` // "call" or "skill"
	Direction  Direction       `json:"direction"`
	From       string          `json:"from"` // the outcome before, or "error"; allow stands for what the call's transform asks for too
	To         string          `json:"to"`   // and after
	Inputs     int             `json:"inputs"`
	Conditions []Condition     `json:"conditions"` // none: every input
	Example    json.RawMessage `json:"example"`    // the smallest document of the class
	Before     json.RawMessage `json:"before"`     // its answer, or {"error": TEXT}
	After      json.RawMessage `json:"after"`
}

// A Condition restricts one member of a document. A member that any value
// fulfils is in no condition.
type Condition struct {
	Member string   `json:"member"` // such as "tool.origin" or "taint"
	Values []string `json:"values"` // in words: "fetcher", "not given", "other than \"pay\""
}

// A Square is one field of the matrix: what calls of tools of that origin are
// answered in that conversation, if they require the capability.
type Square struct {
	Origin     string   `json:"origin"`
	Capability string   `json:"capability"`
	Taint      string   `json:"taint"`
	Before     []string `json:"before"` // the outcomes that occur, in the order of the specification; none: no such call requires it
	After      []string `json:"after"`
	Changed    bool     `json:"changed"` // some call of it is answered differently, in words or in outcome
}
