package analysis

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/internal/race"
	"github.com/opa-gate/opa-gate/skill"
	"github.com/opa-gate/opa-gate/wire"
)

// A rule that looks into arguments as authors write it, and documents with which it
// applies, one of which must be tried. Where there is another one, that must be too.
var argumentRules = map[string]struct {
	rules string // after "evil if": what decides; behind an empty line, other rules
	want  []string
}{
	"equal":             {`input.policy.transform.arguments.cmd == "evil09"`, []string{`{"cmd":"evil09"}`, `{"cmd":"evil09x"}`}},
	"turned about":      {`"evil09" == input.policy.transform.arguments.cmd`, []string{`{"cmd":"evil09"}`}},
	"not equal":         {`input.policy.transform.arguments.cmd != "ls"`, []string{`{"cmd":"ls"}`, `{"cmd":"lsx"}`}},
	"of two":            {`input.policy.transform.arguments.cmd in {"a", "b"}`, []string{`{"cmd":"a"}`, `{"cmd":"b"}`, `{"cmd":"ax"}`}},
	"of an array":       {`input.policy.transform.arguments.cmd in ["a", "b"]`, []string{`{"cmd":"b"}`}},
	"of a rule":         {"input.policy.transform.arguments.cmd in blocked\n\nblocked := {\"a\", \"b\"}", []string{`{"cmd":"b"}`}},
	"of data":           {`input.policy.transform.arguments.cmd in data.blocked`, []string{`{"cmd":"from data"}`}},
	"of a key":          {"blocked[input.policy.transform.arguments.cmd]\n\nblocked := {\"a\": true}", []string{`{"cmd":"a"}`}},
	"of a set":          {"blocked[input.policy.transform.arguments.cmd]\n\nblocked contains \"a\"", []string{`{"cmd":"a"}`}},
	"greater":           {`input.policy.transform.arguments.n > 100`, []string{`{"n":100}`, `{"n":99}`, `{"n":101}`}},
	"less or equal":     {`input.policy.transform.arguments.n <= 1.5`, []string{`{"n":1.5}`, `{"n":0.5}`, `{"n":2.5}`}},
	"begins":            {`startswith(input.policy.transform.arguments.path, "/etc")`, []string{`{"path":"/etc"}`, `{"path":"/etcx"}`, `{"path":"x/etc"}`}},
	"ends":              {`endswith(input.policy.transform.arguments.path, ".pem")`, []string{`{"path":"x.pem"}`}},
	"contains":          {`contains(input.policy.transform.arguments.path, "..")`, []string{`{"path":"x.."}`}},
	"a pattern":         {`regex.match("^rm -r+$", input.policy.transform.arguments.cmd)`, []string{`{"cmd":"rm -r"}`}},
	"in small":          {`lower(input.policy.transform.arguments.cmd) == "evil"`, []string{`{"cmd":"evil"}`}},
	"deep":              {`input.policy.transform.arguments.a.b.c == 1`, []string{`{"a":{"b":{"c":1}}}`}},
	"an element":        {`input.policy.transform.arguments.flags[_] == "-f"`, []string{`{"flags":["-f"]}`}},
	"the second":        {`input.policy.transform.arguments.flags[1] == "-f"`, []string{`{"flags":["x","-f"]}`}},
	"in a list":         {`"-f" in input.policy.transform.arguments.flags`, []string{`{"flags":["-f"]}`}},
	"some of a list":    {"{\n\tsome flag in input.policy.transform.arguments.flags\n\tflag == \"-f\"\n}", []string{`{"flags":["-f"]}`}},
	"every one":         {"{\n\tevery flag in input.policy.transform.arguments.flags {\n\t\tflag == \"-f\"\n\t}\n}", []string{`{"flags":["-f"]}`}},
	"any member":        {`input.policy.transform.arguments[_] == "evil"`, []string{`{"any":"evil"}`}},
	"a member's name":   {"{\n\tsome name, _ in input.policy.transform.arguments\n\tname == \"sudo\"\n}", []string{`{"sudo":true}`}},
	"is there":          {`input.policy.transform.arguments.force`, []string{`{"force":true}`, `{"force":"x"}`}},
	"is not there":      {`not input.policy.transform.arguments.safe`, []string{`{"safe":true}`, `{"safe":false}`}},
	"is false":          {`input.policy.transform.arguments.safe == false`, []string{`{"safe":false}`, `{"safe":true}`}},
	"is null":           {`input.policy.transform.arguments.safe == null`, []string{`{"safe":null}`}},
	"all of them":       {`input.policy.transform.arguments == {"a": 1}`, []string{`{"a":1}`}},
	"a variable":        {"{\n\targs := input.policy.transform.arguments\n\targs.cmd == \"evil\"\n}", []string{`{"cmd":"evil"}`}},
	"the transform":     {"{\n\tt := input.policy.transform\n\tt.arguments.cmd == \"evil\"\n}", []string{`{"cmd":"evil"}`}},
	"another rule":      {"args.cmd == \"evil\"\n\nargs := input.policy.transform.arguments", []string{`{"cmd":"evil"}`}},
	"a function":        {"bad(input.policy.transform.arguments)\n\nbad(a) if a.cmd == \"evil\"", []string{`{"cmd":"evil"}`}},
	"a function's case": {"bad(input.policy.transform.arguments.cmd)\n\nbad(\"evil\")", []string{`{"cmd":"evil"}`}},
	"object.get":        {`object.get(input.policy.transform.arguments, "cmd", "") == "evil"`, []string{`{"cmd":"evil"}`}},
	"object.get deep":   {`object.get(input.policy.transform.arguments, ["a", "b"], 0) > 7`, []string{`{"a":{"b":8}}`}},
	"many":              {`count(input.policy.transform.arguments.to) > 2`, []string{`{"to":["x","x","x"]}`, `{"to":["x","x"]}`}},
	"a set of them":     {"\"evil\" in cmds\n\ncmds contains input.policy.transform.arguments.cmd", []string{`{"cmd":"evil"}`}},
	"two together":      {"{\n\tinput.policy.transform.arguments.cmd == \"pay\"\n\tinput.policy.transform.arguments.n > 100\n}", []string{`{"cmd":"pay","n":101}`}},
	"two rules together": {"{\n\tpay\n\tmuch\n}\n\npay if input.policy.transform.arguments.cmd == \"pay\"\n\nmuch if input.policy.transform.arguments.n == 100",
		[]string{`{"cmd":"pay","n":100}`}},
	"invariants": {"input.taint == \"clean\"", []string{`{"cmd":"of the author's"}`}},
	"none":       {`is_object(input.policy.transform.arguments)`, nil},
}

