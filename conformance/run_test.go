package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/fixtures"
)

// A case that is answered rightly at first and wrongly later on has failed, and
// counts once, as does one that is wrong each time.
func TestRounds(t *testing.T) {
	suite := suiteOf(t, "a.json", veto("good"), "b.json", veto("later"), "c.json", veto("never"))
	f := newForgetful()
	r := Run(t.Context(), suite, nil, Of(f, "auto", 3))
	e := r.Engines[0]
	if r.OK || e.OK || e.Total != 3 || e.Failed != 2 || len(e.Differences) != 2 || f.asked["good"] != 3 {
		t.Errorf("got %+v after %d rounds", e, f.asked["good"])
	}
	for _, d := range e.Differences {
		if d.Again != (d.Case == "later") {
			t.Errorf("%s: again is %v", d.Case, d.Again)
		}
	}
	text := textOf(t, r, nil)
	for _, want := range []string{"total      3 cases, 2 failed\n", "b.json: later (call, when it was asked again)\n", "c.json: never (call)\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q in\n%s", want, text)
		}
	}
	f = newForgetful()
	if r := Run(t.Context(), suite, nil, Of(f, "native", 1)); r.Engines[0].Failed != 1 || f.asked["good"] != 1 {
		t.Errorf("asked once, it was asked %d times: %+v", f.asked["good"], r.Engines[0])
	}
}

// Of several engines, what each says to a case stands side by side.
func TestSideBySide(t *testing.T) {
	suite := suiteOf(t, "a.json", veto("good"), "n.json", namesFile)
	r := Run(t.Context(), suite, nil, Of(evaluator.Native{}, "native", 1), Engine{Name: "odd", Judge: twisted{`"deny"`, `"allow"`}, Outside: true})
	if r.OK || !r.Engines[0].OK || r.Engines[1].OK || len(r.Cases) != 1 {
		t.Fatalf("got %+v", r)
	}
	c := r.Cases[0]
	if c.Case != "good" || len(c.Answers) != 2 || !c.Answers[0].Same || c.Answers[1].Same ||
		!bytes.Contains(c.Answers[0].Got, []byte(`"deny"`)) || !bytes.Contains(c.Answers[1].Got, []byte(`"allow"`)) {
		t.Errorf("got %+v", c)
	}
	text := textOf(t, r, nil)
	for _, want := range []string{"\n    input      {", "\n    want       {", "\n    native     as wanted\n", "\n    odd        {\"outcome\":\"allow\"",
		"\n  not asked: 1 of names: " + whyDecides + "\n", "\n  names      0 cases, 1 not asked\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q in\n%s", want, text)
		}
	}
	var b bytes.Buffer
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var back struct {
		OK      bool
		Engines []struct {
			Engine      string
			Total       int
			Differences []json.RawMessage
			NotAsked    []NotAsked `json:"not_asked"`
		}
		Cases []Comparison
	}
	if err := json.Unmarshal(b.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if odd := back.Engines[1]; back.OK || odd.Total != 1 || len(odd.Differences) != 1 || len(odd.NotAsked) != 1 || odd.NotAsked[0].Cases != 1 || len(back.Cases) != 1 {
		t.Errorf("got %+v", back)
	}
}

