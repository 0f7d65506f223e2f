package analysis

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/skill"
)

// Bounds of the search for what would go ahead.
const (
	explainChanges = 3 // members that are changed at once
	explainSets    = 3 // sets of changes that are told
)

// A Search says what was looked at for what would go ahead: other taints and
// annotations, more in the grant, less in the verdict, and in the end other
// origins; for a skill another provenance, a lower tier and an approval. No text
// is changed.
type Search struct {
	Changes int    `json:"changes"`        // up to how many at once
	Tried   int    `json:"tried"`          // documents that were decided
	None    string `json:"none,omitempty"` // why nothing was found, or nothing looked for
}

// A Nearest is a smallest set of changes with which the document would go ahead.
type Nearest struct {
	Changes  []Edit          `json:"changes"`
	Outcome  string          `json:"outcome"`  // allow, modify or inject_context; allow or deny for a skill
	Document json.RawMessage `json:"document"` // the document with them made, the first value of each taken
}

// An Edit is one member that would have to be another.
type Edit struct {
	Member string   `json:"member"`        // such as tool.read_only
	To     []string `json:"to,omitempty"`  // any of these values, as JSON texts have them; none is to leave it out
	Add    string   `json:"add,omitempty"` // the name that would have to be in the list that the member is
	Text   string   `json:"text"`          // the change in words
}

// An explainEdit is one way to change a document of type T.
type explainEdit[T any] struct {
	Edit
	apply func(*T)
}

// explainSearch looks for the smallest sets of edits of a document that pass.
// Two edits of one member are never in one set; adding names to a list is not
// an edit of one member.
func explainSearch[T any](doc *T, edits []explainEdit[T], passes func(*T) (string, bool, error), write func(*T) json.RawMessage) (found []Nearest, tried int, err error) {
	var sets [][]int
	for size := 1; size <= explainChanges && len(found) < explainSets; size++ {
		for _, set := range explainSubsets(len(edits), size) {
			if !explainApart(edits, set) || slices.ContainsFunc(sets, func(smaller []int) bool { return explainHas(set, smaller) }) {
				continue
			}
			edited := *doc
			n := Nearest{}
			for _, i := range set {
				edits[i].apply(&edited)
				n.Changes = append(n.Changes, edits[i].Edit)
			}
			tried++
			outcome, ok, err := passes(&edited)
			if err != nil {
				return nil, tried, err
			}
			if !ok {
				continue
			}
			sets = append(sets, set)
			n.Outcome, n.Document = outcome, write(&edited)
			if !explainJoin(found, n) {
				found = append(found, n)
			}
		}
	}
	return found[:min(len(found), explainSets)], tried, nil
}

// explainSubsets lists the subsets of n things that have a size, those of what
// stands first first.
func explainSubsets(n, size int) [][]int {
	if size == 0 {
		return [][]int{nil}
	}
	var all [][]int
	for _, smaller := range explainSubsets(n, size-1) {
		from := 0
		if len(smaller) > 0 {
			from = smaller[len(smaller)-1] + 1
		}
		for i := from; i < n; i++ {
			all = append(all, append(slices.Clone(smaller), i))
		}
	}
	return all
}

func explainApart[T any](edits []explainEdit[T], set []int) bool {
	members := map[string]bool{}
	for _, i := range set {
		key := edits[i].Member + " " + edits[i].Add
		if members[key] {
			return false
		}
		members[key] = true
	}
	return true
}

func explainHas(set, part []int) bool {
	for _, i := range part {
		if !slices.Contains(set, i) {
			return false
		}
	}
	return true
}

// explainJoin adds a set to one that differs from it in one value only.
func explainJoin(found []Nearest, n Nearest) bool {
	for _, f := range found {
		if len(f.Changes) != len(n.Changes) || f.Outcome != n.Outcome {
			continue
		}
		differs := -1
		same := true
		for i := range f.Changes {
			a, b := f.Changes[i], n.Changes[i]
			switch {
			case a.Member != b.Member || a.Add != b.Add || len(a.To) == 0 != (len(b.To) == 0):
				same = false
			case slices.Equal(a.To, b.To):
			case differs >= 0:
				same = false
			default:
				differs = i
			}
		}
		if !same || differs < 0 {
			continue
		}
		c := &f.Changes[differs]
		c.To = append(c.To, n.Changes[differs].To...)
		c.Text = c.Member + ": " + explainAlternatives(c.To)
		return true
	}
	return false
}

func explainAlternatives(words []string) string {
	if n := len(words); n > 1 {
		return strings.Join(words[:n-1], ", ") + " or " + words[n-1]
	}
	return strings.Join(words, "")
}

