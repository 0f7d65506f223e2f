# METADATA
# title: Whether outside content can have steered a call
# description: |
#   A session that outside content has entered is tainted, and stays so. This is a
#   finer rule: for a single call of it, by what is known about who wrote the call.
#   A call that it finds not steered is decided as in a clean session, and no
#   further: what a clean session may not do, this does not allow.
#
#   Each relaxation is a name in relax; without it the rule below does not apply.
# schemas:
#   - input: schema.steering
package gate.steering

import data.gate.profile
import data.gate.steering.relax

# METADATA
# title: The taint under which the call is decided
# description: What is not known to be clean is tainted.
# scope: document
default taint := "tainted"

taint := "clean" if input.session == "clean"

taint := "clean" if {
	input.session == "tainted"
	relaxed
}

# METADATA
# title: The call is an exception
# description: |
#   own-undoable: it changes the person's own things, and the person can undo that.
#   Given up: outside content can make such changes, until somebody notices.
#
#   typed-call: the person typed where it goes and every text in it. Given up:
#   outside content can choose whether and when it is made, how often, with which
#   dates, and which typed text goes where.
#
#   typed-aim: the person typed where it goes, and no address that the person did not
#   type is in it. Given up: outside content can word what goes to those whom the
#   person named, and put into it what the agent knows.
# scope: document
relaxed if {
	"own-undoable" in relax
	profile.origin in {"local-sandbox", "first-party", "registered-connector"}
	input.effect == "own-undoable"
}

relaxed if {
	"typed-call" in relax
	aimed
	input.payload in {"inert", "typed"}
}

relaxed if {
	"typed-aim" in relax
	aimed
	input.payload in {"plain", "inert", "typed"}
}

# METADATA
# title: The person typed where the call goes
# description: |
#   A tool that the operator has not placed is no exception, nor is one that changes
#   who has access.
# scope: document
aimed if {
	profile.origin in {"local-sandbox", "fetcher", "first-party", "registered-connector"}
	input.effect == "outside"
	input.aim == "typed"
}
