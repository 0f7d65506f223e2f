package gate.taint

import data.gate.profile

# METADATA
# title: The result of a call taints the conversation
# description: |
#   It does if its tool is open-world, of unknown origin or a fetcher, or if the
#   operator says that others write in what it returns. What cannot be told taints:
#   only a document that says all that is needed makes this false.
#
#   No decision on a call depends on it. Whoever follows a conversation asks it,
#   about each result.
# schemas:
#   - input: schema.result
# scope: document
default result := true

result := false if {
	profile.origin in own_origins
	profile.open_world == false
	object.get(input, "untrusted_result", null) in {false, null}
}

# METADATA
# title: The origins of which the operator has said what their tools are
# description: |
#   Of these a tool may say that its results hold nothing from elsewhere. A fetcher
#   brings what is elsewhere, whatever it says.
# scope: document
own_origins := {
	"local-sandbox",
	"first-party",
	"registered-connector",
	"access-grant",
	"access-revoke",
	"admin-manage",
	"admin-grant",
}