func explainTo[T any](member, value string, apply func(*T)) explainEdit[T] {
	return explainEdit[T]{Edit{Member: member, To: []string{value}, Text: member + ": " + value}, apply}
}

func explainWithout[T any](member string, apply func(*T)) explainEdit[T] {
	return explainEdit[T]{Edit{Member: member, Text: member + ": leave it out"}, apply}
}

// nearestCalls looks for the calls most like c that go ahead. For a call that
// needs a person or is denied that is any that does not; for one that is
// modified or gets a note it is one that is simply allowed.
//
// The operator's word on where the tool comes from is changed only if nothing
// else helps, or if it was not given. For what no grant can name it is never
// changed: the act would stay what it is. A grant that was left out can be stated,
// with what the call requires; one that was stated is never left out, which would
// grant more than anybody needs.
func nearestCalls(ctx context.Context, e *evaluator.Evaluator, c *capability.Call, out *Explanation) error {
	out.Nearest = []Nearest{}
	answer := out.Call
	if answer.Kind == capability.Allow {
		out.Search.None = "it is allowed already"
		return nil
	}
	ahead := answer.Kind == capability.Modify || answer.Kind == capability.Inject
	passes := func(c *capability.Call) (string, bool, error) {
		o, err := e.Decide(ctx, c)
		if ctx.Err() != nil {
			return "", false, ctx.Err()
		}
		if err != nil { // such a call is not decided, and that is no yes
			return "", false, nil
		}
		return o.Kind.String(), o.Kind == capability.Allow || !ahead && (o.Kind == capability.Modify || o.Kind == capability.Inject), nil
	}
	out.Search.Changes = explainChanges
	// A policy may take a tool whose origin is left out for one of these: nobody has said so.
	marker := !answer.Required.SubsetOf(capability.All) && !c.LeftOut.Has(capability.OriginMember)
	edits := explainCallEdits(c, answer.Required)
	written := func(c *capability.Call) json.RawMessage { return callDocument(c, false) }
	if c.Profile.Origin == capability.Unknown && !marker {
		edits = append(edits, explainOrigins(c)...)
	}
	found, tried, err := explainSearch(c, edits, passes, written)
	out.Search.Tried = tried
	if err == nil && len(found) == 0 && !marker && c.Profile.Origin != capability.Unknown {
		found, tried, err = explainSearch(c, append(edits, explainOrigins(c)...), passes, written)
		out.Search.Tried += tried
	}
	if err != nil {
		return err
	}
	if len(found) > 0 {
		out.Nearest = found
		return nil
	}
	out.Search.None = fmt.Sprintf("nothing within %d changes; texts, such as the tool's name, were left as they are", explainChanges)
	if marker {
		out.Search.None = fmt.Sprintf("nothing within %d changes", explainChanges)
		out.Search.None += "; it requires " + strings.Join(answer.Required.Minus(capability.All).DisplayNames(), ", ") + ", which no grant can name"
	}
	return nil
}

func explainCallEdits(c *capability.Call, required capability.Set) []explainEdit[capability.Call] {
	type edit = explainEdit[capability.Call]
	var edits []edit
	for _, t := range []capability.Taint{capability.Clean, capability.Tainted} {
		if c.Taint != t {
			edits = append(edits, explainTo("taint", t.String(), func(c *capability.Call) { c.Taint = t }))
		}
	}
	if needed := required.Intersect(capability.All); c.LeftOut.Has(capability.GrantMember) && !needed.Empty() {
		names := needed.CoverageNames()
		state := Edit{Member: "grant.base", To: []string{string(encode(names))}, Text: "grant.base: state " + strings.Join(names, ", ")}
		edits = append(edits, edit{state, func(c *capability.Call) {
			c.Grant.Base, c.LeftOut = needed, c.LeftOut&^capability.GrantMember
		}})
	}
	for one := range capability.All.All() {
		if !c.Grant.Base.Has(one) {
			name := one.String()
			edits = append(edits, edit{Edit{Member: "grant.base", Add: name, Text: "grant.base: add " + name},
				func(c *capability.Call) { c.Grant.Base |= capability.Set(one) }})
		}
	}
	if c.Policy.Vetoed {
		edits = append(edits, explainWithout("policy.veto", func(c *capability.Call) { c.Policy.Vetoed, c.Policy.Veto = false, "" }))
	}
	if c.Policy.RequiresHuman {
		edits = append(edits, explainTo("policy.requires_human", "false", func(c *capability.Call) { c.Policy.RequiresHuman = false }))
	}
	if c.Policy.SandboxEscalation {
		edits = append(edits, explainTo("policy.sandbox_escalation", "false", func(c *capability.Call) { c.Policy.SandboxEscalation = false }))
	}
	if c.Policy.Transform.Kind != capability.NoTransform {
		edits = append(edits, explainWithout("policy.transform", func(c *capability.Call) { c.Policy.Transform = capability.Transform{} }))
	}
	for _, hint := range []struct {
		member string
		of     func(*capability.Call) *capability.Hint
	}{
		{"tool.read_only", func(c *capability.Call) *capability.Hint { return &c.Profile.ReadOnly }},
		{"tool.destructive", func(c *capability.Call) *capability.Hint { return &c.Profile.Destructive }},
		{"tool.open_world", func(c *capability.Call) *capability.Hint { return &c.Profile.OpenWorld }},
	} {
		for _, to := range []capability.Hint{capability.Yes, capability.No, capability.Unset} {
			set := func(c *capability.Call) { *hint.of(c) = to }
			switch {
			case *hint.of(c) == to:
			case to == capability.Unset:
				edits = append(edits, explainWithout(hint.member, set))
			default:
				edits = append(edits, explainTo(hint.member, strconv.FormatBool(to == capability.Yes), set))
			}
		}
	}
	return edits
}

