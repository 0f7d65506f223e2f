package skill

import (
	"encoding/json"
	"errors"
	"math"
	"testing"
)

var trustExamples = map[Trust]Provenance{
	Untrusted:      {},
	CommunityTrust: {Scanned: true},
	Verified:       {Scanned: true, Signed: true},
	OfficialTrust:  best,
}

func TestGate(t *testing.T) {
	type row struct {
		outcome Outcome
		granted Tier
	}
	deny := row{Deny, NoTier}
	// By trust, then by requested tier: none, read_only, sandbox_edit, full_access, one beyond.
	wants := map[Trust][5]row{
		Untrusted:      {deny, deny, deny, deny, deny},
		CommunityTrust: {deny, {Allow, ReadOnly}, {Downgrade, ReadOnly}, {Downgrade, ReadOnly}, deny},
		Verified:       {deny, {Allow, ReadOnly}, {Allow, SandboxEdit}, {Downgrade, SandboxEdit}, deny},
		OfficialTrust:  {deny, {Allow, ReadOnly}, {Allow, SandboxEdit}, {Allow, FullAccess}, deny},
	}
	for trust, want := range wants {
		for tier, w := range want {
			d := Gate(trustExamples[trust], Tier(tier))
			if d.Trust != trust || d.Ceiling != trust.Ceiling() || d.Outcome != w.outcome || d.Granted != w.granted || d.Reason == "" {
				t.Errorf("%v, %v: got %+v, want %v", trust, Tier(tier), d, w)
			}
		}
	}
	if got := Gate(best, 255); got.Outcome != Deny || got.Granted != NoTier {
		t.Errorf("tier 255: %+v", got)
	}
}