func argumentPolicies(t *testing.T, rule string) *evaluator.Evaluator {
	t.Helper()
	condition, others, _ := strings.Cut(rule, "\n\n")
	more := []string{"data.json", `{"blocked": ["from data"]}`}
	if strings.HasPrefix(rule, `input.taint`) {
		more = append(more, "invariants.rego", "# METADATA\n# schemas:\n#   - input: schema.invariant\npackage gate.invariants\n\nbreach contains \"no\" if input.call.policy.transform.arguments.cmd == \"of the author's\"\n")
	}
	return minimal(t, "decision := object.union(ok, {\"outcome\": \"deny\", \"reason\": \"evil\"}) if evil else := ok\n\nevil if "+
		condition+"\n\n"+others+"\n", more...)
}

func TestArgumentsThatRulesLookFor(t *testing.T) {
	for name, tt := range argumentRules {
		t.Run(name, func(t *testing.T) {
			uses, err := readArguments(t.Context(), argumentPolicies(t, tt.rules))
			if err != nil {
				t.Fatal(err)
			}
			samples := argumentSamples(uses)
			for _, want := range tt.want {
				if !slices.ContainsFunc(samples, func(s json.RawMessage) bool { return string(s) == want }) {
					t.Errorf("%s is not tried, only %s", want, samples)
				}
			}
			if tt.want == nil && len(samples) > 0 {
				t.Errorf("nothing is looked for, and tried is %s", samples)
			}
			for _, s := range samples {
				if doc := `{"tool": {"name": "t"}, "taint": "clean", "policy": {"transform": {"kind": "rewrite", "arguments": ` + string(s) + `}}}`; !parses(doc) {
					t.Errorf("no document has %s", s)
				}
			}
		})
	}
}

func parses(doc string) bool { _, err := wire.ParseCall([]byte(doc)); return err == nil }

// There is an end of the documents, whatever rules compare with.
func TestArgumentsHaveAnEnd(t *testing.T) {
	var members []string
	for i := range 400 {
		members = append(members, string(encode(strings.Repeat("a", i%300+1))))
	}
	list := strings.Join(members, ", ")
	uses, err := readArguments(t.Context(), argumentPolicies(t, "{\n\tinput.policy.transform.arguments.a in ["+list+"]\n\tinput.policy.transform.arguments.b in ["+list+"]\n}"))
	if err != nil {
		t.Fatal(err)
	}
	samples := argumentSamples(uses)
	if len(samples) != maxArguments {
		t.Errorf("%d documents, want %d", len(samples), maxArguments)
	}
	space := newArgumentSpace(&evaluator.Survey{Tools: members}, samples)
	if space.size > maxArgumentCalls {
		t.Errorf("%d calls, want no more than %d", space.size, maxArgumentCalls)
	}
	for n := range space.size {
		if err := space.call(n).Validate(); err != nil {
			t.Fatal(err)
		}
	}
}

