package conformance

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/opa-gate/opa-gate/evaluator"
)

func TestParseBaseline(t *testing.T) {
	const good = `{"about": "a", "gaps": [{"engine": "wasm", "file": "f.json", "case": "c", "reason": "r"}]}`
	tests := []struct{ name, file, text, pointer, problem string }{
		{"no JSON", "b.json", `{`, "", ""},
		{"nothing", "b.json", ``, "", ""},
		{"no gaps", "b.json", `{}`, "/gaps", ""},
		{"unknown member", "b.json", strings.Replace(good, `"about"`, `"skip": true, "about"`, 1), "/skip", ""},
		{"unknown member of an entry", "b.json", strings.Replace(good, `"engine"`, `"until": 1, "engine"`, 1), "/gaps/0/until", ""},
		{"no reason", "b.json", strings.Replace(good, `, "reason": "r"`, ``, 1), "/gaps/0/reason", ""},
		{"empty reason", "b.json", strings.Replace(good, `"r"`, `""`, 1), "/gaps/0/reason", ""},
		{"blank reason", "b.json", strings.Replace(good, `"r"`, `" "`, 1), "/gaps/0/reason", ""},
		{"no engine", "b.json", strings.Replace(good, `"engine": "wasm", `, ``, 1), "/gaps/0/engine", ""},
		{"no file", "b.json", strings.Replace(good, `"file": "f.json", `, ``, 1), "/gaps/0/file", ""},
		{"no case", "b.json", strings.Replace(good, `"case": "c", `, ``, 1), "/gaps/0/case", ""},
		{"case is a number", "b.json", strings.Replace(good, `"c"`, `1`, 1), "/gaps/0/case", ""},
		{"member twice", "b.json", strings.Replace(good, `"case": "c"`, `"case": "c", "case": "d"`, 1), "/gaps/0/case", ""},
		{"entry twice", "b.json", strings.Replace(good, `[`, `[{"engine": "wasm", "file": "f.json", "case": "c", "reason": "q"}, `, 1), "/gaps/1", "an earlier entry"},
		{"no YAML", "b.yaml", "gaps: [", "", "it is not YAML"},
		{"YAML without a reason", "b.yml", "gaps: [{engine: wasm, file: f, case: c}]", "/gaps/0/reason", ""},
		{"YAML in a .json", "b.json", "gaps: []", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ParseBaseline(tt.file, []byte(tt.text))
			var e *BaselineError
			if !errors.As(err, &e) {
				t.Fatalf("got %v", err)
			}
			if e.File != tt.file || e.Pointer != tt.pointer || e.Problem == "" || !strings.Contains(e.Problem, tt.problem) {
				t.Errorf("got %+v", e)
			}
		})
	}
	want := []Gap{{"wasm", "f.json", "c", "r"}}
	for file, text := range map[string]string{"b.json": good, "b.yaml": "gaps:\n- {engine: wasm, file: f.json, case: c, reason: r}\n", "b.YML": good} {
		b, err := ParseBaseline(file, []byte(text))
		if err != nil || !slices.Equal(b.Gaps(), want) {
			t.Errorf("%s: %v, %v", file, b, err)
		}
	}
}

func TestBaseline(t *testing.T) {
	suite := suiteOf(t, "d/a.json", veto("good"), "d/b.json", veto("good"), "n.json", namesFile)
	native := Of(evaluator.Native{}, "native", 1)
	wrong := Engine{Name: "url=http://h:1", Judge: twisted{`"deny"`, `"allow"`}, Outside: true}
	both := []Gap{{"url", "a.json", "good", "r1"}, {"url=http://h:1", "d/b.json", "good", "r2"}}
	tests := []struct {
		name    string
		gaps    []Gap
		engines []Engine
		ok      bool
		known   int // of the last engine
		stale   []string
		unasked int
	}{
		{"none", nil, []Engine{native}, true, 0, nil, 0},
		{"none, and a difference", nil, []Engine{wrong}, false, 0, nil, 0},
		{"all of them", both, []Engine{native, wrong}, true, 2, nil, 0},
		{"one of them", both[:1], []Engine{wrong}, false, 1, nil, 0},
		{"of an engine that is not asked", both, []Engine{native}, true, 0, nil, 2},
		{"answered as wanted", []Gap{{"native", "a.json", "good", "r"}}, []Engine{native}, false, 0, []string{"answers this case as it is wanted"}, 0},
		{"no such case", append(slices.Clone(both), Gap{"url", "a.json", "bad", "r"}), []Engine{wrong}, false, 2, []string{"no such case"}, 0},
		{"no such file", append(slices.Clone(both), Gap{"url", "x.json", "good", "r"}), []Engine{wrong}, false, 2, []string{"no such case"}, 0},
		{"half of a file's name", append(slices.Clone(both), Gap{"url", ".json", "good", "r"}), []Engine{wrong}, false, 2, []string{"no such case"}, 0},
		{"a case that is not asked", append(slices.Clone(both), Gap{"url", "n.json", "one", "r"}), []Engine{wrong}, false, 2, []string{"is not asked this case"}, 0},
		{"of one server and not of the other", both[:1], []Engine{{Name: "url=http://h:2", Judge: twisted{}, Outside: true}}, false, 0, []string{"url=http://h:2 answers this case"}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := Run(t.Context(), suite, &Baseline{tt.gaps}, tt.engines...)
			e := r.Engines[len(r.Engines)-1]
			if r.OK != tt.ok || len(e.Known) != tt.known || len(r.Baseline.Stale) != len(tt.stale) || len(r.Baseline.Unasked) != tt.unasked {
				t.Fatalf("got %+v, %+v", r.Baseline, e)
			}
			text := textOf(t, r, nil)
			for i, want := range tt.stale {
				if got := r.Baseline.Stale[i].Problem; !strings.Contains(got, want) || !strings.Contains(text, want) {
					t.Errorf("got %q, want %q\n%s", got, want, text)
				}
			}
			for _, d := range e.Known {
				if d.Reason == "" || !strings.Contains(text, "known gap: "+d.File+": good (call): "+d.Reason) {
					t.Errorf("%+v is not in\n%s", d, text)
				}
			}
			if (tt.unasked > 0) != strings.Contains(text, "not looked at: not asked were ") {
				t.Errorf("got\n%s", text)
			}
		})
	}
	same := suiteOf(t, "1/a.json", veto("good"), "2/a.json", veto("good"))
	r := Run(t.Context(), same, &Baseline{[]Gap{{"url", "a.json", "good", "r"}}}, wrong)
	if r.OK || len(r.Baseline.Stale) != 1 || !strings.Contains(r.Baseline.Stale[0].Problem, "write more of the path") {
		t.Errorf("got %+v", r.Baseline)
	}
}

func TestBaselineSchema(t *testing.T) {
	if text := BaselineSchema(); len(text) == 0 || baselineFormat() == nil {
		t.Error("there is none")
	}
}
