// Package skill is the native reference for skills: how far a skill is trusted
// from where it comes from, the ceiling that trust puts on it, and what it may
// be deployed at.
//
// Most callers need two functions. [Gate] judges a provenance against the tier
// that was asked for; [Deploy] does that and, for a skill that the gate denies,
// looks up what a person decided about it:
//
//	answer, err := skill.Deploy(ctx, ledger, "pdf-tools", skill.SandboxEdit, provenance)
//
// An error means that it could not be decided; nothing is deployed then.
//
// The package imports the standard library only. Zero values are the closed
// ones: a zero [Provenance] is untrusted, a zero [Tier] is no tier at all, a
// zero [Outcome] is invalid.
package skill
