package analysis

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/opa-gate/opa-gate/capability"
)

// The rules on taint that are held against what must be so, where policies have
// them.
const (
	resultRule   = "data.gate.taint.result"
	steeringRule = "data.gate.steering.taint"
)

// A resultInvariant is what the rule on results may not break. Broken returns what
// is wrong, or "".
type resultInvariant struct {
	name, title string
	broken      func(r *capability.Result, taints bool, err error) string
}

var resultInvariants = []resultInvariant{
	{"result-answered", "Of every result is told whether it taints.",
		func(_ *capability.Result, _ bool, err error) string {
			if err != nil {
				return err.Error()
			}
			return ""
		}},
	{"result-taints", "What an open-world tool, a fetcher or one of unknown origin returns taints, and what the operator says does.",
		func(r *capability.Result, taints bool, err error) string {
			if err == nil && !taints && r.Taints() {
				return "it does not taint"
			}
			return ""
		}},
}

// A steeringInvariant is what a finer rule on taint may not break, whatever it
// relaxes. A call that sees a tainted session is decided as it is without the rule,
// so what these demand to be asked is asked wherever it was.
type steeringInvariant struct {
	name, title string
	broken      func(s *capability.Steering, seen capability.Taint, err error) string
}

// never makes an invariant of what may never be relaxed.
func never(what string, is func(s *capability.Steering) bool) func(*capability.Steering, capability.Taint, error) string {
	return func(s *capability.Steering, seen capability.Taint, err error) string {
		if err == nil && s.Session == capability.Tainted && seen != capability.Tainted && is(s) {
			return "the session is tainted, " + what + ", and the call sees it " + seen.String()
		}
		return ""
	}
}

var steeringInvariants = []steeringInvariant{
	{"steering-answered", "Of every call is told whether it sees a clean session.",
		func(_ *capability.Steering, _ capability.Taint, err error) string {
			if err != nil {
				return err.Error()
			}
			return ""
		}},
	{"steering-unknown-kept", "What a call does has to be known before it is spared the taint of its session.",
		never("what the call does is not known", func(s *capability.Steering) bool {
			return s.Effect == capability.UnknownEffect || s.Profile.Origin == capability.Unknown
		})},
	{"steering-aim-kept", "A call that sends something out is spared the taint only if the person typed where it goes.",
		never("nobody typed where the call goes", func(s *capability.Steering) bool {
			sends := s.Effect == capability.Outside || s.Profile.Required().Has(capability.ArbitraryEgress)
			return sends && s.Aim != capability.TypedAim
		})},
	{"steering-payload-kept", "A call that sends something out is spared the taint only if no address is in it that the person did not type.",
		never("nobody typed what the call sends", func(s *capability.Steering) bool {
			sends := s.Effect == capability.Outside || s.Profile.Required().Has(capability.ArbitraryEgress)
			return sends && (s.Payload == capability.UnknownPayload || s.Payload == capability.UntypedPayload)
		})},
	{"steering-access-kept", "What changes who has access, and what nobody can undo, is never spared the taint.",
		never("the call cannot be taken back", func(s *capability.Steering) bool {
			return s.Effect == capability.Access || s.Effect == capability.OwnLasting ||
				!s.Profile.Required().Intersect(capability.Markers).Empty()
		})},
}

// taint holds the rules on taint over all there is to know of a result and of a
// call. Tool names are one that no rule knows, and those that the rule's file
// mentions, but for the names of facts: no tool is called registered-connector.
func (v *verifier) taint(ctx context.Context) error {
	progress := v.meter.phase(taintWeight)
	if v.evaluator.JudgesResults() {
		if err := v.results(ctx); err != nil {
			return err
		}
	}
	if v.evaluator.Steers() {
		if err := v.steering(ctx, progress); err != nil {
			return err
		}
	}
	if progress != nil {
		progress(1, 1)
	}
	return ctx.Err()
}

func (v *verifier) results(ctx context.Context) error {
	names, places, err := v.taintRule(ctx, resultRule)
	if err != nil {
		return err
	}
	findings := make([]finding, len(resultInvariants))
	for _, name := range names {
		for i := range len(capability.Origins()) * 81 {
			r := &capability.Result{Tool: name, Untrusted: capability.Hint(i % 3), Profile: capability.Profile{
				ReadOnly: capability.Hint(i / 3 % 3), Destructive: capability.Hint(i / 9 % 3), OpenWorld: capability.Hint(i / 27 % 3),
				Origin: capability.Origins()[i/81],
			}}
			taints, err := v.evaluator.ResultTaints(ctx, r)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			v.result.Results++
			for i := range resultInvariants {
				if problem := resultInvariants[i].broken(r, taints, err); problem != "" {
					findings[i].add(problem, resultDocument(r), func() { findings[i].answer = ruleAnswer(taints, err) })
				}
			}
		}
	}
	for i, invariant := range resultInvariants {
		v.reportTaint(invariant.name, invariant.title, resultRule, "true", places, &findings[i])
	}
	return nil
}

