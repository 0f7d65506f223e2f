# METADATA
# title: How far a skill is trusted
# description: |
#   Trust follows from a skill's provenance, and a ceiling from trust. Whatever
#   the provenance leaves out, or gives as null, counts against the skill.
# schemas:
#   - input: schema.skill
package gate.trust

# METADATA
# title: The trust tier
# description: The first match wins.
# scope: document
level := "untrusted" if {
	degraded
} else := "untrusted" if {
	vulnerabilities > 0
} else := "official" if {
	signed
	signer_trusted
	scanned
	source == "official"
} else := "verified" if {
	signed
	scanned
} else := "community" if {
	scanned
} else := "untrusted"

# METADATA
# title: The highest tier that this trust may run at
# scope: document
default ceiling := null

ceiling := "full_access" if level == "official"

ceiling := "sandbox_edit" if level == "verified"

ceiling := "read_only" if level == "community"

# METADATA
# title: The skill failed clearly more often than it succeeded
# description: |
#   A difference of two 64-bit counts is exact, where a sum of them can round.
# scope: document
degraded if failures - successes > 2

# METADATA
# title: Why the skill is untrusted
# scope: document
distrust := "It is not trusted: it has failed clearly more often than it has succeeded." if {
	degraded
} else := "It is not trusted: a scan found vulnerabilities in it." if {
	vulnerabilities > 0
} else := "It is not trusted: no scan of it is known."

# METADATA
# title: The skill carries a valid signature
# scope: document
signed if input.provenance.signed == true

# METADATA
# title: The operator trusts the signer
# scope: document
signer_trusted if input.provenance.signer_trusted == true

# METADATA
# title: A scanner has looked at the skill
# scope: document
scanned if input.provenance.scanned == true

# METADATA
# title: Who publishes the skill
# scope: document
default source := "unknown"

source := input.provenance.source if is_string(input.provenance.source)

# METADATA
# title: What the scanner found
# scope: document
default vulnerabilities := 0

vulnerabilities := input.provenance.vulnerabilities if is_number(input.provenance.vulnerabilities)

# METADATA
# title: How often the skill succeeded
# scope: document
default successes := 0

successes := input.provenance.success_count if is_number(input.provenance.success_count)

# METADATA
# title: How often the skill failed
# scope: document
default failures := 0

failures := input.provenance.fail_count if is_number(input.provenance.fail_count)
