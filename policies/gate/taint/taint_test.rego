package gate.taint_test

import data.gate.taint

test_clean_revokes_nothing if {
	taint.revoked == 0 with input as {"taint": "clean"}
	taint.granted == 31 with input as {"taint": "clean"}
}

test_tainted_revokes_egress_and_mutation if {
	taint.revoked == 24 with input as {"taint": "tainted"}
	taint.granted == 7 with input as {"taint": "tainted"}
}

test_every_base_shrinks if {
	every mask in numbers.range(0, 31) {
		document := {"grant": {"base": data.gate.facts.names[mask]}}
		taint.granted == mask with input as object.union(document, {"taint": "clean"})
		taint.granted == mask % 8 with input as object.union(document, {"taint": "tainted"})
	}
}

test_unknown_taint_is_undefined if {
	every state in ["unknown", "", "Clean", null, false, 0] {
		not taint.revoked with input as {"taint": state}
		not taint.granted with input as {"taint": state}
	}
	not taint.granted with input as {}
}

test_no_facts_nothing_granted if {
	not taint.granted with input as {"taint": "tainted"} with data.gate.facts as {}
	not taint.granted with input as {"taint": "clean"} with data.gate.facts as {}
}
