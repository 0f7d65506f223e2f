package main

import (
	"context"
	_ "embed"
	"fmt"
	"iter"

	"github.com/cedar-policy/cedar-go"

	"github.com/opa-gate/opa-gate/capability"
)

// cedarPolicy answers less than the gate does: the kind alone, not what is
// missing, no sentence for a person, no lists of names, and no look at whether
// the document keeps its schema.
//
//go:embed policy.cedar
var cedarPolicy []byte

// cedarRow gets five answers out of one authorisation. Each policy's id is an
// answer: two forbid and three permit, and the diagnostics say which of them
// applied. A call that is both vetoed and lacking something hits both forbids,
// and deny comes first.
//
// Other ways cost Cedar more. An authorisation evaluates every policy of its
// set, so a policy a capability, whose ids would tell what is missing, means
// nine forbids in place of one. Several questions, asked in turn until one is
// permitted, evaluate what is missing once each; even the first of them, a set
// of one policy, is no cheaper than these five. Base as a set of names costs
// more than one truth each in the context, and a map of policies, as in
// [cedar.PolicySet], more than a list.
type cedarRow struct{ policies cedarList }

type cedarList []struct {
	id     cedar.PolicyID
	policy *cedar.Policy
}

// All implements [cedar.PolicyIterator].
func (l cedarList) All() iter.Seq2[cedar.PolicyID, *cedar.Policy] {
	return func(yield func(cedar.PolicyID, *cedar.Policy) bool) {
		for _, p := range l {
			if !yield(p.id, p.policy) {
				return
			}
		}
	}
}

func openCedar(context.Context) (decider, error) {
	parsed, err := cedar.NewPolicyListFromBytes("policy.cedar", cedarPolicy)
	if err != nil {
		return nil, err
	}
	list := make(cedarList, len(parsed))
	for i, p := range parsed {
		list[i].id, list[i].policy = cedar.PolicyID(p.Annotations()["id"]), p
	}
	return cedarRow{list}, nil
}

func (r cedarRow) bind(_ context.Context, doc *document) (*bound, error) {
	c := doc.call
	grants := func(one capability.Capability) cedar.Boolean { return cedar.Boolean(c.Grant.Base.Has(one)) }
	request := cedar.Request{
		Principal: cedar.NewEntityUID("Agent", "agent"),
		Action:    cedar.NewEntityUID("Origin", cedar.String(c.Profile.Origin.String())),
		Resource:  cedar.NewEntityUID("Tool", cedar.String(c.Tool)),
		Context: cedar.NewRecord(cedar.RecordMap{
			"read_only":            cedar.Boolean(c.Profile.IsReadOnly()),
			"destructive":          cedar.Boolean(c.Profile.IsDestructive()),
			"open_world":           cedar.Boolean(c.Profile.IsOpenWorld()),
			"local_read":           grants(capability.LocalRead),
			"local_write":          grants(capability.LocalWrite),
			"fixed_connector_read": grants(capability.FixedConnectorRead),
			"arbitrary_egress":     grants(capability.ArbitraryEgress),
			"mutate_external":      grants(capability.MutateExternal),
			"tainted":              cedar.Boolean(c.Taint != capability.Clean),
			"vetoed":               cedar.Boolean(c.Policy.Vetoed),
			"requires_human":       cedar.Boolean(c.Policy.RequiresHuman),
			"sandbox_escalation":   cedar.Boolean(c.Policy.SandboxEscalation),
			"transform":            cedar.String(c.Policy.Transform.Kind.String()),
		}),
	}
	var decision cedar.Decision
	var diagnostic cedar.Diagnostic
	return &bound{
		run: func() error {
			decision, diagnostic = cedar.Authorize(r.policies, nil, request)
			if len(diagnostic.Errors) > 0 {
				return fmt.Errorf("%s: %s", diagnostic.Errors[0].PolicyID, diagnostic.Errors[0].Message)
			}
			return nil
		},
		answer: func() (*answer, error) {
			kind, err := cedarKind(decision, &diagnostic)
			return &answer{kind: kind}, err
		},
	}, nil
}

// cedarKind reads the answer off the ids of the policies that applied.
func cedarKind(decision cedar.Decision, diagnostic *cedar.Diagnostic) (capability.Kind, error) {
	var kind capability.Kind
	for _, reason := range diagnostic.Reasons {
		k, ok := capability.ParseKind(string(reason.PolicyID))
		permits := k == capability.Allow || k == capability.Modify || k == capability.Inject
		if !ok || permits != bool(decision) {
			return 0, fmt.Errorf("%v because of %q", decision, reason.PolicyID)
		}
		kind = max(kind, k) // deny is the last of the kinds
	}
	if !kind.Valid() {
		return capability.Deny, nil // no policy applies
	}
	return kind, nil
}
