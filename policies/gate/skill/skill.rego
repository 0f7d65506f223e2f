# METADATA
# title: The decision on a skill
# description: |
#   Takes a skill document and answers with what the skill may be deployed at.
# schemas:
#   - input: schema.skill
package gate.skill

import data.gate.enforcement
import data.gate.trust
import data.gate.wire

# METADATA
# title: The decision and its enforcement
# description: |
#   Always defined. A document that breaks the schema, and one that no rule below
#   answers, is denied and blocked.
# entrypoint: true
# scope: document
default decision := {
	"trust": "untrusted",
	"ceiling": null,
	"granted": null,
	"outcome": "deny",
	"reason": "The skill could not be decided: the policy's rules are incomplete.",
	"enforcement": {
		"deploy": false,
		"effective_tier": null,
		"overridden": false,
		"blocked": true,
		"pending": null,
		"reason": "It is blocked: the request could not be decided.",
	},
}

decision := {
	"trust": "untrusted",
	"ceiling": null,
	"granted": null,
	"outcome": "deny",
	"reason": wire.complaint("skill", wire.skill_problems),
	"enforcement": object.union(enforcement.unchanged, {
		"blocked": true,
		"reason": "It is blocked: the request could not be decided.",
	}),
} if {
	count(wire.skill_problems) > 0
}

decision := object.union(gate, {"enforcement": enforcement.enforce(gate)}) if count(wire.skill_problems) == 0

# METADATA
# title: The deployment gate
# description: |
#   Without a ceiling nothing is granted; otherwise the lower of the request and
#   the ceiling is.
# scope: document
gate := {
	"trust": trust.level,
	"ceiling": null,
	"granted": null,
	"outcome": "deny",
	"reason": trust.distrust,
} if {
	trust.ceiling == null
} else := {
	"trust": trust.level,
	"ceiling": trust.ceiling,
	"granted": input.requested,
	"outcome": "allow",
	"reason": concat("", ["Its trust is ", trust.level, ", which is enough for ", input.requested, "."]),
} if {
	rank[input.requested] <= rank[trust.ceiling]
} else := {
	"trust": trust.level,
	"ceiling": trust.ceiling,
	"granted": trust.ceiling,
	"outcome": "downgrade",
	"reason": concat("", [
		"Its trust is ", trust.level, ", which is enough for ", trust.ceiling,
		" but not for ", input.requested, ".",
	]),
} if {
	rank[input.requested] > rank[trust.ceiling]
}

# METADATA
# title: The order of the tiers
# scope: document
rank := {"read_only": 1, "sandbox_edit": 2, "full_access": 3}
