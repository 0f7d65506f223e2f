package gate.call_deploy_test

import data.gate.call

asked(name, taint) := {
	"tool": {"name": name, "origin": "first-party", "open_world": false},
	"taint": taint,
}

test_a_deployment_asks_in_a_clean_session if {
	call.decision.outcome == "escalate" with input as asked("mcp__deploy__start", "clean")
}

test_a_deployment_asks_in_a_tainted_session if {
	call.decision.outcome == "escalate" with input as asked("mcp__deploy__start", "tainted")
}

test_another_tool_of_the_server_does_not if {
	call.decision.outcome == "allow" with input as asked("mcp__deploy__stop", "clean")
}
