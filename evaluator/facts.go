package evaluator

import "github.com/opa-gate/opa-gate/capability"

// Facts compiles the taxonomy into the document that policies read as
// data.gate.facts:
//
//   - bit: the bit of each capability, by name;
//   - grantable: the same for those that a grant can name;
//   - all: the mask of every grantable capability;
//   - names: for each mask the display names of its members, so that a policy
//     lists a set by looking it up.
//
// The facts carry bits and names only. What an origin requires, what taint
// revokes and which answer comes first are the policies' own rules.
func Facts() map[string]any { return factsOf(capability.Taxonomy()) }

func factsOf(taxonomy []capability.Definition) map[string]any {
	bit, grantable := map[string]any{}, map[string]any{}
	var all capability.Capability
	for _, d := range taxonomy {
		bit[d.Name] = int(d.Capability)
		if d.Grantable {
			grantable[d.Name] = int(d.Capability)
			all |= d.Capability
		}
	}
	names := make([]any, 1<<len(taxonomy))
	for mask := range names {
		members := []any{}
		for _, d := range taxonomy {
			if capability.Set(mask).Has(d.Capability) {
				members = append(members, d.Name)
			}
		}
		names[mask] = members
	}
	return map[string]any{"bit": bit, "grantable": grantable, "all": int(all), "names": names}
}
