package gate.escalation_test

import data.gate.escalation

sentences := {
	32: `"t" would let someone into this system, so confirm exactly who it is.`,
	64: `"t" would remove someone's access to this system, so confirm exactly whose it is.`,
	256: `"t" would make someone an admin of this system, so confirm exactly who it is.`,
	128: `"t" would take away someone's admin role in this system, so confirm exactly whose it is.`,
	24: `Outside content may be in this conversation, so check "t" before it could send something out or change something beyond it.`,
	8: `Check "t" before it could reach an outside address.`,
	16: `Check "t" before it could change something beyond this conversation.`,
	1: `"t" needs more access than this conversation has.`,
}

test_each_sentence if {
	every missing, want in sentences {
		escalation.reason(missing, "t") == want
	}
}

# Each row is everything from its own member down: the first match wins.
test_first_match_wins if {
	every missing, same in {511: 32, 479: 64, 415: 256, 159: 128, 31: 24, 15: 8, 23: 16, 7: 1, 2: 1, 4: 1} {
		escalation.reason(missing, "t") == sentences[same]
	}
}

test_grant_admin_before_manage_admin if escalation.reason(384, "t") == sentences[256]

test_the_sentence_names_the_tool if {
	every missing, _ in sentences {
		contains(escalation.reason(missing, "send mail"), `"send mail"`)
	}
}

test_the_system_is_a_setting if {
	want := `"t" would let someone into Acme, so confirm exactly who it is.`
	escalation.reason(32, "t") == want with data.gate.settings as {"system": "Acme"}
}

test_a_setting_that_is_no_name_leaves_the_default if {
	every settings in [{}, {"system": ""}, {"system": null}, {"system": 7}] {
		escalation.system == "this system" with data.gate.settings as settings
	}
}

test_no_names_claims_nothing if {
	escalation.reason(32, "t") == sentences[1] with data.gate.facts as {}
}
