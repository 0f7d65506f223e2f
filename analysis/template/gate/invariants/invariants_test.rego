package gate.invariants_test

import data.gate.invariants

message := "a call that changes who has access is answered without a person"

answered(origin, outcome) := {
	"call": {"tool": {"name": "invite", "origin": origin}, "taint": "clean"},
	"decision": {"outcome": outcome},
}

test_an_allow_is_a_breach if {
	invariants.breach == {message} with input as answered("access-grant", "allow")
}

test_a_question_is_none if {
	invariants.breach == set() with input as answered("access-grant", "escalate")
}

test_other_origins_are_free if {
	invariants.breach == set() with input as answered("fetcher", "allow")
}