// What an outside engine must make of a broken document.
func TestBrokenDocuments(t *testing.T) {
	const deny = `{"outcome":"deny","reason":"The call document breaks its schema at /taint: expected \"clean\" or \"tainted\"."}`
	const blocked = `{"outcome":"deny","reason":"The skill document breaks its schema at /requested: expected x.","enforcement":{"deploy":false,"blocked":true}}`
	refused := &ServerError{kind: ErrBadRequest}
	tests := []struct {
		name   string
		judge  canned
		failed int
	}{
		{"denied, with the place", canned{call: deny, skill: blocked}, 0},
		{"refused as bad requests", canned{err: refused}, 0},
		{"another error", canned{err: errors.New("broken")}, 2},
		{"allowed", canned{call: strings.Replace(deny, "deny", "allow", 1), skill: strings.Replace(blocked, "deny", "allow", 1)}, 2},
		{"denied for another place", canned{call: strings.Replace(deny, "/taint", "/tool", 1), skill: strings.Replace(blocked, "/requested", "/r", 1)}, 2},
		{"deployed", canned{call: deny, skill: strings.Replace(blocked, "false", "true", 1)}, 1},
		{"not blocked", canned{call: deny, skill: strings.Replace(blocked, `,"blocked":true`, ``, 1)}, 1},
		{"no enforcement", canned{call: deny, skill: strings.ReplaceAll(deny, "/taint", "/requested")}, 1},
		{"no JSON", canned{call: "no", skill: "no"}, 2},
		{"null", canned{call: "null", skill: "null"}, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := Run(t.Context(), suiteOf(t, "i.json", invalidFile), nil, Engine{Name: "e", Judge: tt.judge, Outside: true})
			n := r.Engines[0].Counts[0]
			if n.Total != 2 || n.NotAsked != 1 || n.Failed != tt.failed || r.OK != (tt.failed == 0) {
				t.Errorf("got %+v, want %d failed", n, tt.failed)
			}
		})
	}
}

// canned gives the same answers to everything.
type canned struct {
	call, skill string
	err         error
}

func (c canned) Call(context.Context, []byte) ([]byte, error)  { return []byte(c.call), c.err }
func (c canned) Skill(context.Context, []byte) ([]byte, error) { return []byte(c.skill), c.err }

func TestNothingIsNeverOK(t *testing.T) {
	native := Of(evaluator.Native{}, "native", 1)
	outside := Engine{Name: "e", Judge: twisted{}, Outside: true}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	empty := suiteOf(t, "a.json", veto("good"))
	empty.Files = append(empty.Files, fixtures.File{Name: "none", Kind: fixtures.Viability})
	for name, r := range map[string]*Report{
		"the zero report":          {},
		"no engine":                Run(t.Context(), whole(t), nil),
		"no case":                  Run(t.Context(), fixtures.Suite{}, nil, native),
		"a kind without a case":    Run(t.Context(), empty, nil, native),
		"only what is not asked":   Run(t.Context(), suiteOf(t, "n.json", namesFile), nil, outside),
		"a run that was cancelled": Run(ended, whole(t), nil, native),
	} {
		if r.OK {
			t.Errorf("%s is OK: %+v", name, r)
		}
	}
	r := Run(ended, whole(t), nil, native)
	if e := r.Engines[0]; e.Stopped == "" || e.Total != 0 || e.Failed != 0 {
		t.Errorf("got %+v", e)
	}
}

// A suites is what a reader of JUnit XML makes of it.
type suites struct {
	Tests    int `xml:"tests,attr"`
	Failures int `xml:"failures,attr"`
	Skipped  int `xml:"skipped,attr"`
	Errors   int `xml:"errors,attr"`
	Suites   []struct {
		Name  string `xml:"name,attr"`
		Tests int    `xml:"tests,attr"`
		Cases []struct {
			Class   string `xml:"classname,attr"`
			Name    string `xml:"name,attr"`
			Failure *note  `xml:"failure"`
			Error   *note  `xml:"error"`
			Skipped *note  `xml:"skipped"`
		} `xml:"testcase"`
	} `xml:"testsuite"`
}

type note struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

