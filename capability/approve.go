package capability

// Approved returns what becomes of o once a person approved the call up to a
// coverage (specification, section 5: an approval satisfies steps 2 and 3, as far
// as what is missing lies in its coverage). Transform is that of the call's
// policy, and step 4 goes by it. Anything but an escalation stays as it is: no
// approval satisfies a veto.
func (o Outcome) Approved(coverage Set, t Transform) Outcome {
	if o.Kind != Escalate || !o.Missing.SubsetOf(coverage) {
		return o
	}
	next := decide(o.Required, o.Required, &CallPolicy{Transform: t}, "", DefaultSystem)
	next.Granted, next.Warnings = o.Granted, o.Warnings
	return next
}