// fewHints are annotations that stand for all of them under the names that a rule
// mentions.
var fewHints = []int{0, 13, 26}

func (v *verifier) steering(ctx context.Context, progress func(done, total int)) error {
	names, places, err := v.taintRule(ctx, steeringRule)
	if err != nil {
		return err
	}
	var facts []capability.Steering
	for n, name := range names {
		for hints := range 27 {
			if n > 0 && !slices.Contains(fewHints, hints) {
				continue
			}
			for _, origin := range capability.Origins() {
				facts = append(facts, capability.Steering{Tool: name, Profile: capability.Profile{Origin: origin,
					ReadOnly: capability.Hint(hints % 3), Destructive: capability.Hint(hints / 3 % 3), OpenWorld: capability.Hint(hints / 9)}})
			}
		}
	}
	findings := make([]finding, len(steeringInvariants))
	var looked atomic.Int64
	err = inParallel(ctx, len(facts), progress, func(i int) {
		for _, session := range []capability.Taint{capability.Clean, capability.Tainted} {
			for _, effect := range capability.Effects() {
				for _, aim := range capability.Aims() {
					for _, payload := range capability.Payloads() {
						s := facts[i]
						s.Session, s.Effect, s.Aim, s.Payload = session, effect, aim, payload
						seen, err := v.evaluator.CallTaint(ctx, &s)
						looked.Add(1)
						for i := range steeringInvariants {
							if problem := steeringInvariants[i].broken(&s, seen, err); problem != "" {
								findings[i].add(problem, steeringDocument(&s), func() { findings[i].answer = ruleAnswer(seen.String(), err) })
							}
						}
					}
				}
			}
		}
	})
	if err != nil {
		return err
	}
	v.result.Steering = int(looked.Load())
	for i, invariant := range steeringInvariants {
		v.reportTaint(invariant.name, invariant.title, steeringRule, `"tainted"`, places, &findings[i])
	}
	return nil
}

// taintRule returns the tool names to ask a rule about, and where it stands.
func (v *verifier) taintRule(ctx context.Context, rule string) (names []string, places []Place, err error) {
	q, err := v.evaluator.Query(ctx, rule)
	if err != nil {
		return nil, nil, err
	}
	for _, source := range q.Sources() {
		places = append(places, Place{rule, source.File, source.Line})
	}
	names = []string{"tool"}
	for _, text := range q.Texts() {
		if !isFact(text) && !slices.Contains(names, text) {
			names = append(names, text)
		}
	}
	return names, places, nil
}

// isFact reports whether a text is a value that a fact about a call can have, a
// member of its document, or the name of a relaxation.
func isFact(text string) bool {
	_, origin := capability.ParseOrigin(text)
	_, effect := capability.ParseEffect(text)
	_, aim := capability.ParseAim(text)
	_, payload := capability.ParsePayload(text)
	_, taint := capability.ParseTaint(text)
	return origin || effect || aim || payload || taint || text == "untrusted_result" ||
		slices.Contains(capability.AllRelaxations.Names(), text)
}

// reportTaint adds an invariant on a rule of taint, which answers want where the
// invariant is broken.
func (v *verifier) reportTaint(name, title, rule, want string, places []Place, f *finding) {
	i := Invariant{Name: name, Title: title}
	if f.inputs > 0 {
		i.Breach = &Breach{Problem: f.problem, Inputs: f.inputs, Document: f.document, Answer: f.answer, Rules: places,
			Test: fmt.Sprintf("%s if {\n\t%s == %s with input as %s\n}\n", testName(name), rule, want, f.document)}
	}
	v.result.Invariants = append(v.result.Invariants, i)
}

func ruleAnswer(answer any, err error) json.RawMessage {
	if err != nil {
		return encode(map[string]string{"error": err.Error()})
	}
	return encode(answer)
}

func resultDocument(r *capability.Result) json.RawMessage {
	var doc document
	doc.add("tool", toolDocument(&capability.Call{Tool: r.Tool, Profile: r.Profile}))
	if r.Untrusted != capability.Unset {
		doc.add("untrusted_result", r.Untrusted == capability.Yes)
	}
	return doc.raw()
}

func steeringDocument(s *capability.Steering) json.RawMessage {
	var doc document
	doc.add("session", s.Session.String())
	doc.add("tool", toolDocument(&capability.Call{Tool: s.Tool, Profile: s.Profile}))
	doc.add("effect", s.Effect.String())
	doc.add("aim", s.Aim.String())
	doc.add("payload", s.Payload.String())
	return doc.raw()
}