func TestGateReasons(t *testing.T) {
	tests := []struct {
		p    Provenance
		tier Tier
		want string
	}{
		{Provenance{}, ReadOnly, "It is not trusted: no scan of it is known."},
		{Provenance{Vulnerabilities: 1}, ReadOnly, "It is not trusted: a scan found vulnerabilities in it."},
		{Provenance{Vulnerabilities: 1, FailCount: 3}, ReadOnly,
			"It is not trusted: it has failed clearly more often than it has succeeded."},
		{best, FullAccess, "Its trust is official, which is enough for full_access."},
		{trustExamples[Verified], FullAccess,
			"Its trust is verified, which is enough for sandbox_edit but not for full_access."},
	}
	for _, tt := range tests {
		if got := Gate(tt.p, tt.tier).Reason; got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

// everyProvenance yields all booleans and sources with the counters at their
// boundaries.
func everyProvenance(yield func(Provenance)) {
	const top = uint64(math.MaxUint64)
	counters := [][2]uint64{{0, 0}, {0, 2}, {0, 3}, {top, top}, {top, 0}, {top - 2, top}, {top - 3, top}, {0, top}}
	for bits := range 8 {
		for source := UnknownSource; source <= Official; source++ {
			for _, vulnerabilities := range []uint64{0, 1, top} {
				for _, c := range counters {
					yield(Provenance{bits&1 != 0, bits&2 != 0, bits&4 != 0, vulnerabilities, c[0], c[1], source})
				}
			}
		}
	}
}

func TestGrantedIsNeverAboveCeilingOrRequest(t *testing.T) {
	everyProvenance(func(p Provenance) {
		for tier := NoTier; tier <= FullAccess+1; tier++ {
			d := Gate(p, tier)
			switch {
			case d.Granted > d.Ceiling, d.Granted > tier:
				t.Fatalf("%+v at %v: granted %v, ceiling %v", p, tier, d.Granted, d.Ceiling)
			case (d.Outcome == Allow) != (tier.Valid() && d.Granted == tier):
				t.Fatalf("%+v at %v: %v", p, tier, d.Outcome)
			case (d.Outcome == Deny) != (d.Granted == NoTier):
				t.Fatalf("%+v at %v: %v grants %v", p, tier, d.Outcome, d.Granted)
			}
			for verdict := NoVerdict; verdict <= Rejected; verdict++ {
				e := Enforce("s", tier, d, verdict)
				if e.EffectiveTier > d.Granted && !(e.Overridden && verdict == Approved && e.EffectiveTier == tier) {
					t.Fatalf("%+v at %v: %v deploys at %v", p, tier, d.Outcome, e.EffectiveTier)
				}
				if e.Deploy != (e.EffectiveTier != NoTier) {
					t.Fatalf("%+v at %v: deploy %v at %v", p, tier, e.Deploy, e.EffectiveTier)
				}
				if n := btoi(e.Deploy) + btoi(e.Blocked) + btoi(e.Pending != nil); n != 1 {
					t.Fatalf("%+v at %v: %d things happen", p, tier, n)
				}
			}
		}
	})
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestEnforce(t *testing.T) {
	deny := Decision{Trust: Untrusted, Outcome: Deny, Reason: "r"}
	allow := Decision{Trust: CommunityTrust, Ceiling: ReadOnly, Granted: ReadOnly, Outcome: Allow, Reason: "r"}
	downgrade := allow
	downgrade.Outcome = Downgrade
	deployed := Enforcement{Deploy: true, EffectiveTier: ReadOnly, Reason: "It is deployed at read_only; no person needs to decide."}
	undecided := Enforcement{Blocked: true, Reason: "It is blocked: the request could not be decided."}
	tests := []struct {
		name    string
		tier    Tier
		d       Decision
		verdict Verdict
		want    Enforcement
	}{
		{"allow", ReadOnly, allow, NoVerdict, deployed},
		{"allow, rejected", ReadOnly, allow, Rejected, deployed},
		{"downgrade", FullAccess, downgrade, NoVerdict, deployed},
		{"downgrade, approved", FullAccess, downgrade, Approved, deployed},
		{"approved", FullAccess, deny, Approved,
			Enforcement{Deploy: true, EffectiveTier: FullAccess, Overridden: true,
				Reason: "It is deployed at full_access: a person approved that."}},
		{"rejected", FullAccess, deny, Rejected,
			Enforcement{Blocked: true, Reason: "It is blocked: a person rejected it at full_access."}},
		{"no tier, approved", NoTier, deny, Approved, undecided},
		{"invalid tier, approved", 4, deny, Approved, undecided},
		{"not decided", ReadOnly, Decision{}, Approved, undecided},
		{"invalid outcome", ReadOnly, Decision{Outcome: 4, Granted: ReadOnly}, Approved, undecided},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := Enforce("s", tt.tier, tt.d, tt.verdict); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
	for _, verdict := range []Verdict{NoVerdict, 3} {
		got := Enforce("a:b", SandboxEdit, deny, verdict)
		want := Pending{"skill_deploy:a:b:sandbox_edit", "a:b", SandboxEdit, deny}
		if got.Deploy || got.Blocked || got.Overridden || got.EffectiveTier != NoTier || got.Pending == nil || *got.Pending != want {
			t.Errorf("verdict %d: got %+v", verdict, got)
		}
	}
}

func TestAnswerJSON(t *testing.T) {
	tests := []struct {
		in   Request
		want string
	}{
		{Request{"s", FullAccess, Provenance{Scanned: true}, NoVerdict},
			`{"trust":"community","ceiling":"read_only","granted":"read_only","outcome":"downgrade",` +
				`"reason":"Its trust is community, which is enough for read_only but not for full_access.",` +
				`"enforcement":{"deploy":true,"effective_tier":"read_only","overridden":false,"blocked":false,"pending":null,` +
				`"reason":"It is deployed at read_only; no person needs to decide."}}`},
		{Request{"<s>", ReadOnly, Provenance{}, NoVerdict},
			`{"trust":"untrusted","ceiling":null,"granted":null,"outcome":"deny",` +
				`"reason":"It is not trusted: no scan of it is known.",` +
				`"enforcement":{"deploy":false,"effective_tier":null,"overridden":false,"blocked":false,` +
				`"pending":{"fingerprint":"skill_deploy:<s>:read_only","skill_name":"<s>","requested":"read_only",` +
				`"decision":{"trust":"untrusted","ceiling":null,"granted":null,"outcome":"deny",` +
				`"reason":"It is not trusted: no scan of it is known."}},` +
				`"reason":"It waits for a person to decide about read_only."}}`},
		{Request{"s", ReadOnly, Provenance{}, Approved},
			`{"trust":"untrusted","ceiling":null,"granted":null,"outcome":"deny",` +
				`"reason":"It is not trusted: no scan of it is known.",` +
				`"enforcement":{"deploy":true,"effective_tier":"read_only","overridden":true,"blocked":false,"pending":null,` +
				`"reason":"It is deployed at read_only: a person approved that."}}`},
		{Request{"s", ReadOnly, Provenance{}, Rejected},
			`{"trust":"untrusted","ceiling":null,"granted":null,"outcome":"deny",` +
				`"reason":"It is not trusted: no scan of it is known.",` +
				`"enforcement":{"deploy":false,"effective_tier":null,"overridden":false,"blocked":true,"pending":null,` +
				`"reason":"It is blocked: a person rejected it at read_only."}}`},
	}
	for _, tt := range tests {
		answer := tt.in.Decide()
		if got, err := answer.MarshalJSON(); err != nil || string(got) != tt.want {
			t.Errorf("got %s %v, want %s", got, err, tt.want)
		}
	}
	if got, err := json.Marshal(Answer{}); err == nil {
		t.Errorf("the zero answer marshals to %s", got)
	}
	if got, err := json.Marshal(Decision{}); err == nil {
		t.Errorf("the zero decision marshals to %s", got)
	}
}

func TestRequestValidate(t *testing.T) {
	tests := []struct {
		in Request
		ok bool
	}{
		{Request{Skill: "s", Requested: ReadOnly}, true},
		{Request{Skill: "s", Requested: FullAccess, Provenance: best, Approval: Rejected}, true},
		{Request{}, false},
		{Request{Requested: ReadOnly}, false},
		{Request{Skill: "s"}, false},
		{Request{Skill: "s", Requested: 4}, false},
		{Request{Skill: "s", Requested: ReadOnly, Provenance: Provenance{Source: 4}}, false},
		{Request{Skill: "s", Requested: ReadOnly, Approval: 3}, false},
	}
	for _, tt := range tests {
		if err := tt.in.Validate(); (err == nil) != tt.ok || err != nil && !errors.Is(err, ErrInvalidRequest) {
			t.Errorf("%+v: got %v", tt.in, err)
		}
	}
}
