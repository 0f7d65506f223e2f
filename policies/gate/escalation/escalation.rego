# METADATA
# title: What a person is told who is asked about a call
package gate.escalation

import data.gate.facts
import data.gate.settings

# METADATA
# title: One sentence for the person
# description: |
#   The first match wins. The sentence names the tool and claims no more than the
#   missing capabilities tell: that the call could do something, not that it does.
reason(missing, tool) := concat("", [`"`, tool, `" would let someone into `, system, ", so confirm exactly who it is."]) if {
	lacks(missing, "grant-access")
} else := concat("", [`"`, tool, `" would remove someone's access to `, system, ", so confirm exactly whose it is."]) if {
	lacks(missing, "revoke-access")
} else := concat("", [`"`, tool, `" would make someone an admin of `, system, ", so confirm exactly who it is."]) if {
	lacks(missing, "grant-admin")
} else := concat("", [
	`"`, tool, `" would take away someone's admin role in `, system, ", so confirm exactly whose it is.",
]) if {
	lacks(missing, "manage-admin")
} else := concat("", [
	`Outside content may be in this conversation, so check "`, tool,
	`" before it could send something out or change something beyond it.`,
]) if {
	lacks(missing, "arbitrary-egress")
	lacks(missing, "mutate-external")
} else := concat("", [`Check "`, tool, `" before it could reach an outside address.`]) if {
	lacks(missing, "arbitrary-egress")
} else := concat("", [`Check "`, tool, `" before it could change something beyond this conversation.`]) if {
	lacks(missing, "mutate-external")
} else := concat("", [`"`, tool, `" needs more access than this conversation has.`])

# METADATA
# title: What the sentences call this system
# description: An installation's own name, from its settings.
# scope: document
default system := "this system"

system := settings.system if {
	is_string(settings.system)
	settings.system != ""
}

# METADATA
# title: A capability is among the missing ones
# scope: document
lacks(missing, name) if name in facts.names[missing]
