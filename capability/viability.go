package capability

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A Requirement is one thing that a built-in tool can need a deployment to
// have configured (specification, section 3).
type Requirement uint8

// The requirements, in the order in which lists of them travel.
const (
	MailRelay Requirement = iota
	CeremonyWalletLink
	CeremonyEmailMagicLink
	PaymentsProxy
)

var requirementNames = [...]string{
	MailRelay:              "mail-relay",
	CeremonyWalletLink:     "ceremony-page:wallet-link",
	CeremonyEmailMagicLink: "ceremony-page:email-magic-link",
	PaymentsProxy:          "payments-proxy",
}

// String returns the wire name of r.
func (r Requirement) String() string {
	if int(r) < len(requirementNames) {
		return requirementNames[r]
	}
	return fmt.Sprintf("Requirement(%d)", uint8(r))
}

// Requirements is a set of requirements. The zero value is empty.
type Requirements uint8

// RequirementsOf returns the set of the given requirements.
func RequirementsOf(rs ...Requirement) Requirements {
	var set Requirements
	for _, r := range rs {
		set |= 1 << r
	}
	return set
}

// AllRequirements returns the set of every requirement.
func AllRequirements() Requirements { return 1<<len(requirementNames) - 1 }

// ParseRequirements reads a list of requirement names and returns, beside the
// set, every name that is none.
func ParseRequirements(names []string) (Requirements, []string) {
	var set Requirements
	var unknown []string
	for _, name := range names {
		if i := slices.Index(requirementNames[:], name); i >= 0 {
			set |= 1 << i
		} else {
			unknown = append(unknown, name)
		}
	}
	return set, unknown
}

// Names lists the members in the order in which such a list travels.
func (r Requirements) Names() []string {
	names := []string{}
	for i, name := range requirementNames {
		if r&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// A Deployment is the set of requirements that an installation satisfies. The
// zero Deployment satisfies none.
type Deployment struct{ satisfied Requirements }

// NewDeployment returns the deployment that satisfies exactly rs. A deployment
// that has everything is the explicit choice NewDeployment(AllRequirements()).
func NewDeployment(rs Requirements) Deployment { return Deployment{rs & AllRequirements()} }

// ParseDeployment reads the list in which a deployment travels. The single
// name "all" stands for everything. Unknown names are ignored: they come from
// a newer gate, and nothing this one knows can depend on them.
func ParseDeployment(names []string) Deployment {
	if len(names) == 1 && names[0] == "all" {
		return NewDeployment(AllRequirements())
	}
	set, _ := ParseRequirements(names)
	return NewDeployment(set)
}

// Names lists what the deployment satisfies, in travelling order.
func (d Deployment) Names() []string { return d.satisfied.Names() }

// Satisfies reports whether every requirement in rs is met. The empty set
// always is.
func (d Deployment) Satisfies(rs Requirements) bool { return rs&^d.satisfied == 0 }

// Needs maps a tool's name to what it requires of the deployment. A tool that
// is not in the map requires nothing.
type Needs map[string]Requirements

// DefaultNeeds returns the map for the built-in tools. The caller owns it.
func DefaultNeeds() Needs {
	return Needs{
		"link_email":  RequirementsOf(MailRelay, CeremonyEmailMagicLink),
		"link_wallet": RequirementsOf(CeremonyWalletLink),
		"paid_fetch":  RequirementsOf(PaymentsProxy),
	}
}

// ParseNeeds reads a map from tool to requirement names. A name that is no
// requirement is an error: ignoring it here would make a tool viable that its
// author meant to restrict.
func ParseNeeds(names map[string][]string) (Needs, error) {
	needs := make(Needs, len(names))
	for _, tool := range slices.Sorted(maps.Keys(names)) {
		set, unknown := ParseRequirements(names[tool])
		if len(unknown) > 0 {
			return nil, fmt.Errorf("tool %q needs %q, which is no deployment requirement: the requirements are %s",
				tool, unknown[0], strings.Join(requirementNames[:], ", "))
		}
		needs[tool] = set
	}
	return needs, nil
}

// Viable reports whether the deployment can run the tool.
func (n Needs) Viable(tool string, d Deployment) bool { return d.Satisfies(n[tool]) }

// Shown returns what an agent is shown: the tools of granted that are also
// owned and viable (specification, section 3), in the order of granted and
// each once.
func (n Needs) Shown(granted, owned []string, d Deployment) []string {
	shown := []string{}
	for _, tool := range granted {
		if slices.Contains(owned, tool) && n.Viable(tool, d) && !slices.Contains(shown, tool) {
			shown = append(shown, tool)
		}
	}
	return shown
}
