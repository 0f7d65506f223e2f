# METADATA
# title: The decision on a tool call
# description: |
#   Takes a call document and answers with a decision document. The precedence
#   below is set algebra: no step of it names a capability.
# schemas:
#   - input: schema.call
package gate.call

import data.gate.escalation
import data.gate.facts
import data.gate.grant
import data.gate.profile
import data.gate.taint
import data.gate.wire

# METADATA
# title: The decision
# description: |
#   Always defined. A document that breaks the schema, and one that no step below
#   answers, is denied.
# entrypoint: true
# scope: document
default decision := {
	"outcome": "deny",
	"reason": "The call could not be decided: the policy's facts or rules are incomplete.",
	"missing": [],
	"missing_mask": 0,
	"required": [],
	"required_mask": 0,
	"granted": [],
	"granted_mask": 0,
}

decision := object.union(nothing, {
	"outcome": "deny",
	"reason": wire.complaint("call", wire.call_problems),
	"required": [],
	"required_mask": 0,
	"granted": [],
	"granted_mask": 0,
}) if {
	count(wire.call_problems) > 0
}

decision := object.union_n([nothing, basis, answer, warnings]) if count(wire.call_problems) == 0

# METADATA
# title: The mask of what the call requires and is not granted
# scope: document
missing := bits.and(profile.required, bits.negate(taint.granted))

# METADATA
# title: The precedence
# description: |
#   The first step that applies answers. Every step asserts what it needs, so one
#   whose masks are undefined is passed over and ends in the default deny, never
#   in an allow.
# scope: document
answer := {"outcome": "deny", "reason": input.policy.veto} if {
	is_string(input.policy.veto)
} else := {
	"outcome": "escalate",
	"reason": escalation.reason(missing, input.tool.name),
	"missing": facts.names[missing],
	"missing_mask": missing,
} if {
	missing > 0
} else := {"outcome": "escalate", "reason": ""} if {
	missing == 0
	asks_for_person
} else := {"outcome": "allow", "reason": ""} if {
	missing == 0
	transform == "none"
} else := {
	"outcome": "modify",
	"reason": "",
	"arguments": input.policy.transform.arguments,
} if {
	missing == 0
	transform == "rewrite"
} else := {
	"outcome": "inject_context",
	"reason": "",
	"note": input.policy.transform.note,
} if {
	missing == 0
	transform == "inject_context"
}

# METADATA
# title: The verdict asks for a person whatever is granted
# scope: document
asks_for_person if input.policy.requires_human == true

asks_for_person if input.policy.sandbox_escalation == true

# METADATA
# title: The kind of the verdict's transform
# scope: document
default transform := "none"

transform := input.policy.transform.kind if is_object(input.policy.transform)

# METADATA
# title: What is missing in every answer but one
# scope: document
nothing := {"missing": [], "missing_mask": 0}

# METADATA
# title: What the answer rests on, whatever it is
# scope: document
basis := {
	"required": facts.names[profile.required],
	"required_mask": profile.required,
	"granted": facts.names[taint.granted],
	"granted_mask": taint.granted,
}

# METADATA
# title: What the answer warns of
# scope: document
default warnings := {}

warnings := {"warnings": [concat("", [`unknown capability "`, name, `"`]) | some name in grant.unknown]} if {
	count(grant.unknown) > 0
}
