package replay

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/opa-gate/opa-gate/agent/steering"
	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/internal/plain"
)

// MaxCorpus is the length of a file of a corpus, in bytes.
const MaxCorpus = 64 << 20

// ErrCorpus is matched by the errors about what stands in the files of a corpus.
var ErrCorpus = errors.New("the corpus cannot be used")

// A Corpus is a benchmark's tasks as sequences of calls without arguments, and
// labels of its tools. The file has members that this package does not know.
type Corpus struct {
	Suites []Suite `json:"suites"`
}

// A Suite is a part of a benchmark with tools of its own.
type Suite struct {
	Suite          string         `json:"suite"`
	Tools          []LabelledTool `json:"tools"`
	UserTasks      []Sequence     `json:"userTasks"`
	InjectionTasks []Sequence     `json:"injectionTasks"`
	Unlabelled     []string       `json:"-"` // tools that are called and have no label: taken for the worst

	tools map[string]*LabelledTool
	facts suiteFacts
}

// A LabelledTool is what a corpus says of a tool.
type LabelledTool struct {
	Tool           string `json:"tool"`
	OnlyReads      bool   `json:"onlyReads"`      // changes nothing
	WritesOwn      bool   `json:"writesOwn"`      // changes what is the person's own
	SendsOut       bool   `json:"sendsOut"`       // reaches others
	SendsOutIf     string `json:"sendsOutIf"`     // only with that argument; "" is always
	ReadsUntrusted bool   `json:"readsUntrusted"` // its result can carry what others wrote
	Access         string `json:"access"`         // grant, revoke, credential; "" is none of them
}

// A Sequence is the calls of a task, in order.
type Sequence struct {
	ID       string   `json:"id"`
	Sequence []string `json:"sequence"`
	Inferred []string `json:"inferred"` // where the benchmark has no sequence: somebody's reading of the goal
}

func (s *Sequence) calls() []string {
	if len(s.Sequence) == 0 {
		return s.Inferred
	}
	return s.Sequence
}

// suiteFacts are what somebody found of a suite's tools and calls besides.
type suiteFacts struct {
	Suite string                         `json:"suite"`
	Tools map[string]factText            `json:"tools"`
	Calls map[string]map[string]factText `json:"calls"` // by task, and number of the call in it, from 0
}

type factText struct {
	Effect  string `json:"effect"`
	Aim     string `json:"aim"`
	Payload string `json:"payload"`
}

func (f *factText) read() (facts steering.Facts, err error) {
	for _, fact := range []struct {
		text  string
		parse func(string) bool
	}{
		{f.Effect, func(s string) (ok bool) { facts.Effect, ok = capability.ParseEffect(s); return }},
		{f.Aim, func(s string) (ok bool) { facts.Aim, ok = capability.ParseAim(s); return }},
		{f.Payload, func(s string) (ok bool) { facts.Payload, ok = capability.ParsePayload(s); return }},
	} {
		if fact.text != "" && !fact.parse(fact.text) {
			return facts, fmt.Errorf("there is no fact %q", fact.text)
		}
	}
	return facts, nil
}

// ReadCorpus reads a corpus. The error is that of r, or matches [ErrCorpus].
func ReadCorpus(r io.Reader) (*Corpus, error) {
	c := &Corpus{}
	if err := readJSON(r, c, false); err != nil {
		return nil, err
	}
	if len(c.Suites) == 0 {
		return nil, fmt.Errorf("%w: it has no suites", ErrCorpus)
	}
	for i := range c.Suites {
		s := &c.Suites[i]
		s.tools = map[string]*LabelledTool{}
		for j := range s.Tools {
			t := &s.Tools[j]
			if t.Tool == "" || s.tools[t.Tool] != nil {
				return nil, fmt.Errorf("%w: suite %s has a tool %q that has no name, or stands twice", ErrCorpus, s.Suite, t.Tool)
			}
			t.OnlyReads = t.OnlyReads && !t.WritesOwn
			s.tools[t.Tool] = t
		}
		for _, list := range [][]Sequence{s.UserTasks, s.InjectionTasks} {
			for _, task := range list {
				for _, tool := range task.calls() {
					if s.tools[tool] == nil {
						s.tools[tool] = &LabelledTool{Tool: tool, SendsOut: true, ReadsUntrusted: true}
						s.Unlabelled = append(s.Unlabelled, tool)
					}
				}
			}
		}
	}
	return c, nil
}

