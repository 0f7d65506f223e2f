package evaluator

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/skill"
)

// A reader takes an answer of the policies apart. It keeps the first problem
// and goes on; whoever reads looks at err before using what was read.
type reader struct {
	entrypoint string
	err        error
}

func (r *reader) fail(pointer, format string, args ...any) {
	if r.err == nil {
		r.err = &AnswerError{r.entrypoint, pointer, fmt.Sprintf(format, args...)}
	}
}

// object reads v as an object that has every required member, and no member
// that is neither required nor optional.
func (r *reader) object(v any, at string, required, optional []string) map[string]any {
	m, ok := v.(map[string]any)
	if !ok {
		r.fail(at, "it must be an object")
		return nil
	}
	for _, name := range required {
		if _, ok := m[name]; !ok {
			r.fail(at+"/"+name, "this member is missing")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if !slices.Contains(required, name) && !slices.Contains(optional, name) {
			r.fail(at+"/"+name, "a decision has no such member; it has %s",
				strings.Join(append(slices.Clone(required), optional...), ", "))
		}
	}
	return m
}

func (r *reader) text(m map[string]any, at, name string) string {
	s, ok := m[name].(string)
	if !ok {
		r.fail(at+"/"+name, "it must be a string")
	}
	return s
}

func (r *reader) truth(m map[string]any, at, name string) bool {
	b, ok := m[name].(bool)
	if !ok {
		r.fail(at+"/"+name, "it must be true or false")
	}
	return b
}

// parse reads a member whose text is one of the names that parse knows.
func parse[T any](r *reader, m map[string]any, at, name string, parse func(string) (T, bool)) T {
	s, _ := m[name].(string)
	v, ok := parse(s)
	if !ok {
		r.fail(at+"/"+name, "%q is none of its values", fmt.Sprint(m[name]))
	}
	return v
}

// set reads a set from its mask, and holds the display names beside it against
// the mask.
func (r *reader) set(m map[string]any, name string) capability.Set {
	number, _ := m[name+"_mask"].(json.Number)
	mask, err := strconv.ParseUint(number.String(), 10, 16)
	if err != nil {
		r.fail("/"+name+"_mask", "it must be a mask of 16 bits, an integer from 0 to 65535")
		return 0
	}
	set := capability.Set(mask)
	names, ok := r.texts(m, name)
	if ok && !slices.Equal(names, set.DisplayNames()) {
		r.fail("/"+name, "it must list the members of mask %d: %v", mask, set)
	}
	return set
}

func (r *reader) texts(m map[string]any, name string) ([]string, bool) {
	list, ok := m[name].([]any)
	texts := make([]string, len(list))
	for i, item := range list {
		text, isText := item.(string)
		texts[i], ok = text, ok && isText
	}
	if !ok {
		r.fail("/"+name, "it must be an array of strings")
	}
	return texts, ok
}

var decisionMembers = []string{"outcome", "reason", "missing", "missing_mask",
	"required", "required_mask", "granted", "granted_mask"}

// readOutcome reads a decision document (specification, section 7). What is
// not exactly one is an error that matches ErrNotDecision.
func readOutcome(answer any) (capability.Outcome, error) {
	r := &reader{entrypoint: callEntrypoint}
	m := r.object(answer, "", decisionMembers, []string{"arguments", "note", "warnings"})
	if r.err != nil {
		return capability.Outcome{}, r.err
	}
	o := capability.Outcome{
		Kind:     parse(r, m, "", "outcome", capability.ParseKind),
		Reason:   r.text(m, "", "reason"),
		Missing:  r.set(m, "missing"),
		Required: r.set(m, "required"),
		Granted:  r.set(m, "granted"),
	}
	if _, there := m["warnings"]; there {
		o.Warnings, _ = r.texts(m, "warnings")
	}
	arguments, hasArguments := m["arguments"]
	if hasArguments != (o.Kind == capability.Modify) {
		r.fail("/arguments", "a modify has them, and no other outcome")
	}
	if hasArguments {
		if _, ok := arguments.(map[string]any); !ok {
			r.fail("/arguments", "they must be an object")
		}
		o.Arguments = encodeJSON(r, arguments)
	}
	if _, has := m["note"]; has != (o.Kind == capability.Inject) {
		r.fail("/note", "an inject_context has one, and no other outcome")
	} else if has {
		o.Note = r.text(m, "", "note")
	}
	if o.Kind != capability.Escalate && o.Kind != capability.Deny && !o.Required.SubsetOf(o.Granted) {
		r.fail("/granted", "it lacks %v, which is required: that can be an escalate or a deny, not %v",
			o.Required.Minus(o.Granted), o.Kind)
	}
	if lacking := o.Required.Minus(o.Granted); !o.Missing.Empty() && o.Missing != lacking {
		r.fail("/missing", "it must be what is required and not granted, %v, or nothing", lacking)
	}
	if !o.Missing.Empty() && o.Kind != capability.Escalate {
		r.fail("/missing", "only an escalate can lack capabilities, and this is %v", o.Kind)
	}
	if r.err != nil {
		return capability.Outcome{}, r.err
	}
	return o, nil
}

func encodeJSON(r *reader, v any) json.RawMessage {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		r.fail("/arguments", "they cannot be written as JSON: %v", err)
	}
	return bytes.TrimRight(buf.Bytes(), "\n")
}