func explainOrigins(c *capability.Call) []explainEdit[capability.Call] {
	var edits []explainEdit[capability.Call]
	for _, origin := range capability.Origins() {
		if origin != c.Profile.Origin && origin != capability.Unknown {
			edits = append(edits, explainTo("tool.origin", origin.String(), func(c *capability.Call) {
				c.Profile.Origin = origin
				c.LeftOut &^= capability.OriginMember
			}))
		}
	}
	return edits
}

// nearestSkills looks for the requests most like q that are deployed at the tier
// that they ask for.
func nearestSkills(ctx context.Context, e *evaluator.Evaluator, q *skill.Request, out *Explanation) error {
	out.Nearest = []Nearest{}
	passes := func(q *skill.Request) (string, bool, error) {
		a, err := e.Skill(ctx, q)
		if ctx.Err() != nil {
			return "", false, ctx.Err()
		}
		if err != nil {
			return "", false, nil
		}
		return a.Outcome.String(), a.Enforcement.Deploy && a.Enforcement.EffectiveTier == q.Requested, nil
	}
	if a := out.Skill.Enforcement; a.Deploy && a.EffectiveTier == q.Requested {
		out.Search.None = "it is deployed as requested already"
		return nil
	}
	out.Search.Changes = explainChanges
	found, tried, err := explainSearch(q, explainSkillEdits(q), passes, func(q *skill.Request) json.RawMessage { return skillDocument(q, false) })
	out.Search.Tried = tried
	switch {
	case err != nil:
		return err
	case len(found) == 0:
		out.Search.None = fmt.Sprintf("nothing within %d changes", explainChanges)
	default:
		out.Nearest = found
	}
	return nil
}

func explainSkillEdits(q *skill.Request) []explainEdit[skill.Request] {
	type edit = explainEdit[skill.Request]
	var edits []edit
	p := &q.Provenance
	for _, flag := range []struct {
		member string
		on     bool
		of     func(*skill.Request) *bool
	}{
		{"provenance.scanned", p.Scanned, func(q *skill.Request) *bool { return &q.Provenance.Scanned }},
		{"provenance.signed", p.Signed, func(q *skill.Request) *bool { return &q.Provenance.Signed }},
		{"provenance.signer_trusted", p.SignerTrusted, func(q *skill.Request) *bool { return &q.Provenance.SignerTrusted }},
	} {
		if !flag.on {
			edits = append(edits, explainTo(flag.member, "true", func(q *skill.Request) { *flag.of(q) = true }))
		}
	}
	if p.Vulnerabilities > 0 {
		edits = append(edits, explainTo("provenance.vulnerabilities", "0", func(q *skill.Request) { q.Provenance.Vulnerabilities = 0 }))
	}
	if p.FailCount > p.SuccessCount { // as few failures as successes is the most that a record can still be asked for
		fewer := strconv.FormatUint(p.SuccessCount, 10)
		edits = append(edits, explainTo("provenance.fail_count", fewer, func(q *skill.Request) { q.Provenance.FailCount = q.Provenance.SuccessCount }))
	}
	for tier := q.Requested - 1; tier.Valid(); tier-- {
		edits = append(edits, explainTo("requested", tier.String(), func(q *skill.Request) { q.Requested = tier }))
	}
	if q.Approval != skill.Approved {
		edits = append(edits, explainTo("approval", skill.Approved.String(), func(q *skill.Request) { q.Approval = skill.Approved }))
	}
	for _, source := range []skill.Source{skill.Official, skill.FirstParty, skill.Community} {
		if p.Source != source {
			edits = append(edits, explainTo("provenance.source", source.String(), func(q *skill.Request) { q.Provenance.Source = source }))
		}
	}
	return edits
}
