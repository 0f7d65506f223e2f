package gate.enforcement_test

import data.gate.enforcement

deny := {"trust": "untrusted", "ceiling": null, "granted": null, "outcome": "deny", "reason": "r"}

enforced(gate, approval) := enforcement_of if {
	document := {"skill": "s", "requested": "full_access", "approval": approval}
	enforcement_of := enforcement.enforce(gate) with input as document
}

approvals := [null, "approved", "rejected"]

test_allow_and_downgrade_need_no_person if {
	every outcome in ["allow", "downgrade"] {
		every approval in approvals {
			enforced({"outcome": outcome, "granted": "read_only"}, approval) == {
				"deploy": true,
				"effective_tier": "read_only",
				"overridden": false,
				"blocked": false,
				"pending": null,
				"reason": "It is deployed at read_only; no person needs to decide.",
			}
		}
	}
}

test_approved_deploys_at_the_requested_tier if {
	enforced(deny, "approved") == {
		"deploy": true,
		"effective_tier": "full_access",
		"overridden": true,
		"blocked": false,
		"pending": null,
		"reason": "It is deployed at full_access: a person approved that.",
	}
}

test_rejected_is_blocked if {
	enforced(deny, "rejected") == {
		"deploy": false,
		"effective_tier": null,
		"overridden": false,
		"blocked": true,
		"pending": null,
		"reason": "It is blocked: a person rejected it at full_access.",
	}
}

test_never_seen_is_pending if {
	want := {
		"deploy": false,
		"effective_tier": null,
		"overridden": false,
		"blocked": false,
		"pending": {
			"fingerprint": "skill_deploy:s:full_access",
			"skill_name": "s",
			"requested": "full_access",
			"decision": deny,
		},
		"reason": "It waits for a person to decide about full_access.",
	}
	enforced(deny, null) == want
	enforcement.enforce(deny) == want with input as {"skill": "s", "requested": "full_access"}
}

test_another_outcome_deploys_nothing if {
	every approval in approvals {
		not enforced({"outcome": "shrug", "granted": "read_only"}, approval)
	}
}

test_fingerprints_of_names_with_colons_never_meet if {
	prints := {print |
		some name in ["a", "a:read_only", "a:read_only:read_only", ":", "::"]
		some tier in ["read_only", "sandbox_edit", "full_access"]
		print := enforcement.fingerprint with input as {"skill": name, "requested": tier}
	}
	count(prints) == 15
}
