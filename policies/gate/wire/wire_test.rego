package gate.wire_test

import data.gate.wire

call := {"tool": {"name": "t"}, "taint": "clean"}

call_pointers(document) := {problem[0] | some problem in problems} if {
	problems := wire.call_problems with input as document
}

skill_pointers(document) := {problem[0] | some problem in problems} if {
	problems := wire.skill_problems with input as document
}

patched(document, path, value) := json.patch(document, [{"op": "add", "path": path, "value": value}])

full := {
	"tool": {"name": "t", "origin": "fetcher", "read_only": false, "destructive": true, "open_world": false},
	"grant": {"base": ["local-read", "x"]},
	"taint": "tainted",
	"policy": {"veto": "", "requires_human": true, "sandbox_escalation": false, "transform": {"kind": "none"}},
}

test_good_calls if {
	every document in [call, full] {
		call_pointers(document) == set()
	}
	every path in ["/tool/origin", "/tool/read_only", "/tool/destructive", "/tool/open_world", "/grant", "/grant/base"] {
		call_pointers(patched(full, path, null)) == set()
	}
	every path in ["/policy", "/policy/veto", "/policy/requires_human", "/policy/sandbox_escalation", "/policy/transform"] {
		call_pointers(patched(full, path, null)) == set()
	}
	every transform in [{"kind": "rewrite", "arguments": {}}, {"kind": "inject_context", "note": ""}] {
		call_pointers(patched(full, "/policy/transform", transform)) == set()
	}
	every origin in wire.origins {
		call_pointers(patched(full, "/tool/origin", origin)) == set()
	}
}

# Each row: where, what is put there, where the problem is.
bad_calls := [
	["/extra", 1, "/extra"],
	["/a~1b~0c", 1, "/a~1b~0c"],
	["/taint", null, "/taint"],
	["/taint", "unknown", "/taint"],
	["/taint", ["clean"], "/taint"],
	["/tool", null, "/tool"],
	["/tool", "t", "/tool"],
	["/tool/name", "", "/tool/name"],
	["/tool/name", null, "/tool/name"],
	["/tool/name", 1, "/tool/name"],
	["/tool/extra", null, "/tool/extra"],
	["/tool/origin", "moon", "/tool/origin"],
	["/tool/origin", false, "/tool/origin"],
	["/tool/read_only", "true", "/tool/read_only"],
	["/tool/destructive", 0, "/tool/destructive"],
	["/tool/open_world", {}, "/tool/open_world"],
	["/grant", [], "/grant"],
	["/grant", "all", "/grant"],
	["/grant/extra", 1, "/grant/extra"],
	["/grant/base", "local-read", "/grant/base"],
	["/grant/base", {}, "/grant/base"],
	["/grant/base/1", null, "/grant/base/1"],
	["/grant/base/1", 8, "/grant/base/1"],
	["/policy", false, "/policy"],
	["/policy/extra", 1, "/policy/extra"],
	["/policy/veto", false, "/policy/veto"],
	["/policy/veto", 0, "/policy/veto"],
	["/policy/requires_human", "no", "/policy/requires_human"],
	["/policy/sandbox_escalation", 1, "/policy/sandbox_escalation"],
	["/policy/transform", "none", "/policy/transform"],
	["/policy/transform", {}, "/policy/transform/kind"],
	["/policy/transform", {"kind": null}, "/policy/transform/kind"],
	["/policy/transform", {"kind": "drop"}, "/policy/transform/kind"],
	["/policy/transform", {"kind": "rewrite"}, "/policy/transform/arguments"],
	["/policy/transform", {"kind": "rewrite", "arguments": null}, "/policy/transform/arguments"],
	["/policy/transform", {"kind": "rewrite", "arguments": []}, "/policy/transform/arguments"],
	["/policy/transform", {"kind": "rewrite", "arguments": {}, "note": "n"}, "/policy/transform/note"],
	["/policy/transform", {"kind": "inject_context"}, "/policy/transform/note"],
	["/policy/transform", {"kind": "inject_context", "note": null}, "/policy/transform/note"],
	["/policy/transform", {"kind": "inject_context", "note": "", "arguments": {}}, "/policy/transform/arguments"],
	["/policy/transform", {"kind": "none", "note": ""}, "/policy/transform/note"],
	["/policy/transform", {"kind": "none", "arguments": {}}, "/policy/transform/arguments"],
	["/policy/transform", {"kind": "none", "extra": 1}, "/policy/transform/extra"],
]

test_bad_calls if {
	every row in bad_calls {
		[path, value, pointer] := row
		call_pointers(patched(full, path, value)) == {pointer}
	}
}

test_members_of_a_transform_without_a_kind_keep_their_types if {
	transform := {"arguments": 1, "note": 2}
	call_pointers(patched(full, "/policy/transform", transform)) == {
		"/policy/transform/kind",
		"/policy/transform/arguments",
		"/policy/transform/note",
	}
}

test_no_document if {
	every document in [null, [], "x", 1, false] {
		wire.call_problems == {["", "an object"]} with input as document
		wire.skill_problems == {["", "an object"]} with input as document
	}
	count(wire.call_problems) > 0
	count(wire.skill_problems) > 0
}

test_an_empty_document_lacks_what_is_required if {
	call_pointers({}) == {"/tool", "/taint"}
	call_pointers({"tool": {}, "taint": "clean"}) == {"/tool/name"}
	skill_pointers({}) == {"/skill", "/requested"}
}

skill := {
	"skill": "s",
	"requested": "read_only",
	"approval": "approved",
	"provenance": {
		"signed": true,
		"signer_trusted": true,
		"scanned": true,
		"vulnerabilities": 0,
		"success_count": 18446744073709551615,
		"fail_count": 2.0,
		"source": "official",
	},
}

test_good_skills if {
	skill_pointers(skill) == set()
	skill_pointers({"skill": "s", "requested": "full_access"}) == set()
	every path in ["/approval", "/provenance"] {
		skill_pointers(patched(skill, path, null)) == set()
	}
	every name, _ in skill.provenance {
		skill_pointers(patched(skill, concat("", ["/provenance/", name]), null)) == set()
	}
	skill_pointers(patched(skill, "/provenance/fail_count", 1e3)) == set()
}

bad_skills := [
	["/extra", 1, "/extra"],
	["/skill", "", "/skill"],
	["/skill", null, "/skill"],
	["/requested", null, "/requested"],
	["/requested", "root", "/requested"],
	["/approval", "pending", "/approval"],
	["/approval", true, "/approval"],
	["/provenance", [], "/provenance"],
	["/provenance/extra", 1, "/provenance/extra"],
	["/provenance/signed", "true", "/provenance/signed"],
	["/provenance/signer_trusted", 1, "/provenance/signer_trusted"],
	["/provenance/scanned", [], "/provenance/scanned"],
	["/provenance/vulnerabilities", -1, "/provenance/vulnerabilities"],
	["/provenance/success_count", 1.5, "/provenance/success_count"],
	["/provenance/fail_count", 18446744073709551616, "/provenance/fail_count"],
	["/provenance/fail_count", "3", "/provenance/fail_count"],
	["/provenance/source", "me", "/provenance/source"],
]

test_bad_skills if {
	every row in bad_skills {
		[path, value, pointer] := row
		skill_pointers(patched(skill, path, value)) == {pointer}
	}
}

test_complaint if {
	wire.complaint("call", {["", "an object"]}) == "The call document breaks its schema: expected an object."
	problems := {["/tool", "an object"], ["/taint", `"clean" or "tainted"`]}
	wire.complaint("call", problems) == `The call document breaks its schema at /taint: expected "clean" or "tainted".`
}
