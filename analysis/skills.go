package analysis

import (
	"math"

	"github.com/opa-gate/opa-gate/skill"
)

// counters are pairs of success and fail counts on either side of where trust
// turns (specification, section 6), at both ends of their range.
var counters = [][2]uint64{
	{0, 0}, {0, 2}, {0, 3}, {1, 0}, {5, 7}, {5, 8},
	{0, math.MaxUint64}, {math.MaxUint64, 0}, {math.MaxUint64, math.MaxUint64},
	{math.MaxUint64 - 2, math.MaxUint64}, {math.MaxUint64 - 3, math.MaxUint64},
}

// skillRequests lists the domain of skills: every value of each finite member,
// and the counts that a rule can turn on.
func skillRequests() []skill.Request {
	var requests []skill.Request
	for _, requested := range []skill.Tier{skill.ReadOnly, skill.SandboxEdit, skill.FullAccess} {
		for _, approval := range []skill.Verdict{skill.NoVerdict, skill.Approved, skill.Rejected} {
			for source := skill.UnknownSource; validSource(source); source++ {
				for flags := range 8 {
					for _, vulnerabilities := range []uint64{0, 1, math.MaxUint64} {
						for _, count := range counters {
							requests = append(requests, skill.Request{Skill: "skill", Requested: requested, Approval: approval,
								Provenance: skill.Provenance{Signed: flags&1 != 0, SignerTrusted: flags&2 != 0, Scanned: flags&4 != 0,
									Vulnerabilities: vulnerabilities, SuccessCount: count[0], FailCount: count[1], Source: source}})
						}
					}
				}
			}
		}
	}
	return requests
}

func validSource(s skill.Source) bool {
	_, ok := skill.ParseSource(s.String())
	return ok
}
