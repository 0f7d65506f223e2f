// Package capability is the native reference of the gate: what a tool call
// requires, what it is granted, and the one answer it gets.
//
// Most callers need two functions. [Profile.Required] turns a tool's origin
// and annotations into the set of capabilities a call of it needs, and
// [Decide] compares that set with the granted one:
//
//	p := capability.Profile{Origin: capability.Fetcher, ReadOnly: capability.Yes}
//	granted := capability.Grant{Base: capability.All}.Under(capability.Tainted)
//	out := capability.Decide(p.Required(), granted, capability.CallPolicy{}, "web_fetch")
//
// The package imports the standard library only. It is the reference that the
// Rego policies are proven equal to, so its rules are written independently of
// theirs; the two share the capability bits and nothing else.
//
// Every zero value is the closed one: origin [Unknown] requires everything, a
// zero [Grant] grants nothing, a zero [Deployment] satisfies nothing, a zero
// [Taint] and a zero [Outcome] are invalid.
package capability
