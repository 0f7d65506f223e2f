package gate.wire

# METADATA
# title: What is wrong with a skill document
# scope: document
skill_problems contains problem if {
	not is_document
	problem := ["", "an object"]
}

skill_problems contains problem if {
	some problem in unknown_members(document, "", {"skill", "requested", "provenance", "approval"})
}

skill_problems contains problem if {
	is_object(input)
	not nonempty_text(object.get(document, "skill", null))
	problem := ["/skill", "a text that is not empty"]
}

skill_problems contains problem if {
	is_object(input)
	not object.get(document, "requested", null) in tiers
	problem := ["/requested", concat(" or ", sort(tiers))]
}

skill_problems contains problem if {
	not optional_in(document, "approval", {"approved", "rejected"})
	problem := ["/approval", "approved or rejected"]
}

skill_problems contains problem if {
	not optional_object(document, "provenance")
	problem := ["/provenance", "an object"]
}

skill_problems contains problem if {
	some problem in unknown_members(provenance, "/provenance", {
		"signed",
		"signer_trusted",
		"scanned",
		"vulnerabilities",
		"success_count",
		"fail_count",
		"source",
	})
}

skill_problems contains problem if {
	some name in ["signed", "signer_trusted", "scanned"]
	not optional_boolean(provenance, name)
	problem := [concat("/", ["/provenance", name]), "true or false"]
}

skill_problems contains problem if {
	some name in ["vulnerabilities", "success_count", "fail_count"]
	not optional_counter(provenance, name)
	problem := [concat("/", ["/provenance", name]), "an integer from 0 to 18446744073709551615"]
}

skill_problems contains problem if {
	not optional_in(provenance, "source", sources)
	problem := ["/provenance/source", concat(" or ", sort(sources))]
}

# METADATA
# title: The provenance, empty where there is none
# scope: document
default provenance := {}

provenance := input.provenance if is_object(input.provenance)

# METADATA
# title: The tiers
# scope: document
tiers := {"read_only", "sandbox_edit", "full_access"}

# METADATA
# title: The sources
# scope: document
sources := {"official", "first_party", "community", "unknown"}
