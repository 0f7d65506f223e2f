# METADATA
# title: What a tool requires
# description: |
#   A tool's profile is its origin, which the operator states, and three
#   annotations, which the tool claims. An annotation that is left out, or null,
#   takes the meaning that MCP gives it.
# schemas:
#   - input: schema.call
package gate.profile

import data.gate.facts

# METADATA
# title: The tool's origin
# description: An origin that is left out is unknown, and unknown requires everything.
# scope: document
default origin := "unknown"

origin := input.tool.origin if is_string(input.tool.origin)

# METADATA
# title: The read_only annotation
# scope: document
default read_only := false

read_only := input.tool.read_only if is_boolean(input.tool.read_only)

# METADATA
# title: The destructive annotation
# description: |
#   Left out, a tool is destructive unless it is read-only. A value that is given
#   is taken as given, even beside read_only.
# scope: document
destructive := input.tool.destructive if {
	is_boolean(input.tool.destructive)
} else := read_only == false

# METADATA
# title: The open_world annotation
# description: |
#   Says that the tool's result may carry content of uncontrolled origin. It
#   never changes what is required, so no decision reads it. Whether the result
#   taints the conversation does.
# scope: document
default open_world := true

open_world := input.tool.open_world if is_boolean(input.tool.open_world)

# METADATA
# title: The mask of the capabilities that the call requires
# description: |
#   One rule an origin; no two apply to the same tool. Without a rule, or without
#   a fact, it stays undefined and nothing is allowed.
# scope: document
required := facts.bit["local-read"] if {
	origin == "local-sandbox"
	read_only
}

required := facts.bit["local-read"] + facts.bit["local-write"] if {
	origin == "local-sandbox"
	not read_only
}

required := facts.bit["arbitrary-egress"] if {
	origin == "fetcher"
	not destructive
}

required := facts.bit["arbitrary-egress"] + facts.bit["mutate-external"] if {
	origin == "fetcher"
	destructive
}

required := facts.bit["fixed-connector-read"] if {
	origin in connectors
	reads_only
}

required := facts.bit["fixed-connector-read"] + facts.bit["mutate-external"] if {
	origin in connectors
	not reads_only
}

required := facts.bit["grant-access"] if origin == "access-grant"

required := facts.bit["revoke-access"] if origin == "access-revoke"

required := facts.bit["manage-admin"] if origin == "admin-manage"

required := facts.bit["grant-admin"] if origin == "admin-grant"

required := facts.all if origin == "unknown"

# METADATA
# title: The origins whose endpoints the operator has vouched for
# scope: document
connectors := {"first-party", "registered-connector"}

# METADATA
# title: The tool only reads, by what it says and does not contradict
# scope: document
reads_only if {
	read_only
	not destructive
}
