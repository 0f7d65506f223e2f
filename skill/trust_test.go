package skill

import (
	"encoding/json"
	"math"
	"testing"
)

var best = Provenance{Signed: true, SignerTrusted: true, Scanned: true, Source: Official}

func with(edit func(*Provenance)) Provenance {
	p := best
	edit(&p)
	return p
}

func TestTrust(t *testing.T) {
	const top = uint64(math.MaxUint64)
	counts := func(success, fail uint64) Provenance {
		return with(func(p *Provenance) { p.SuccessCount, p.FailCount = success, fail })
	}
	tests := []struct {
		name string
		in   Provenance
		want Trust
	}{
		{"zero", Provenance{}, Untrusted},
		{"official", best, OfficialTrust},
		{"signer not trusted", with(func(p *Provenance) { p.SignerTrusted = false }), Verified},
		{"first party", with(func(p *Provenance) { p.Source = FirstParty }), Verified},
		{"community source", with(func(p *Provenance) { p.Source = Community }), Verified},
		{"unknown source", with(func(p *Provenance) { p.Source = UnknownSource }), Verified},
		{"not signed", with(func(p *Provenance) { p.Signed = false }), CommunityTrust},
		{"scanned only", Provenance{Scanned: true}, CommunityTrust},
		{"not scanned", with(func(p *Provenance) { p.Scanned = false }), Untrusted},
		{"signed only", Provenance{Signed: true}, Untrusted},
		{"one vulnerability", with(func(p *Provenance) { p.Vulnerabilities = 1 }), Untrusted},
		{"most vulnerabilities", with(func(p *Provenance) { p.Vulnerabilities = top }), Untrusted},
		{"fail = success + 2", counts(0, 2), OfficialTrust},
		{"fail = success + 3", counts(0, 3), Untrusted},
		{"fail = success + 2, later", counts(40, 42), OfficialTrust},
		{"fail = success + 3, later", counts(40, 43), Untrusted},
		{"both at the top", counts(top, top), OfficialTrust},
		{"success at the top", counts(top, 0), OfficialTrust},
		{"success at the top, some failures", counts(top, 3), OfficialTrust},
		{"success + 2 would wrap", counts(top-1, top), OfficialTrust},
		{"success + 2 is the top", counts(top-2, top), OfficialTrust},
		{"success + 3 is the top", counts(top-3, top), Untrusted},
		{"fail at the top", counts(0, top), Untrusted},
		{"beyond exact floats, 2", counts(1<<53, 1<<53+2), OfficialTrust},
		{"beyond exact floats, 3", counts(1<<53, 1<<53+3), Untrusted},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.in.Trust(); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestCeiling(t *testing.T) {
	for trust, want := range map[Trust]Tier{
		Untrusted: NoTier, CommunityTrust: ReadOnly, Verified: SandboxEdit, OfficialTrust: FullAccess, 4: NoTier, 255: NoTier,
	} {
		if got := trust.Ceiling(); got != want {
			t.Errorf("%v: got %v, want %v", trust, got, want)
		}
	}
	if !(Untrusted < CommunityTrust && CommunityTrust < Verified && Verified < OfficialTrust) {
		t.Error("trust is not ordered")
	}
	if !(NoTier < ReadOnly && ReadOnly < SandboxEdit && SandboxEdit < FullAccess) {
		t.Error("tiers are not ordered")
	}
}

func TestNames(t *testing.T) {
	for i, name := range []string{"untrusted", "community", "verified", "official"} {
		if got, ok := ParseTrust(name); got != Trust(i) || !ok || got.String() != name {
			t.Errorf("trust %s: %v", name, got)
		}
	}
	for i, name := range []string{"unknown", "community", "first_party", "official"} {
		if got, ok := ParseSource(name); got != Source(i) || !ok || got.String() != name {
			t.Errorf("source %s: %v", name, got)
		}
	}
	for i, name := range []string{"read_only", "sandbox_edit", "full_access"} {
		if got, ok := ParseTier(name); got != Tier(i+1) || !ok || got.String() != name || !got.Valid() {
			t.Errorf("tier %s: %v", name, got)
		}
	}
	for i, name := range []string{"allow", "downgrade", "deny"} {
		if got, ok := ParseOutcome(name); got != Outcome(i+1) || !ok || got.String() != name {
			t.Errorf("outcome %s: %v", name, got)
		}
	}
	for i, name := range []string{"approved", "rejected"} {
		if got, ok := ParseVerdict(name); got != Verdict(i+1) || !ok || got.String() != name {
			t.Errorf("verdict %s: %v", name, got)
		}
	}
	for _, name := range []string{"", "Official", "read-only", "NoTier"} {
		_, trust := ParseTrust(name)
		_, source := ParseSource(name)
		tier, ok := ParseTier(name)
		_, outcome := ParseOutcome(name)
		verdict, said := ParseVerdict(name)
		if trust || source || ok || tier != NoTier || outcome || said || verdict != NoVerdict {
			t.Errorf("%q is a name", name)
		}
	}
	for got, want := range map[string]string{
		Trust(9).String(): "Trust(9)", Source(9).String(): "Source(9)", Tier(0).String(): "Tier(0)",
		Outcome(0).String(): "Outcome(0)", Verdict(9).String(): "", NoVerdict.String(): "",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestTierJSON(t *testing.T) {
	got, err := json.Marshal([]Tier{NoTier, ReadOnly, SandboxEdit, FullAccess, 4})
	if want := `[null,"read_only","sandbox_edit","full_access",null]`; err != nil || string(got) != want {
		t.Errorf("got %s %v, want %s", got, err, want)
	}
}
