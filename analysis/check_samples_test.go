package analysis_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/opa-gate/opa-gate/analysis"
)

// A rule that answers with what is no decision, before the step that asks for what is missing,
// and that is reached by calls of one sort alone: they are among those that check asks about.
func TestCheckReaches(t *testing.T) {
	if testing.Short() {
		t.Skip("thousands of documents for each policy take seconds; it runs without -short")
	}
	const step = "} else := {\n\t\"outcome\": \"escalate\",\n\t\"reason\": escalation.reason(missing, input.tool.name),\n"
	for name, tt := range map[string]struct{ condition, document string }{
		"an unknown name in the grant":    {`count(grant.unknown) > 0`, `"base":[`},
		"one name that nobody knows":      {`grant.unknown == ["no-such-capability"]`, `"no-such-capability"`},
		"a marker in the grant":           {`"grant-access" in input.grant.base`, `"grant-access"`},
		"hundreds of names":               {`count(input.grant.base) > 250`, `"name-1"`},
		"an empty note":                   {`input.policy.transform.note == ""`, `"note":""`},
		"an argument":                     {`input.policy.transform.arguments.cmd == "evil09"`, `"cmd":"evil09"`},
		"an argument of a tool":           {"input.policy.transform.arguments.cmd == \"evil09\"\n\tinput.tool.name == \"shell\"", `"cmd":"evil09"`},
		"two arguments":                   {"input.policy.transform.arguments.cmd == \"evil09\"\n\tinput.policy.transform.arguments.n > 7", `"n":8`},
		"an argument that begins so":      {`startswith(input.policy.transform.arguments.cmd, "sudo ")`, `"sudo `},
		"an empty document of arguments":  {`input.policy.transform.arguments == {}`, `"arguments":{}`},
		"no more than a number of things": {`count(input.policy.transform.arguments.to) > 5`, `"to":["x"`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := initCopy(t)
			checkEdit(t, dir, callRego, step, "} else := {\"outcome\": \"inject_context\", \"reason\": \"\", \"note\": concat(\"\", [])} if {\n\t"+tt.condition+"\n"+step)
			reached(t, dir, tt.document)
		})
	}
	t.Run("an empty veto", func(t *testing.T) {
		dir := initCopy(t)
		checkEdit(t, dir, callRego, `answer := {"outcome": "deny", "reason": input.policy.veto} if {`,
			"answer := {\"outcome\": \"denied\", \"reason\": \"\"} if {\n\tinput.policy.veto == \"\"\n} else := {\"outcome\": \"deny\", \"reason\": input.policy.veto} if {")
		reached(t, dir, `"veto":""`)
	})
}

func reached(t *testing.T, dir, document string) {
	t.Helper()
	r := runCheck(t, dir, &analysis.CheckOptions{})
	if !slices.ContainsFunc(r.Findings, func(f analysis.Finding) bool {
		return f.Code == analysis.CodeNotADecision && strings.Contains(f.Message, document)
	}) {
		t.Errorf("nothing that is no decision was found with %s, but %s", document, checkListed(r))
	}
}

// Data at the path of a rule are an error of theirs: OPA refuses the two together.
func TestCheckRefusesDataInARulesPlace(t *testing.T) {
	dir := initCopy(t)
	checkWrite(t, dir, "gate/call/decision/data.json", "{\"outcome\": \"allow\"}\n")
	r := runCheck(t, dir, nil)
	if len(r.Findings) != 1 || r.Findings[0].Code != analysis.CodeData || r.Findings[0].File != "gate/call/decision/data.json" ||
		!strings.Contains(r.Findings[0].Message, "there is data at gate/call/decision, which is the path of a rule (gate/call/call.rego:") {
		t.Errorf("found %s", checkListed(r))
	}
}
