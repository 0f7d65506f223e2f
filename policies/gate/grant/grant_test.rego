package gate.grant_test

import data.gate.grant

test_left_out_grants_all if {
	every document in [{}, {"grant": null}, {"grant": {}}, {"grant": {"base": null}}] {
		grant.base == 31 with input as document
		grant.unknown == [] with input as document
	}
}

test_empty_grants_nothing if {
	grant.base == 0 with input as {"grant": {"base": []}}
	grant.unknown == [] with input as {"grant": {"base": []}}
}

test_each_name if {
	every name, want in {
		"local-read": 1,
		"local-write": 2,
		"fixed-connector-read": 4,
		"arbitrary-egress": 8,
		"mutate-external": 16,
	} {
		grant.base == want with input as {"grant": {"base": [name]}}
	}
}

test_a_name_twice_counts_once if {
	grant.base == 9 with input as {"grant": {"base": ["local-read", "arbitrary-egress", "local-read"]}}
}

test_unknown_names_grant_nothing_and_are_reported_in_order if {
	document := {"grant": {"base": ["zebra", "local-read", "", "Local-Read", "zebra"]}}
	grant.base == 1 with input as document
	grant.unknown == ["zebra", "", "Local-Read", "zebra"] with input as document
}

test_markers_are_no_more_grantable_than_a_typo if {
	markers := ["grant-access", "revoke-access", "manage-admin", "grant-admin"]
	grant.base == 0 with input as {"grant": {"base": markers}}
	grant.unknown == markers with input as {"grant": {"base": markers}}
}

test_no_facts_no_default_grant if {
	not grant.base with input as {} with data.gate.facts as {}
}
