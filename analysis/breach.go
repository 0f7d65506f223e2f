package analysis

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/skill"
)

// report adds an invariant with what was found about it.
func (v *verifier) report(ctx context.Context, i Invariant, f *finding) {
	if f.inputs > 0 {
		i.Breach = v.breach(ctx, i, f)
	}
	v.result.Invariants = append(v.result.Invariants, i)
}

func (v *verifier) breach(ctx context.Context, i Invariant, f *finding) *Breach {
	b := &Breach{Problem: f.problem, Inputs: f.inputs, Document: f.document, Answer: f.answer, Rules: []Place{}}
	if f.against != nil {
		b.Against = callDocument(f.against.call, false)
		b.AgainstAnswer = answerOf(f.against.outcome, f.against.err)
	}
	if f.call != nil {
		b.Rules = append(b.Rules, v.decidedBy(ctx, i.Name, f.call)...)
	}
	if f.request != nil {
		b.Rules = append(b.Rules, v.skillDecidedBy(ctx, f.request)...)
	}
	if f.against != nil {
		b.Rules = append(b.Rules, v.decidedBy(ctx, i.Name, f.against.call)...)
	}
	if i.File != "" {
		b.Rules = append(b.Rules, Place{invariantsRule, i.File, i.Line})
	}
	b.Rules = unrepeated(b.Rules)
	switch {
	case i.File != "":
		b.Test = authoredTest(f)
	case f.call != nil:
		b.Test = v.callTest(i.Name, f)
	default:
		b.Test = skillTest(i.Name, f)
	}
	return b
}

// masksOf are the members of an answer that an invariant is about, besides its
// outcome.
var masksOf = map[string][]string{
	"missing-never-allowed": {"required", "granted"},
	"grant-is-a-ceiling":    {"granted"},
	"taint-never-adds":      {"granted"},
	redeclarationName:       {"required"},
	"no-origin-is-unknown":  {"required"},
}

// decidedBy returns where the branch stands that decided a call, and those that
// the masks came from which an invariant is about; without an answer, that is
// where the rules collide, if they do.
func (v *verifier) decidedBy(ctx context.Context, invariant string, c *capability.Call) []Place {
	explanation, err := explainTrace(ctx, v.evaluator, c)
	list := places(explanation, err)
	if err != nil {
		return list
	}
	for _, b := range explanation.Basis {
		if !slices.Contains(masksOf[invariant], b.Member) {
			continue
		}
		list = append(list, b.From)
		for _, of := range b.Of {
			list = append(list, of.From)
		}
	}
	return list
}

// unrepeated keeps the first of each.
func unrepeated(list []Place) []Place {
	kept := []Place{}
	for _, p := range list {
		if !slices.Contains(kept, p) {
			kept = append(kept, p)
		}
	}
	return kept
}

func (v *verifier) skillDecidedBy(ctx context.Context, r *skill.Request) []Place {
	explanation, err := explainSkillTrace(ctx, v.evaluator, r)
	return places(explanation, err)
}

func places(x *Explanation, err error) []Place {
	var conflict *ConflictError
	switch {
	case errors.As(err, &conflict):
		var list []Place
		for _, b := range conflict.Rules {
			list = append(list, b.Place)
		}
		return list
	case err != nil:
		return nil
	}
	list := []Place{x.Decided.Place}
	for _, b := range x.Also {
		list = append(list, b.Place)
	}
	return list
}

// testName is the name of the test that shows a breach.
func testName(invariant string) string { return "test_" + strings.ReplaceAll(invariant, "-", "_") }

// callTest is a test of the decision on the call that shows a breach, and on the
// one that it was held against, with what the specification wants: whichever of
// the two is wrong, the test fails.
func (v *verifier) callTest(invariant string, f *finding) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s if {\n", testName(invariant))
	ask := func(got string, c *capability.Call, answer json.RawMessage) {
		want := c.Decide(v.opts.System)
		fmt.Fprintf(&b, "\t%s := data.gate.call.decision with input as %s\n", got, callDocument(c, true))
		lines := []string{
			fmt.Sprintf("%s.outcome == %q", got, want.Kind), fmt.Sprintf("%s.missing_mask == %d", got, want.Missing.Mask()),
			fmt.Sprintf("%s.required_mask == %d", got, want.Required.Mask()), fmt.Sprintf("%s.granted_mask == %d", got, want.Granted.Mask()),
		}
		writeTestLines(&b, lines, got, answer, answerOf(want, nil), "missing", "required", "granted") // the masks say it
	}
	ask("got", f.call, f.answer)
	if f.against != nil {
		ask("other", f.against.call, answerOf(f.against.outcome, f.against.err))
	}
	return b.String() + "}\n"
}

