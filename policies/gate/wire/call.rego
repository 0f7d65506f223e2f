# METADATA
# title: Whether a document keeps its schema
# description: |
#   The schemas themselves, as rules: an OPA that has nothing but these policies
#   must know a broken document from a good one. Each problem is a pair of the
#   JSON pointer where it is and what would have been right. A null stands for a
#   member that is left out.
package gate.wire

# METADATA
# title: What is wrong with a call document
# scope: document
call_problems contains problem if {
	not is_document
	problem := ["", "an object"]
}

call_problems contains problem if {
	some problem in unknown_members(document, "", {"tool", "grant", "taint", "policy"})
}

call_problems contains problem if {
	is_object(input)
	not object.get(document, "taint", null) in {"clean", "tainted"}
	problem := ["/taint", `"clean" or "tainted"`]
}

call_problems contains problem if {
	is_object(input)
	not is_object(object.get(document, "tool", null))
	problem := ["/tool", "an object"]
}

call_problems contains problem if {
	some problem in unknown_members(tool, "/tool", {
		"name",
		"origin",
		"read_only",
		"destructive",
		"open_world",
	})
}

call_problems contains problem if {
	is_object(input.tool)
	not nonempty_text(object.get(tool, "name", null))
	problem := ["/tool/name", "a text that is not empty"]
}

call_problems contains problem if {
	not optional_in(tool, "origin", origins)
	problem := ["/tool/origin", concat(" or ", sort(origins))]
}

call_problems contains problem if {
	some name in ["read_only", "destructive", "open_world"]
	not optional_boolean(tool, name)
	problem := [concat("/", ["/tool", name]), "true or false"]
}

call_problems contains problem if {
	not optional_object(document, "grant")
	problem := ["/grant", "an object"]
}

call_problems contains problem if {
	some problem in unknown_members(grant, "/grant", {"base"})
}

call_problems contains problem if {
	not optional_array(grant, "base")
	problem := ["/grant/base", "an array"]
}

call_problems contains problem if {
	is_array(input.grant.base)
	some i, name in input.grant.base
	not is_string(name)
	problem := [concat("/", ["/grant/base", format_int(i, 10)]), "a string"]
}

call_problems contains problem if {
	not optional_object(document, "policy")
	problem := ["/policy", "an object"]
}

call_problems contains problem if {
	some problem in unknown_members(policy, "/policy", {
		"veto",
		"requires_human",
		"sandbox_escalation",
		"transform",
	})
}

call_problems contains problem if {
	not optional_string(policy, "veto")
	problem := ["/policy/veto", "a string"]
}

call_problems contains problem if {
	some name in ["requires_human", "sandbox_escalation"]
	not optional_boolean(policy, name)
	problem := [concat("/", ["/policy", name]), "true or false"]
}

call_problems contains problem if {
	not optional_object(policy, "transform")
	problem := ["/policy/transform", "an object"]
}

call_problems contains problem if {
	is_object(input.policy.transform)
	not object.get(transform, "kind", null) in transforms
	problem := ["/policy/transform/kind", concat(" or ", sort(transforms))]
}

call_problems contains problem if {
	some problem in unknown_members(transform, "/policy/transform", {"kind", "arguments", "note"})
}

# What stands beside the kind depends on it. A kind that is not known is a
# problem of its own; what stands beside it must still be of its type.
call_problems contains problem if {
	transform.kind == "rewrite"
	not is_object(object.get(transform, "arguments", null))
	problem := ["/policy/transform/arguments", "an object"]
}

call_problems contains problem if {
	transform.kind == "inject_context"
	not is_string(object.get(transform, "note", null))
	problem := ["/policy/transform/note", "a string"]
}

call_problems contains problem if {
	transform.kind in {"none", "inject_context"}
	not is_null(object.get(transform, "arguments", null))
	problem := ["/policy/transform/arguments", "no such member beside this kind"]
}

call_problems contains problem if {
	transform.kind in {"none", "rewrite"}
	not is_null(object.get(transform, "note", null))
	problem := ["/policy/transform/note", "no such member beside this kind"]
}

call_problems contains problem if {
	not optional_object(transform, "arguments")
	problem := ["/policy/transform/arguments", "an object"]
}

call_problems contains problem if {
	not optional_string(transform, "note")
	problem := ["/policy/transform/note", "a string"]
}

# METADATA
# title: The input can be a document at all
# scope: document
default is_document := false

is_document if is_object(input)

# METADATA
# title: The document, empty where there is none, so that no check is skipped
# scope: document
default document := {}

document := input if is_object(input)

# METADATA
# title: The tool, empty where there is none
# scope: document
default tool := {}

tool := input.tool if is_object(input.tool)

# METADATA
# title: The grant, empty where there is none
# scope: document
default grant := {}

grant := input.grant if is_object(input.grant)

# METADATA
# title: The verdict, empty where there is none
# scope: document
default policy := {}

policy := input.policy if is_object(input.policy)

# METADATA
# title: The transform, empty where there is none
# scope: document
default transform := {}

transform := input.policy.transform if is_object(input.policy.transform)

# METADATA
# title: The kinds of transform
# scope: document
transforms := {"none", "rewrite", "inject_context"}

# METADATA
# title: The origins
# scope: document
origins := {
	"unknown",
	"local-sandbox",
	"fetcher",
	"first-party",
	"registered-connector",
	"access-grant",
	"access-revoke",
	"admin-manage",
	"admin-grant",
}
