// Package provenance finds out what is true of a skill's folder: who signed it,
// and what scanners found in it. Nothing that the folder says about itself
// counts; a signature counts by an operator's keyring, and a finding by a
// scanner's report.
//
// Most callers need two functions. [ReadManifest] reads what an operator says
// about a folder of skills, and [Manifest.Examine] establishes the facts about
// one of them, each with how it was come by:
//
//	facts, err := manifest.Examine(skills, "pdf", keyring)
//	answer := skill.Gate(facts.Provenance, manifest.Skills["pdf"].Requested)
//
// An error means that the facts could not be established: nothing may be
// deployed then. A signature that does not hold and a scan that does not count
// are facts, and come with their reason.
//
// # Caveats
//
// A digest covers paths and contents of files. It covers no modes and no empty
// folders, which archives and version control lose. A signature says who
// published a folder's files, not that they are the newest: whoever can put files
// in place can put an older signed version in place.
package provenance