func skillTest(invariant string, f *finding) string {
	want := f.request.Decide()
	var b strings.Builder
	fmt.Fprintf(&b, "%s if {\n\tgot := data.gate.skill.decision with input as %s\n", testName(invariant), skillDocument(f.request, true))
	lines := []string{fmt.Sprintf("got.trust == %q", want.Trust), fmt.Sprintf("got.outcome == %q", want.Outcome),
		fmt.Sprintf("got.granted == %s", encode(want.Granted)), fmt.Sprintf("got.enforcement.deploy == %v", want.Enforcement.Deploy)}
	writeTestLines(&b, lines, "got", f.answer, answerOf(want, nil))
	return b.String() + "}\n"
}

// writeTestLines writes lines of a test, and one for each member in which an
// answer is not what is wanted, so that the test fails because of it. Some members
// may go without.
func writeTestLines(b *strings.Builder, lines []string, variable string, got, want json.RawMessage, without ...string) {
	gotten, wanted := decodeAnswer(got), decodeAnswer(want)
	for _, answer := range []any{gotten, wanted} {
		if members, ok := answer.(map[string]any); ok {
			maps.DeleteFunc(members, func(name string, _ any) bool { return slices.Contains(without, name) })
		}
	}
	for _, line := range differing(variable, gotten, wanted) {
		if !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	for _, line := range lines {
		fmt.Fprintf(b, "\t%s\n", line)
	}
}

// decodeAnswer reads an answer; an error is an answer without members.
func decodeAnswer(text json.RawMessage) any {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		panic(err) // answerOf wrote it
	}
	if m, ok := v.(map[string]any); ok && m["error"] != nil {
		return nil
	}
	return v
}

// differing are conditions that what is wanted fulfils, and what was got does not:
// one for each member that differs. Without an answer there is none, since any
// condition fails.
func differing(at string, got, want any) []string {
	g, ok := got.(map[string]any)
	w, wanted := want.(map[string]any)
	switch {
	case got == nil && wanted, reflect.DeepEqual(got, want):
		return nil
	case !ok || !wanted:
		return []string{fmt.Sprintf("%s == %s", at, encode(want))}
	}
	names := slices.Sorted(maps.Keys(w))
	var conditions []string
	for _, name := range names {
		if _, has := g[name]; !has {
			conditions = append(conditions, fmt.Sprintf("%s.%s == %s", at, name, encode(w[name])))
			continue
		}
		if _, isObject := w[name].(map[string]any); isObject && g[name] == nil {
			conditions = append(conditions, fmt.Sprintf("%s.%s != null", at, name))
			continue
		}
		conditions = append(conditions, differing(at+"."+name, g[name], w[name])...)
	}
	for _, name := range slices.Sorted(maps.Keys(g)) {
		if _, has := w[name]; !has {
			conditions = append(conditions, fmt.Sprintf("not %s.%s", at, name))
		}
	}
	return conditions
}

// authoredTest is a test that an invariant of the author's own holds.
func authoredTest(f *finding) string {
	member, rule, document := "call", "data.gate.call.decision", json.RawMessage(nil)
	if f.request != nil {
		member, rule, document = "skill", "data.gate.skill.decision", skillDocument(f.request, true)
	} else {
		document = callDocument(f.call, true)
	}
	return fmt.Sprintf("test_invariant if {\n\tdocument := %s\n\tdecision := %s with input as document\n"+
		"\tcount(%s) == 0 with input as {%q: document, \"decision\": decision}\n}\n", document, rule, invariantsRule, member)
}

// invariantsRule is where authors write invariants of their own.
const invariantsRule = "data.gate.invariants.breach"