// AddFacts reads facts about tools and calls that the corpus does not have, and that
// were found in another way. Suites of which it says nothing are left as they are.
// The error is that of r, or matches [ErrCorpus]: facts must not contradict labels.
func (c *Corpus) AddFacts(r io.Reader) error {
	var doc struct {
		About  string       `json:"about"`
		Suites []suiteFacts `json:"suites"`
	}
	if err := readJSON(r, &doc, true); err != nil {
		return err
	}
	bySuite := map[string]suiteFacts{}
	for _, f := range doc.Suites {
		bySuite[f.Suite] = f
	}
	for i := range c.Suites {
		s := &c.Suites[i]
		facts, ok := bySuite[s.Suite]
		if !ok {
			continue
		}
		s.facts = facts
		for _, list := range [][]Sequence{s.UserTasks, s.InjectionTasks} {
			for _, task := range list {
				for n, tool := range task.calls() {
					if _, err := s.look(task.ID, n, tool, Added); err != nil {
						return fmt.Errorf("%w: suite %s, task %s, call %d (%s): %w", ErrCorpus, s.Suite, task.ID, n, tool, err)
					}
				}
			}
		}
	}
	return nil
}

// HasFacts reports whether facts were added to any suite.
func (c *Corpus) HasFacts() bool {
	for i := range c.Suites {
		if c.Suites[i].facts.Suite != "" {
			return true
		}
	}
	return false
}

// profile is what a label says of a tool, as the gate knows it. The tools of a
// benchmark are connectors that the operator has registered; one that reads at
// places that the model chooses is a fetcher.
func (t *LabelledTool) profile() capability.Profile {
	p := capability.Profile{Origin: capability.RegisteredConnector, ReadOnly: capability.HintOf(t.OnlyReads && !t.SendsOut),
		OpenWorld: capability.HintOf(t.ReadsUntrusted)}
	if t.OnlyReads && t.SendsOut {
		p.Origin, p.ReadOnly = capability.Fetcher, capability.Yes
	}
	return p
}

// Knowledge is what a policy is told of a corpus' calls. The zero value is the least.
type Knowledge int

const (
	Labels Knowledge = iota // what the labels of the tools say
	Names                   // and what can be undone, judged by the tools' names
	Added                   // and the facts that were added, in the place of that judgement
)

// adding are the first words of names of tools that are judged to add something, or
// to mark it as seen. What they do to the person's own things can be undone. Any
// other word may stand for what replaces, sends or removes something.
var adding = []string{"add", "append", "copy", "create", "draft", "find", "get", "insert", "list", "mark", "read", "search", "view"}

// undoableByName judges a tool that changes the person's own things by its name.
func undoableByName(tool string) bool {
	word, _, more := strings.Cut(tool, "_")
	return more && slices.Contains(adding, word)
}

// look returns what is known of one call.
func (s *Suite) look(task string, n int, tool string, known Knowledge) (steering.Facts, error) {
	label := s.tools[tool]
	facts := steering.Facts{}
	switch {
	case label.Access != "":
		facts.Effect = capability.Access
	case label.SendsOut:
		facts.Effect = capability.Outside
	case known == Names && label.WritesOwn && undoableByName(tool): // no label says what can be undone
		facts.Effect = capability.OwnUndoable
	}
	if known != Added {
		return facts, nil
	}
	by := facts.Effect
	for _, text := range []factText{s.facts.Tools[tool], s.facts.Calls[task][fmt.Sprint(n)]} {
		more, err := text.read()
		if err != nil {
			return steering.Facts{}, err
		}
		if more.Effect != capability.UnknownEffect {
			facts.Effect = more.Effect
		}
		if more.Aim != capability.UnknownAim {
			facts.Aim = more.Aim
		}
		if more.Payload != capability.UnknownPayload {
			facts.Payload = more.Payload
		}
	}
	switch own := facts.Effect == capability.OwnUndoable || facts.Effect == capability.OwnLasting; {
	case by == capability.Access && facts.Effect != by,
		by == capability.Outside && own && label.SendsOutIf == "",
		own && !label.WritesOwn:
		return steering.Facts{}, fmt.Errorf("the effect %v contradicts the label of the tool", facts.Effect)
	}
	return facts, nil
}

func readJSON(r io.Reader, into any, strict bool) error {
	text, err := io.ReadAll(io.LimitReader(r, MaxCorpus+1))
	if err != nil {
		return err
	}
	if len(text) > MaxCorpus {
		return fmt.Errorf("%w: it is longer than %d bytes", ErrCorpus, MaxCorpus)
	}
	if err := jsonv2.Unmarshal(text, into, jsonv2.RejectUnknownMembers(strict)); err != nil {
		return fmt.Errorf("%w: %w", ErrCorpus, plain.JSON(err))
	}
	return nil
}
