# METADATA
# title: What taint revokes
# description: |
#   Once untrusted content is in the conversation, the calls by which it could
#   do harm beyond it are no longer granted.
# schemas:
#   - input: schema.call
package gate.taint

import data.gate.facts
import data.gate.grant

# METADATA
# title: The mask that is revoked at this moment
# description: |
#   A taint that is neither clean nor tainted revokes nothing known, so this is
#   undefined for it and nothing is allowed.
# scope: document
revoked := 0 if input.taint == "clean"

revoked := facts.bit["arbitrary-egress"] + facts.bit["mutate-external"] if input.taint == "tainted"

# METADATA
# title: The mask that the call is granted
# scope: document
granted := bits.and(grant.base, bits.negate(revoked))
