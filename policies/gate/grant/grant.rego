# METADATA
# title: What the operator grants
# description: |
#   The operator's policy is a list of capability names. A marker is no more
#   grantable than a typo is: both grant nothing and are reported.
# schemas:
#   - input: schema.call
package gate.grant

import data.gate.facts

# METADATA
# title: The mask of the operator's policy
# description: |
#   A document that states none grants every grantable capability; an empty list
#   grants nothing.
# scope: document
base := sum({facts.grantable[name] | some name in input.grant.base}) if {
	is_array(input.grant.base)
} else := facts.all

# METADATA
# title: The names that grant nothing
# description: In the order in which the operator lists them.
# scope: document
default unknown := []

unknown := [name |
	some name in input.grant.base
	not facts.grantable[name]
] if {
	is_array(input.grant.base)
}
