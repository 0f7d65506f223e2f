package gate.taint_test

import data.gate.taint

result_of(tool, rest) := object.union({"tool": object.union({"name": "read"}, tool)}, rest)

vouched := {"origin": "registered-connector", "open_world": false}

test_a_vouched_tool_that_is_not_open_world_does_not_taint if {
	every origin in [
		"local-sandbox",
		"first-party",
		"registered-connector",
		"access-grant",
		"access-revoke",
		"admin-manage",
		"admin-grant",
	] {
		taint.result == false with input as result_of({"origin": origin, "open_world": false}, {})
	}
	taint.result == false with input as result_of(vouched, {"untrusted_result": false})
	taint.result == false with input as result_of(vouched, {"untrusted_result": null})
}

test_an_open_world_taints if {
	taint.result == true with input as result_of({"origin": "first-party", "open_world": true}, {})
	taint.result == true with input as result_of({"origin": "first-party"}, {})
	taint.result == true with input as result_of({"origin": "first-party", "open_world": null}, {})
}

test_unknown_and_fetcher_taint if {
	taint.result == true with input as result_of({"origin": "unknown", "open_world": false}, {})
	taint.result == true with input as result_of({"origin": "fetcher", "open_world": false}, {})
	taint.result == true with input as result_of({"open_world": false}, {"untrusted_result": false})
}

test_the_operator_can_only_add if {
	taint.result == true with input as result_of(vouched, {"untrusted_result": true})
	taint.result == true with input as result_of({"origin": "fetcher", "open_world": false}, {"untrusted_result": false})
}

test_what_cannot_be_told_taints if {
	taint.result == true with input as {}
	taint.result == true with input as result_of(vouched, {"untrusted_result": "no"})
	taint.result == true with input as result_of({"origin": "elsewhere", "open_world": false}, {})
	taint.result == true with input as result_of({"origin": "first-party", "open_world": "false"}, {})
}
