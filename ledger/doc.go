// Package ledger keeps what people decided: which escalated calls they approved
// or rejected, and which skills (specification, section 6). What is kept lasts,
// is only ever appended to, and each entry carries the hash of the one before.
//
// Most callers need two functions. [Open] opens a ledger, and [Ledger.Admit]
// settles what a gate answered about a call:
//
//	l, err := ledger.Open(ctx, "", nil) // the default file; a postgres:// URL for a fleet
//	admission, err := l.Admit(ctx, &ledger.Escalation{Call: call, Outcome: outcome})
//
// The call goes ahead if admission.Outcome says so. An outcome that asks nobody
// comes back as it is, and the ledger is not touched. On an error the outcome is
// still the escalation: nothing is allowed by a ledger that cannot be asked.
//
// A person answers with [Ledger.Decide]. What they approve is signed, is bound
// to exactly that call, and, unless it is for a session, passes one call.
//
// # Caveats
//
// Whoever can write to the database and has the key can make a chain of their
// own, and whoever can write can put back an older state of all of it. [Ledger.Audit]
// finds both if it is told a head that was seen earlier.
package ledger
