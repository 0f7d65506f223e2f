package analysis

import (
	"slices"
	"strings"

	"github.com/opa-gate/opa-gate/capability"
)

// notGiven is the value of a member that a document leaves out.
const notGiven = "not given"

// A flag is how a member that is true or false is spoken of.
type flag struct{ yes, no, noun string }

var flags = map[string]flag{
	"tool.read_only":            {"read-only", "not read-only", "read-only"},
	"tool.destructive":          {"destructive", "not destructive", "destructive"},
	"tool.open_world":           {"open world", "not open world", "open world"},
	"policy.requires_human":     {"a person required", "no person required", "requires_human"},
	"policy.sandbox_escalation": {"sandbox escalation", "no sandbox escalation", "sandbox_escalation"},
	"provenance.signed":         {"signed", "not signed", "signed"},
	"provenance.signer_trusted": {"trusted signer", "signer not trusted", "signer_trusted"},
	"provenance.scanned":        {"scanned", "not scanned", "scanned"},
}

// A vocabulary is how a member with a handful of names for its values is spoken
// of. A value that has no words of its own is put behind the noun, or in front
// of it as an adjective; without a noun it says enough.
type vocabulary struct {
	words     map[string]string
	noun      string
	adjective bool
}

var vocabularies = map[string]vocabulary{
	"taint":       {words: map[string]string{"clean": "clean", "tainted": "tainted"}, noun: "taint"},
	"tool.name":   {noun: "tool"},
	"tool.origin": {words: originWords(), noun: "origin"},
	"grant":       {words: map[string]string{notGiven: "no grant", "stated": "a stated grant"}, noun: "grant"},
	"grant.base":  {noun: "grant"},
	"policy.veto": {words: map[string]string{notGiven: "no veto", "given": "a veto"}, noun: "veto"},
	"policy.transform.kind": {words: map[string]string{"none": "no transform", "rewrite": "rewritten arguments",
		"inject_context": "an injected note"}},
	"requested":                  {noun: "requested", adjective: true},
	"approval":                   {words: map[string]string{notGiven: "nobody has ruled on it", "approved": "a person approved it", "rejected": "a person rejected it"}},
	"provenance.source":          {noun: "source"},
	"provenance.vulnerabilities": {words: map[string]string{"0": "no vulnerabilities"}, noun: "vulnerabilities"},
	"provenance.fail_count":      {noun: "fail count"},
}

func originWords() map[string]string {
	words := map[string]string{capability.Unknown.String(): "unknown origin", notGiven: "no origin"}
	for _, o := range capability.Origins()[1:] {
		words[o.String()] = o.String()
	}
	return words
}

// memberOrder is how people speak of a call: the conversation, the tool, and
// then what else there is. Members that are not in it come last.
var memberOrder = []string{
	"taint", "tool.origin", "tool.read_only", "tool.destructive", "tool.open_world", "tool.name", "grant", "grant.base",
	"policy.veto", "policy.requires_human", "policy.sandbox_escalation",
	"policy.transform.kind",
	"requested", "provenance.source", "provenance.signed", "provenance.signer_trusted", "provenance.scanned",
	"provenance.vulnerabilities", "provenance.fail_count", "approval",
}

// String returns the condition in words, such as "tainted", "not destructive"
// or "fetcher or unknown origin". Texts of policies are in it as they are.
func (c Condition) String() string {
	if f, ok := flags[c.Member]; ok {
		return f.phrase(c.Values)
	}
	if v, ok := vocabularies[c.Member]; ok {
		return v.phrase(c)
	}
	// The member's own name says more than a guess at what it means.
	return strings.TrimSpace(c.Member + " " + strings.Join(c.Values, " or "))
}

func (f flag) phrase(values []string) string {
	parts := make([]string, 0, len(values))
	for i, value := range values {
		switch {
		case value == "yes":
			parts = append(parts, f.yes)
		case value == "no":
			parts = append(parts, f.no)
		case value == notGiven && i > 0: // "destructive or not given" says what is not given
			parts = append(parts, notGiven)
		default:
			parts = append(parts, f.noun+" "+value)
		}
	}
	return either(parts)
}

func (v vocabulary) phrase(c Condition) string {
	if c.Member == "tool.origin" {
		if text := allBut(c.Values); text != "" {
			return text
		}
	}
	parts := make([]string, 0, len(c.Values))
	named := false // the noun was said
	values := c.Values
	if c.Member == "tool.origin" && slices.Contains(values, notGiven) && slices.Contains(values, capability.Unknown.String()) {
		parts = append(parts, "unknown or no origin")
		values = slices.DeleteFunc(slices.Clone(values), func(v string) bool { return v == notGiven || v == capability.Unknown.String() })
	}
	for _, value := range values {
		switch word, ok := v.words[value]; {
		case ok:
			parts = append(parts, word)
		case named, v.adjective, v.noun == "":
			parts = append(parts, value)
		default:
			parts = append(parts, v.noun+" "+value)
			named = true
		}
	}
	text := either(parts)
	if v.adjective {
		text += " " + v.noun
	}
	return text
}

func originNames() []string {
	var names []string
	for _, o := range capability.Origins() {
		names = append(names, o.String())
	}
	return names
}

// allBut words a list of most origins by those that it lacks.
func allBut(values []string) string {
	const most = 6
	if len(values) < most {
		return ""
	}
	var lacking []string
	known := 0
	for _, o := range append([]string{notGiven}, originNames()...) {
		if slices.Contains(values, o) {
			known++
		} else {
			lacking = append(lacking, originWords()[o])
		}
	}
	any := "any origin"
	if !slices.Contains(values, notGiven) {
		any, lacking = "any stated origin", lacking[1:]
	}
	switch {
	case known != len(values): // there is one in it that is no origin
		return ""
	case len(lacking) == 0:
		return any
	}
	return any + " but " + strings.Join(lacking, " and ")
}

// either joins alternatives, each of them once.
func either(parts []string) string {
	var once []string
	for _, part := range parts {
		if !slices.Contains(once, part) {
			once = append(once, part)
		}
	}
	return strings.Join(once, " or ")
}

// phrases words the conditions of a change in the order in which people speak
// of a call.
func (c *Change) phrases() []string {
	ordered := slices.Clone(c.Conditions)
	slices.SortStableFunc(ordered, func(a, b Condition) int { return memberRank(a.Member) - memberRank(b.Member) })
	parts := make([]string, 0, len(ordered))
	for _, condition := range ordered {
		parts = append(parts, condition.String())
	}
	return parts
}

func memberRank(member string) int {
	if i := slices.Index(memberOrder, member); i >= 0 {
		return i
	}
	return len(memberOrder)
}
