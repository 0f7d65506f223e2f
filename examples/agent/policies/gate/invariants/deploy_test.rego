package gate.invariants_deploy_test

import data.gate.invariants

message := "a deployment starts without a person"

answered(outcome) := {
	"call": {"tool": {"name": "mcp__deploy__start", "origin": "first-party"}, "taint": "clean"},
	"decision": {"outcome": outcome},
}

test_a_deployment_that_starts_is_a_breach if {
	invariants.breach == {message} with input as answered("allow")
}

test_a_question_is_none if {
	invariants.breach == set() with input as answered("escalate")
}