// The policies of the hostile author: everything is as it was but for one command.
const (
	beforePerson = "} else := {\"outcome\": \"escalate\", \"reason\": \"\"} if {\n\tmissing == 0\n\tasks_for_person\n"
	evilCommand  = "} else := {\"outcome\": \"allow\", \"reason\": \"\"} if {\n\tmissing == 0\n\tinput.policy.transform.arguments.cmd == \"evil09\"\n"
)

func evilPolicies(t *testing.T) *evaluator.Evaluator {
	t.Helper()
	dir := t.TempDir() + "/copy"
	if _, err := Init(dir); err != nil {
		t.Fatal(err)
	}
	replaceIn(t, dir+"/gate/call/call.rego", beforePerson, evilCommand+beforePerson)
	e, err := evaluator.New(t.Context(), &evaluator.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// What one command is let do is found, with a document that decide answers so.
func TestVerifyFindsWhatArgumentsDo(t *testing.T) {
	race.SkipSlow(t)
	e := evilPolicies(t)
	v := &verifier{evaluator: e, survey: &evaluator.Survey{}, answers: asked(e), kinds: []int{}, requests: []skill.Request{}, named: true, opts: &VerifyOptions{Native: true}}
	got, err := v.verify(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got.Arguments == 0 {
		t.Error("no call with other arguments was looked at")
	}
	for _, name := range []string{"person-asked", "equals-native"} {
		b := broken(t, got, name)
		if b == nil {
			t.Errorf("%s holds", name)
			continue
		}
		c, err := wire.ParseCall(b.Document)
		if err != nil || string(c.Policy.Transform.Arguments) != `{"cmd":"evil09"}` {
			t.Fatalf("%s: the document is %s, %v", name, b.Document, err)
		}
		if o, err := e.Decide(t.Context(), c); err != nil || string(answerOf(o, nil)) != string(b.Answer) {
			t.Errorf("%s: %s is answered with %s, %v, want %s", name, b.Document, answerOf(o, nil), err, b.Answer)
		}
	}
	if b := broken(t, got, "veto-first"); b != nil {
		t.Errorf("veto-first is broken by %s", b.Document)
	}
}

func TestDiffFindsWhatArgumentsDo(t *testing.T) {
	heavy(t)
	old, err := evaluator.New(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	evil := evilPolicies(t)
	d := &differ{old: &evaluator.Survey{}, new: &evaluator.Survey{}, before: asked(old), after: asked(evil), kinds: []int{}, callsAlone: true, named: true, opts: &DiffOptions{}}
	got, err := d.diff(t.Context(), old, evil)
	if err != nil {
		t.Fatal(err)
	}
	if got.Arguments == 0 || len(got.Changes) == 0 {
		t.Fatalf("%d calls with other arguments, changes %v", got.Arguments, got.Changes)
	}
	for _, c := range got.Changes {
		if !strings.Contains(c.summary(), `policy.transform.arguments {"cmd":"evil09"}`) || !parses(string(c.Example)) {
			t.Errorf("%s; example %s", c.summary(), c.Example)
		}
	}
	if got.Changes[0].Direction != Widening {
		t.Errorf("the first change is %s", got.Changes[0].summary())
	}
}

// What an author's own invariant says of arguments is found, too.
func TestAuthoredInvariantsOnArguments(t *testing.T) {
	e := argumentPolicies(t, argumentRules["invariants"].rules)
	v := &verifier{evaluator: e, survey: &evaluator.Survey{}, answers: asked(e), kinds: []int{}, requests: []skill.Request{}, named: true, opts: &VerifyOptions{}}
	got, err := v.verify(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if b := broken(t, got, "no"); b == nil || !strings.Contains(string(b.Document), `{"cmd":"of the author's"}`) {
		t.Errorf("the breach is %+v", b)
	}
}

// replaceIn replaces the one occurrence of a text in a file.
func replaceIn(t *testing.T, file, from, to string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), from); n != 1 {
		t.Fatalf("%s has %q %d times, want once", file, from, n)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(text), from, to, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
}
