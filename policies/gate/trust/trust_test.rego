package gate.trust_test

import data.gate.trust

best := {"signed": true, "signer_trusted": true, "scanned": true, "source": "official"}

without(name) := object.remove(best, {name})

level_of(provenance) := level if {
	level := trust.level with input as {"provenance": provenance}
}

ceiling_of(provenance) := ceiling if {
	ceiling := trust.ceiling with input as {"provenance": provenance}
}

test_official if {
	level_of(best) == "official"
	ceiling_of(best) == "full_access"
}

test_verified if {
	every provenance in [
		without("signer_trusted"), without("source"),
		object.union(best, {"source": "first_party"}),
		object.union(best, {"source": "community"}),
		object.union(best, {"source": null}),
		{"signed": true, "scanned": true},
	] {
		level_of(provenance) == "verified"
		ceiling_of(provenance) == "sandbox_edit"
	}
}

test_community if {
	every provenance in [without("signed"), {"scanned": true}, {"scanned": true, "signer_trusted": true}] {
		level_of(provenance) == "community"
		ceiling_of(provenance) == "read_only"
	}
}

test_untrusted if {
	every provenance in [{}, null, without("scanned"), {"signed": true}, object.union(best, {"scanned": null})] {
		level_of(provenance) == "untrusted"
		ceiling_of(provenance) == null
	}
	trust.level == "untrusted" with input as {}
}

test_vulnerabilities if {
	level_of(object.union(best, {"vulnerabilities": 0})) == "official"
	level_of(object.union(best, {"vulnerabilities": null})) == "official"
	level_of(object.union(best, {"vulnerabilities": 1})) == "untrusted"
	level_of(object.union(best, {"vulnerabilities": 18446744073709551615})) == "untrusted"
}

counts := [
	[0, 2, "official"],
	[0, 3, "untrusted"],
	[5, 7, "official"],
	[5, 8, "untrusted"],
	[null, 3, "untrusted"],
	[3, null, "official"],
	[18446744073709551615, 18446744073709551615, "official"],
	[18446744073709551614, 18446744073709551615, "official"],
	[18446744073709551613, 18446744073709551615, "official"],
	[18446744073709551612, 18446744073709551615, "untrusted"],
	[18446744073709551615, 0, "official"],
	[18446744073709551615, 1, "official"],
	[0, 18446744073709551615, "untrusted"],
	[9007199254740992, 9007199254740994, "official"],
	[9007199254740992, 9007199254740995, "untrusted"],
]

test_degraded if {
	every row in counts {
		[successes, failures, want] := row
		level_of(object.union(best, {"success_count": successes, "fail_count": failures})) == want
	}
}

distrust_of(provenance) := distrust if {
	distrust := trust.distrust with input as {"provenance": provenance}
}

test_distrust if {
	distrust_of({}) == "It is not trusted: no scan of it is known."
	distrust_of({"vulnerabilities": 1}) == "It is not trusted: a scan found vulnerabilities in it."
	both := {"vulnerabilities": 1, "fail_count": 3}
	distrust_of(both) == "It is not trusted: it has failed clearly more often than it has succeeded."
}

test_source_left_out_is_unknown if {
	trust.source == "unknown" with input as {"provenance": {}}
	trust.source == "first_party" with input as {"provenance": {"source": "first_party"}}
}
