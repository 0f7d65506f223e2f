package gate.steering_test

import data.gate.steering

call(facts) := object.union(
	{
		"session": "tainted",
		"tool": {"name": "send_email", "origin": "registered-connector"},
		"effect": "unknown",
		"aim": "unknown",
		"payload": "unknown",
	},
	facts,
)

sent(payload) := call({"effect": "outside", "aim": "typed", "payload": payload})

test_a_clean_session_stays_clean if {
	steering.taint == "clean" with input as call({"session": "clean"})
}

test_nothing_known_is_tainted if {
	steering.taint == "tainted" with input as call({})
	steering.taint == "tainted" with input as {}
	steering.taint == "tainted" with input as call({"session": "unknown", "effect": "own-undoable"})
}

test_own_undoable if {
	steering.taint == "clean" with input as call({"effect": "own-undoable"})
	every effect in ["unknown", "own-lasting", "outside", "access"] {
		steering.taint == "tainted" with input as call({"effect": effect})
	}
	steering.taint == "tainted" with input as call({"effect": "own-undoable"})
		with data.gate.steering.relax as ["typed-call", "typed-aim"]
}

test_own_undoable_is_no_fetch if {
	every origin in ["fetcher", "unknown", "access-grant"] {
		tool := {"name": "put", "origin": origin}
		steering.taint == "tainted" with input as call({"effect": "own-undoable", "tool": tool})
	}
}

test_typed_call if {
	every payload in ["inert", "typed"] {
		steering.taint == "clean" with input as sent(payload) with data.gate.steering.relax as ["typed-call"]
	}
	every payload in ["unknown", "untyped", "plain"] {
		steering.taint == "tainted" with input as sent(payload) with data.gate.steering.relax as ["typed-call"]
	}
}

test_typed_aim if {
	every payload in ["plain", "inert", "typed"] {
		steering.taint == "clean" with input as sent(payload) with data.gate.steering.relax as ["typed-aim"]
	}
	every payload in ["unknown", "untyped"] {
		steering.taint == "tainted" with input as sent(payload) with data.gate.steering.relax as ["typed-aim"]
	}
}

test_an_aim_that_was_not_typed_is_tainted if {
	every aim in ["unknown", "none", "untyped"] {
		steering.taint == "tainted" with input as call({"effect": "outside", "aim": aim, "payload": "typed"})
	}
}

test_access_is_tainted if {
	steering.taint == "tainted" with input as call({"effect": "access", "aim": "typed", "payload": "typed"})
	every origin in ["access-grant", "access-revoke", "admin-manage", "admin-grant", "unknown"] {
		tool := {"name": "invite", "origin": origin}
		facts := {"effect": "outside", "aim": "typed", "payload": "typed", "tool": tool}
		steering.taint == "tainted" with input as call(facts)
	}
}

test_no_relaxation_left if {
	facts := {"effect": "outside", "aim": "typed", "payload": "typed"}
	steering.taint == "tainted" with input as call(facts) with data.gate.steering.relax as []
	steering.taint == "tainted" with input as call({"effect": "own-undoable"}) with data.gate.steering.relax as []
}
