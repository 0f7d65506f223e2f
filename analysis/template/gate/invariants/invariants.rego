# METADATA
# title: What must never be answered, whatever the rules say
# description: |
#   opa-gate policy verify holds these rules against every decision that the
#   policies can make. The input is the document and the answer to it: call and
#   decision, or skill and decision. No decision depends on them.
# schemas:
#   - input: schema.invariant
package gate.invariants

# METADATA
# title: What an answer breaks
# description: Each message is one sentence; a decision without any is as it must be.
# scope: document
breach contains message if {
	input.decision.outcome in {"allow", "modify", "inject_context"}
	input.call.tool.origin in {"access-grant", "access-revoke", "admin-manage", "admin-grant"}
	message := "a call that changes who has access is answered without a person"
}

# Another example. Take the number signs away, and verify shows a call that breaks
# it: no rule looks for such names yet.
#
# breach contains message if {
# 	input.decision.outcome == "allow"
# 	startswith(input.call.tool.name, "pay_")
# 	message := "a payment is made without a person"
# }
