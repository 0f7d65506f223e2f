package capability

import (
	"slices"
	"strings"
	"testing"
)

var wantRequirements = []string{
	"mail-relay", "ceremony-page:wallet-link", "ceremony-page:email-magic-link", "payments-proxy",
}

func TestRequirementNames(t *testing.T) {
	if got := AllRequirements().Names(); !slices.Equal(got, wantRequirements) {
		t.Fatalf("got %q", got)
	}
	for set := range AllRequirements() + 1 {
		got, unknown := ParseRequirements(set.Names())
		if got != set || unknown != nil {
			t.Errorf("%d: got %d %q", set, got, unknown)
		}
	}
	got, unknown := ParseRequirements([]string{"payments-proxy", "x", "mail-relay", "x"})
	if !slices.Equal(got.Names(), []string{"mail-relay", "payments-proxy"}) || !slices.Equal(unknown, []string{"x", "x"}) {
		t.Errorf("got %q %q", got.Names(), unknown)
	}
	if PaymentsProxy.String() != "payments-proxy" || Requirement(9).String() != "Requirement(9)" {
		t.Error("Requirement.String")
	}
}

func TestEveryRequirementIsNeededByATool(t *testing.T) {
	var needed Requirements
	for tool, rs := range DefaultNeeds() {
		if rs == 0 || rs&^AllRequirements() != 0 {
			t.Errorf("%s needs what is no requirement: %b", tool, rs)
		}
		needed |= rs
	}
	if needed != AllRequirements() {
		t.Errorf("needed by no tool: %q", (AllRequirements() &^ needed).Names())
	}
}

func TestDefaultNeeds(t *testing.T) {
	want := map[string][]string{
		"link_email":  {"mail-relay", "ceremony-page:email-magic-link"},
		"link_wallet": {"ceremony-page:wallet-link"},
		"paid_fetch":  {"payments-proxy"},
	}
	needs := DefaultNeeds()
	if len(needs) != len(want) {
		t.Errorf("%d tools", len(needs))
	}
	for tool, names := range want {
		if got := needs[tool].Names(); !slices.Equal(got, names) {
			t.Errorf("%s needs %q", tool, got)
		}
	}
	parsed, err := ParseNeeds(want)
	if err != nil {
		t.Fatal(err)
	}
	for tool, set := range needs {
		if parsed[tool] != set {
			t.Errorf("%s parsed as %q", tool, parsed[tool].Names())
		}
	}
	_, err = ParseNeeds(map[string][]string{"paid_fetch": {"payment-proxy"}})
	if err == nil || !strings.Contains(err.Error(), "payment-proxy") || !strings.Contains(err.Error(), "paid_fetch") {
		t.Errorf("got error %v", err)
	}
}

func TestViable(t *testing.T) {
	tests := []struct {
		deployment []string
		viable     string
	}{
		{nil, "other"},
		{[]string{"all"}, "link_email link_wallet paid_fetch other"},
		{[]string{"mail-relay"}, "other"},
		{[]string{"ceremony-page:email-magic-link"}, "other"},
		{[]string{"ceremony-page:email-magic-link", "mail-relay"}, "link_email other"},
		{[]string{"ceremony-page:wallet-link"}, "link_wallet other"},
		{[]string{"payments-proxy", "from-a-newer-gate"}, "paid_fetch other"},
		{[]string{"all", "x"}, "other"}, // all stands alone; beside other names it is a name that is not known
	}
	needs := DefaultNeeds()
	for _, tt := range tests {
		d := ParseDeployment(tt.deployment)
		var viable []string
		for _, tool := range []string{"link_email", "link_wallet", "paid_fetch", "other"} {
			if needs.Viable(tool, d) {
				viable = append(viable, tool)
			}
		}
		if got := strings.Join(viable, " "); got != tt.viable {
			t.Errorf("%q: got %q, want %q", tt.deployment, got, tt.viable)
		}
	}
	if got := (Deployment{}).Names(); len(got) > 0 {
		t.Errorf("the zero deployment has %q", got)
	}
	if got := ParseDeployment([]string{"all"}).Names(); !slices.Equal(got, wantRequirements) {
		t.Errorf("all is %q", got)
	}
}

func TestShown(t *testing.T) {
	needs, d := DefaultNeeds(), ParseDeployment([]string{"payments-proxy"})
	granted := []string{"z", "paid_fetch", "link_email", "a", "z"}
	owned := []string{"a", "link_email", "paid_fetch", "z", "more"}
	if got := needs.Shown(granted, owned, d); !slices.Equal(got, []string{"z", "paid_fetch", "a"}) {
		t.Errorf("got %q", got)
	}
	if got := needs.Shown(granted, nil, d); got == nil || len(got) > 0 {
		t.Errorf("owning nothing: %q", got)
	}
}