var skillDecisionMembers = []string{"trust", "ceiling", "granted", "outcome", "reason"}

// readAnswer reads the skill answer to q (specification, section 7). What is
// not exactly one, deploys what its own parts do not add up to, or overrides
// without an approval in q, is an error that matches ErrNotDecision.
func readAnswer(answer any, q *skill.Request) (skill.Answer, error) {
	r := &reader{entrypoint: skillEntrypoint}
	m := r.object(answer, "", append(slices.Clone(skillDecisionMembers), "enforcement"), nil)
	if r.err != nil {
		return skill.Answer{}, r.err
	}
	const at = "/enforcement"
	em := r.object(m["enforcement"], at,
		[]string{"deploy", "effective_tier", "overridden", "blocked", "pending", "reason"}, nil)
	if r.err != nil {
		return skill.Answer{}, r.err
	}
	a := skill.Answer{
		Decision: r.skillDecision(m, ""),
		Enforcement: skill.Enforcement{
			Deploy:        r.truth(em, at, "deploy"),
			EffectiveTier: r.tier(em, at, "effective_tier"),
			Overridden:    r.truth(em, at, "overridden"),
			Blocked:       r.truth(em, at, "blocked"),
			Reason:        r.text(em, at, "reason"),
		},
	}
	e := &a.Enforcement
	if em["pending"] != nil {
		e.Pending = r.pending(em["pending"])
	}
	states := 0
	for _, on := range []bool{e.Deploy, e.Blocked, e.Pending != nil} {
		if on {
			states++
		}
	}
	switch {
	case states != 1:
		r.fail(at, "a skill is deployed, blocked or pending, exactly one of them")
	case e.Deploy != e.EffectiveTier.Valid():
		r.fail(at+"/effective_tier", "a skill that is deployed has one, and no other")
	case e.Overridden && (!e.Deploy || q.Approval != skill.Approved || a.Outcome != skill.Deny || e.EffectiveTier != q.Requested):
		r.fail(at+"/overridden", "an override deploys what was denied, at the tier that was requested and approved")
	case e.Deploy && !e.Overridden && (a.Outcome == skill.Deny || e.EffectiveTier != a.Granted):
		r.fail(at+"/effective_tier", "without an override a skill is deployed at what the gate granted")
	case a.Granted > a.Ceiling || a.Granted > q.Requested:
		r.fail("/granted", "it must be above neither the ceiling nor the request")
	case e.Pending != nil && (e.Pending.SkillName != q.Skill || e.Pending.Requested != q.Requested ||
		e.Pending.Fingerprint != skill.Fingerprint(q.Skill, q.Requested)):
		r.fail(at+"/pending", "it must be about the skill and the tier that were asked about")
	}
	if r.err != nil {
		return skill.Answer{}, r.err
	}
	return a, nil
}

func (r *reader) tier(m map[string]any, at, name string) skill.Tier {
	if m[name] == nil {
		return skill.NoTier
	}
	return parse(r, m, at, name, skill.ParseTier)
}

func (r *reader) skillDecision(m map[string]any, at string) skill.Decision {
	return skill.Decision{
		Trust:   parse(r, m, at, "trust", skill.ParseTrust),
		Ceiling: r.tier(m, at, "ceiling"),
		Granted: r.tier(m, at, "granted"),
		Outcome: parse(r, m, at, "outcome", skill.ParseOutcome),
		Reason:  r.text(m, at, "reason"),
	}
}

func (r *reader) pending(v any) *skill.Pending {
	const at = "/enforcement/pending"
	m := r.object(v, at, []string{"fingerprint", "skill_name", "requested", "decision"}, nil)
	dm := r.object(m["decision"], at+"/decision", skillDecisionMembers, nil)
	if r.err != nil {
		return nil
	}
	return &skill.Pending{
		Fingerprint: r.text(m, at, "fingerprint"),
		SkillName:   r.text(m, at, "skill_name"),
		Requested:   parse(r, m, at, "requested", skill.ParseTier),
		Decision:    r.skillDecision(dm, at+"/decision"),
	}
}
