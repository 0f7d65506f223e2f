package gate.profile_test

import data.gate.profile

hints := [null, false, true]

# What each tool requires, worked out by hand.
wants := {
	["local-sandbox", false, false]: 3,
	["local-sandbox", false, true]: 3,
	["local-sandbox", true, false]: 1,
	["local-sandbox", true, true]: 1,
	["fetcher", false, false]: 8,
	["fetcher", false, true]: 24,
	["fetcher", true, false]: 8,
	["fetcher", true, true]: 24,
	["first-party", false, false]: 20,
	["first-party", false, true]: 20,
	["first-party", true, false]: 4,
	["first-party", true, true]: 20,
	["registered-connector", false, false]: 20,
	["registered-connector", false, true]: 20,
	["registered-connector", true, false]: 4,
	["registered-connector", true, true]: 20,
}

fixed := {
	"access-grant": 32,
	"access-revoke": 64,
	"admin-manage": 128,
	"admin-grant": 256,
	"unknown": 31,
}

test_required_of_given_annotations if {
	every key, want in wants {
		[origin, read_only, destructive] := key
		tool := {"name": "t", "origin": origin, "read_only": read_only, "destructive": destructive}
		profile.required == want with input as {"tool": tool}
	}
}

test_annotations_change_nothing_for_the_other_origins if {
	every origin, want in fixed {
		every read_only in hints {
			every destructive in hints {
				tool := {"name": "t", "origin": origin, "read_only": read_only, "destructive": destructive}
				profile.required == want with input as {"tool": tool}
			}
		}
	}
}

test_open_world_never_changes_what_is_required if {
	every open_world in hints {
		tool := {"name": "t", "origin": "fetcher", "destructive": false, "open_world": open_world}
		profile.required == 8 with input as {"tool": tool}
	}
}

test_annotations_left_out if {
	every origin, want in {"local-sandbox": 3, "fetcher": 24, "first-party": 20, "registered-connector": 20} {
		profile.required == want with input as {"tool": {"name": "t", "origin": origin}}
	}
}

test_read_only_alone_is_not_destructive if {
	every origin, want in {"local-sandbox": 1, "fetcher": 8, "first-party": 4, "registered-connector": 4} {
		profile.required == want with input as {"tool": {"name": "t", "origin": origin, "read_only": true}}
	}
}

test_defaults if {
	tool := {"name": "t"}
	profile.origin == "unknown" with input as {"tool": tool}
	profile.read_only == false with input as {"tool": tool}
	profile.destructive == true with input as {"tool": tool}
	profile.open_world == true with input as {"tool": tool}
}

test_null_is_left_out if {
	tool := {"name": "t", "origin": null, "read_only": null, "destructive": null, "open_world": null}
	profile.origin == "unknown" with input as {"tool": tool}
	profile.read_only == false with input as {"tool": tool}
	profile.destructive == true with input as {"tool": tool}
	profile.open_world == true with input as {"tool": tool}
	profile.required == 31 with input as {"tool": tool}
}

test_given_values if {
	tool := {"name": "t", "read_only": true, "destructive": true, "open_world": false}
	profile.read_only == true with input as {"tool": tool}
	profile.destructive == true with input as {"tool": tool}
	profile.open_world == false with input as {"tool": tool}
}

test_an_origin_outside_the_table_requires_nothing_known if {
	not profile.required with input as {"tool": {"name": "t", "origin": "moon"}}
}

test_no_facts_no_requirement if {
	not profile.required with input as {"tool": {"name": "t", "origin": "fetcher"}} with data.gate.facts as {}
}