func junitOf(t *testing.T, r *Report) suites {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteJUnit(&b); err != nil {
		t.Fatal(err)
	}
	dec := xml.NewDecoder(bytes.NewReader(b.Bytes()))
	dec.Strict = true
	for {
		if _, err := dec.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("it is not well-formed: %v\n%s", err, &b)
		}
	}
	var s suites
	if err := xml.Unmarshal(b.Bytes(), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestJUnit(t *testing.T) {
	hostile := strings.Replace(veto("good"), `"name": "good", "call"`, `"name": "]]></testcase>\u0000\u001b[31m<x a=\"&\">\ufffe", "call"`, 1)
	suite := suiteOf(t, "a.json", hostile, "b.json", veto("known"), "i.json", invalidFile, "n.json", namesFile)
	baseline, err := ParseBaseline("b.json", []byte(`{"gaps": [
		{"engine": "odd", "file": "b.json", "case": "known", "reason": "it <cannot>\u0007"},
		{"engine": "odd", "file": "b.json", "case": "nothing", "reason": "r"},
		{"engine": "other", "file": "b.json", "case": "known", "reason": "r"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	r := Run(t.Context(), suite, baseline, Of(evaluator.Native{}, "native", 1), Engine{Name: "odd", Judge: twisted{`"reason":"no"`, `"reason":"\u0001]]>"`}, Outside: true})
	s := junitOf(t, r)
	// native: 2 calls, 3 invalid, 1 name; odd: the same; two entries of the baseline.
	// Failed: a call and two broken documents of odd, and an entry. Skipped: the known
	// gap, the text that is no JSON, the name, and an entry.
	if s.Tests != 14 || s.Failures != 4 || s.Skipped != 4 || s.Errors != 0 {
		t.Errorf("%d tests, %d failures, %d skipped, %d errors", s.Tests, s.Failures, s.Skipped, s.Errors)
	}
	found := map[string]bool{}
	for _, suite := range s.Suites {
		if suite.Tests != len(suite.Cases) {
			t.Errorf("%s has %d tests and %d cases", suite.Name, suite.Tests, len(suite.Cases))
		}
		for _, c := range suite.Cases {
			switch {
			case suite.Name == "odd: call" && c.Class == "a.json":
				found["difference"] = c.Failure != nil && strings.Contains(c.Failure.Text, "\nwant: {") && strings.Contains(c.Failure.Text, "\nnative: {") &&
					strings.Contains(c.Failure.Text, "\nodd: {") && strings.Contains(c.Name, "]]></testcase>\uFFFD\uFFFD[31m<x a=\"&\">\uFFFD")
			case suite.Name == "odd: call":
				found["known gap"] = c.Skipped != nil && c.Skipped.Message == "known gap: it <cannot>\uFFFD"
			case suite.Name == "odd: names":
				found["not asked"] = c.Skipped != nil && c.Skipped.Message == "not asked: "+whyDecides
			case suite.Name == "baseline" && c.Name == "nothing":
				found["stale"] = c.Failure != nil && strings.HasPrefix(c.Failure.Message, "stale: the suite has no such case")
			case suite.Name == "baseline":
				found["not looked at"] = c.Skipped != nil
			}
		}
	}
	for _, what := range []string{"difference", "known gap", "not asked", "stale", "not looked at"} {
		if !found[what] {
			t.Errorf("%s: not as it should be", what)
		}
	}
	stopped := junitOf(t, Run(t.Context(), suiteOf(t, "a.json", veto("1"), "b.json", veto("2"), "c.json", veto("3"), "d.json", veto("4"), "e.json", veto("5"), "f.json", veto("6")),
		nil, Engine{Name: "silent", Judge: canned{err: &ServerError{kind: ErrNoAnswer}}, Outside: true}))
	if stopped.Errors != 1 || stopped.Failures != maxSilence || stopped.Skipped != 1 {
		t.Errorf("an engine that is silent: %+v", stopped)
	}
}

func TestTextIsHarmless(t *testing.T) {
	suite := suiteOf(t, "a.json", strings.Replace(veto("good"), `"name": "good", "call"`, `"name": "\u001b[2J\n", "call"`, 1))
	for _, engines := range [][]Engine{
		{{Name: "odd\x1b", Judge: twisted{`"no"`, `"\u001b[31m"`}}},
		{{Name: "odd\x1b", Judge: canned{err: errors.New("\x1b]0;")}}, {Name: "two\n", Judge: twisted{}}},
	} {
		text := textOf(t, Run(t.Context(), suite, nil, engines...), &TextOptions{All: true})
		if strings.ContainsAny(text, "\x1b\x07") {
			t.Errorf("%q", text)
		}
	}
}
