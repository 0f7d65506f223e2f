package gate.skill_test

import data.gate.skill

provenances := {
	"official": {"signed": true, "signer_trusted": true, "scanned": true, "source": "official"},
	"verified": {"signed": true, "scanned": true},
	"community": {"scanned": true},
	"untrusted": {},
}

# Outcome and tier granted, for each trust and tier requested.
wants := {
	"official": {
		"read_only": ["allow", "read_only"],
		"sandbox_edit": ["allow", "sandbox_edit"],
		"full_access": ["allow", "full_access"],
	},
	"verified": {
		"read_only": ["allow", "read_only"],
		"sandbox_edit": ["allow", "sandbox_edit"],
		"full_access": ["downgrade", "sandbox_edit"],
	},
	"community": {
		"read_only": ["allow", "read_only"],
		"sandbox_edit": ["downgrade", "read_only"],
		"full_access": ["downgrade", "read_only"],
	},
	"untrusted": {
		"read_only": ["deny", null],
		"sandbox_edit": ["deny", null],
		"full_access": ["deny", null],
	},
}

decide(document) := decision if {
	decision := skill.decision with input as document
}

test_every_trust_and_tier if {
	every trust, row in wants {
		every tier, want in row {
			got := decide({"skill": "s", "requested": tier, "provenance": provenances[trust]})
			got.trust == trust
			[got.outcome, got.granted] == want
			got.enforcement.effective_tier == want[1]
			got.enforcement.deploy == want[0] != "deny"
		}
	}
}

test_allow_in_full if {
	decide({"skill": "s", "requested": "read_only", "provenance": {"scanned": true}}) == {
		"trust": "community",
		"ceiling": "read_only",
		"granted": "read_only",
		"outcome": "allow",
		"reason": "Its trust is community, which is enough for read_only.",
		"enforcement": {
			"deploy": true,
			"effective_tier": "read_only",
			"overridden": false,
			"blocked": false,
			"pending": null,
			"reason": "It is deployed at read_only; no person needs to decide.",
		},
	}
}

test_downgrade_in_full if {
	got := decide({"skill": "s", "requested": "full_access", "provenance": {"scanned": true}})
	got.ceiling == "read_only"
	got.reason == "Its trust is community, which is enough for read_only but not for full_access."
}

denied := {
	"trust": "untrusted",
	"ceiling": null,
	"granted": null,
	"outcome": "deny",
	"reason": "It is not trusted: no scan of it is known.",
}

test_deny_waits_in_full if {
	want := object.union(denied, {"enforcement": {
		"deploy": false,
		"effective_tier": null,
		"overridden": false,
		"blocked": false,
		"pending": {
			"fingerprint": "skill_deploy:a:b:sandbox_edit",
			"skill_name": "a:b",
			"requested": "sandbox_edit",
			"decision": denied,
		},
		"reason": "It waits for a person to decide about sandbox_edit.",
	}})
	decide({"skill": "a:b", "requested": "sandbox_edit"}) == want
	decide({"skill": "a:b", "requested": "sandbox_edit", "provenance": null, "approval": null}) == want
}

test_approved_overrides if {
	got := decide({"skill": "s", "requested": "full_access", "approval": "approved"})
	got.outcome == "deny"
	got.granted == null
	got.enforcement.deploy == true
	got.enforcement.overridden == true
	got.enforcement.effective_tier == "full_access"
}

test_approval_widens_no_downgrade if {
	document := {"skill": "s", "requested": "full_access", "approval": "approved", "provenance": {"scanned": true}}
	decide(document).enforcement.effective_tier == "read_only"
	decide(document).enforcement.overridden == false
}

blocked := {
	"deploy": false,
	"effective_tier": null,
	"overridden": false,
	"blocked": true,
	"pending": null,
	"reason": "It is blocked: the request could not be decided.",
}

test_broken_documents_are_denied_and_blocked if {
	every document in [
		{},
		[],
		null,
		"allow",
		{"skill": "s"},
		{"requested": "read_only"},
		{"skill": "s", "requested": "root"},
		{"skill": "s", "requested": "read_only", "approval": true},
		{"skill": "s", "requested": "read_only", "approval": "approved", "provenance": {"signed": "yes"}},
	] {
		got := decide(document)
		got.outcome == "deny"
		got.granted == null
		got.ceiling == null
		got.trust == "untrusted"
		startswith(got.reason, "The skill document breaks its schema")
		got.enforcement == blocked
	}
}

test_no_rule_answers if {
	got := skill.decision with input as {"skill": "s", "requested": "read_only"} with data.gate.skill.gate as {"outcome": "shrug"}
	got.outcome == "deny"
	got.reason == "The skill could not be decided: the policy's rules are incomplete."
	got.enforcement == blocked
}
