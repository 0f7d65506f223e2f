package gate.call_test

import data.gate.call

tool := {"name": "web_fetch", "origin": "fetcher", "read_only": false, "destructive": false, "open_world": true}

document := {"tool": tool, "taint": "clean"}

tainted := object.union(document, {"taint": "tainted"})

with_policy(base, policy) := object.union(base, {"policy": policy})

decide(doc) := decision if {
	decision := call.decision with input as doc
}

rewrite := {"kind": "rewrite", "arguments": {"id": 9007199254740993}}

basis := {
	"missing": [],
	"missing_mask": 0,
	"required": ["arbitrary-egress"],
	"required_mask": 8,
	"granted": ["local-read", "local-write", "fixed-connector-read", "arbitrary-egress", "mutate-external"],
	"granted_mask": 31,
}

test_allow if decide(document) == object.union(basis, {"outcome": "allow", "reason": ""})

test_kind_none_allows if {
	decide(with_policy(document, {"transform": {"kind": "none"}})) == decide(document)
}

test_null_is_left_out if {
	every policy in [
		null,
		{},
		{"veto": null},
		{"requires_human": null, "sandbox_escalation": null, "transform": null},
	] {
		decide(with_policy(document, policy)) == decide(document)
	}
}

test_escalate_says_what_is_missing if {
	decide(tainted) == {
		"outcome": "escalate",
		"reason": `Check "web_fetch" before it could reach an outside address.`,
		"missing": ["arbitrary-egress"],
		"missing_mask": 8,
		"required": ["arbitrary-egress"],
		"required_mask": 8,
		"granted": ["local-read", "local-write", "fixed-connector-read"],
		"granted_mask": 7,
	}
}

test_modify if {
	want := {"outcome": "modify", "reason": "", "arguments": {"id": 9007199254740993}}
	decide(with_policy(document, {"transform": rewrite})) == object.union(basis, want)
}

test_inject_context if {
	want := {"outcome": "inject_context", "reason": "", "note": ""}
	decide(with_policy(document, {"transform": {"kind": "inject_context", "note": ""}})) == object.union(basis, want)
}

test_a_veto_comes_first if {
	every base in [document, tainted] {
		every text in ["no", ""] {
			policy := {"veto": text, "requires_human": true, "sandbox_escalation": true, "transform": rewrite}
			got := decide(with_policy(base, policy))
			got.outcome == "deny"
			got.reason == text
			got.missing == []
			got.missing_mask == 0
			not got.arguments
		}
	}
}

test_a_veto_of_another_type_is_never_an_allow if {
	every veto in [false, true, 0, [], {}] {
		got := decide(with_policy(document, {"veto": veto}))
		got.outcome == "deny"
		got.reason == "The call document breaks its schema at /policy/veto: expected a string."
	}
}

test_missing_comes_before_asking if {
	every name in ["requires_human", "sandbox_escalation"] {
		got := decide(with_policy(tainted, {name: true}))
		got.missing_mask == 8
		got.reason != ""
	}
}

test_asking_comes_before_a_transform if {
	every name in ["requires_human", "sandbox_escalation"] {
		got := decide(with_policy(document, {name: true, "transform": rewrite}))
		got == object.union(basis, {"outcome": "escalate", "reason": ""})
	}
}

test_asking_false_asks_nobody if {
	decide(with_policy(document, {"requires_human": false, "sandbox_escalation": false})) == decide(document)
}

test_missing_comes_before_a_transform if {
	got := decide(with_policy(tainted, {"transform": rewrite}))
	got.outcome == "escalate"
	not got.arguments
}

test_markers_are_always_missing if {
	every origin, mask in {"access-grant": 32, "access-revoke": 64, "admin-manage": 128, "admin-grant": 256} {
		got := decide({"tool": {"name": "t", "origin": origin}, "taint": "clean", "grant": {"base": [
			"local-read", "local-write", "fixed-connector-read", "arbitrary-egress", "mutate-external",
			"grant-access", "revoke-access", "manage-admin", "grant-admin",
		]}})
		got.outcome == "escalate"
		got.missing_mask == mask
		count(got.warnings) == 4
	}
}

