# METADATA
# title: What happens to a skill
# description: |
#   What the gate allows or downgrades needs no person. For a deny it counts what
#   a person decided about this skill at the tier that was asked for.
# schemas:
#   - input: schema.skill
package gate.enforcement

# METADATA
# title: The enforcement of a gate's decision
# scope: document
enforce(gate) := object.union(unchanged, {
	"deploy": true,
	"effective_tier": gate.granted,
	"reason": concat("", ["It is deployed at ", gate.granted, "; no person needs to decide."]),
}) if {
	gate.outcome in {"allow", "downgrade"}
} else := object.union(unchanged, {
	"deploy": true,
	"effective_tier": input.requested,
	"overridden": true,
	"reason": concat("", ["It is deployed at ", input.requested, ": a person approved that."]),
}) if {
	gate.outcome == "deny"
	input.approval == "approved"
} else := object.union(unchanged, {
	"blocked": true,
	"reason": concat("", ["It is blocked: a person rejected it at ", input.requested, "."]),
}) if {
	gate.outcome == "deny"
	input.approval == "rejected"
} else := object.union(unchanged, {
	"pending": {
		"fingerprint": fingerprint,
		"skill_name": input.skill,
		"requested": input.requested,
		"decision": gate,
	},
	"reason": concat("", ["It waits for a person to decide about ", input.requested, "."]),
}) if {
	gate.outcome == "deny"
}

# METADATA
# title: The name of the ledger's entry
# description: |
#   No tier has a colon in its name, so two different pairs of skill and tier
#   never share an entry, whatever characters the skill's name has.
# scope: document
fingerprint := concat(":", ["skill_deploy", input.skill, input.requested])

# METADATA
# title: An enforcement in which nothing happens
# scope: document
unchanged := {
	"deploy": false,
	"effective_tier": null,
	"overridden": false,
	"blocked": false,
	"pending": null,
}
