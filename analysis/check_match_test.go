package analysis_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/opa-gate/opa-gate/analysis"
	"github.com/opa-gate/opa-gate/internal/race"
)

// Comparisons of what can never be equal: OPA calls each of them a match error, and nothing
// else.
func TestCheckSaysWhatIsNeverEqual(t *testing.T) {
	race.SkipSlow(t)
	for condition, want := range map[string][]string{
		`input.tool.origin == null`:    {"input.tool.origin is never null", "null in a document counts as left out", "not input.tool.origin"},
		`null == input.tool.origin`:    {"input.tool.origin is never null", "not input.tool.origin"},
		`input.policy.veto == null`:    {"input.policy.veto is a string, and is never equal to null", "not input.policy.veto"},
		`input.tool.read_only == null`: {"input.tool.read_only is true or false, and is never equal to null", "not input.tool.read_only"},
		`input.policy.transform == null`: {"input.policy.transform is an object with ", "never equal to null",
			"not input.policy.transform"},
		`input.policy == {}`:                         {"input.policy is an object with ", "never equal to {}", "compare the members that matter, each by itself, such as not input.policy."},
		`input.grant == {}`:                          {"input.grant is an object with base, and is never equal to {}", "such as not input.grant.base"},
		`input.tool == {"name": "x"}`:                {"input.tool is an object with ", `never equal to {"name": "x"}`, `such as input.tool.name == "x"`},
		`input.policy.transform == {"kind": "none"}`: {`never equal to {"kind": "none"}`, `such as input.policy.transform.kind == "none"`},
		`input.policy.requires_human == "yes"`:       {`input.policy.requires_human is true or false, and is never equal to "yes", which is a string`},
		`input.tool.name == 1`:                       {"input.tool.name is a string, and is never equal to 1, which is a number"},
		`input.tool.name == ["a", "b"]`:              {`input.tool.name is a string, and is never equal to ["a", "b"], which is an array`},
		`input.grant.base == "local-read"`:           {`input.grant.base is an array, and is never equal to "local-read", which is a string`},
		`input.grant.base == {"local-read"}`:         {`input.grant.base is an array, and is never equal to {"local-read"}, which is a set`},
		`missing == "0"`:                             {"missing is ", `never equal to "0", which is a string`},
		`input.tool.name == {"name": "x"}`:           {`input.tool.name is a string, and is never equal to {"name": "x"}`},
		`input.taint == true`:                        {"input.taint is never true, expected clean, tainted"},
		`input.taint in ["clean", null]`:             {"input.taint is never null"},
		`"a" == 1`:                                   {`"a"`, `are never equal: one is a `},
	} {
		t.Run(condition, func(t *testing.T) {
			dir := initCopy(t)
			checkEdit(t, dir, callRego, "asks_for_person if input.policy.requires_human == true", "asks_for_person if "+condition)
			r := runCheck(t, dir, &analysis.CheckOptions{Static: true})
			if len(r.Findings) == 0 {
				t.Fatal("nothing is wrong")
			}
			for _, f := range r.Findings {
				if strings.Contains(f.Message, "match error") {
					t.Errorf("it is a match error: %s", checkListed(r))
				}
			}
			if !slices.ContainsFunc(r.Findings, func(f analysis.Finding) bool {
				return (f.Severity == analysis.SeverityError || strings.Contains(condition, "origin")) && f.File == callRego && !slices.ContainsFunc(want, func(part string) bool { return !strings.Contains(f.Message, part) })
			}) {
				t.Errorf("want %q, found %s", want, checkListed(r))
			}
		})
	}
}