test_warnings if {
	got := decide(object.union(document, {"grant": {"base": ["x", "arbitrary-egress", "grant-admin"]}}))
	got.outcome == "allow"
	got.granted_mask == 8
	got.warnings == [`unknown capability "x"`, `unknown capability "grant-admin"`]
}

test_no_warnings_member_without_warnings if not decide(document).warnings

test_empty_base_grants_nothing if {
	got := decide(object.union(document, {"grant": {"base": []}}))
	got.outcome == "escalate"
	got.granted == []
	got.granted_mask == 0
}

test_an_unknown_tool_needs_everything if {
	decide({"tool": {"name": "t"}, "taint": "clean"}).outcome == "allow"
	got := decide({"tool": {"name": "t"}, "taint": "tainted"})
	got.outcome == "escalate"
	got.required_mask == 31
	got.missing_mask == 24
}

test_broken_documents_are_denied if {
	every doc in [
		{},
		[],
		null,
		true,
		"allow",
		{"tool": tool},
		{"taint": "clean"},
		{"tool": tool, "taint": "unknown"},
		{"tool": tool, "taint": null},
		{"tool": {"origin": "fetcher"}, "taint": "clean"},
		{"tool": {"name": ""}, "taint": "clean"},
		{"tool": {"name": "t", "origin": "moon"}, "taint": "clean"},
		{"tool": tool, "taint": "clean", "outcome": "allow"},
	] {
		got := decide(doc)
		got.outcome == "deny"
		startswith(got.reason, "The call document breaks its schema")
		got.required == []
		got.required_mask == 0
		got.granted == []
		got.granted_mask == 0
		got.missing == []
		got.missing_mask == 0
	}
}

undecided := {
	"outcome": "deny",
	"reason": "The call could not be decided: the policy's facts or rules are incomplete.",
	"missing": [],
	"missing_mask": 0,
	"required": [],
	"required_mask": 0,
	"granted": [],
	"granted_mask": 0,
}

test_missing_facts_deny if {
	every doc in [document, tainted, {"tool": {"name": "t"}, "taint": "clean"}] {
		got := call.decision with input as doc with data.gate.facts as {}
		got == undecided
	}
}

test_missing_names_deny if {
	every names in [[], {}, null] {
		got := call.decision with input as document with data.gate.facts.names as names
		got == undecided
	}
}

test_a_missing_bit_denies if {
	got := call.decision with input as document with data.gate.facts.bit as {"local-read": 1}
	got == undecided
	also := call.decision with input as tainted with data.gate.facts.bit as {"arbitrary-egress": 8}
	also == undecided
}

test_a_veto_without_facts_is_still_a_deny if {
	got := call.decision with input as with_policy(document, {"veto": "no"}) with data.gate.facts as {}
	got.outcome == "deny"
}

# A tenth capability, granted or required by nothing but facts: no rule of the
# precedence changes.
test_a_tenth_capability if {
	names := object.union(
		{mask: data.gate.facts.names[mask] | some mask in [8, 31]},
		{512: ["print"], 520: ["arbitrary-egress", "print"], 543: ["all", "print"]},
	)
	facts := object.union(data.gate.facts, {"names": names})

	lacking := call.decision with input as document
		with data.gate.facts as facts
		with data.gate.profile.required as 520
	lacking.outcome == "escalate"
	lacking.missing == ["print"]
	lacking.reason == `"web_fetch" needs more access than this conversation has.`

	having := call.decision with input as document
		with data.gate.facts as facts
		with data.gate.profile.required as 520
		with data.gate.taint.granted as 543
	having.outcome == "allow"
}
